import { FunctionTool, LlmAgent, Runner, StreamingMode, createEvent, stringifyContent, type Event } from '@google/adk';
import { z } from 'zod';

import { AdkEvent, AdkSession } from '../../../entities/index.js';
import { InvalidArgumentError, migrate } from '../../../src/index.js';
import {
  scriptedModel,
  sessionMatchers,
  testSessionService,
  type TestSessionService,
} from '../../../src/testing/index.js';
import { isMikroOrm7 } from '../../support/mikro-orm.js';

expect.extend(sessionMatchers);

const key = { appName: 'support', userId: 'ada', sessionId: 'first' };

let store: TestSessionService;
beforeEach(async () => {
  store = await testSessionService();
});
afterEach(() => store.close());

describe('testSessionService', () => {
  test('each call has a database of its own, with the tables as migrate makes them', async () => {
    const other = await testSessionService();
    await other.service.createSession(key);
    expect(await other.orm.em.fork().find(AdkSession, {})).toMatchObject([{ id: 'first' }]);
    expect(await store.orm.em.fork().count(AdkSession)).toBe(0);
    await other.close();

    const tables = () => store.orm.em.getConnection().execute('select * from sqlite_master order by rowid');
    const notes = () => store.orm.em.getConnection().execute('select * from mikro_orm_migrations');
    const [made, noted] = [await tables(), await notes()];
    await migrate(store.orm);
    expect([await tables(), await notes()]).toEqual([made, noted]);
    expect(noted).toHaveLength(1);
  });

  test('a copy is the database that was migrated', async () => {
    // The first store of a process is a copy, too: the database that was migrated is closed.
    const dump = async ({ orm }: TestSessionService) =>
      orm.em.getConnection().execute("select type, name, sql from sqlite_master where name like 'adk%' order by name");
    const { orm } = store;
    const copied = await dump(store);
    for (const { name } of (await orm.em
      .getConnection()
      .execute("select name from sqlite_master where type = 'table' and name like 'adk%'")) as { name: string }[])
      await orm.em.getConnection().execute(`drop table "${name}"`);
    await orm.em.getConnection().execute('delete from mikro_orm_migrations');
    await migrate(orm);
    expect(await dump(store)).toEqual(copied);
  });
});

const DRIVERS = ['@mikro-orm/sqlite', '@mikro-orm/better-sqlite', '@mikro-orm/libsql'];

/** The drivers of this MikroORM, each with those that are tried before it. */
const installed = DRIVERS.map((name, i) => [name, DRIVERS.slice(0, i)] as const).filter(
  ([name]) => !(isMikroOrm7 && name === '@mikro-orm/better-sqlite'),
);

test.each(installed)('%s is used where the drivers %j are not installed', async (name, missing) => {
  await without(missing, async ({ testSessionService }) => {
    const { service, orm, close } = await testSessionService();
    await service.createSession(key);
    expect(await orm.em.fork().count(AdkSession)).toBe(1);
    const { SqliteDriver, BetterSqliteDriver, LibSqlDriver } =
      jest.requireActual<Record<string, new () => object>>(name);
    expect(orm.em.getDriver().constructor.name).toBe((LibSqlDriver ?? BetterSqliteDriver ?? SqliteDriver)?.name);
    await close();
  });
});

test('without a driver, testSessionService says what to install', async () => {
  await without(DRIVERS, async ({ testSessionService }) => {
    const call = testSessionService();
    await expect(call).rejects.toMatchObject({ code: 'ADK_SCHEMA' });
    await expect(call).rejects.toThrow(
      /^testSessionService needs a driver .* npm install --save-dev @mikro-orm\/libsql@\d/,
    );
  });
});

/** Loads the entry as in a project without these packages. */
async function without(
  packages: readonly string[],
  work: (entry: typeof import('../../../src/testing/index.js')) => Promise<void>,
): Promise<void> {
  for (const name of packages)
    jest.doMock(name, () => {
      throw Object.assign(new Error(`Cannot find module '${name}'`), { code: 'MODULE_NOT_FOUND' });
    });
  try {
    await jest.isolateModulesAsync(async () => work(await import('../../../src/testing/index.js')));
  } finally {
    for (const name of packages) jest.dontMock(name);
  }
}

/** A runner of an agent with a tool, and what one turn of it yields. */
async function turn(answers: Parameters<typeof scriptedModel>[0], streamingMode = StreamingMode.NONE) {
  const model = scriptedModel(answers);
  const weather = new FunctionTool({
    name: 'weather',
    description: 'The weather of a city',
    parameters: z.object({ city: z.string() }),
    execute: ({ city }) => ({ report: `rain in ${city}` }),
  });
  const agent = new LlmAgent({ name: 'assistant', model, tools: [weather], outputKey: 'answer' });
  const runner = new Runner({ appName: key.appName, agent, sessionService: store.service });
  await store.service.createSession(key);
  const newMessage = { role: 'user', parts: [{ text: 'Is it raining?' }] };
  const events: Event[] = [];
  for await (const event of runner.runAsync({ ...key, newMessage, runConfig: { streamingMode } })) events.push(event);
  return { model, events, session: await store.service.getSession(key) };
}

describe('scriptedModel', () => {
  test('gives calls, contents and texts in their order, and keeps what it was asked', async () => {
    const { model, session } = await turn([
      { name: 'weather', args: { city: 'Oslo' } },
      { parts: [{ functionCall: { name: 'weather', args: { city: 'Bergen' } } }] },
      'Yes, in both.',
    ]);
    expect(session).toHaveEvents([
      { author: 'user', text: 'Is it raining?' },
      { author: 'assistant', calls: [{ name: 'weather', args: { city: 'Oslo' } }] },
      { responses: [{ name: 'weather', response: { report: 'rain in Oslo' } }] },
      { author: 'assistant', calls: [{ name: 'weather', args: { city: 'Bergen' } }] },
      { responses: [{ name: 'weather', response: { report: 'rain in Bergen' } }] },
      { author: 'assistant', text: 'Yes, in both.' },
    ]);
    expect(session).toHaveState({ answer: 'Yes, in both.' });
    expect(model.requests.map(({ contents }) => contents.length)).toEqual([1, 3, 5]);
    // Reads the table, not the service.
    expect(await store.orm.em.fork().count(AdkEvent)).toBe(6);
  });

  test('a function answers what it is asked', async () => {
    const { model, session } = await turn(({ contents }) =>
      contents.length === 1
        ? { name: 'weather', args: { city: 'Oslo' } }
        : Promise.resolve(JSON.stringify(contents.at(-1)?.parts?.[0]?.functionResponse?.response)),
    );
    expect(session).toHaveState({ answer: '{"report":"rain in Oslo"}' });
    expect(model.requests).toHaveLength(2);
  });

  test('streams texts word by word, and only the whole is stored', async () => {
    const text = '\n Yes,  in\nboth. ';
    const { events, session } = await turn([text], StreamingMode.SSE);
    const partial = events.filter((event) => event.partial).map(stringifyContent);
    expect(partial).toEqual(['\n ', 'Yes,  ', 'in\n', 'both. ']);
    expect(session).toHaveEvents([{ author: 'user' }, { author: 'assistant', text }]);
  });

  test('throws errors, and one of its own when it is asked more often than scripted', async () => {
    const failing = await turn([new Error('overloaded')]);
    expect(failing.events.at(-1)).toMatchObject({ errorMessage: expect.stringContaining('overloaded') });
    await store.close();
    store = await testSessionService();
    const { events, model } = await turn([{ name: 'weather', args: { city: 'Oslo' } }]);
    expect(events.at(-1)).toMatchObject({
      errorMessage: expect.stringMatching(/was asked 2 times, and has answers for 1\. Give scriptedModel/),
    });
    expect(model.requests).toHaveLength(2);
  });
});

describe('sessionMatchers', () => {
  test('they compare values, with asymmetric ones among them', async () => {
    const session = await store.service.createSession({ ...key, state: { a: 1, 'user:b': [2] } });
    await store.service.appendEvent({
      session,
      event: createEvent({ author: 'user', content: { parts: [{ text: 'a' }, { text: 'b' }] } }),
    });
    expect(session).toHaveState({ a: expect.any(Number), 'user:b': [2] });
    expect(session).not.toHaveState({ a: 1 });
    expect(session).toHaveEvents([{ text: expect.stringContaining('b'), calls: [] }]);
    expect(session).not.toHaveEvents([]);
    expect(session).not.toHaveEvents([{ text: 'ab' }, { text: 'ab' }]);
  });

  test('they say what differs, and refuse what is not a session', async () => {
    const session = await store.service.createSession({ ...key, state: { a: 1 } });
    expect(() => expect(session).toHaveState({ a: 2 })).toThrow(/other state:.*- +"a": 2,.*\+ +"a": 1,/s);
    expect(() => expect(session).not.toHaveState({ a: 1 })).toThrow('should not have the state that it has');
    const missing = await store.service.getSession({ ...key, sessionId: 'missing' });
    expect(() => expect(missing).not.toHaveEvents([])).toThrow(InvalidArgumentError);
    expect(() => expect(missing).toHaveState({})).toThrow('toHaveState needs a session, such as getSession returns');
  });
});
