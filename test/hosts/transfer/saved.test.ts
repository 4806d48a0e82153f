import type { Session } from '@google/adk';
import { MikroORM } from '@mikro-orm/core';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { adkEntities } from '../../../entities/index.js';
import {
  importFrom as importSaved,
  type ImportFromOptions,
  type RefusedRow,
} from '../../../packages/import/src/index.js';
import { adkServices, migrate } from '../../../src/index.js';
import { camelCased } from '../../../packages/import/src/python-event.js';
import { availableDatabases, createDatabase, type DatabaseName } from '../../support/servers.js';
import { prepare, remove, run } from '../cli/command.js';
import { PYTHON_EVENT, SAME_IN_JS } from './stores/adk-python.js';

const closing: (() => Promise<unknown>)[] = [];

afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close();
});

async function emptyStore(name: DatabaseName = 'sqlite') {
  const { options, url, drop } = await createDatabase(name);
  closing.push(drop);
  const orm = await MikroORM.init({ ...options, entities: adkEntities() });
  closing.push(() => orm.close(true));
  await migrate(orm);
  return { orm, url };
}

async function importFrom(orm: MikroORM, from: string, options: Omit<ImportFromOptions, 'from' | 'to'> = {}) {
  const rows: RefusedRow[] = [];
  const result = await importSaved({ from, to: orm.em, onRefused: (row) => rows.push(row), ...options });
  expect(result.done.refused).toBe(rows.length);
  return { ...result, rows };
}

const plain = <T>(value: T): T => JSON.parse(JSON.stringify(value)) as T;
const read = async ({ em }: MikroORM, appName: string, userId: string, sessionId: string): Promise<Session> =>
  plain((await adkServices(em).sessionService.getSession({ appName, userId, sessionId }))!);

const saying = (id: string, invocationId: string, timestamp: number, stateDelta = {}) => ({
  ...{ id, invocationId, author: 'user', timestamp, content: { role: 'user', parts: [{ text: id }] } },
  actions: { stateDelta, artifactDelta: {}, requestedAuthConfigs: {}, requestedToolConfirmations: {} },
  longRunningToolIds: [],
});
/** The result of `JSON.stringify(session)` in TypeScript. */
const SAVED = {
  ...{ id: 's', appName: 'app', userId: 'u', lastUpdateTime: 1_700_000_000_002.5 },
  state: { n: 2, snake_key: { in_ner: 1 }, byHand: [null], 'user:lang': 'pt', 'app:version': 3, 'temp:not': 1 },
  // Not in the order of their times.
  events: [
    saying('e1', 'i1', 1_700_000_000_002, { n: 1, snake_key: { in_ner: 1 }, 'user:lang': 'pt' }),
    saying('e2', 'i2', 1_700_000_000_001, { n: 2, 'app:version': 3 }),
  ],
};
const { 'temp:not': _, ...STATE } = SAVED.state;
/** Converts names to the case that is adk-python's default now, except those of users. */
const inCamelCase = (value: object): object =>
  Object.fromEntries(
    Object.entries(value).map(([name, inner]: [string, unknown]) => [
      camelCased(name),
      ['actions', 'usage_metadata'].includes(name) ? inCamelCase(inner as object) : inner,
    ]),
  );

describe.each(availableDatabases())('a saved session on %s', (name) => {
  test('L2 of TypeScript comes back as it was saved, and a second import writes nothing', async () => {
    const { orm } = await emptyStore(name);
    const text = JSON.stringify(SAVED, undefined, 2);
    const dry = await importFrom(orm, text, { dryRun: true });
    expect(dry).toMatchObject({ done: { sessions: 1, events: 2, refused: 0, annulled: 0 } });
    expect(await importFrom(orm, text)).toEqual(dry);
    const { id, state, events, lastUpdateTime } = await read(orm, 'app', 'u', 's');
    expect({ id, state, events, lastUpdateTime }).toEqual({
      ...{ id: 's', state: STATE, events: SAVED.events, lastUpdateTime: SAVED.lastUpdateTime },
    });
    expect(
      await orm.em.getConnection().execute('select state_key, event_id from adk_session_states order by state_key'),
    ).toEqual([
      { state_key: 'byHand', event_id: null },
      { state_key: 'n', event_id: 'e2' },
      { state_key: 'snake_key', event_id: 'e1' },
    ]);
    expect(await importFrom(orm, text)).toMatchObject({ done: { sessions: 0, events: 0, refused: 0 } });
    // With replace, one with later events replaces it.
    const more = { ...SAVED, events: [...SAVED.events, saying('e3', 'i3', 1_700_000_000_003)] };
    const replaced = { done: { sessions: 1, events: more.events.length } };
    expect(await importFrom(orm, JSON.stringify(more), { onExisting: 'replace' })).toMatchObject(replaced);
  });

  test('L2 of Python, in either case, has the shape and the times of ADK JS', async () => {
    const { orm } = await emptyStore(name);
    const event = { ...PYTHON_EVENT, id: 'e1', invocation_id: 'i1' };
    const state = { my_key: { in_ner: 1 }, 'user:my_lang': 'pt', 'app:my_version': 3 };
    const snake = { ...{ id: 'snake', app_name: 'app', user_id: 'u', state }, last_update_time: 1600000002.25 };
    const camel = { ...{ id: 'camel', appName: 'app', userId: 'u', state }, lastUpdateTime: 1600000002.25 };
    const array = [
      { ...snake, events: [event] },
      { ...camel, events: [inCamelCase(event)] },
    ];
    expect(await importFrom(orm, JSON.stringify(array))).toMatchObject({
      done: { sessions: 2, events: 2, refused: 0 },
    });
    for (const id of ['snake', 'camel'])
      expect(await read(orm, 'app', 'u', id)).toMatchObject({
        ...{ events: [SAME_IN_JS], state, lastUpdateTime: 1600000002250 },
      });
  });

  test('L2 what a rewind of Python has annulled is left out, unless it is wanted', async () => {
    const { orm } = await emptyStore(name);
    const rewinding = (id: string, before: string) => {
      const { actions, ...event } = saying(id, `of ${id}`, 1_700_000_000_003, { n: 1 });
      return { ...event, actions: { ...actions, rewindBeforeInvocationId: before } };
    };
    const [first, second] = SAVED.events;
    const third = saying('e3', 'i2', 1_700_000_000_002);
    const events = [first, second, third, rewinding('r1', 'i2'), saying('e4', 'i4', 1_700_000_000_004)];
    const text = JSON.stringify({ ...SAVED, events: [...events, rewinding('r2', 'not there')] });
    expect(await importFrom(orm, text)).toMatchObject({ done: { events: 2, annulled: 4 } });
    expect((await read(orm, 'app', 'u', 's')).events.map(({ id }) => id)).toEqual(['e1', 'e4']);
    const as = { sessionId: 'all' };
    expect(await importFrom(orm, text, { as, keepAnnulled: true })).toMatchObject({ done: { events: 6, annulled: 0 } });
    expect((await read(orm, 'app', 'u', 'all')).events).toHaveLength(6);
  });
});

test('L2 what cannot be taken of a saved session is reported, and the rest is taken', async () => {
  const { orm } = await emptyStore();
  const long = '1187654321098765433';
  const text = JSON.stringify({
    ...SAVED,
    state: { n: 1, long: 'LONG', ['k'.repeat(256)]: 1 },
    events: [
      saying('e1', 'i', 1_700_000_000_000, { long: 'LONG' }),
      ...[saying('e2', 'i', 1_700_000_000_000), saying('e2', 'i', 1_700_000_000_000), { text: 'no event' }],
    ],
  }).replaceAll('"LONG"', long);
  const { rows, ...result } = await importFrom(orm, text);
  expect(result).toMatchObject({ done: { sessions: 1, events: 1, refused: 5 } });
  const of = { appName: 'app', userId: 'u', sessionId: 's' };
  expect(rows).toEqual([
    { ...of, eventId: 'e1', reason: expect.stringContaining('event.actions.stateDelta.long is a bigint') },
    { ...of, eventId: 'e2', reason: 'an earlier event has its id' },
    { ...of, reason: 'events[3] has no id' },
    { ...of, reason: expect.stringContaining('state.long is a bigint') },
    { ...of, reason: expect.stringContaining('255') },
  ]);
  expect(await read(orm, 'app', 'u', 's')).toMatchObject({ state: { n: 1 }, events: [{ id: 'e2' }] });
});

test.each(['', 'null', '[1]', '{', '{"id":"s"}', '{"type":"session"}'])(
  'L2 a text that is no saved session is refused before anything is written: %j',
  async (text) => {
    const { orm } = await emptyStore();
    await expect(importFrom(orm, text)).rejects.toMatchObject({ code: 'ADK_INVALID_ARGUMENT' });
    await expect(importFrom(orm, `[${JSON.stringify(SAVED)}, ${text || '0'}]`)).rejects.toMatchObject({
      code: 'ADK_INVALID_ARGUMENT',
    });
    expect(await orm.em.getConnection().execute('select * from adk_sessions')).toEqual([]);
  },
);

test('L2 saved sessions get other names, and two of them no common id', async () => {
  const { orm } = await emptyStore();
  const text = JSON.stringify([SAVED]);
  const as = { appName: 'other', userId: 'bob', sessionId: 'mine' };
  await importFrom(orm, text, { as });
  expect(await read(orm, 'other', 'bob', 'mine')).toMatchObject({ state: STATE });
  const two = JSON.stringify([SAVED, { ...SAVED, id: 't' }]);
  await expect(importFrom(orm, two, { as })).rejects.toThrow('several sessions');
  await expect(importSaved({ from: orm.em, to: orm.em, as })).rejects.toThrow('as is for the text');
});

describe("with the command line of ADK's devtools", () => {
  let folder: string;
  beforeAll(async () => {
    await prepare();
    // Here it finds the package of the repository.
    folder = await mkdtemp(path.join('test/hosts/transfer', 'saved-'));
  });
  afterAll(async () => {
    await remove();
    await rm(folder, { recursive: true });
  });

  /** Runs `adk run` with one message. @returns its output. */
  async function adkRun(message: string, ...options: string[]): Promise<string> {
    const adk = path.resolve('node_modules/@google/adk-devtools/dist/esm/cli_entrypoint.js');
    const child = spawn(process.execPath, [adk, 'run', path.join(folder, 'agent.mjs'), ...options]);
    const messages = [message, 'exit'];
    let out = '';
    for (const stream of [child.stdout, child.stderr]) stream.on('data', (data: Buffer) => (out += data.toString()));
    child.stdout.on('data', (data: Buffer) => {
      if (data.toString().endsWith('[user]: ')) child.stdin.write(`${messages.shift() ?? ''}\n`);
    });
    await once(child, 'close');
    return out;
  }

  test('L2 a session that it has saved is imported, and an exported one is resumed', async () => {
    await writeFile(
      path.join(folder, 'agent.mjs'),
      `import { LlmAgent } from '@google/adk';
      const beforeAgentCallback = ({ userContent, state }) => {
        const [{ text }] = userContent.parts;
        state.set('last_said', text);
        return { role: 'model', parts: [{ text: 'You said: ' + text }] };
      };
      export const rootAgent = new LlmAgent({ name: 'echo', model: 'none', beforeAgentCallback });`,
    );
    await adkRun('hello', '--save_session', 'true', '--session_id', 'first');
    const file = path.join(folder, 'first.session.json');
    const saved = JSON.parse(await readFile(file, 'utf8')) as Session;
    expect(saved.events).toHaveLength(2);

    const { orm, url } = await emptyStore();
    expect(await run(['import', file, '--user', 'ada', '--session', 'first', '--url', url])).toMatchObject({
      code: 0,
      out: 'Wrote 1 session, 2 events; read 5 records.\n',
    });
    expect(await read(orm, 'echo', 'ada', 'first')).toMatchObject({
      ...{ events: saved.events, state: { last_said: 'hello' } },
    });
    const exported = path.join(folder, 'exported.session.json');
    const session = ['--app', 'echo', '--user', 'ada', '--session', 'first', '--format', 'session'];
    expect(await run(['export', exported, ...session, '--url', url])).toMatchObject({ code: 0 });
    const { events } = JSON.parse(await readFile(exported, 'utf8')) as Session;
    expect(events).toEqual(saved.events);
    const resumed = await adkRun('again', '--resume', exported);
    expect(resumed).toContain('[echo]: You said: hello');
    expect(resumed).toContain('[echo]: You said: again');

    // The options that name a session in a file also work with the standard output.
    const printed = await run(['export', ...session, '--url', url]);
    expect(JSON.parse(printed.out)).toMatchObject({ id: 'first', events });
    expect(await run(['export', ...session.slice(2), '--url', url])).toMatchObject({ code: 2 });
    expect(await run(['export', exported, ...session, '--url', url])).toMatchObject({ code: 2 });
  });

  test('L2 options that a file of export cannot have are refused, and what is neither', async () => {
    const { url } = await emptyStore();
    const lines = path.join(folder, 'lines.jsonl');
    await run(['export', lines, '--url', url]);
    await writeFile(lines, '{"type":"app","appName":"app","state":[]}\n');
    for (const option of [['--dry-run'], ['--keep-annulled'], ['--app', 'x']])
      expect(await run(['import', lines, ...option, '--url', url])).toMatchObject({ code: 2 });
    expect(await run(['import', lines, '--url', url])).toMatchObject({ code: 0 });
    await writeFile(lines, 'no JSON\nat all\n');
    expect(await run(['import', lines, '--url', url])).toMatchObject({
      code: 2,
      err: expect.stringContaining('nor a saved session'),
    });
  });
});
