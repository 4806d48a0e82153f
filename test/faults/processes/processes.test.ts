import { MikroORM } from '@mikro-orm/core';
import { adkEntities } from '../../../entities/index.js';
import { MikroOrmSessionService, migrate } from '../../../src/index.js';
import { availableDatabases, createDatabase, type TestDatabase } from '../../support/servers.js';
import { Child, type ChildError, workerBundle } from './child.js';
import { keyOf } from './protocol.js';
import { readTables, upTo } from './tables.js';

const WRITERS = 8;
const CREATORS = 10;
const APPENDS = process.env['ADK_TEST_LONG'] ? 100 : 20;

let children: Child[];

beforeAll(async () => {
  await workerBundle.build();
  children = Array.from({ length: CREATORS }, () => new Child());
  await Promise.all(children.map((child) => child.ready));
});

afterAll(async () => {
  await Promise.all(children.map((child) => child.end()));
  await workerBundle.remove();
});

describe.each(availableDatabases())('several processes on %s', (name) => {
  let database: TestDatabase;
  let orm: MikroORM;
  let service: MikroOrmSessionService;

  beforeAll(async () => {
    database = await createDatabase(name);
    orm = await MikroORM.init({ ...database.options, entities: adkEntities() });
    await migrate(orm);
    service = new MikroOrmSessionService(orm.em);
    await Promise.all(children.map((child) => child.call('open', { name, url: database.url })));
  });

  afterAll(async () => {
    // First, since it would stay open if a process had ended or did not answer.
    await orm.close(true);
    await Promise.all(children.map((child) => child.call('close', { name })));
    await database.drop();
  });

  const idsOf = (label: string) => Array.from({ length: APPENDS }, (_, i) => `${label}-${i}`);

  /** The keys of state that only one event each writes. */
  const ownKeys = (ids: string[]) => ids.flatMap((id) => [id, `user:${id}`, `app:${id}`]);

  test('B2 E1 E6 eight append to one session, and no append fails and no number or key is lost', async () => {
    const sessionId = 'one for all';
    await service.createSession(keyOf(sessionId));
    await Promise.all(
      children
        .slice(0, WRITERS)
        .map((child, i) => child.call('append', { name, sessionIds: [sessionId], label: `one-${i}`, count: APPENDS })),
    );

    const stored = await readTables(orm.em, sessionId);
    expect(stored.seqs).toEqual(upTo(WRITERS * APPENDS));
    expect(stored.lastSeq).toBe(WRITERS * APPENDS);
    // The events of one process are in its order.
    for (let i = 0; i < WRITERS; i++) {
      expect(stored.ids.filter((id) => id.startsWith(`one-${i}-`))).toEqual(idsOf(`one-${i}`));
    }
    expect(stored.state).toEqual(stored.folded);
  });

  test('B2 E1 E6 eight append to many sessions of one user, and no key of the user or the app is lost', async () => {
    const sessionIds = upTo(WRITERS / 2).map((n) => `many ${n}`);
    for (const sessionId of sessionIds) await service.createSession(keyOf(sessionId));
    const labels = upTo(WRITERS).map((n) => `many-${n}`);
    // Each process begins with a different session.
    const turned = (i: number) => [
      ...sessionIds.slice(i % sessionIds.length),
      ...sessionIds.slice(0, i % sessionIds.length),
    ];
    await Promise.all(
      labels.map((label, i) => children[i]!.call('append', { name, sessionIds: turned(i), label, count: APPENDS })),
    );

    const all = labels.flatMap(idsOf);
    const inSessions: string[] = [];
    for (const sessionId of sessionIds) {
      const stored = await readTables(orm.em, sessionId);
      expect(stored.seqs).toEqual(upTo(stored.lastSeq));
      expect(stored.state).toMatchObject(Object.fromEntries(stored.ids.map((id) => [id, id])));
      expect(stored.state['last']).toBe(stored.ids.at(-1));
      expect(Object.keys(stored.state)).toEqual(
        expect.arrayContaining(ownKeys(all).filter((key) => key.includes(':'))),
      );
      expect(all).toContain(stored.state['user:last']);
      expect(all).toContain(stored.state['app:last']);
      inSessions.push(...stored.ids);
    }
    expect(inSessions.sort()).toEqual(all.sort());
  });

  test('D1 ten create the same session: one gets it, nine an error', async () => {
    const answers = await Promise.allSettled(
      children.map((child, i) => child.call('create', { name, sessionId: 'created', label: `creator ${i}` })),
    );
    const [winner, ...others] = answers.flatMap((answer, i) => (answer.status === 'fulfilled' ? [`creator ${i}`] : []));
    expect(others).toEqual([]);
    const codes = answers.flatMap((answer) =>
      answer.status === 'rejected' ? [(answer.reason as ChildError).code] : [],
    );
    expect(codes).toEqual(Array(CREATORS - 1).fill('ADK_SESSION_EXISTS'));
    expect((await service.getSession(keyOf('created')))?.state['createdBy']).toBe(winner);
  });

  test('D2 ten get or create the same session: all get the one', async () => {
    const states = await Promise.all(
      children.map((child, i) => child.call('getOrCreate', { name, sessionId: 'got', label: `creator ${i}` })),
    );
    const stored = await service.getSession(keyOf('got'));
    expect(states).toEqual(Array(CREATORS).fill(stored!.state));
  });
});
