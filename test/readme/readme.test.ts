import { LogLevel, setLogLevel, type Event } from '@google/adk';
import { MikroORM, type Configuration } from '@mikro-orm/core';
import { SqliteDriver } from '@mikro-orm/sqlite';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { AdkEvent, AdkSession, AdkUserState, adkEntities } from '../../entities/index.js';
import * as api from '../../src/index.js';
import { blocksOf, compile, type Compiled } from './blocks.js';
import { given, type Given } from './given.js';

const root = process.cwd();
const readme = readFileSync(path.join(root, 'README.md'), 'utf8');
const blocks = blocksOf(readme);

/** What a block must have done, by its heading; `declared` holds the block's own constants. */
const EXPECTED: Record<string, (given: Given, declared: Record<string, unknown>) => Promise<void> | void> = {
  'adk-mikro-orm': async (_given, { sessionService }) => {
    const service = sessionService as api.MikroOrmSessionService;
    const key = { appName: 'support', userId: 'ada', sessionId: 's1' };
    await service.createSession(key);
    expect(await service.getSession(key)).toMatchObject({ id: 's1', events: [] });
  },
  'Migrations in a deploy pipeline': (_given, { config }) => {
    const { migrations, entities } = config as ReturnType<Configuration['getAll']>;
    expect(migrations.migrationsList).toHaveLength(1);
    expect(entities).toHaveLength(adkEntities().length);
  },
  'The event log': (_given, { messages }) =>
    expect(messages).toMatchObject([{ author: 'support', toolCalls: [{ name: 'ask_user' }] }]),
  Leases: async ({ orm }) => {
    const rows = await orm.em.fork().find(AdkEvent, {}, { orderBy: { seq: 'asc' } });
    expect(rows.map(({ data }) => (data as Event).author)).toEqual(['support', 'user']);
    expect(await orm.em.fork().find(AdkSession, {})).toMatchObject([{ leaseHolder: null, leaseToken: 1 }]);
  },
  // The only call there is a long-running one.
  'Go on after a crash': async ({ orm }) => expect(await orm.em.fork().count(AdkEvent)).toBe(1),
  Options: async ({ createEvent }, { strict }) => {
    const service = strict as api.MikroOrmSessionService;
    const [session] = (await service.listSessions({ appName: 'support' })).sessions;
    const stale = await service.getSession({ appName: 'support', userId: 'ada', sessionId: session!.id });
    const fresh = await service.getSession({ appName: 'support', userId: 'ada', sessionId: session!.id });
    await service.appendEvent({ session: fresh!, event: createEvent() });
    await expect(service.appendEvent({ session: stale!, event: createEvent() })).rejects.toMatchObject({
      code: 'ADK_STALE_SESSION',
    });
  },
  'Your entities, related to ours': (_given, { ofAda }) => expect(ofAda).toEqual([]),
  'One transaction with your own rows': async ({ orm, Ticket, event }) => {
    const em = orm.em.fork();
    expect(await em.find(Ticket, { session: { userId: 'ada' } })).toMatchObject([{ title: 'Refund' }]);
    expect(await em.count(AdkEvent, { id: event.id })).toBe(1);
  },
  'State outside a run': async ({ service, session }, { language }) => {
    expect(language).toBe('pt');
    const { appName, userId, id: sessionId } = session;
    expect((await service.getSession({ appName, userId, sessionId }))?.state).toEqual({
      'app:greeting': 'Hello',
      'user:language': 'pt',
      step: 3,
    });
  },
  'Several events at once': async ({ orm }) => expect(await orm.em.fork().count(AdkEvent)).toBe(3),
  'Resume what paused on a long-running tool': async ({ orm }) => {
    const rows = await orm.em.fork().find(AdkEvent, {}, { orderBy: { seq: 'asc' } });
    expect(rows.map(({ data }) => (data as Event).content?.parts)).toMatchObject([
      [{ functionCall: { id: 'call-1' } }],
      [{ functionResponse: { id: 'call-1', response: { answer: 'yes' } } }],
    ]);
  },
  // What it does, server-sent-events.test.ts asks for.
  'Events to a browser, with server-sent events': (_given, { server }) =>
    expect(server).toHaveProperty('listening', false),
  'Delete what is old, and what is personal': async ({ orm }) => {
    const em = orm.em.fork();
    expect([await em.count(AdkSession), await em.count(AdkEvent), await em.count(AdkUserState)]).toEqual([0, 0, 0]);
  },
  'Another schema, another prefix': (_given, { entities }) =>
    expect((entities as ReturnType<typeof adkEntities>)[0]?.meta).toMatchObject({
      tableName: 'bot_sessions',
      schema: 'kb',
    }),
  'Unit tests in memory': () => undefined,
  Errors: async ({ orm, event }) => expect(await orm.em.fork().count(AdkEvent, { id: event.id })).toBe(1),
};

describe('the code in the README', () => {
  const folder = mkdtempSync(path.join(tmpdir(), 'adk-readme-'));
  let compiled: Compiled[];

  beforeAll(async () => {
    setLogLevel(LogLevel.ERROR);
    const lent = await given();
    await lent.orm.close();
    compiled = await compile(root, blocks, Object.keys(lent));
    process.chdir(folder);
  });
  afterAll(() => {
    process.chdir(root);
    rmSync(folder, { recursive: true });
  });

  test.each(blocks.map((block, i) => [`${block.heading} (line ${block.line})`, i] as const))('%s', async (_name, i) => {
    const { complaints, run } = compiled[i]!;
    expect(complaints).toEqual([]);

    const lent = await given();
    const declared = await run(lent);
    await EXPECTED[blocks[i]!.heading]?.(lent, declared);

    await lent.orm.close();
    if (declared.orm instanceof MikroORM) await declared.orm.close();
  });

  test('each block has something that is expected of it, and the other way round', () => {
    expect(blocks.map(({ heading }) => heading)).toEqual(Object.keys(EXPECTED));
  });
});

test('the picture of the tables has their columns', async () => {
  const orm = await MikroORM.init({ driver: SqliteDriver, dbName: ':memory:', entities: adkEntities() });
  const expected = Object.values(orm.getMetadata().getAll()).map(({ tableName, props, primaryKeys }) => {
    const columns = new Map(
      props.flatMap(({ name, fieldNames }) =>
        fieldNames.map((column) => [column, primaryKeys.includes(name)] as const),
      ),
    );
    return [tableName, [...columns].map(([column, isKey]) => (isKey ? `${column} PK` : column))];
  });
  await orm.close();

  const drawn = [...readme.matchAll(/^ {2}(adk_\w+) \{\n(.*?)^ {2}\}$/gms)].map(([, table, columns = '']) => [
    table,
    [...columns.matchAll(/^ +\w+ (\w+)( PK)?/gm)].map(([, column, key = '']) => `${column}${key}`),
  ]);
  expect(Object.fromEntries(drawn)).toEqual(Object.fromEntries(expected));
});

test('the table of errors has every error that is exported, and its code', () => {
  const [, table = ''] = /<!-- errors -->(.*?)<!-- \/errors -->/s.exec(readme) ?? [];
  const listed = [...table.matchAll(/^\| `(\w+)` \| `(\w+)` \|/gm)].map(([, name, code]) => ({ name, code }));

  type ErrorClass = new (...args: unknown[]) => api.AdkMikroOrmError;
  const exported = Object.entries(api)
    .filter(([, value]) => typeof value === 'function' && value.prototype instanceof api.AdkMikroOrmError)
    .map(([name, value]) => ({ name, code: new (value as unknown as ErrorClass)('a', 'b', 0).code }));
  expect(listed).toHaveLength(exported.length);
  expect(listed).toEqual(expect.arrayContaining(exported));
});
