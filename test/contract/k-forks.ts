import { LlmAgent, Runner, type SaveArtifactRequest } from '@google/adk';
import { usageOf } from '../../packages/studio/src/index.js';
import {
  EventLog,
  MikroOrmMemoryService,
  MikroOrmSessionService,
  SessionMaintenance,
  adkServices,
  type MikroOrmSessionServiceOptions,
  type SessionSummary,
} from '../../src/index.js';
import { scriptedModel } from '../../src/testing/index.js';
import { copyVersions } from '../../src/artifacts/copies.js';
import { Database } from '../../src/database/calls/database.js';
import type { SessionKey } from '../../src/model/keys.js';
import { keyOf } from '../support/harnesses/harness.js';
import { read, upTo } from './log-tools.js';
import { Suite, type OwnContext } from './rule.js';
import { expectCode, range, saying } from './tools.js';

type Part = SaveArtifactRequest['artifact'];

const text = (value: string): Part => ({ text: value });

/** What a fork keeps of where it comes from. */
export const forkSuite = new Suite({ isOfDialect: true });

/** A session in which four events say a word each. */
async function said({ service, create }: OwnContext, ...words: string[]): Promise<SessionKey> {
  const session = await create();
  await service.appendEvents({ session, events: words.map((word) => saying(word, { id: word })) });
  return keyOf(session);
}

/** Says more in a session, in its newest state. */
async function say({ service }: OwnContext, key: SessionKey, ...words: string[]): Promise<void> {
  const session = (await service.getSession(key))!;
  await service.appendEvents({ session, events: words.map((word) => saying(word, { id: word })) });
}

async function forkedFrom({ service, app }: Pick<OwnContext, 'service' | 'app'>) {
  const { sessions } = await service.findSessions({ appName: app, order: 'asc' });
  return new Map(
    sessions.map((session): [string, SessionSummary['forkedFrom']] => [session.sessionId, session.forkedFrom]),
  );
}

forkSuite.own('K4', 'a fork remembers where it comes from', async (context) => {
  const { service, query } = context;
  const key = await said(context, 'a', 'b', 'c', 'd');
  await service.forkSession(key, { at: 3, as: 'fork' });
  const fork = { ...key, sessionId: 'fork' };
  await say(context, fork, 'e', 'f');
  await service.forkSession(fork, { at: 4, as: 'fork of fork' });
  await service.forkSession(key, { at: 0, as: 'empty' });
  const all = new Map([
    [key.sessionId, undefined],
    ['fork', { sessionId: key.sessionId, at: 3 }],
    ['fork of fork', { sessionId: 'fork', at: 4, root: key.sessionId }],
    ['empty', { sessionId: key.sessionId, at: 0 }],
  ]);
  expect(await forkedFrom(context)).toEqual(all);

  // Not behind the last copied event, and then before it: what follows is the fork's own.
  await service.rewindSession(fork, { at: 4 });
  expect(await forkedFrom(context)).toEqual(all);
  await service.rewindSession(fork, { at: 2 });
  await say(context, fork, 'g', 'h');
  all.set('fork', { sessionId: key.sessionId, at: 2 });
  expect(await forkedFrom(context)).toEqual(all);

  // A trim changes no number. A session that is gone is still named.
  await new SessionMaintenance(context.orm.em).trim({ ...fork, keepLast: 1 });
  await service.deleteSession(key);
  all.delete(key.sessionId);
  expect(await forkedFrom(context)).toEqual(all);
  // A new session with the id of a fork is none.
  await service.deleteSession(fork);
  await service.createSession(fork);
  all.set('fork', undefined);
  expect(await forkedFrom(context)).toEqual(all);
  const rows = await query('select session_id from adk_sessions where app_name = ? and forked_seq is null', [
    key.appName,
  ]);
  expect(rows).toEqual([{ session_id: 'fork' }]);
});

forkSuite.own('K4', 'a fork that a repair shortens is copied up to its new end', async (context) => {
  const { service, query, orm } = context;
  const key = await said(context, 'a', 'b', 'c');
  const fork = keyOf(await service.forkSession(key, { as: 'fork' }));
  // A number far above the last event: its end is lost.
  await query(
    `update adk_sessions set last_seq = 50000, forked_seq = 50000 where app_name = ? and session_id = 'fork'`,
    [key.appName],
  );
  await new SessionMaintenance(orm.em).repair(fork);
  expect((await forkedFrom(context)).get('fork')).toEqual({ sessionId: key.sessionId, at: 3 });
});

forkSuite.own('L1', 'an export and an import keep where a fork comes from', async (context) => {
  const { orm, service, app, scratch } = context;
  const key = await said(context, ...upTo(7).map((n) => `e${n}`));
  await service.forkSession(key, { at: 5, as: 'fork' });
  await say(context, { ...key, sessionId: 'fork' }, 'own');
  const source = new SessionMaintenance(orm.em);
  const records = await read(source.exportSessions({ appName: app }));
  expect(records.find((record) => record.type === 'session' && record.sessionId === 'fork')).toMatchObject({
    forkedFrom: { sessionId: key.sessionId, at: 5 },
  });
  const target = await scratch();
  const maintenance = new SessionMaintenance(target.orm.em);
  await maintenance.importSessions(records, { batchSize: 2 });
  const again = await read(maintenance.exportSessions({ appName: app }));
  expect(again.map((record) => JSON.stringify(record))).toEqual(records.map((record) => JSON.stringify(record)));

  for (const forkedFrom of [
    { sessionId: 's', at: 7 },
    { sessionId: 's', at: -1 },
    { sessionId: '', at: 1 },
    { at: 1 },
    's',
  ])
    await expectCode(
      maintenance.importSessions(
        records.map((record) => (record.type === 'session' ? { ...record, sessionId: 'other', forkedFrom } : record)),
      ),
      'ADK_INVALID_ARGUMENT',
    );
});

/** An event of a model that says something and used 1,000 tokens. */
const modelled = (word: string) =>
  saying(word, { id: word, timestamp: Date.UTC(2026, 10, 3), usageMetadata: { promptTokenCount: 1_000 } });

const DAY = { from: '2026-11-03', to: '2026-11-03', by: 'day' } as const;

forkSuite.own('K8', 'what a fork has copied is counted once', async (context) => {
  const { app, orm, service, create } = context;
  const used = async () => {
    const { rows, unreadable } = await usageOf(new EventLog(orm.em), { appName: app, ...DAY });
    return [rows[0]?.events, rows[0]?.inputTokens, unreadable];
  };
  const session = await create();
  const key = keyOf(session);
  await service.appendEvents({ session, events: ['a', 'b', 'c'].map(modelled) });
  const fork = await service.forkSession(key);
  await service.forkSession(keyOf(fork));
  expect(await used()).toEqual([3, 3_000, 0]);
  await service.appendEvent({ session: fork, event: modelled('d') });
  expect(await used()).toEqual([4, 4_000, 0]);
  // After a rewind other events have the numbers of copied ones.
  const rewound = await service.rewindSession(keyOf(fork), { at: 1 });
  await service.appendEvents({ session: rewound, events: ['e', 'f', 'g'].map(modelled) });
  expect(await used()).toEqual([6, 6_000, 0]);
  // A copy that cannot be read is not counted either.
  await context.query(`update adk_events set data = '5' where app_name = ? and session_id = ? and seq = 1`, [
    app,
    fork.id,
  ]);
  expect(await used()).toEqual([6, 6_000, 0]);
  const copied = (await read(new EventLog(orm.em).since(0, { appName: app }))).filter((entry) => entry.copied);
  expect(copied.map(({ sessionId, seq }) => [sessionId === fork.id, seq]).sort()).toEqual([
    [false, 1],
    [false, 2],
    [false, 3],
    [true, 1],
  ]);
});

forkSuite.own('K8', 'what forks have copied is counted once, whichever of the sessions are gone', async (context) => {
  const { app, orm, service, create } = context;
  const maintenance = new SessionMaintenance(orm.em);
  const softly = new MikroOrmSessionService(orm.em, { deletion: 'soft' });
  const used = async () => {
    const { rows } = await usageOf(new EventLog(orm.em), { appName: app, ...DAY });
    return rows[0]?.inputTokens ?? 0;
  };
  const session = await create();
  const key = keyOf(session);
  await service.appendEvents({ session, events: ['a', 'b', 'c'].map(modelled) });
  // Ids in no order, so that the order is not theirs.
  const [middle, last, other] = ['m', 'b', 'z'].map((sessionId) => ({ ...key, sessionId })) as [
    SessionKey,
    SessionKey,
    SessionKey,
  ];
  await service.forkSession(key, { as: other.sessionId, at: 2 });
  const fork = await service.forkSession(key, { as: middle.sessionId });
  await service.appendEvent({ session: fork, event: modelled('d') });
  await service.forkSession(middle, { as: last.sessionId });
  expect(await used()).toBe(4_000);
  await softly.deleteSession(key);
  expect(await used()).toBe(4_000);
  await service.restoreSession(key);
  expect(await used()).toBe(4_000);
  // The one in the middle: the fork of the fork still has events of the first session.
  await service.deleteSession(middle);
  expect(await used()).toBe(4_000);
  await maintenance.trim({ ...key, keepLast: 1 });
  expect(await used()).toBe(4_000);
  const exported = await read(maintenance.exportSessions({ appName: app }));
  await service.rewindSession(key, { at: 2 });
  expect(await used()).toBe(4_000);
  await service.deleteSession(key);
  expect(await used()).toBe(4_000);
  await maintenance.importSessions(exported, { onExisting: 'replace', force: true });
  expect(await used()).toBe(4_000);
  await service.deleteSession(key);
  await service.deleteSession(last);
  expect(await used()).toBe(2_000);
  await maintenance.prune({ appName: app, sessionsOlderThan: 0 });
  expect(await used()).toBe(0);
});

const found = async (memory: MikroOrmMemoryService, { appName, userId }: SessionKey) =>
  (await memory.listMemories({ appName, userId, limit: 100 })).map((each) => [each.sessionId, each.id]);

forkSuite.own('Q2', 'an event that forks have copied is remembered once', async (context) => {
  const { orm, service } = context;
  const memory = new MikroOrmMemoryService(orm.em);
  const key = await said(context, 'apple', 'brick', 'cloud');
  const forks = [
    { ...key, sessionId: 'z1' },
    { ...key, sessionId: 'z2' },
  ] as const;
  for (const { sessionId: as } of forks) await service.forkSession(key, { as });
  const asked: string[] = [];
  const asking = new MikroOrmMemoryService(orm.em, { text: ({ id }) => void asked.push(id) });
  await asking.addSessionToMemory((await service.getSession(forks[0]))!);
  expect(asked).toEqual([]);

  await say(context, forks[0], 'drum');
  const fork = (await service.getSession(forks[0]))!;
  // Once more with other content: only the fork has that.
  await service.appendEvent({ session: fork, event: saying('bread', { id: 'brick' }) });
  for (const each of [key, ...forks]) await memory.addSessionToMemory((await service.getSession(each))!);
  const all = [...['apple', 'brick', 'cloud'].map((id) => [key.sessionId, id]), ['z1', 'brick'], ['z1', 'drum']];
  expect(await found(memory, key)).toEqual(all.sort());
  expect((await memory.searchMemory({ ...key, query: 'what is apple' })).memories).toHaveLength(1);
  await context.query('delete from adk_memories where app_name = ?', [context.app]);

  const projection = memory.projection({ name: key.appName, filter: { appName: key.appName }, settleMs: 0 });
  await projection.catchUp();
  expect(await found(memory, key)).toEqual(all);
  await projection.rebuild();
  await projection.catchUp();
  expect(await found(memory, key)).toEqual(all);
  await service.rewindSession(forks[0], { at: 1 });
  await say(context, forks[0], 'eagle');
  await projection.catchUp();
  expect(await found(memory, key)).toEqual([...all.slice(0, 3), ['z1', 'eagle']]);
});

forkSuite.own(
  'Q2',
  'what forks have copied stays remembered once, whichever of the sessions are gone',
  async (context) => {
    const { app, orm, service } = context;
    const softly = new MikroOrmSessionService(orm.em, { deletion: 'soft' });
    for (const options of [{}, { codec: CODEC.codec }]) {
      const memory = new MikroOrmMemoryService(orm.em, options);
      const { sessionService } = adkServices(orm.em, options);
      const name = `${app} ${options.codec ? 'encoded' : 'plain'}`;
      const owner = { appName: app, userId: options.codec ? 'encoded' : 'plain' };
      const key = { ...owner, sessionId: 's' };
      const projection = memory.projection({ name, filter: owner, settleMs: 0 });
      const remembered = async () => {
        await projection.catchUp();
        const live = await found(memory, key);
        await projection.rebuild();
        await projection.catchUp();
        expect(await found(memory, key)).toEqual(live);
        const words = await Promise.all(
          ['apple', 'brick', 'cloud'].map((query) => memory.searchMemory({ ...owner, query: `what is ${query}` })),
        );
        expect(words.map(({ memories }) => memories.length)).toEqual([1, 1, live.length - 2]);
        return live;
      };
      const session = await sessionService.createSession(key);
      const events = ['apple', 'brick', 'cloud'].map((word) => saying(word, { id: word }));
      await sessionService.appendEvents({ session, events });
      const [one, two] = ['a', 'z'].map((sessionId) => ({ ...key, sessionId })) as [SessionKey, SessionKey];
      await sessionService.forkSession(key, { as: two.sessionId });
      await sessionService.forkSession(key, { as: one.sessionId, at: 2 });
      const of = (...sessions: string[]) => sessions.map((id, i) => [id, events[i]!.id]).sort();
      expect(await remembered()).toEqual(of('s', 's', 's'));
      await softly.deleteSession(key);
      expect(await remembered()).toEqual(of('z', 'z', 'z'));
      await service.restoreSession(key);
      await projection.catchUp();
      // They stay with the fork, until a rebuild.
      expect(await found(memory, key)).toEqual(of('z', 'z', 'z'));
      await projection.rebuild();
      expect(await remembered()).toEqual(of('s', 's', 's'));
      await sessionService.rewindSession(key, { at: 1 });
      expect(await remembered()).toEqual(of('s', 'z', 'z'));
      await sessionService.deleteSession(key);
      expect(await remembered()).toEqual(of('z', 'z', 'z'));
      await memory.forget({ ...key, sessionId: 'z', memoryId: 'cloud' });
      await sessionService.deleteSession(two);
      expect(await remembered()).toEqual(of('a', 'a'));
      for (const each of [one]) await memory.addSessionToMemory((await sessionService.getSession(each))!);
      expect(await found(memory, key)).toEqual(of('a', 'a'));
    }
  },
);

forkSuite.own(
  'Q2',
  'what was remembered or forgotten with a deleted session is not remembered with its forks',
  async (context) => {
    const { orm, service } = context;
    const memory = new MikroOrmMemoryService(orm.em);
    const key = await said(context, 'apple', 'brick', 'cloud');
    const fork = { ...key, sessionId: 'z' };
    await service.forkSession(key, { as: fork.sessionId });
    const { events, ...session } = (await service.getSession(key))!;
    await memory.addSessionToMemory({ ...session, events: events.slice(0, 2) });
    await memory.forget({ ...key, memoryId: 'apple' });
    await service.deleteSession(key);
    const expected = [
      [key.sessionId, 'brick'],
      ['z', 'cloud'],
    ];
    await memory.addSessionToMemory((await service.getSession(fork))!);
    expect(await found(memory, key)).toEqual(expected.sort());
    await memory.projection({ name: key.appName, filter: { appName: key.appName }, settleMs: 0 }).catchUp();
    expect(await found(memory, key)).toEqual(expected.sort());
  },
);

const CODEC: MikroOrmSessionServiceOptions = {
  codec: { name: 'forks', encode: (data) => ({ data }), decode: ({ data }) => data },
};

for (const [how, options] of [
  ['', {}],
  [', with a codec', CODEC],
] as const)
  forkSuite.own('P12', `a fork has the files that its user sent${how}`, async ({ app, orm }) => {
    const services = adkServices(orm.em, options);
    const { sessionService, artifactService } = services;
    const key = { appName: app, userId: 'alice', sessionId: 's' };
    await sessionService.createSession(key);
    const model = scriptedModel(['One.', 'Two.', 'Three.']);
    const runner = new Runner({ appName: app, agent: new LlmAgent({ name: 'clerk', model }), ...services });
    const send = async (...parts: Part[]) => {
      const message = { role: 'user', parts };
      const runConfig = { saveInputBlobsAsArtifacts: true };
      for await (const event of runner.runAsync({ ...key, newMessage: message, runConfig }))
        expect(event.errorMessage).toBeUndefined();
    };
    const file = (content: string, displayName?: string): Part => ({
      inlineData: { mimeType: 'text/plain', data: btoa(content), ...(displayName && { displayName }) },
    });
    await send({ text: 'Look.' }, file('first'), file('report 1', 'report.txt'));
    await send(file('report 2', 'report.txt'), file('mine', 'user:mine'));
    const { lastSeq: at } = await sessionService.readEvents(key);
    await send(file('report 3', 'report.txt'), file('late'));
    const names = (await artifactService.listArtifactKeys(key)).filter((name) => name.startsWith('artifact_'));
    expect(names).toHaveLength(2);

    await sessionService.forkSession(key, { at, as: 'fork' });
    const fork = { ...key, sessionId: 'fork' };
    const load = async (filename: string, version?: number) => {
      const part = await artifactService.loadArtifact({ ...fork, filename, ...(version !== undefined && { version }) });
      return part?.inlineData?.data && atob(part.inlineData.data);
    };
    expect(await artifactService.listVersions({ ...fork, filename: 'report.txt' })).toEqual([0, 1]);
    expect([await load('report.txt', 0), await load('report.txt')]).toEqual(['report 1', 'report 2']);
    expect((await Promise.all(names.map((name) => load(name)))).filter((each) => each !== undefined)).toEqual([
      'first',
    ]);
    expect(await load('user:mine')).toBe('mine');
  });

forkSuite.own('P12', 'a file of an invocation is in the fork whatever its event says of it', async (context) => {
  const { app, orm, service, create } = context;
  const { artifactService } = adkServices(orm.em);
  const session = await create();
  const key = { ...keyOf(session), appName: app };
  for (const filename of ['artifact_i_1_0', 'artifact_i_1_1', 'artifact_i_2_0', 'artifact_x', 'other'])
    await artifactService.saveArtifact({ ...key, filename, artifact: text(filename) });
  const [first, second] = ['i_1', 'i_2'].map((invocationId) => saying('See.', { author: 'user', invocationId }));
  await service.appendEvents({ session, events: [first!, second!] });
  await service.forkSession(key, { at: 1, as: 'fork' });
  expect(await artifactService.listArtifactKeys({ ...key, sessionId: 'fork' })).toEqual([
    'artifact_i_1_0',
    'artifact_i_1_1',
  ]);
});

/** More than a statement takes values: 32,766 on SQLite, 65,535 elsewhere. */
const MANY = 66_000;

forkSuite.own('P12', 'a fork has any number of versions of a file', async ({ app, orm }) => {
  const { artifactService } = adkServices(orm.em);
  const key = { appName: app, userId: 'alice', sessionId: 's', filename: 'f' };
  for (const n of range(5)) await artifactService.saveArtifact({ ...key, artifact: text(`${n}`) });
  const named = new Map([['f', new Set(range(MANY).reverse())]]);
  const fork = { ...key, sessionId: 'fork' };
  const database = new Database(orm.em);
  await database.call({ operation: 'forkSession', key }, () =>
    database.transaction((sql) => copyVersions(sql, key, fork, named)),
  );
  expect(await artifactService.listVersions(fork)).toEqual(range(5));
  expect(await artifactService.loadArtifact(fork)).toEqual(text('4'));
  expect(await artifactService.saveArtifact({ ...fork, artifact: text('5') })).toBe(5);
});
