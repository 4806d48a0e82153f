import { createEvent, createEventActions, type Event } from '@google/adk';
import { MikroORM } from '@mikro-orm/core';
import { setImmediate, setTimeout } from 'node:timers/promises';
import { AdkMemory, adkEntities } from '../../../entities/index.js';
import {
  EventLog,
  InvalidArgumentError,
  MikroOrmArtifactService,
  MikroOrmSessionService,
  SessionLeases,
  SessionMaintenance,
  migrate,
  type CommonOptions,
  type ImportOptions,
  type MaintenanceResult,
  type SessionKey,
} from '../../../src/index.js';
import type { ExportRecord } from '../../../src/model/records.js';
import { MikroOrmMemoryService } from '../../../src/memory/memory-service.js';
import { pastState } from '../../../src/model/past-state.js';
import type { EventRecord, SessionRecord } from '../../../src/model/records.js';
import { faulty, until } from '../../contract/tools.js';
import { FoldedLog } from '../../support/folded-log.js';
import { expectSame, folded, resultOf, tablesOf } from '../../support/fold.js';
import { DATABASES, type ServerName } from '../../support/harnesses/databases.js';
import { availableDatabases, createDatabase, type DatabaseName, type TestDatabase } from '../../support/servers.js';

const open: { orms: MikroORM[]; database: TestDatabase }[] = [];

async function emptyStore(name: DatabaseName): Promise<MikroORM> {
  return (await sharedStore(name, 1))[0]!;
}

/** Several ORMs on one database, as in several processes. */
async function sharedStore(name: DatabaseName, count: number): Promise<MikroORM[]> {
  const database = await createDatabase(name);
  const orms: MikroORM[] = [];
  open.push({ orms, database });
  while (orms.length < count) orms.push(await MikroORM.init({ ...database.options, entities: adkEntities() }));
  await migrate(orms[0]!);
  return orms;
}

afterEach(async () => {
  for (const { orms, database } of open.splice(0)) {
    for (const orm of orms) await orm.close(true);
    await database.drop();
  }
});

async function linesOf({ em }: Pick<MikroORM, 'em'>, filter = {}): Promise<string[]> {
  const lines: string[] = [];
  for await (const record of new SessionMaintenance(em).exportSessions(filter)) lines.push(JSON.stringify(record));
  return lines;
}

const parsed = (lines: readonly string[]) => lines.map((line): unknown => JSON.parse(line));

const importInto = (orm: Pick<MikroORM, 'em'>, lines: readonly string[], options = {}): Promise<MaintenanceResult> =>
  new SessionMaintenance(orm.em).importSessions(parsed(lines), options);

/** Fills a store with everything that a year of use leaves. */
async function fill({ em }: MikroORM): Promise<void> {
  const service = new MikroOrmSessionService(em);
  const maintenance = new SessionMaintenance(em);
  const odd = 'é😀\'"`\\%_?';
  for (const appName of ['app', 'App', odd]) {
    for (const userId of ['u', 'U ', '__proto__']) {
      const key = { appName, userId, sessionId: `s ${odd}` };
      const session = await service.createSession({
        ...key,
        state: { given: { '2': 1, b: null, a: ['\0', '\ud800', 0.1] }, 'user:u': odd, 'app:x': 1e-7, ['__proto__']: 5 },
      });
      for (let n = 1; n <= 5; n++) {
        const actions = { stateDelta: { n, [`k${n}`]: [n], 'user:last': n, 'app:last': n } };
        const event = createEvent({
          id: `e${n}`,
          invocationId: `i${n}`,
          author: odd,
          timestamp: 1.5e12 + n / 3,
          actions,
        });
        await service.appendEvent({ session, event });
        if (n === 2) await service.updateState({ ...key, set: { outside: odd }, remove: ['k1'] });
      }
      // Other content for an event leaves a state value that no event has.
      await service.appendEvent({ session, event: createEvent({ id: 'e2', timestamp: 1.5e12 }) });
      await service.describeSession(key, { title: odd, labels: { team: odd } });
      await service.forkSession(key, { at: 3, as: 'fork' });
    }
  }
  const app = { appName: 'app', userId: 'u' };
  await maintenance.trim({ ...app, sessionId: `s ${odd}`, keepLast: 2 });
  await service.rewindSession({ ...app, sessionId: 'fork' }, { at: 1 });
  const softly = new MikroOrmSessionService(em, { deletion: 'soft' });
  await softly.deleteSession({ ...app, userId: 'U ', sessionId: 'fork' });
  await saveArtifacts(em, { ...app, sessionId: 'fork' });
  await saveArtifacts(em, { appName: 'artifacts alone', userId: 'nobody', sessionId: 'elsewhere' });
  await saveMemories(em, app);
  await new MikroOrmMemoryService(em).forget({ ...app, memoryId: 'gone é' });
  await saveMemories(em, { appName: 'memories alone', userId: 'nobody' });
  await service.createSession({ ...app, sessionId: 'empty' });
  const large = await service.createSession({ ...app, sessionId: 'large', state: { given: odd } });
  const events = Array.from({ length: 450 }, (_, n) =>
    createEvent({
      id: `l${n}`,
      content: { parts: [{ text: 'x'.repeat(n === 7 ? 2_500_000 : n) }] },
      actions: { stateDelta: { n } },
    }),
  );
  await service.appendEvents({ session: large, events });
  await service.updateState({ appName: 'state alone', userId: 'nobody', set: { 'user:a': 1, 'app:b': [odd] } });
}

/** Saves seven versions. */
async function saveArtifacts(em: MikroORM['em'], key: SessionKey, options: CommonOptions = {}): Promise<void> {
  const artifacts = new MikroOrmArtifactService(em, options);
  const large = Buffer.alloc(1_200_000, 'large').toString('base64');
  const parts = [{ text: '' }, { text: 'é\ud800', thought: true }, { inlineData: { data: large, mimeType: 'a/b' } }];
  for (const artifact of parts)
    await artifacts.saveArtifact({ ...key, filename: 'f', artifact, customMetadata: { ['__proto__']: [1e-7] } });
  for (const filename of ['a é', 'user:f', 'user:a', 'user: '])
    await artifacts.saveArtifact({ ...key, filename, artifact: { fileData: { fileUri: 'gs://a/b' } } });
}

/** Saves four memories. */
async function saveMemories(em: MikroORM['em'], owner: Omit<SessionKey, 'sessionId'>, options: CommonOptions = {}) {
  const vectors = async (texts: readonly string[]) => texts.map((text) => [text.length, 3]);
  const memory = new MikroOrmMemoryService(em, { ...options, embed: { model: 'length', vectors } });
  const said = (text: string, more = {}) => ({ content: { role: 'user', parts: [{ text }] }, ...more });
  const customMetadata = { ['__proto__']: [1e-7] };
  await memory.addMemory({
    ...owner,
    sessionId: 's é😀',
    memories: [said('Ada likes 北京烤鸭 \ud800', { id: '%\'"', author: 'é', customMetadata, timestamp: '1969-07-20' })],
  });
  await memory.addMemory({
    ...owner,
    memories: [said('Fleeting'), said('Hidden', { id: 'hidden' })],
    ttlMs: 1_000_000,
  });
  await memory.addMemory({ appName: owner.appName, memories: [said('Peanuts are sold out')] });
  await em.fork().nativeUpdate(AdkMemory, { ...owner, id: 'hidden' }, { seq: 7, settles: 1e300 });
}

test('L1 of two memories under one key, an import leaves the later', async () => {
  const [from, to] = [await emptyStore('sqlite'), await emptyStore('sqlite')];
  const owner = { appName: 'app', userId: 'u' };
  await saveMemories(from.em, owner);
  const lines = await linesOf(from);
  expect(lines).toHaveLength(4);
  expect(await linesOf(from, { userId: 'u' })).toEqual(lines.filter((line) => !line.includes('"userId":""')));
  const refused = async (change: object) =>
    expect(importInto(to, [JSON.stringify({ ...JSON.parse(lines[0]!), ...change })])).rejects.toThrow(
      InvalidArgumentError,
    );
  await refused({ memoryId: '' });
  await refused({ data: undefined });
  await refused({ data: { author: 'x' } });
  await refused({ data: { content: { parts: [null] } } });
  await refused({ time: 1e300 });
  await refused({ words: Buffer.from('[]\n').toString('base64') });
  await refused({ embedding: Buffer.from('[]\n').toString('base64') });
  await refused({ embedding: undefined });
  expect(await linesOf(to)).toEqual([]);
  expect(await importInto(to, lines, { batchSize: 3 })).toMatchObject({ done: { memories: 4, records: 4 } });
  expect(await linesOf(to)).toEqual(lines);
  for (const { model, embedding } of await to.em.fork().find(AdkMemory, {}))
    expect([model, embedding?.length]).toEqual(['length', 3]);
  const memory = new MikroOrmMemoryService(to.em);
  const { memories } = await memory.searchMemory({ ...owner, query: '鸭 hidden fleeting' });
  expect(memories.map(({ author, content }) => [author, content.parts?.[0]?.text])).toEqual([
    [undefined, 'Fleeting'],
    ['é', 'Ada likes 北京烤鸭 \ud800'],
  ]);
  await memory.addMemory({
    ...owner,
    sessionId: 's é😀',
    memories: [{ id: '%\'"', content: { parts: [{ text: 'No longer' }] } }],
  });
  const now = await linesOf(to);
  expect(await importInto(to, lines)).toMatchObject({ done: { memories: 0 } });
  expect(await linesOf(to)).toEqual(now);
  expect(await importInto(from, now)).toMatchObject({ done: { memories: 1 } });
  expect(await linesOf(from)).toEqual(now);
});

test('L1 what was forgotten stays forgotten in an import, and of a mark and a memory the later stays', async () => {
  const [from, to] = [await emptyStore('sqlite'), await emptyStore('sqlite')];
  const [theirs, ours] = [from, to].map(({ em }) => new MikroOrmMemoryService(em));
  const owner = { appName: 'app', userId: 'u' };
  const session = await new MikroOrmSessionService(from.em).createSession({ ...owner, sessionId: 's' });
  const event = (id: string) => createEvent({ id, author: 'user', content: { role: 'user', parts: [{ text: id }] } });
  const ids = ['apple', 'brick', 'cloud'];
  await new MikroOrmSessionService(from.em).appendEvents({ session, events: ids.map(event) });
  await theirs!.addSessionToMemory(session);
  const before = await linesOf(from);
  await theirs!.forget({ ...owner, sessionId: 's', memoryId: 'apple' });
  await theirs!.forget({ ...owner, memoryId: 'brick' });
  const lines = await linesOf(from);
  expect(lines.filter((line) => line.includes('"forgotten"'))).toHaveLength(3);
  const found = async () => (await ours!.listMemories({ ...owner, limit: 10 })).map(({ id }) => id);
  const again = async () => {
    await ours!.addSessionToMemory((await new MikroOrmSessionService(to.em).getSession({ ...owner, sessionId: 's' }))!);
    return found();
  };
  const refused = { type: 'forgotten', ...owner, sessionId: '', memoryId: '', createTime: 1 };
  await expect(importInto(to, [JSON.stringify(refused)])).rejects.toThrow(InvalidArgumentError);
  await importInto(to, lines, { batchSize: 2 });
  expect(await linesOf(to)).toEqual(lines);
  expect(await again()).toEqual(['cloud']);
  // An older export does not bring them back; added by hand, they are there.
  await importInto(to, before);
  expect(await found()).toEqual(['cloud']);
  await ours!.addMemory({
    ...owner,
    sessionId: 's',
    memories: [{ id: 'apple', content: { parts: [{ text: 'apple' }] } }],
  });
  await importInto(to, lines);
  expect(await again()).toEqual(['apple', 'cloud']);
  // What was forgotten there is forgotten here.
  await theirs!.forget({ ...owner, sessionId: 's', memoryId: 'cloud' });
  await importInto(to, await linesOf(from, { userId: 'u' }));
  expect(await again()).toEqual(['apple']);
  // Forgotten here long ago, and there again after it was added: an export from between them does not bring it back.
  await ours!.forget({ ...owner, memoryId: 'dune' });
  await theirs!.addMemory({ ...owner, memories: [{ id: 'dune', content: { parts: [{ text: 'dune' }] } }] });
  const between = await linesOf(from);
  await theirs!.forget({ ...owner, memoryId: 'dune' });
  await importInto(to, await linesOf(from));
  await importInto(to, between);
  expect(await found()).toEqual(['apple']);
  await new SessionMaintenance(to.em).eraseUser(owner);
  expect(await linesOf(to)).toEqual([]);
});

const KEY = { appName: 'app', userId: 'u', sessionId: 's' };

test('L1 K4 state of an event that was rewritten after an import is part of the past of the next one', async () => {
  const [from, to] = [await emptyStore('sqlite'), await emptyStore('sqlite')];
  const [theirs, ours] = [from, to].map(({ em }) => new MikroOrmSessionService(em));
  const session = await theirs!.createSession(KEY);
  const event = (id: string, stateDelta = {}) => createEvent({ id, actions: createEventActions({ stateDelta }) });
  const bring = async () => importInto(to, await linesOf(from), { onExisting: 'replace' });
  await theirs!.appendEvent({ session, event: event('e1') });
  await bring();
  await theirs!.appendEvent({ session, event: event('e1', { k: 1 }) });
  await theirs!.appendEvent({ session, event: event('e2') });
  await bring();
  const here = (await ours!.getSession(KEY))!;
  await ours!.appendEvent({ session: here, event: event('e3', { k: 3 }) });
  expect((await ours!.forkSession(KEY, { at: 2 })).state).toEqual({ k: 1 });
});

test('L1 J2 an import in batches into a soft-deleted session records its history once', async () => {
  const { em } = await emptyStore('sqlite');
  const [service, maintenance] = [new MikroOrmSessionService(em, { deletion: 'soft' }), new SessionMaintenance(em)];
  const session = await service.createSession(KEY);
  const append = (...ids: string[]) => service.appendEvents({ session, events: ids.map((id) => createEvent({ id })) });
  await append('e1', 'e2');
  await maintenance.trim({ ...KEY, keepLast: 1 });
  await append('e3', 'e4');
  await service.deleteSession(KEY);
  await new EventLog(em).head();
  await importInto({ em }, await linesOf({ em }), { batchSize: 1, onExisting: 'replace', force: true });
  expectSame(await folded(new EventLog(em), KEY.appName), await tablesOf({ em }, KEY.appName));
});

test('L1 J2 K3 nobody sees a session whose import was interrupted: no reader, restoreSession or export', async () => {
  const [from, { em }] = [await emptyStore('sqlite'), await emptyStore('sqlite')];
  const service = new MikroOrmSessionService(from.em);
  const session = await service.createSession({ ...KEY, state: { a: 1 } });
  await service.appendEvents({ session, events: ['e1', 'e2', 'e3'].map((id) => createEvent({ id })) });
  const lines = await linesOf(from);
  const [log, ends] = [new EventLog(em), new AbortController()];
  const onProgress = ({ done }: MaintenanceResult) => {
    if (done['events'] !== 0) ends.abort();
  };
  await importInto({ em }, lines, { batchSize: 1, signal: ends.signal, onProgress });
  const part = await folded(log, KEY.appName);
  expect(part.sessions).toEqual({});
  expectSame(part, await tablesOf({ em }, KEY.appName));
  await expect(new MikroOrmSessionService(em).restoreSession(KEY)).rejects.toMatchObject({
    code: 'ADK_SESSION_NOT_FOUND',
  });
  expect(await linesOf({ em })).toEqual([]);
  await importInto({ em }, lines, { batchSize: 1 });
  expectSame(await folded(log, KEY.appName), await tablesOf({ em }, KEY.appName));
});

const MEANWHILE: Record<string, (service: MikroOrmSessionService, em: MikroORM['em']) => Promise<unknown>> = {
  'was rewound': (service) => service.rewindSession(KEY, { at: 1 }),
  'was rewound to what is there': (service) => service.rewindSession(KEY, { at: 2 }),
  'was rewound and appended to': async (service) => {
    const session = await service.rewindSession(KEY, { at: 1 });
    await service.appendEvents({ session, events: ['f2', 'f3'].map((id) => createEvent({ id })) });
  },
  'was created again': async (service) => {
    await service.deleteSession(KEY);
    await setTimeout(2);
    await service.createSession({ ...KEY, state: { again: 1 } });
  },
  'was appended to, and an event was rewritten': async (service) => {
    const session = (await service.getSession(KEY))!;
    await service.appendEvents({ session, events: ['e1', 'e5'].map((id) => createEvent({ id, timestamp: 2e12 })) });
  },
  'was trimmed': (_, em) => new SessionMaintenance(em).trim({ ...KEY, keepLast: 1, dropOpenCalls: true }),
};

test.each(Object.entries(MEANWHILE))(
  'L1 a later export replaces what an interrupted import has left, if the session %s meanwhile',
  async (_, change) => {
    const [from, to] = [await emptyStore('sqlite'), await emptyStore('sqlite')];
    const service = new MikroOrmSessionService(from.em);
    const session = await service.createSession({ ...KEY, state: { a: 1 } });
    const content = { parts: [{ functionCall: { id: 'c', name: 'approve', args: {} } }] };
    const asks = createEvent({ id: 'e1', content, longRunningToolIds: ['c'] });
    await service.appendEvents({ session, events: [asks, ...['e2', 'e3', 'e4'].map((id) => createEvent({ id }))] });
    const file = await linesOf(from);
    await expect(importInto(to, file.slice(0, 4), { batchSize: 1 })).rejects.toThrow(/lacks its events after number 3/);
    await change(service, from.em);
    const later = await linesOf(from);
    await importInto(to, later, { batchSize: 1 });
    expect(await linesOf(to)).toEqual(later);
    const calls = (orm: MikroORM) => new MikroOrmSessionService(orm.em).findOpenCalls({ appName: KEY.appName });
    expect(await calls(to)).toEqual(await calls(from));
    expectSame(await folded(new EventLog(to.em), KEY.appName), await tablesOf(to, KEY.appName));
  },
);

test('L1 artifacts are imported as a whole, or refused', async () => {
  const [from, to] = [await emptyStore('sqlite'), await emptyStore('sqlite')];
  const key = { appName: 'app', userId: 'u', sessionId: 's' };
  await saveArtifacts(from.em, key);
  const lines = await linesOf(from, { userId: 'u' });
  expect(lines).toHaveLength(7 + 2 + 3);
  expect(await linesOf(from, { userId: 'other' })).toEqual([]);
  const versions = () => new MikroOrmArtifactService(to.em).listVersions({ ...key, filename: 'f' });
  const without = (text: string) => lines.filter((line) => !line.includes(text));
  await expect(importInto(to, without('"part":1'))).rejects.toThrow(/Record 11 is a part of an artifact/);
  await expect(importInto(to, without('"part":2'))).rejects.toThrow(/has only 2 of its \d parts/);
  const changed = (from: RegExp, to: string) => lines.map((line) => line.replace(from, to));
  await expect(importInto(to, changed(/("part":1,"data":")..../, '$1AAAA'))).rejects.toThrow(
    'Version 2 of artifact f has other content than its info says.',
  );
  await expect(importInto(to, changed(/"filename":"f"/, '"filename":""'))).rejects.toThrow(InvalidArgumentError);
  await expect(importInto(to, changed(/"isEncoded":false/, '"isEncoded":true'))).rejects.toThrow(
    /no info of a plain artifact/,
  );
  expect(await versions()).toEqual([0, 1]);
  // The import continues where it stopped.
  expect(await importInto(to, lines)).toMatchObject({ done: { artifactVersions: 1 } });
  expect(await linesOf(to)).toEqual(lines);
  expect(
    await new MikroOrmArtifactService(to.em).saveArtifact({ ...key, filename: 'f', artifact: { text: 'x' } }),
  ).toBe(3);
  expect(await importInto(to, lines)).toMatchObject({ done: { artifactVersions: 0, records: 12 } });
  await new MikroOrmArtifactService(from.em).saveArtifact({ ...key, filename: 'f', artifact: { text: 'x' } });
  await new MikroOrmArtifactService(from.em).saveArtifact({ ...key, filename: 'f', artifact: { text: 'y' } });
  await expect(importInto(to, await linesOf(from), { onExisting: 'error' })).rejects.toThrow(
    'Version 3 of artifact f exists here, and was saved at another time.',
  );
  const own = await linesOf(to);
  expect(await importInto(to, await linesOf(from))).toMatchObject({ done: { artifactVersions: 0 }, skipped: 1 });
  expect(await linesOf(to)).toEqual(own);
});

describe.each(availableDatabases())('from %s', (source) => {
  test('L1 an export is the same file from every database that it was imported into', async () => {
    const from = await emptyStore(source);
    await fill(from);
    const lines = await linesOf(from);
    expect(lines.length).toBeGreaterThan(500);
    for (const target of availableDatabases()) {
      const to = await emptyStore(target);
      const written = await importInto(to, lines, { batchSize: 100 });
      expect(written).toMatchObject({
        done: { sessions: 20, artifactVersions: 14, memories: 8, records: lines.length },
      });
      expect(await linesOf(to)).toEqual(lines);
      for (const appName of ['app', 'App', 'state alone'])
        expectSame(await folded(new EventLog(to.em), appName), await tablesOf(to, appName));
      // A repeated import brings nothing new, not even for readers of the log.
      const head = await new EventLog(to.em).complete().head();
      expect(await importInto(to, lines)).toMatchObject({
        done: { sessions: 0, events: 0, artifactVersions: 0, memories: 0 },
      });
      expect(await new EventLog(to.em).complete().head()).toEqual(head);
      expect(await linesOf(to)).toEqual(lines);
      const key = { appName: 'App', userId: 'u', sessionId: 's é😀\'"`\\%_?' };
      const past = (orm: MikroORM) => new MikroOrmSessionService(orm.em).forkSession(key, { at: 3, as: 'past' });
      expect((await past(to)).state).toEqual((await past(from)).state);
      await new MikroOrmSessionService(from.em).deleteSession({ ...key, sessionId: 'past' });
    }
  }, 300_000);
});

test('L1 a memory that no search could find is refused', async () => {
  const [from, to] = [await emptyStore('sqlite'), await emptyStore('sqlite')];
  await saveMemories(from.em, { appName: 'app', userId: 'u' });
  const lines = await linesOf(from);
  const changed = lines.map((line) => line.replace(/"words":"[^"]+"/, '"words":""'));
  expect(changed).not.toEqual(lines);
  await expect(importInto(to, changed)).rejects.toThrow('words or embedding are not of this version of the package.');
  expect(await linesOf(to)).toEqual([]);
});

test.each(availableDatabases())('L1 a session with a file that was saved here is not replaced on %s', async (name) => {
  const [from, to] = [await emptyStore('sqlite'), await emptyStore(name)];
  await new MikroOrmSessionService(from.em).createSession(KEY);
  const [there, here] = [new MikroOrmArtifactService(from.em), new MikroOrmArtifactService(to.em)];
  await there.saveArtifact({ ...KEY, filename: 'f', artifact: { text: 'theirs' } });
  const lines = await linesOf(from);
  const replace = (options = {}) => importInto(to, lines, { onExisting: 'replace', ...options });
  await importInto(to, lines);
  expect(await replace()).toMatchObject({ done: { sessions: 1, artifactVersions: 1 }, skipped: 0 });
  await setTimeout(2);
  await here.saveArtifact({ ...KEY, filename: 'mine', artifact: { text: 'mine' } });
  expect(await replace()).toMatchObject({ done: { sessions: 0, artifactVersions: 0 }, skipped: 1 });
  expect(await here.loadArtifact({ ...KEY, filename: 'mine' })).toEqual({ text: 'mine' });
  expect(await replace({ force: true })).toMatchObject({ done: { sessions: 1, artifactVersions: 1 }, skipped: 0 });
  expect(await linesOf(to)).toEqual(lines);
});

describe.each(availableDatabases())('in batches on %s', (name) => {
  /** A trimmed session of the events e4 to e9, with state that was set outside a run. */
  const trimmed = async () => {
    const from = await emptyStore('sqlite');
    const service = new MikroOrmSessionService(from.em);
    const session = await service.createSession({ ...KEY, state: { a: 1 } });
    const append = (n: number) =>
      service.appendEvent({ session, event: createEvent({ id: `e${n}`, actions: { stateDelta: { n } } }) });
    for (const n of [1, 2, 3, 4, 5]) await append(n);
    await new SessionMaintenance(from.em).trim({ ...KEY, keepLast: 2 });
    for (const n of [6, 7]) await append(n);
    await service.updateState({ ...KEY, set: { outside: 1 } });
    for (const n of [8, 9]) await append(n);
    return linesOf(from);
  };

  test('L1 J2 G1 each reader gets each event once, wherever it was between two batches', async () => {
    const lines = await trimmed();
    const [to, other] = (await sharedStore(name, 2)) as [MikroORM, MikroORM];
    const log = new EventLog(other.em);
    const fold = new FoldedLog();
    let [cursor, follower] = [await log.complete().head(), await log.head()];
    const ids: string[] = [];
    const read = async () => {
      for await (const entry of log.complete().since(cursor, { appName: 'app' })) {
        fold.add(entry);
        cursor = entry.cursor;
      }
      for await (const entry of log.since(follower)) {
        if (entry.event) ids.push(entry.event.id);
        follower = entry.cursor;
      }
      expectSame(resultOf(fold), await tablesOf(other, 'app'));
      expectSame(await folded(log, 'app'), await tablesOf(other, 'app'));
    };
    for (const options of [{ batchSize: 1 }, { batchSize: 2, onExisting: 'replace' } as const]) {
      let statements = 0;
      const em = faulty(to.em, {
        before: async (text) => {
          if (text !== 'begin') return;
          statements++;
          await read();
        },
      });
      await importInto({ em }, lines, options);
      await read();
      expect(statements).toBeGreaterThan(2);
      expect(await linesOf(to)).toEqual(lines);
      expect(ids.splice(0)).toEqual(['e4', 'e5', 'e6', 'e7', 'e8', 'e9']);
    }
  });

  test('L1 K1 what an interrupted import has left is begun again, pruned after a day, erased, or created over', async () => {
    const lines = await trimmed();
    const to = await emptyStore(name);
    const [service, maintenance] = [new MikroOrmSessionService(to.em), new SessionMaintenance(to.em)];
    const interrupt = async () => {
      const stop = new AbortController();
      const onProgress = ({ done }: MaintenanceResult) => done['events'] === 2 && stop.abort();
      await importInto(to, lines, { batchSize: 2, signal: stop.signal, onProgress });
      expect(await statuses()).toEqual(['importing']);
    };
    const execute = (text: string): Promise<unknown> => to.em.getConnection().execute(text);
    const statuses = async () =>
      ((await execute('select status from adk_sessions')) as { status: string }[]).map(({ status }) => status);
    const prune = () => maintenance.prune({ appName: 'app', idleFor: 1 });
    await interrupt();
    expect(await prune()).toMatchObject({ done: { sessions: 0 } });
    expect(await service.listSessions({ appName: 'app' })).toMatchObject({ sessions: [] });
    for (const status of ['active', 'deleted'] as const)
      expect(await service.findSessions({ appName: 'app', status })).toMatchObject({ sessions: [] });
    await expect(service.restoreSession(KEY)).rejects.toMatchObject({ code: 'ADK_SESSION_NOT_FOUND' });
    await importInto(to, lines, { batchSize: 2 });
    expect(await linesOf(to)).toEqual(lines);
    await service.deleteSession(KEY);
    await interrupt();
    await execute('update adk_sessions set deleted_at = deleted_at - 86400001');
    expect(await prune()).toMatchObject({ done: { sessions: 1 } });
    await interrupt();
    expect(await maintenance.eraseUser({ userId: 'u' })).toMatchObject({ done: { sessions: 1 } });
    expect(await statuses()).toEqual([]);
    await interrupt();
    await service.createSession({ ...KEY, state: { ours: 1 } });
    expect(await importInto(to, lines)).toMatchObject({ done: { sessions: 0 }, skipped: 1 });
    expect(await service.getSession(KEY)).toMatchObject({ state: { ours: 1 }, events: [] });
    expectSame(await folded(new EventLog(to.em), 'app'), await tablesOf(to, 'app'));
  });

  test('L1 O1 an import whose session others delete or import meanwhile says so', async () => {
    const lines = await trimmed();
    const [to, other] = (await sharedStore(name, 2)) as [MikroORM, MikroORM];
    const others = [
      () => new MikroOrmSessionService(other.em).createSession(KEY),
      () => importInto(other, lines, { batchSize: 2 }),
      () => new SessionMaintenance(other.em).eraseUser({ userId: 'u' }),
    ];
    for (const meanwhile of others) {
      await new MikroOrmSessionService(to.em).deleteSession(KEY);
      let begun = 0;
      const em = faulty(to.em, {
        before: async (text) => {
          if (text === 'begin' && ++begun === 2) await meanwhile();
        },
      });
      await expect(importInto({ em }, lines, { batchSize: 2 })).rejects.toMatchObject({ code: 'ADK_SESSION_EXISTS' });
      expectSame(await folded(new EventLog(to.em), 'app'), await tablesOf(to, 'app'));
    }
  });
});

/** An `EntityManager` that does this once, before a statement. */
function once({ em }: MikroORM, statement: RegExp, work: () => Promise<unknown>) {
  let isDone = false;
  return faulty(em, {
    before: async (text) => {
      if (isDone || !statement.test(text)) return;
      isDone = true;
      await work();
    },
  });
}

// Only servers: a file takes one writer at a time, so nobody else can insert after the lock.
const servers = availableDatabases().filter((name) => DATABASES[name].server);
(servers.length > 0 ? describe.each(servers) : describe.skip.each(['no server']))(
  'beside another import on %s',
  (name) => {
    test.each(['rewound', 'deleted and created again'] as const)(
      'J2 an event of a session that is %s before positions are written comes after that change',
      async (how) => {
        const [target, peer] = await sharedStore(name as DatabaseName, 2);
        const service = new MikroOrmSessionService(peer!.em);
        const session = await service.createSession(KEY);
        await service.appendEvents({ session, events: ['a', 'b'].map((id) => createEvent({ id, timestamp: 1 })) });
        const em = once(target!, /^(with given|update \()\s[^]*position/, async () => {
          if (how === 'rewound') await service.rewindSession(KEY, { at: 1 });
          else {
            await service.deleteSession(KEY);
            await service.createSession(KEY);
          }
          const events = ['c', 'd'].map((id) => createEvent({ id, timestamp: 1 }));
          await service.appendEvents({ session: (await service.getSession(KEY))!, events });
        });
        await new EventLog(em).head();
        const expected = how === 'rewound' ? ['a', 'c', 'd'] : ['c', 'd'];
        const { sessions } = await folded(new EventLog(peer!.em), KEY.appName);
        const [only] = Object.values(sessions);
        expect(Object.values(only!.events).map((event) => (event as { id: string }).id)).toEqual(expected);
      },
    );

    test('J2 what an import has hidden stays hidden if it comes before positions are written', async () => {
      const [target, peer] = await sharedStore(name as DatabaseName, 2);
      const service = new MikroOrmSessionService(peer!.em);
      const session = await service.createSession(KEY);
      await service.appendEvents({
        session,
        events: ['a', 'b', 'c', 'd'].map((id) => createEvent({ id, timestamp: 1 })),
      });
      const lines = await linesOf(peer!);
      const em = once(target!, /^(with given|update \()\s[^]*position/, async () => {
        await service.deleteSession(KEY);
        // The end of the file is missing.
        await expect(importInto(peer!, lines.slice(0, -1), { batchSize: 2 })).rejects.toThrow(InvalidArgumentError);
      });
      const log = new EventLog(em);
      await log.head();
      await log.head();
      const rows: unknown = await peer!.em.getConnection().execute('select position from adk_events');
      expect((rows as { position: unknown }[]).map(({ position }) => Number(position ?? -1))).toEqual([0, 0]);
    });

    test('L1 a session that somebody creates after the import has looked for it is taken for the one that is here', async () => {
      const [source, target, peer] = [await emptyStore('sqlite'), ...(await sharedStore(name as DatabaseName, 2))];
      const session = await new MikroOrmSessionService(source.em).createSession({
        appName: 'app',
        userId: 'u',
        sessionId: 's',
      });
      await new MikroOrmSessionService(source.em).appendEvent({ session, event: createEvent({ id: 'e' }) });
      const lines = await linesOf(source);

      const em = once(target!, /^insert into \S*adk_sessions\W/, () => importInto(peer!, lines));
      expect(await importInto({ em }, lines)).toMatchObject({
        done: { sessions: 0, events: 0, records: lines.length },
      });
      expect(await linesOf(target!)).toEqual(lines);
    });

    test('L1 an import of an artifact that somebody deletes meanwhile does not fail', async () => {
      const source = await emptyStore('sqlite');
      const [target, peer, observer] = await sharedStore(name as DatabaseName, 3);
      const file = { appName: 'app', userId: 'u', sessionId: 's', filename: 'f' };
      const save = () =>
        new MikroOrmArtifactService(source.em).saveArtifact({ ...file, artifact: { fileData: { fileUri: 'a:b' } } });
      await save();
      await importInto(target!, await linesOf(source));
      await save();
      const waiting = DATABASES[name as ServerName].server.waiting;
      let deletion: Promise<unknown> | undefined;
      const em = once(target!, /^update \S*adk_artifacts\W/, async () => {
        let isOver = false;
        deletion = new MikroOrmArtifactService(peer!.em).deleteArtifact(file).finally(() => (isOver = true));
        const isWaiting = async () => ((await observer!.em.getConnection().execute(waiting)) as unknown[]).length > 0;
        // InnoDB gives the same answer again to who asks within 100 ms.
        await until(async () => isOver || (await isWaiting()), 150);
      });
      expect(await importInto({ em }, await linesOf(source))).toMatchObject({ done: { artifactVersions: 1 } });
      await deletion;
      expect(await linesOf(target!)).toEqual([]);
    });

    test('L1 a memory that somebody adds after the import has looked for it stays', async () => {
      const [source, target, peer] = [await emptyStore('sqlite'), ...(await sharedStore(name as DatabaseName, 2))];
      const add = ({ em }: MikroORM, text: string) =>
        new MikroOrmMemoryService(em).addMemory({
          appName: 'app',
          memories: [{ id: 'm', content: { parts: [{ text }] } }],
        });
      await add(source, 'old');
      const lines = await linesOf(source);
      const em = once(target!, /^insert into \S*adk_memories\W/, () => add(peer!, 'new'));
      expect(await importInto({ em }, lines)).toMatchObject({ done: { memories: 0 } });
      expect(await new MikroOrmMemoryService(target!.em).listMemories({ appName: 'app', limit: 2 })).toMatchObject([
        { content: { parts: [{ text: 'new' }] } },
      ]);
    });
  },
);

describe.each(availableDatabases())('beside writers on %s', (name) => {
  /** More than one batch. */
  const EVENTS = 210;
  const eventOf = (n: number, text = '') =>
    createEvent({
      id: `e${n}`,
      timestamp: n,
      content: { parts: [{ text }] },
      actions: { stateDelta: { n, [`k${n % 7}`]: n } },
    });
  const fill = async (service: MikroOrmSessionService, key: SessionKey, count = EVENTS) => {
    const session = await service.createSession({ ...key, state: { given: count } });
    await service.appendEvents({ session, events: Array.from({ length: count }, (_, i) => eventOf(i + 1)) });
  };
  const read = async (service: MikroOrmSessionService, key: SessionKey) => (await service.getSession(key))!;

  test.each<[string, (orm: MikroORM, service: MikroOrmSessionService, key: SessionKey) => Promise<unknown>]>([
    [
      'an append',
      async (_, service, key) => service.appendEvent({ session: await read(service, key), event: eventOf(EVENTS + 1) }),
    ],
    [
      'an event that is written again',
      async (_, service, key) =>
        service.appendEvents({
          session: await read(service, key),
          events: [eventOf(1, 'new'), eventOf(EVENTS, 'new')],
        }),
    ],
    ['a rewind', (_, service, key) => service.rewindSession(key, { at: 5 })],
    ['a trim', ({ em }, _, key) => new SessionMaintenance(em).trim({ ...key, keepLast: 5 })],
    [
      'state set outside of a run',
      (_, service, key) => service.updateState({ ...key, set: { n: -1 }, remove: ['k1'] }),
    ],
    ['a deletion', (_, service, key) => service.deleteSession(key)],
    [
      'a session of the same id',
      async (_, service, key) => {
        await service.deleteSession(key);
        await fill(service, key, 3);
      },
    ],
  ])(
    'L1 %s between any two statements of an export is in the file as a whole or not at all',
    async (_, change) => {
      const [from, other] = (await sharedStore(name, 2)) as [MikroORM, MikroORM];
      const service = new MikroOrmSessionService(other.em);
      const read = (em: MikroORM['em'], userId: string) => linesOf({ em }, { appName: 'app', userId });
      let last = false;
      for (let at = 1; !last; at++) {
        const key = { appName: 'app', userId: `u${at}`, sessionId: 's' };
        await fill(service, key);
        const before = await read(from.em, key.userId);
        let statements = 0;
        const during = await read(
          faulty(from.em, {
            before: async () => {
              if (++statements === at) await change(other, service, key);
            },
          }),
          key.userId,
        );
        last = statements < at;
        if (during.join('\n') !== before.join('\n')) expect(during).toEqual(await read(from.em, key.userId));
        expect(last || at < 30).toBe(true);
      }
      // Runs while the consumer has read a part.
      const key = { appName: 'app', userId: 'slow', sessionId: 's' };
      await fill(service, key);
      const before = await read(from.em, key.userId);
      const during: string[] = [];
      for await (const record of new SessionMaintenance(from.em).exportSessions({ appName: 'app', userId: 'slow' })) {
        if (during.push(JSON.stringify(record)) === 2) await change(from, new MikroOrmSessionService(from.em), key);
      }
      expect(during).toEqual(before);
    },
    120_000,
  );

  test('L1 every file can be imported, and each session in it is one that was committed', async () => {
    const [from, other] = (await sharedStore(name, 2)) as [MikroORM, MikroORM];
    const service = new MikroOrmSessionService(other.em);
    const maintenance = new SessionMaintenance(other.em);
    const keys = ['s1', 's2', 's3', 's4'].map((sessionId) => ({ appName: 'app', userId: 'u', sessionId }));
    for (const key of keys) await fill(service, key);
    let next = EVENTS;
    const append = async (key: SessionKey) =>
      service.appendEvent({ session: await read(service, key), event: eventOf(++next) });
    const deeds: ((key: SessionKey) => Promise<unknown>)[] = [
      append,
      async (key) => {
        const session = await read(service, key);
        const { id, actions } = session.events.at(-1)!;
        await service.appendEvent({ session, event: createEvent({ id, author: `again ${++next}`, actions }) });
      },
      (key) => service.updateState({ ...key, set: { set: ++next, n: next } }),
      async (key) => service.rewindSession(key, { at: (await read(service, key)).events.length - 2 }),
      (key) => service.updateState({ ...key, remove: ['k1', 'set'] }),
      append,
      (key) => maintenance.trim({ ...key, keepLast: EVENTS - 5 }),
      append,
      (key) => service.deleteSession(key),
      (key) => fill(service, key),
    ];
    let isOver = false;
    const write = async (key: SessionKey, from: number) => {
      for (let i = from; !isOver; i++) {
        await deeds[i % deeds.length]!(key);
        await setImmediate();
      }
    };
    const writers = keys.map(write);
    const files: string[][] = [];
    try {
      while (files.length < 5) files.push(await linesOf(from));
    } finally {
      isOver = true;
      await Promise.all(writers);
    }
    expect(new Set(files.map((lines) => lines.join('\n'))).size).toBeGreaterThan(1);
    for (const lines of files) {
      const to = await emptyStore('sqlite');
      await importInto(to, lines);
      expect(await linesOf(to)).toEqual(lines);
      for (const { session, events } of sessionsIn(lines)) {
        expect(events.map(({ seq }) => seq)).toEqual(events.map((_, i) => session.firstSeq + i));
        expect(events).toHaveLength(session.lastSeq - session.firstSeq + 1);
        const past = events.map(({ seq, event, superseded }) => ({
          seq,
          event: event as unknown as Event,
          superseded,
        }));
        const given = { kind: 'created', seq: 0, set: session.created ?? {}, removed: [] } as const;
        const changes = (session.changes ?? []).map((change) => ({ ...change, set: change.set ?? {} }));
        const state = pastState([given, ...changes], past, session.lastSeq);
        const values = new Map(state.map(({ key, json }) => [key, JSON.parse(json)]));
        expect(new Map(session.state.map(({ key, value }) => [key, value]))).toEqual(values);
        for (const { key, value, eventId } of session.state)
          for (const { event } of past) if (event.id === eventId) expect(event.actions.stateDelta[key]).toBe(value);
      }
    }
  }, 120_000);
});

/** The sessions of a file, each with its events. */
function sessionsIn(lines: readonly string[]): { session: SessionRecord; events: EventRecord[] }[] {
  const sessions: { session: SessionRecord; events: EventRecord[] }[] = [];
  for (const record of parsed(lines) as ExportRecord[]) {
    if (record.type === 'session') sessions.push({ session: record, events: [] });
    else if (record.type === 'event') sessions.at(-1)!.events.push(record);
  }
  return sessions;
}

test('L1 an import that was interrupted is made whole by the same import', async () => {
  const from = await emptyStore('sqlite');
  await fill(from);
  const lines = await linesOf(from, { appName: 'app', userId: 'u' });
  expect(lines[0]).toContain('"type":"user"');
  for (const count of [1, 2, 5, 120, 300, lines.length - 1]) {
    const to = await emptyStore('sqlite');
    const stop = new AbortController();
    const onProgress = ({ done }: MaintenanceResult) => {
      if (done['records'] === count) stop.abort();
    };
    await importInto(to, lines, { batchSize: 50, signal: stop.signal, onProgress });
    // Everything that was imported is complete.
    const service = new MikroOrmSessionService(to.em);
    const { sessions } = await service.listSessions({ appName: 'app' });
    for (const { id } of sessions) {
      const key = { appName: 'app', userId: 'u', sessionId: id };
      const original = await new MikroOrmSessionService(from.em).getSession(key);
      expect((await service.getSession(key))?.events).toEqual(original?.events);
    }
    await importInto(to, lines, { batchSize: 70 });
    expect(await linesOf(to)).toEqual(lines);
  }
}, 120_000);

test('L1 a later import replaces what has changed there, and keeps what has gone on here', async () => {
  const [from, to] = [await emptyStore('sqlite'), await emptyStore('sqlite')];
  const [there, here] = [new MikroOrmSessionService(from.em), new MikroOrmSessionService(to.em)];
  const session = await there.createSession({ ...KEY, state: { a: 1 } });
  await there.appendEvent({ session, event: createEvent({ id: 'e1', actions: { stateDelta: { n: 1 } } }) });
  await importInto(to, await linesOf(from));
  const log = new EventLog(to.em);
  const reader = new FoldedLog();
  for await (const entry of log.complete().since(0, { appName: 'app' })) reader.add(entry);
  const seen = await log.head();
  const handle = (await here.getSession(KEY))!;
  await there.appendEvent({ session, event: createEvent({ id: 'e2', actions: { stateDelta: { n: 2 } } }) });
  await there.updateState({ ...KEY, set: { b: 2 }, remove: ['a'] });
  await there.describeSession(KEY, { title: 'theirs' });
  const lines = await linesOf(from);
  const before = await linesOf(to);
  expect(await importInto(to, lines)).toMatchObject({ done: { sessions: 0, events: 0 }, skipped: 1 });
  await expect(importInto(to, lines, { onExisting: 'error' })).rejects.toMatchObject({ code: 'ADK_SESSION_EXISTS' });
  expect(await linesOf(to)).toEqual(before);
  expect(await importInto(to, lines, { onExisting: 'replace' })).toMatchObject({
    done: { sessions: 1, events: 2 },
    skipped: 0,
  });
  expect(await linesOf(to)).toEqual(lines);
  expectSame(await folded(log, 'app'), await tablesOf(to, 'app'));
  for await (const entry of log.complete().since(seen, { appName: 'app' })) reader.add(entry);
  expectSame(resultOf(reader), await tablesOf(to, 'app'));
  // Its handles are of another session.
  const rejecting = new MikroOrmSessionService(to.em, { onStaleSession: 'reject' });
  await expect(rejecting.appendEvent({ session: handle, event: createEvent({ id: 'late' }) })).rejects.toMatchObject({
    code: 'ADK_STALE_SESSION',
  });
  expect(await linesOf(to)).toEqual(lines);
});

const WRITTEN_HERE: Record<string, (service: MikroOrmSessionService, em: MikroORM['em']) => Promise<unknown>> = {
  append: async (service) =>
    service.appendEvent({ session: (await service.getSession(KEY))!, event: createEvent({ id: 'ours' }) }),
  rewrite: async (service) =>
    service.appendEvent({ session: (await service.getSession(KEY))!, event: createEvent({ id: 'e1' }) }),
  state: (service) => service.updateState({ ...KEY, set: { ours: 1 } }),
  rewind: (service) => service.rewindSession(KEY, { at: 1 }),
  trim: (_, em) => new SessionMaintenance(em).trim({ ...KEY, keepLast: 1 }),
  title: (service) => service.describeSession(KEY, { title: 'ours' }),
  'soft deletion': (_, em) => new MikroOrmSessionService(em, { deletion: 'soft' }).deleteSession(KEY),
  restoration: async (service, em) => {
    await new MikroOrmSessionService(em, { deletion: 'soft' }).deleteSession(KEY);
    await service.restoreSession(KEY);
  },
  creation: async (service) => {
    await service.deleteSession(KEY);
    await service.createSession(KEY);
  },
  lease: (_, em) => new SessionLeases(em, { ttlMs: 3_600_000 }).acquire(KEY, { holder: 'me' }),
};

test.each(Object.entries(WRITTEN_HERE))(
  'L1 replace keeps a session with a %s here, unless forced',
  async (_, write) => {
    const [from, to] = [await emptyStore('sqlite'), await emptyStore('sqlite')];
    const there = new MikroOrmSessionService(from.em);
    const session = await there.createSession({ ...KEY, state: { a: 1 } });
    for (const id of ['e1', 'e2']) await there.appendEvent({ session, event: createEvent({ id }) });
    const lines = await linesOf(from);
    await importInto(to, lines);
    const replaced = { done: { sessions: 1, events: 2 }, skipped: 0 };
    expect(await importInto(to, lines, { onExisting: 'replace' })).toMatchObject(replaced);
    await write(new MikroOrmSessionService(to.em), to.em);
    const before = await tablesOf(to, 'app');
    const written = await linesOf(to);
    expect(await importInto(to, lines, { onExisting: 'replace' })).toMatchObject({
      done: { sessions: 0, events: 0 },
      skipped: 1,
    });
    expect(await linesOf(to)).toEqual(written);
    expectSame(await tablesOf(to, 'app'), before);
    expect(await importInto(to, lines, { onExisting: 'replace', force: true })).toMatchObject(replaced);
    expect(await linesOf(to)).toEqual(lines);
    expectSame(await folded(new EventLog(to.em), 'app'), await tablesOf(to, 'app'));
  },
);

test('L1 a session that is soft-deleted in the records is replaced by what came of it', async () => {
  const [from, to] = [await emptyStore('sqlite'), await emptyStore('sqlite')];
  const softly = new MikroOrmSessionService(from.em, { deletion: 'soft' });
  await softly.createSession({ ...KEY, state: { a: 1 } });
  await softly.deleteSession(KEY);
  await importInto(to, await linesOf(from));
  await softly.restoreSession(KEY);
  const lines = await linesOf(from);
  expect(await importInto(to, lines, { onExisting: 'replace' })).toMatchObject({ done: { sessions: 1 } });
  expect(await linesOf(to)).toEqual(lines);
  expectSame(await folded(new EventLog(to.em), 'app'), await tablesOf(to, 'app'));
});

test('L1 a refused record of a session leaves the one that it would have replaced', async () => {
  const [from, to] = [await emptyStore('sqlite'), await emptyStore('sqlite')];
  const there = new MikroOrmSessionService(from.em);
  const session = await there.createSession(KEY);
  for (const id of ['e1', 'e2', 'e3']) await there.appendEvent({ session, event: createEvent({ id }) });
  const lines = await linesOf(from);
  await importInto(to, lines);
  const options = { onExisting: 'replace', batchSize: 1 };
  for (const damaged of [lines.slice(0, -1), [...lines.slice(0, -1), lines.at(-1)!.replace('"e3"', '""')]])
    await expect(importInto(to, damaged, options)).rejects.toThrow(InvalidArgumentError);
  expect(await linesOf(to)).toEqual(lines);
});

test('L1 an older file leaves the state of apps and users that is here, with sharedState: keep', async () => {
  const [from, to] = [await emptyStore('sqlite'), await emptyStore('sqlite')];
  const [there, here] = [new MikroOrmSessionService(from.em), new MikroOrmSessionService(to.em)];
  const key = { appName: 'app', userId: 'u', sessionId: 's' };
  await there.createSession({ ...key, state: { 'user:a': 1, 'user:b': 1, 'app:a': 1, own: 1 } });
  const older = await linesOf(from);
  const state = async () => ({ ...(await here.getAppState(key)), ...(await here.getUserState(key)) });
  await here.updateState({ ...key, set: { 'user:a': 2, 'app:a': 2 } });
  const log = new EventLog(to.em);
  const before = await log.complete().head();
  await importInto(to, older, { sharedState: 'keep' });
  expect(await state()).toEqual({ 'user:a': 2, 'user:b': 1, 'app:a': 2 });
  expect(await here.getSession(key)).toMatchObject({ state: { own: 1 } });
  const set = [];
  for await (const entry of log.complete().since(before)) if (entry.change === 'state') set.push(entry.state);
  // An entry has the current state of all scopes.
  expect(set).toEqual([{ 'user:a': 2, 'user:b': 1, 'app:a': 2 }]);
  await importInto(to, older);
  expect(await state()).toEqual({ 'user:a': 1, 'user:b': 1, 'app:a': 1 });
});

test('J2 what a session that was rewound does not explain any more is in the log after an import', async () => {
  const [from, to] = [await emptyStore('sqlite'), await emptyStore('sqlite')];
  const there = new MikroOrmSessionService(from.em);
  const key = { appName: 'app', userId: 'u', sessionId: 's' };
  const session = await there.createSession({ ...key, state: { a: 1 } });
  await there.appendEvent({ session, event: createEvent({ id: 'e1' }) });
  const rewound = await there.rewindSession(key, { at: 0 });
  await there.appendEvent({ session: rewound, event: createEvent({ id: 'e1', actions: { stateDelta: { k: 1 } } }) });
  await there.appendEvent({ session: rewound, event: createEvent({ id: 'e1', author: 'corrected' }) });
  await importInto(to, await linesOf(from));
  expectSame(await folded(new EventLog(to.em), 'app'), await tablesOf(to, 'app'));
  expect(await linesOf(to)).toEqual(await linesOf(from));
});

test('L1 a record that no JSON was read from counts as its JSON', async () => {
  const to = await emptyStore('sqlite');
  const times = { createTime: 1, lastUpdateTime: 1, firstSeq: 1, lastSeq: 0 };
  const record = { type: 'session', appName: 'app', userId: 'u', sessionId: 's', ...times, state: [] };
  await new SessionMaintenance(to.em).importSessions([
    { ...record, title: undefined, created: { a: undefined, b: 1 } },
  ]);
  expect(parsed(await linesOf(to))).toEqual([{ ...record, created: { b: 1 } }]);
});

test('L1 what is no record, or another session, is refused', async () => {
  const [from, to] = [await emptyStore('sqlite'), await emptyStore('sqlite')];
  const [there, here] = [new MikroOrmSessionService(from.em), new MikroOrmSessionService(to.em)];
  const key = { appName: 'app', userId: 'u', sessionId: 's' };
  const session = await there.createSession(key);
  for (const id of ['e1', 'e2']) await there.appendEvent({ session, event: createEvent({ id }) });
  const records = parsed(await linesOf(from)) as ExportRecord[];
  const into = (list: unknown[], options?: ImportOptions) =>
    new SessionMaintenance(to.em).importSessions(list, options);
  const [first, event, last] = records;
  for (const [list, message] of [
    [[5], /Record 1 must be an object/],
    [[{ type: 'event' }], /Record 1: seq must be/],
    [[{ type: 'other' }], /Record 1 is not a record/],
    [[{ type: Object.create(null) as object }], /Record 1 is not a record/],
    [[{ ...first, extra: 1 }], /Record 1 may not have 'extra'/],
    [[event], /Record 1 is an event/],
    [[first, { ...event, sessionId: 'other' }], /Record 2 is an event/],
    [[first, last], /Record 2: seq is 2 after 0, and session s has events from 1 to 2/],
    [[first, event, event], /Record 3: seq is 1 after 1/],
    [
      [first, event, { ...last, event: { id: 'e1', timestamp: 1 } }],
      /Record 3: event\.id is that of an earlier event: e1/,
    ],
    [[first, event], /lacks its events after number 1/],
    [[first, { ...event, event: { id: 'e1' } }], /Record 2: event.timestamp/],
    [[first, { ...event, seq: 1.5 }], /Record 2: seq must be a whole number from 1 to 2147483647/],
    [[first, { ...event, seq: '1' }], /Record 2: seq must be a whole number/],
    [[first, { ...event, seq: 3 }], /Record 2: seq is 3 after 0, and session s has events from 1 to 2/],
    [[first, { ...event, event: { id: 'x'.repeat(192), timestamp: 1 } }], /Record 2: The event id is longer/],
    [[first, { ...event, event: { id: 'e1', timestamp: 1, a: -0 } }], /Record 2: .*event\.a/],
    ...(
      [
        [{ labels: { a: 5 } }, /The value of a label must be a string/],
        [{ labels: { a: { b: 1 } } }, /The value of a label must be a string/],
        [{ labels: { 'a b': 'c' } }, /The name of a label must have/],
        [{ labels: ['a'] }, /labels must be a plain object/],
        [{ title: 'x'.repeat(256) }, /title must be a string of up to 255/],
        [{ title: 'a\0' }, /title must be a string/],
        [{ firstSeq: -1 }, /firstSeq must be a whole number from 1/],
        [{ firstSeq: 0 }, /firstSeq must be a whole number from 1/],
        [{ firstSeq: 4 }, /firstSeq must be lastSeq \+ 1 at most/],
        [{ lastSeq: 2.5 }, /lastSeq must be a whole number from 0/],
        [{ lastSeq: 2 ** 31 }, /lastSeq must be a whole number from 0 to 2147483647/],
        [{ lastSeq: null }, /lastSeq must be/],
        [{ createTime: '5' }, /createTime must be a number/],
        [{ state: [{ key: '', value: 1, eventId: null }] }, /The state key must be/],
        [{ state: [{ key: 'k', eventId: null }] }, /state\.k/],
        [{ state: [{ key: 'k', value: 1, eventId: 'x'.repeat(192) }] }, /The event id is longer/],
        [{ state: [{ key: 'user:k', value: 1, eventId: null }] }, /has a prefix of another scope/],
        [{ state: [1, 2].map((value) => ({ key: 'k', value, eventId: null })) }, /occurs twice/],
        [{ changes: [{ seq: 0, kind: 'other' }] }, /kind must be/],
        [{ changes: [{ seq: -1, kind: 'rewound' }] }, /seq must be/],
        [{ changes: [{ seq: 0, kind: 'state', set: {}, removed: [5] }] }, /removed must be an array of strings/],
        [{ changes: [{ seq: 0, kind: 'state', set: { a: -0 }, removed: [] }] }, /changes\.set\.a/],
        [{ created: { a: -0 } }, /created\.a/],
      ] as const
    ).map(
      ([wrong, message]) =>
        [[{ ...first, ...wrong }, event, last], new RegExp(`Record 1: .*${message.source}`)] as const,
    ),
    [[{ type: 'user', appName: 'app', userId: '', state: [] }], /Record 1: The user id must be/],
    [[{ type: 'app', appName: 'app', state: [{ key: 'k', value: -0, eventId: null }] }], /Record 1: .*state\.k/],
  ] as const) {
    await expect(into([...list])).rejects.toThrow(message);
    expect(await to.em.getConnection().execute('select count(*) as n from adk_sessions')).toEqual([{ n: 0 }]);
  }
  await here.createSession(key);
  await expect(into(records, { onExisting: 'error' })).rejects.toMatchObject({ code: 'ADK_SESSION_EXISTS' });
  expect((await here.getSession(key))?.events).toEqual([]);
});

test('L1 what only ADK writes to customMetadata is not taken from a file', async () => {
  const orm = await emptyStore('sqlite');
  const key = { appName: 'app', userId: 'u', sessionId: 's' };
  const service = new MikroOrmSessionService(orm.em);
  const written = await service.createSession(key);
  const trusted = { __adk_internal_fc_hmac: 'v1:0' };
  const events = [
    createEvent({ id: 'a', author: 'clerk', customMetadata: { ...trusted, request: 1 } }),
    createEvent({ id: 'b', author: 'clerk', customMetadata: trusted }),
  ];
  await service.appendEvents({ session: written, events });
  const lines = await linesOf(orm);
  expect(lines.filter((line) => line.includes('__adk_internal_'))).toHaveLength(2);

  const target = await emptyStore('sqlite');
  await importInto(target, lines);
  const imported = await new MikroOrmSessionService(target.em).getSession(key);
  expect(imported?.events.map(({ id, customMetadata }) => [id, customMetadata])).toEqual([
    ['a', { request: 1 }],
    ['b', undefined],
  ]);
});

test('L1 a damaged session is not exported in part', async () => {
  const from = await emptyStore('sqlite');
  const service = new MikroOrmSessionService(from.em);
  const session = await service.createSession({ appName: 'app', userId: 'u', sessionId: 's' });
  for (const id of ['e1', 'e2']) await service.appendEvent({ session, event: createEvent({ id }) });
  await from.em.getConnection().execute('delete from adk_events where seq = 1');
  await expect(linesOf(from)).rejects.toMatchObject({ code: 'ADK_DAMAGED_SESSION' });
});
