import { createEvent, type Session } from '@google/adk';
import { EventLog, MikroOrmSessionService, SessionMaintenance } from '../../../src/index.js';
import type { SessionKey } from '../../../src/index.js';
import { randomOf } from '../../support/random-numbers.js';
import { expectRefusal, type Refusals } from '../../support/refusals.js';
import { openOrm, type Database } from './open-orm.js';

// A process that does random things to few sessions, to which others do the same.

export interface FoldingJob {
  database: Database;
  /** Its random numbers are those of this text. */
  label: string;
  appName: string;
  steps: number;
}

/** The user whom `eraseUser` erases. Readers that follow the log get nothing of that. */
export const ERASED = 'erased';

/** What may be refused at some moment, since another process did something first. */
const REFUSALS: Refusals<string> = {
  create: ['ADK_SESSION_EXISTS'],
  append: ['ADK_SESSION_NOT_FOUND'],
  appendSome: ['ADK_SESSION_NOT_FOUND'],
  rewrite: ['ADK_SESSION_NOT_FOUND'],
  updateState: ['ADK_SESSION_NOT_FOUND'],
  rewind: ['ADK_SESSION_NOT_FOUND', 'ADK_INVALID_ARGUMENT'],
  fork: ['ADK_SESSION_NOT_FOUND', 'ADK_SESSION_EXISTS'],
  restore: ['ADK_SESSION_NOT_FOUND'],
  import: ['ADK_SESSION_EXISTS'],
  replace: ['ADK_SESSION_EXISTS'],
  erase: ['ADK_USER_NOT_ERASED'],
};

async function run({ database, label, appName, steps }: FoldingJob): Promise<void> {
  const orm = await openOrm(database);
  const random = randomOf(label);
  const oneOf = <T>(values: readonly T[]): T => values[random(values.length)]!;
  const service = new MikroOrmSessionService(orm.em);
  const softly = new MikroOrmSessionService(orm.em, { deletion: 'soft' });
  const maintenance = new SessionMaintenance(orm.em);
  const log = new EventLog(orm.em);
  const handles = new Map<string, Session>();
  let exported: unknown[] = [];
  const eventOf = (n: number, id: string) => {
    const keys = [oneOf(['a', 'b', 'c']), ...(random(3) === 0 ? [oneOf(['user:a', 'app:x'])] : [])];
    const stateDelta = Object.fromEntries(keys.map((key) => [key, `${label} ${n}`]));
    return createEvent({ id, timestamp: 1 + n, author: label, actions: { stateDelta } });
  };
  const handleOf = async (key: SessionKey) => {
    const id = JSON.stringify(key);
    const known = random(2) === 0 ? handles.get(id) : undefined;
    const session = known ?? (await service.getSession(key));
    if (session) handles.set(id, session);
    return session;
  };
  const operations: Record<string, (key: SessionKey, n: number) => unknown> = {
    create: (key, n) => service.createSession({ ...key, state: { a: n, [`of ${label}`]: n } }),
    append: async (key, n) => {
      const session = await handleOf(key);
      if (session) await service.appendEvent({ session, event: eventOf(n, `${label} ${n}`) });
    },
    appendSome: async (key, n) => {
      const session = await handleOf(key);
      const events = [0, 1, 2, 3].map((i) => eventOf(n, `${label} ${n} ${i}`));
      if (session) await service.appendEvents({ session, events });
    },
    rewrite: async (key, n) => {
      const session = await service.getSession(key);
      if (session && session.events.length > 0)
        await service.appendEvent({ session, event: eventOf(n, oneOf(session.events).id) });
    },
    updateState: (key, n) => service.updateState({ ...key, set: { a: n, 'user:a': n }, remove: ['b'] }),
    trim: (key) => maintenance.trim({ ...key, keepLast: random(6), batchSize: 1 + random(3), pauseMs: 0 }),
    rewind: (key) => service.rewindSession(key, { at: random(12) }),
    fork: (key) => service.forkSession(key, { as: oneOf(['s', 't', 'u']) }),
    delete: (key) => service.deleteSession(key),
    deleteSoftly: (key) => softly.deleteSession(key),
    restore: (key) => service.restoreSession(key),
    export: async ({ userId }) => {
      const records: unknown[] = [];
      for await (const record of maintenance.exportSessions({ appName, userId })) records.push(record);
      exported = records;
    },
    import: () => maintenance.importSessions(exported, { batchSize: 1 + random(6) }),
    replace: () =>
      maintenance.importSessions(exported, { onExisting: 'replace', force: true, batchSize: 1 + random(6) }),
    prune: () => maintenance.prune({ appName, deletedFor: 0, batchSize: 1 + random(6), pauseMs: 0 }),
    erase: () => maintenance.eraseUser({ appName, userId: ERASED, batchSize: 1 + random(6), pauseMs: 0 }),
    read: () => log.head(),
  };
  const often = ['append', 'append', 'appendSome', 'appendSome', 'rewrite', 'create', 'import', 'replace'];
  for (let n = 0; n < steps; n++) {
    const key = { appName, userId: oneOf(['ada', 'bob', ERASED]), sessionId: oneOf(['s', 't', 'u']) };
    const name = random(2) === 0 ? oneOf(often) : oneOf(Object.keys(operations));
    try {
      await operations[name]!(key, n);
    } catch (error) {
      expectRefusal(REFUSALS, name, error);
    }
  }
  await orm.close(true);
}

process.on('message', (job: FoldingJob) => {
  run(job).then(
    () => process.send!({ isDone: true }),
    (error: unknown) => process.send!({ error: error instanceof Error ? error.stack : String(error) }),
  );
});
// The test ended without ending this process.
process.on('disconnect', () => process.exit());
