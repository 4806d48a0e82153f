import { FileArtifactService, LogLevel, createEvent, setLogLevel, type Event } from '@google/adk';
import { MikroORM, type EntityManager } from '@mikro-orm/core';
import { SqliteDriver } from '@mikro-orm/sqlite';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { AdkEvent, AdkMemory, AdkProjection, AdkSession, AdkUserState, adkEntities } from '../../../entities/index.js';
import * as api from '../../../src/index.js';
import type { createArtifactHandler } from '../../../packages/http/src/index.js';
import type { Studio } from '../../../packages/studio/src/index.js';
import type { Codec } from '../../../src/codecs/index.js';
import { testSessionService } from '../../../src/testing/index.js';
import { FAILURES, passingOf, type Failure } from '../../../src/model/failures.js';
import { navigationProblems } from '../../../site/navigation.js';
import { ADK_JS_ON_SQLITE } from '../transfer/stores/adk-js.js';
import { OTHER_PAGES, blocksOf, compile, docsPages, pages, programsOf, type Block, type Compiled } from './blocks.js';
import { given, takeBack, type Given } from './given.js';

const root = process.cwd();
/** The first program is the README's, which the guides continue. */
const blocks = pages().flatMap(programsOf);

/** The file that docs/artifacts.md saves as a stream. */
const PLAN = Buffer.alloc(3_000_000, 'plan');

/** The objects of a bucket, by their names. */
const OBJECTS: Record<string, string> = { 'shop/bob/user/photo.png/0': 'png' };
for (let version = 0; version < 11; version++) OBJECTS[`shop/bob/s1/reports/may.txt/${version}`] = `text ${version}`;

/** Checks the effects of a block, by its page and heading; `declared` holds the block's own constants. */
const EXPECTED: Record<string, (given: Given, declared: Record<string, unknown>) => Promise<void> | void> = {
  'README.md adk-mikro-orm': () =>
    withSessions(async (em) => {
      const rows = await em.find(AdkEvent, {}, { orderBy: { seq: 'asc' } });
      expect(rows.map(({ data }) => (data as Event).content?.parts)).toEqual([
        [{ text: 'Hello!' }],
        [{ text: 'You said: Hello!' }],
      ]);
    }),
  'README.md In a server': async ({ orm }) => {
    const rows = await orm.em.fork().find(AdkEvent, { session: { id: 'first' } });
    expect(rows.map(({ data }) => (data as Event).content?.parts)).toEqual([[{ text: 'Where is order 17?' }]]);
  },
  "docs/coming-from.md Coming from ADK's own services": async (_given, { orm, sessionService }) => {
    await (sessionService as api.MikroOrmSessionService).createSession({ appName: 'support', userId: 'ada' });
    expect(await (orm as MikroORM).em.fork().count(AdkSession)).toBe(1);
  },
  'docs/guides/after-a-crash.md Keep a conversation after a crash': () =>
    withSessions(async (em) => {
      const rows = await em.find(AdkEvent, {}, { orderBy: { seq: 'asc' } });
      const authors = ['user', 'assistant', 'assistant', 'assistant', 'user', 'assistant'];
      expect(rows.map(({ data }) => (data as Event).author)).toEqual(authors);
      expect((rows[3]!.data as Event).content?.parts).toMatchObject([{ functionResponse: { id: 'killed' } }]);
    }),
  'docs/guides/delete-a-person.md Delete a person': async (_given, { copy, planned }) => {
    const kinds = (copy as string[]).map((line) => (JSON.parse(line) as { type: string }).type);
    expect(kinds).toEqual(['session', 'event', 'event', 'event']);
    expect(planned).toMatchObject({ done: { Order: 1 } });
    await withSessions(async (em) => expect([await em.count(AdkSession), await em.count(AdkEvent)]).toEqual([0, 0]));
  },
  'docs/guides/files-of-a-conversation.md Files of a conversation': (_given, { listed, text }) => {
    expect(listed).toMatchObject([{ filename: 'user:address' }, { filename: 'report.txt', version: 0, size: 19 }]);
    expect(text).toBe('All lamps are sold.');
  },
  'docs/guides/remember-a-user.md Remember a user': async (_given, { found }) => {
    expect((found as { memories: { id: string }[] }).memories[0]).toMatchObject({ id: 'diet' });
    // What the user said waits to be found; the agent's answer, which quotes it, is not there.
    await withSessions(async (em) => {
      const rows = await em.find(AdkMemory, {});
      const texts = rows.map(({ data }) => JSON.stringify(data));
      expect(texts).toEqual(expect.arrayContaining([expect.stringContaining('"Hello!"')]));
      expect(texts).toHaveLength(2);
    });
  },
  'docs/guides/forget-a-user.md Forget a user': (_given, { known, left }) => {
    expect(known).toMatchObject([{ id: 'diet', content: { parts: [{ text: 'No peanuts.' }] } }]);
    expect(left).toEqual([]);
  },
  'docs/guides/several-workers.md Several workers': async (_given, { both }) => {
    expect(both).toMatchObject({ state: { planner: 'ready', writer: 'ready' } });
    await withSessions(async (em) => {
      const rows = await em.find(AdkEvent, {}, { orderBy: { seq: 'desc' }, limit: 2 });
      expect(rows.map(({ data }) => (data as Event).author).sort()).toEqual(['planner', 'writer']);
    });
  },
  'docs/row-level-security.md The services': (_given, { session }) => {
    expect(session).toMatchObject({ id: 'first', userId: 'ada' });
  },
  'docs/guides/upgrade.md Upgrade': () =>
    withSessions(async (em) => {
      const rows = await em.getConnection().execute('select name from mikro_orm_migrations order by name');
      expect(rows).toEqual([{ name: expect.stringContaining('adk_initial') }]);
    }),
  'docs/guides/which-database.md Which database?': () => expect(existsSync('agents.db')).toBe(true),
  'docs/event-log.md The event log': (_given, { messages }) =>
    expect(messages).toMatchObject([{ author: 'support', toolCalls: [{ name: 'ask_user' }] }]),
  'docs/event-log.md A database that went back': (_given, { kept, from }) => {
    expect(kept).toMatchObject([{ position: 1, event: { author: 'support' } }]);
    expect(from).toMatchObject({ position: 1, epoch: 0 });
  },
  'docs/event-log.md The complete log': ({ session }, { lines }) =>
    expect(lines).toEqual([`${session.id} was created`, '1: support']),
  'docs/projections.md Projections of the log': async ({ orm }) => {
    expect(await orm.em.getConnection().execute('select * from turns')).toEqual([{ app_name: 'support', count: 1 }]);
    expect(await orm.em.fork().find(AdkProjection, {})).toMatchObject([{ name: 'turns', version: 1 }]);
  },
  'docs/session-contract.md Judge a session service': (_given, { broken }) =>
    expect(broken).toContain('B1 createSession gives keys to app, user and session by their prefix'),
  'docs/migrate-from.md Artifacts': async ({ session: { id: sessionId } }, { now }) => {
    const artifacts = now as api.MikroOrmArtifactService;
    const file = { appName: 'support', userId: 'ada', sessionId, filename: 'user:home' };
    expect(await artifacts.listVersions(file)).toEqual([0, 1]);
    expect(await artifacts.loadArtifact({ ...file, version: 0 })).toEqual({ text: 'Bergen' });
    expect(await artifacts.loadArtifact(file)).toEqual({ inlineData: { data: 'AQID', mimeType: 'a/b' } });
    expect(await artifacts.getArtifactVersion(file)).toMatchObject({ customMetadata: { by: 'ada' } });
  },
  'docs/migrate-from.md A folder of a bucket': async (_given, { artifacts: copied }) => {
    const artifacts = copied as api.MikroOrmArtifactService;
    const key = { appName: 'shop', userId: 'bob', sessionId: 's1' };
    expect(await artifacts.listArtifactKeys(key)).toEqual(['reports/may.txt', 'user:photo.png']);
    const may = { ...key, filename: 'reports/may.txt' };
    expect(await artifacts.listVersions(may)).toEqual(Array.from({ length: 11 }, (_, version) => version));
    const data = Buffer.from('text 10').toString('base64');
    expect(await artifacts.loadArtifact(may)).toEqual({ inlineData: { data, mimeType: 'text/plain' } });
  },
  'docs/artifacts.md Artifacts': async ({ service, session: { id: sessionId } }, { about, newest }) => {
    expect(about).toMatchObject({ version: 0, mimeType: 'application/pdf', size: 4 });
    expect(newest).toEqual({ text: 'Sold out.' });
    const read = await service.getSession({ appName: 'support', userId: 'ada', sessionId });
    expect(read!.state).toMatchObject({ report: 1 });
  },
  'docs/artifacts.md List and read': (_given, { listed, chunks }) => {
    expect(listed).toMatchObject([{ filename: 'plan.svg', size: 6 }]);
    expect(Buffer.concat(chunks as Uint8Array[]).toString()).toBe('<svg');
  },
  'docs/artifacts.md Save from a stream': async (_given, { uploads, upload, saved }) => {
    expect(saved).toBe(0);
    const stored = await (uploads as api.MikroOrmArtifactService).openArtifact(upload as api.ArtifactAddress);
    expect(stored).toMatchObject({ mimeType: 'application/pdf', size: PLAN.length });
  },
  'docs/artifacts.md Serve them by HTTP': async (_given, { files, address }) => {
    const { fetch } = files as ReturnType<typeof createArtifactHandler>;
    const statusFor = async (authorization: string) =>
      (await fetch(new Request(`http://localhost${address as string}`, { headers: { authorization } }))).status;
    expect([await statusFor('Bearer of-bob'), await statusFor('Bearer of-ada')]).toEqual([403, 404]);
  },
  'docs/credentials.md Credentials': async (_given, { credentialOf }) => {
    const context = { invocationContext: { session: { appName: 'support', userId: 'ada' } } };
    const exchangedAuthCredential = { authType: 'apiKey', apiKey: 'secret' };
    const load = credentialOf as (config: object, context: object) => Promise<unknown>;
    expect(await load({ credentialKey: 'k', exchangedAuthCredential }, context)).toEqual(exchangedAuthCredential);
    expect(await load({ credentialKey: 'k' }, context)).toEqual(exchangedAuthCredential);
  },
  'docs/memory.md Memory': (_given, { memories, answer }) => {
    expect(memories).toMatchObject([{ id: 'diet' }]);
    expect(answer).toMatchObject({ memories: [{ id: 'diet', score: expect.any(Number) as number }] });
  },
  'docs/memory.md Find by meaning': (_given, { memories }) => {
    expect(memories).toMatchObject([{ content: { parts: [{ text: 'My puppy is called Rex.' }] } }]);
  },
  'docs/memory.md Remember by itself': async ({ orm, service, session }, { projection }) => {
    await service.appendEvent({
      session,
      event: createEvent({ author: 'user', content: { parts: [{ text: 'Peanuts!' }] } }),
    });
    await (projection as { catchUp(): Promise<void> }).catchUp();
    const rows = await orm.em.fork().find('AdkMemory', { appName: 'support', userId: 'ada' });
    expect(rows.length).toBeGreaterThan(0);
  },
  'docs/leases.md Leases': async ({ orm }) => {
    const rows = await orm.em.fork().find(AdkEvent, {}, { orderBy: { seq: 'asc' } });
    expect(rows.map(({ data }) => (data as Event).author)).toEqual(['support', 'user']);
    expect(await orm.em.fork().find(AdkSession, {})).toMatchObject([{ leaseHolder: null, leaseToken: 1 }]);
  },
  'docs/telemetry.md Telemetry': async ({ orm, session }) => {
    const rows = await orm.em.fork().find(AdkEvent, {}, { orderBy: { seq: 'asc' } });
    expect(rows.map(({ data }) => (data as Event).author)).toEqual(['support', 'user']);
    expect(session.events).toHaveLength(2);
  },
  'docs/maintenance.md Maintenance': async ({ orm }, { pruned, stats, erased }) => {
    expect(pruned).toMatchObject({ done: { sessions: 0 }, more: false });
    expect(stats).toMatchObject({ sessions: 1, eventsPerSession: { largest: 1 } });
    expect(erased).toMatchObject({ done: { sessions: 1, events: 1, stateKeys: 1 } });
    expect([await orm.em.fork().count(AdkSession), await orm.em.fork().count(AdkUserState)]).toEqual([0, 0]);
  },
  'docs/maintenance.md What models used': (_given, { rows }) => expect(rows).toBeInstanceOf(Array),
  'docs/maintenance.md Export and import': async ({ other }, { written }) => {
    expect(written).toMatchObject({ done: { sessions: 1, events: 1, records: 3, refused: 0 } });
    expect(await other.em.fork().count(AdkEvent)).toBe(1);
  },
  "docs/migrate-from.md From ADK's own stores": async ({ service }, { planned, imported }) => {
    expect(imported).toEqual(planned);
    expect(imported).toMatchObject({ sessions: 1, events: 1, refused: 0 });
    const key = { appName: 'shop', userId: 'ada', sessionId: 'old' };
    expect(await service.getSession(key)).toMatchObject({ state: { step: 1 }, events: [{ author: 'user' }] });
  },
  'docs/migrate-from.md Saved sessions': async ({ service }, { saved }) => {
    expect(saved).toMatchObject({ done: { sessions: 1, events: 1, refused: 0 } });
    const key = { appName: 'shop', userId: 'ada', sessionId: 'saved' };
    expect(await service.getSession(key)).toMatchObject({ events: [{ id: 'said' }] });
  },
  'docs/studio.md In your own server': async (_given, { studio }) => {
    const url = 'http://localhost/studio/sessions?app=support';
    const { fetch } = studio as Studio;
    expect((await fetch(new Request(url))).status).toBe(403);
    const page = await fetch(new Request(url, { headers: { authorization: 'Bearer of-support' } }));
    expect(await page.text()).toContain('ada');
  },
  'docs/damage.md Repair': (_given, { found, repaired }) => {
    expect(found).toEqual(repaired);
    expect(repaired).toEqual({ damage: [], events: [], stateValues: [], changes: [] });
  },
  'docs/recipes.md Fork or rewind a session': (_given, { fork, rewound }) => {
    expect(fork).toMatchObject({ id: 'what-if', events: [{ author: 'support' }], state: { 'user:trial': true } });
    expect(rewound).toMatchObject({ events: [] });
  },
  'docs/recipes.md A chat page that scrolls up': (_given, { shown }) =>
    expect(shown).toMatchObject([{ author: 'support', toolCalls: [{ name: 'ask_user' }] }]),
  'docs/recipes.md A list of conversations, with titles': (_given, { page, following }) => {
    expect(page).toMatchObject({
      sessions: [{ title: 'Refund of order 17', labels: { team: 'billing' }, eventCount: 1 }],
    });
    expect(following).toBeUndefined();
  },
  // Its only call is a long-running one.
  'docs/leases.md A whole turn': async ({ orm }, { waiting, left }) => {
    expect([waiting, left]).toMatchObject([[{ id: 'call-1', name: 'ask_user' }], []]);
    const rows = await orm.em.fork().find(AdkEvent, {}, { orderBy: { seq: 'asc' } });
    expect(rows.map(({ data }) => (data as Event).author)).toEqual(['support', 'user', 'user']);
  },
  'docs/recipes.md A message while the agent works': (_given, { isRunning, left }) =>
    expect([isRunning, left]).toEqual([false, 0]),
  'docs/recipes.md Find a conversation by what was said': (_given, { hits, conversations }) => {
    expect([...(hits as Map<string, string[]>).values()]).toEqual([['Hello.']]);
    expect(conversations).toMatchObject([{ eventCount: 2 }]);
  },
  'docs/recipes.md Run answers that are stored': async ({ service, orm, agent }, { found, runAnswered }) => {
    expect(found).toBe(0);
    for (const sessionId of ['damaged', 'whole']) {
      const session = await service.createSession({ appName: 'support', userId: 'ada', sessionId });
      const of = { id: 'call-1', name: 'ask_user' };
      const called = createEvent({ author: 'support', longRunningToolIds: [of.id] });
      called.content = { role: 'model', parts: [{ functionCall: { ...of, args: {} } }] };
      const answered = createEvent({ author: 'user' });
      answered.content = { role: 'user', parts: [{ functionResponse: { ...of, response: {} } }] };
      await service.appendEvents({ session, events: [called, answered] });
    }
    await orm.em.getConnection().execute(`update adk_events set data = '{' where session_id = 'damaged' and seq = 1`);
    const told = jest.spyOn(console, 'error').mockReturnValue();
    const ran: string[] = [];
    agent.beforeAgentCallback.push(({ sessionId }) => void ran.push(sessionId));
    expect(await (runAnswered as () => Promise<number>)()).toBe(2);
    expect(told.mock.calls).toEqual([[expect.any(api.DamagedSessionError)]]);
    expect(ran).toEqual(['whole']);
    told.mockRestore();
  },
  'docs/tools.md Tools that must not run twice': async ({ orm, Ticket }) => {
    expect(await orm.em.fork().find(Ticket, {})).toMatchObject([{ title: 'Refund' }]);
    const rows = await orm.em.fork().find(AdkEvent, {}, { orderBy: { seq: 'asc' } });
    const events = rows.map(({ data }) => data as Event);
    expect(events.flatMap(({ customMetadata }) => Object.keys(customMetadata ?? {}))).toEqual([
      'adk_mikro_orm_exactly_once',
      'adk_mikro_orm_tool_result',
    ]);
    expect(events.at(-1)?.content?.parts).toEqual([{ text: 'I have opened a ticket.' }]);
  },
  'docs/options.md Options of the services': async ({ createEvent }, { sessionService }) => {
    const service = sessionService as api.MikroOrmSessionService;
    const [session] = (await service.listSessions({ appName: 'support' })).sessions;
    const stale = await service.getSession({ appName: 'support', userId: 'ada', sessionId: session!.id });
    const fresh = await service.getSession({ appName: 'support', userId: 'ada', sessionId: session!.id });
    await service.appendEvent({ session: fresh!, event: createEvent() });
    await expect(service.appendEvent({ session: stale!, event: createEvent() })).rejects.toMatchObject({
      code: 'ADK_STALE_SESSION',
    });
  },
  'docs/codecs.md Codecs: compression and encryption': async ({ orm, session }, { sessionService }) => {
    const [row] = await orm.em.fork().find(AdkEvent, {});
    expect(row!.data).toEqual(['adk-codec', [{ codec: 'aes-256-gcm', key: '2026-11' }], expect.any(String)]);
    const key = { appName: session.appName, userId: session.userId, sessionId: session.id };
    expect(await (sessionService as api.MikroOrmSessionService).getSession(key)).toMatchObject({ id: session.id });
  },
  'docs/codecs.md Erase a person from backups, too': async ({ orm, wrapped }, { perPerson }) => {
    const service = new api.MikroOrmSessionService(orm.em, { codec: perPerson as Codec });
    await service.createSession({ appName: 'support', userId: 'bob', state: { a: 1, 'app:b': 2 } });
    expect([...wrapped.keys()].sort()).toEqual(['app', 'user bob']);
  },
  'docs/recipes.md Your entities, related to ours': (_given, { ofAda }) => expect(ofAda).toEqual([]),
  'docs/recipes.md One transaction with your own rows': async ({ orm, Ticket, event }) => {
    const em = orm.em.fork();
    expect(await em.find(Ticket, { session: { userId: 'ada' } })).toMatchObject([{ title: 'Refund' }]);
    expect(await em.count(AdkEvent, { id: event.id })).toBe(1);
  },
  'docs/recipes.md State outside a run': async ({ service, session }, { language }) => {
    expect(language).toBe('pt');
    const { appName, userId, id: sessionId } = session;
    expect((await service.getSession({ appName, userId, sessionId }))?.state).toEqual({
      'app:greeting': 'Hello',
      'user:language': 'pt',
      step: 3,
    });
  },
  'docs/recipes.md Several events at once': async ({ orm }) => expect(await orm.em.fork().count(AdkEvent)).toBe(3),
  'docs/recipes.md Answer what waits for a person': async ({ orm }) => {
    const rows = await orm.em.fork().find(AdkEvent, {}, { orderBy: { seq: 'asc' } });
    expect(rows.map(({ data }) => (data as Event).content?.parts)).toMatchObject([
      [{ functionCall: { id: 'call-1' } }],
      [{ functionResponse: { id: 'call-1', response: { answer: 'yes' } } }],
    ]);
  },
  // Tested by server-sent-events.test.ts.
  'docs/recipes.md Events to a browser, with server-sent events': (_given, { server }) =>
    expect(server).toHaveProperty('listening', false),
  'docs/recipes.md Delete what is old': async ({ orm }) => expect(await orm.em.fork().count(AdkSession)).toBe(1),
  'docs/recipes.md Another schema, another prefix': (_given, { entities }) =>
    expect((entities as ReturnType<typeof adkEntities>)[0]?.meta).toMatchObject({
      tableName: 'bot_sessions',
      schema: 'kb',
    }),
  'docs/errors.md `onError`': async (_given, { logged }) => {
    const service = (logged as api.AdkServices).sessionService;
    expect(await service.getAppState({ appName: 'support' })).toEqual({});
  },
  'docs/production.md Production: pools, time-outs, outages': async (_given, { patient }) => {
    const service = (patient as api.AdkServices).sessionService;
    expect((await service.listSessions({ appName: 'support' })).totalItems).toBe(1);
  },
  'docs/errors.md What is printed': (_given, { orm }) => expect(orm).toBeInstanceOf(MikroORM),
  'docs/errors.md Errors': async ({ orm, event }) =>
    expect(await orm.em.fork().count(AdkEvent, { id: event.id })).toBe(1),
};

/** Opens the database of the first program. */
async function withSessions(work: (em: EntityManager) => Promise<void>): Promise<void> {
  const orm = await MikroORM.init({ driver: SqliteDriver, dbName: 'sessions.db', entities: adkEntities() });
  try {
    await work(orm.em.fork());
  } finally {
    await orm.close();
  }
}

/** Stores what a killed process leaves in the session of the first program: a call without its response. */
const leaveCall = () =>
  withSessions(async (em) => {
    const service = new api.MikroOrmSessionService(em);
    const session = await service.getSession({ appName: 'support', userId: 'ada', sessionId: 'first' });
    const content = { role: 'model', parts: [{ functionCall: { id: 'killed', name: 'search', args: {} } }] };
    await service.appendEvent({ session: session!, event: createEvent({ author: 'assistant', content }) });
  });

const nameOf = ({ page, heading }: Block) => `${page} ${heading}`;

describe('the code in README and docs', () => {
  const folder = mkdtempSync(path.join(tmpdir(), 'adk-readme-'));
  let compiled: Compiled[];

  beforeAll(async () => {
    setLogLevel(LogLevel.ERROR);
    // The output of the pages is not tested.
    jest.spyOn(console, 'log').mockReturnValue();
    const lent = await given();
    await takeBack(lent);
    compiled = await compile(root, blocks, Object.keys(lent));
    process.chdir(folder);
    // The store that docs/migrate-from.md reads.
    const events = [{ id: 'said', author: 'user', timestamp: 1_700_000_000_000 }];
    writeFileSync(
      'saved.session.json',
      JSON.stringify({ id: 'saved', appName: 'shop', userId: 'bob', state: {}, events }),
    );
    writeFileSync('plan.pdf', PLAN);
    const files = new FileArtifactService('artifacts');
    const home = { appName: 'support', userId: 'ada', sessionId: 'old', filename: 'user:home' };
    const customMetadata = { by: 'ada' };
    await files.saveArtifact({ ...home, artifact: { text: 'Bergen' } });
    await files.saveArtifact({ ...home, artifact: { inlineData: { data: 'AQID', mimeType: 'a/b' } }, customMetadata });
    for (const [object, text] of Object.entries(OBJECTS)) {
      mkdirSync(path.join('bucket', path.dirname(object)), { recursive: true });
      writeFileSync(path.join('bucket', object), text);
    }
    const old = await MikroORM.init({
      driver: SqliteDriver,
      dbName: 'adk.db',
      entities: [],
      discovery: { warnWhenNoEntities: false },
    });
    for (const statement of ADK_JS_ON_SQLITE) await old.em.getConnection().execute(statement);
    await old.close();
  });
  afterAll(() => {
    jest.restoreAllMocks();
    process.chdir(root);
    rmSync(folder, { recursive: true });
  });

  test.each(blocks.map((block, i) => [`${block.page}:${block.line} ${block.heading}`, i] as const))(
    '%s',
    async (_name, i) => {
      const { complaints, run } = compiled[i]!;
      expect(complaints).toEqual([]);

      const lent = await given();
      let declared: Record<string, unknown> = {};
      try {
        if (blocks[i]!.isProgram) {
          process.chdir(mkdtempSync(path.join(folder, 'guide-')));
          await compiled[0]!.run(lent);
          await leaveCall();
        }
        declared = await run(lent);
        await EXPECTED[nameOf(blocks[i]!)]?.(lent, declared);
      } finally {
        // Also after a failure: open pools would keep the process of the tests alive.
        await takeBack(lent);
        if (declared['orm'] instanceof MikroORM) await declared['orm'].close();
        process.chdir(folder);
      }
    },
  );

  test('each block has an expectation, and the other way round', () => {
    expect(blocks.map(nameOf).sort()).toEqual(Object.keys(EXPECTED).sort());
  });
});

test('the picture of the tables has their columns', async () => {
  const orm = await MikroORM.init({ driver: SqliteDriver, dbName: ':memory:', entities: adkEntities() });
  const expected = [...orm.getMetadata()].map(({ tableName, props, primaryKeys }) => {
    const columns = new Map(
      props
        .filter(({ persist }) => persist !== false)
        .flatMap(({ name, fieldNames }) => fieldNames.map((column) => [column, primaryKeys.includes(name)] as const)),
    );
    return [tableName, [...columns].map(([column, isKey]) => (isKey ? `${column} PK` : column))];
  });
  await orm.close();

  const drawn = [...readFileSync('docs/tables.md', 'utf8').matchAll(/^ {2}(adk_\w+) \{\n(.*?)^ {2}\}$/gms)].map(
    ([, table, columns = '']) => [
      table,
      [...columns.matchAll(/^ +\w+ (\w+)( PK)?/gm)].map(([, column, key = '']) => `${column}${key}`),
    ],
  );
  expect(Object.fromEntries(drawn)).toEqual(Object.fromEntries(expected));
});

test('the statements of docs/damage.md repair by hand what they say', async () => {
  const [, sql = ''] = /```sql\n(.*?)```/s.exec(readFileSync('docs/damage.md', 'utf8')) ?? [];
  const repairs = sql.split(';\n').map((statement) => statement.replace(/^--.*$/gm, ''));
  const damages = [
    "update adk_user_states set value = 'x'",
    'delete from adk_events where seq = 7',
    "update adk_events set data = '5' where seq = 7",
    'update adk_sessions set last_seq = 8',
  ];
  expect(repairs.map((statement) => statement.trim() !== '')).toEqual([...damages.map(() => true), false]);
  const { service, orm, close } = await testSessionService();
  const key = { appName: 'support', userId: 'ada', sessionId: 's1' };
  const session = await service.createSession({ ...key, state: { 'user:theme': 'dark' } });
  await service.appendEvents({ session, events: Array.from({ length: 9 }, () => createEvent()) });
  for (const [i, damage] of damages.entries()) {
    await orm.em.getConnection().execute(damage);
    await expect(service.getSession(key)).rejects.toMatchObject({ code: 'ADK_DAMAGED_SESSION' });
    await orm.em.getConnection().execute(repairs[i]!);
    expect((await service.getSession(key))?.events).toHaveLength(9);
  }
  await close();
});

const RETRIED = { conflict: '`attempts` times', outage: 'for `forMs`', no: 'no' };

/** `ADK_TEST_UPDATE=1 npx jest test/hosts/docs/docs` rewrites the table. */
test('the table of failures in docs/errors.md has the words of every DatabaseError', () => {
  const file = path.join(root, 'docs/errors.md');
  const rows = Object.entries(FAILURES).map(
    ([failure, { reason, what, advice }]) =>
      `| ${what} | \`${reason}\` | ${RETRIED[passingOf(failure as Failure) ?? 'no']} | ${advice} |`,
  );
  const table = ['| What happened | `reason` | Retried | What to look at |', '| --- | --- | --- | --- |', ...rows];
  const told = readFileSync(file, 'utf8');
  const current = told.replace(/(?<=<!-- failures -->\n).*(?=<!-- \/failures -->)/s, () => `\n${table.join('\n')}\n\n`);
  if (process.env['ADK_TEST_UPDATE']) writeFileSync(file, current);
  expect(readFileSync(file, 'utf8')).toBe(current);
});

test('the table of errors has every error that is exported, and its code', () => {
  const [, table = ''] = /<!-- errors -->(.*?)<!-- \/errors -->/s.exec(readFileSync('docs/errors.md', 'utf8')) ?? [];
  const listed = [...table.matchAll(/^\| `(\w+)` \| `(\w+)` \|/gm)].map(([, name, code]) => ({ name, code }));

  type ErrorClass = new (...args: unknown[]) => api.AdkMikroOrmError;
  const exported = Object.entries(api)
    .filter(([, value]) => typeof value === 'function' && value.prototype instanceof api.AdkMikroOrmError)
    .map(([name, value]) => ({ name, code: new (value as unknown as ErrorClass)('a', 'b', 0).code }));
  expect(listed).toHaveLength(exported.length);
  expect(listed).toEqual(expect.arrayContaining(exported));
});

test('the table of databases in the README has the drivers and versions that are required and tested', () => {
  const readme = readFileSync('README.md', 'utf8');
  const rowOf = (start: string) => {
    const row = readme.split('\n').find((line) => line.startsWith(`| ${start}`));
    return (row ?? '').split('|').slice(2, -1);
  };
  const codes = (cell: string) => [...cell.matchAll(/`(.*?)`/g)].map(([, name]) => name);
  // On MikroORM 7 this is a copy, whose package.json leaves out what only MikroORM 6 has.
  const repository = process.env['ADK_TEST_MIKRO_ORM_6'] ?? root;
  const versions = (file: string) =>
    JSON.parse(readFileSync(path.join(repository, file), 'utf8')) as Record<string, Record<string, string>>;
  const [ours, on7] = [versions('package.json'), versions('test/mikro-orm-7/package.json')];
  const required = ours['peerDependencies']!['@mikro-orm/core']!.split(' || ');
  const dialects = [['sqlite', 'better-sqlite', 'libsql'], ['postgresql', 'pglite'], ['mysql'], ['mariadb']];
  for (const [i, tested] of [ours['devDependencies']!, on7['dependencies']!].entries()) {
    const cells = rowOf(`MikroORM \`${required[i]!}\`, tested with ${tested['@mikro-orm/core']!} |`);
    const drivers = dialects.map((names) => names.filter((name) => `@mikro-orm/${name}` in tested));
    expect(cells.map(codes)).toEqual(drivers);
  }

  const matrix = readFileSync('.github/workflows/ci.yml', 'utf8');
  const inMatrix = ['postgresql', 'mysql', 'mariadb'].map((name) => {
    const found = matrix.matchAll(new RegExp(`\\b${name}: '?([\\d.]+)`, 'g'));
    return [...new Set([...found].map(([, version]) => version))].sort();
  });
  const [, ...servers] = rowOf('versions tested |').map((cell) => cell.trim().split(', ').sort());
  expect(servers).toEqual(inMatrix);
});

test('the first page of the site shows the code of the README', () => {
  const codeOf = (page: string) => blocksOf(page).map(({ code }) => code);
  expect(codeOf('docs/README.md')).toEqual(codeOf('README.md'));
});

test('docs/nestjs.md shows the module of the example as it is', () => {
  const [module, use] = blocksOf('docs/nestjs.md');
  expect(module?.code).toBe(readFileSync('examples/frameworks/adk-module.ts', 'utf8'));
  const imports = /imports: \[.*?\]/.exec(use?.code ?? '')?.[0];
  expect(readFileSync('examples/frameworks/nestjs.ts', 'utf8')).toContain(imports);
});

test('every page of docs/ is listed in the navigation of the site', () => {
  expect(navigationProblems(docsPages())).toEqual([]);
});

test('a page that is not listed, and one that is missing, is found', () => {
  expect(navigationProblems([...docsPages(), 'new.md'])).toEqual(['docs/new.md is not listed in site/navigation.ts']);
  expect(navigationProblems(docsPages().filter((page) => page !== 'tables.md'))).toEqual([
    'site/navigation.ts lists docs/tables.md, which is missing',
  ]);
});

test.each(['CONTRIBUTING.md', 'docs/architecture.md'])('the files that %s names are there', (page) => {
  const text = readFileSync(page, 'utf8');
  const named = [...text.matchAll(/`(?!adk-mikro-orm\/)([\w.-]+(?:\/[\w.-]+)+)`/g)].map(([, file = '']) => file);
  expect(named.length).toBeGreaterThan(10);
  const places = (file: string) => [file, `${file}.ts`, `${file}.test.ts`, `src/${file}`, `test/faults/${file}`];
  const repository = process.env['ADK_TEST_MIKRO_ORM_6'] ?? root;
  const isThere = (file: string) => places(file).some((place) => existsSync(path.join(repository, place)));
  expect(named.filter((file) => !isThere(file))).toEqual([]);
});

test('the README has at most 140 lines', () => {
  expect(readFileSync('README.md', 'utf8').trimEnd().split('\n').length).toBeLessThanOrEqual(140);
});

test.each([...pages(), ...OTHER_PAGES, 'CONTRIBUTING.md', 'SECURITY.md'])('the links in %s lead somewhere', (page) => {
  const markdown = readFileSync(page, 'utf8');
  const links = [...markdown.matchAll(/\]\((?!https?:)([^)#]*)(#[^)]*)?\)/g)].map(([, file = '']) => file);
  const files = links.filter(Boolean).map((file) => path.join(path.dirname(page), file));
  expect(files.filter((file) => !existsSync(file))).toEqual([]);
});
