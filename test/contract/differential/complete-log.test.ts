import { createEvent, type Session } from '@google/adk';
import { MikroORM } from '@mikro-orm/core';
import fc from 'fast-check';
import { adkEntities } from '../../../entities/index.js';
import { EventLog, MikroOrmSessionService, SessionMaintenance, migrate, type SessionKey } from '../../../src/index.js';
import { FoldedLog } from '../../support/folded-log.js';
import { expectSame, folded, resultOf, tablesOf } from '../../support/fold.js';
import { expectOrder, inBatchesOf } from '../../support/positions.js';
import { expectOfRandom } from '../../support/random.js';
import { expectRefusal, type Refusals } from '../../support/refusals.js';
import { availableDatabases, createDatabase } from '../../support/servers.js';

interface Step {
  key: SessionKey;
  at: number;
  state: Record<string, unknown>;
  /** Its place among the steps. */
  index: number;
}

/** What a step does with the service and maintenance. */
const OPERATIONS = {
  create: ({ service }, { key, state }) => service.createSession({ ...key, state }),
  append: async ({ service, handles }, { key, state, at }) => {
    const session = handles.get(id(key)) ?? (await service.getSession(key));
    if (!session) return;
    handles.set(id(key), session);
    const event = createEvent({
      id: `e${at}`,
      timestamp: 1 + (at % 3),
      author: JSON.stringify(state),
      actions: { stateDelta: state },
    });
    await service.appendEvent({ session, event });
  },
  appendNew: async ({ service }, { key, state, index }) => {
    const session = await service.getSession(key);
    const event = createEvent({ id: `new ${index}`, timestamp: index, actions: { stateDelta: state } });
    if (session) await service.appendEvent({ session, event });
  },
  updateState: ({ service }, { key, state, at }) => {
    const names = Object.keys(state);
    const set = Object.fromEntries(Object.entries(state).slice(at % 2));
    return service.updateState({ ...key, set, remove: names.slice(0, at % 2) });
  },
  updateShared: ({ service }, { key: { appName, userId }, at }) =>
    service.updateState({
      appName,
      userId,
      set: { 'user:shared': at, 'app:shared': at },
      remove: at % 2 === 0 ? ['app:x'] : [],
    }),
  delete: ({ service }, { key }) => service.deleteSession(key),
  deleteSoftly: ({ softly }, { key }) => softly.deleteSession(key),
  restore: ({ service }, { key }) => service.restoreSession(key),
  trim: ({ maintenance }, { key, at }) =>
    maintenance.trim({ ...key, keepLast: at % 4, batchSize: 1 + (at % 3), pauseMs: 0 }),
  prune: ({ maintenance }, { key: { appName } }) => maintenance.prune({ appName, deletedFor: 0 }),
  erase: ({ maintenance }, { key: { appName, userId } }) => maintenance.eraseUser({ appName, userId, pauseMs: 0 }),
  fork: ({ service }, { key, at }) => service.forkSession(key, { at: at % 5 }),
  forkOver: ({ service }, { key }) => service.forkSession(key, { as: 's' }),
  rewind: ({ service }, { key, at }) => service.rewindSession(key, { at: at % 6 }),
  /** Gives positions to a part of the history only. */
  read: ({ log }) => log.head(),
} satisfies Record<string, (world: World, step: Step) => unknown>;

/** `temp:` keys cannot be set, and `at` may be a number that the session does not have. */
const REFUSALS: Refusals<keyof typeof OPERATIONS> = {
  create: ['ADK_SESSION_EXISTS'],
  append: ['ADK_SESSION_NOT_FOUND'],
  updateState: ['ADK_SESSION_NOT_FOUND', 'ADK_INVALID_KEY'],
  restore: ['ADK_SESSION_NOT_FOUND'],
  fork: ['ADK_SESSION_NOT_FOUND', 'ADK_INVALID_ARGUMENT'],
  forkOver: ['ADK_SESSION_NOT_FOUND', 'ADK_SESSION_EXISTS'],
  rewind: ['ADK_SESSION_NOT_FOUND', 'ADK_INVALID_ARGUMENT'],
};

interface World {
  service: MikroOrmSessionService;
  softly: MikroOrmSessionService;
  maintenance: SessionMaintenance;
  log: EventLog;
  handles: Map<string, Session>;
}

async function all<T>(items: AsyncIterable<T>): Promise<T[]> {
  const list: T[] = [];
  for await (const item of items) list.push(item);
  return list;
}

const id = (key: SessionKey) => JSON.stringify(key);

const stateKey = fc.constantFrom('a', 'b', '__proto__', 'user:a', 'user:b', 'app:x', 'app:y', 'temp:t');
const step = fc.record({
  do: fc.oneof(
    { weight: 2, arbitrary: fc.constantFrom('create' as const) },
    { weight: 6, arbitrary: fc.constantFrom('append' as const, 'appendNew' as const) },
    { weight: 2, arbitrary: fc.constantFrom('updateState' as const, 'updateShared' as const) },
    { weight: 5, arbitrary: fc.constantFrom(...(Object.keys(OPERATIONS) as (keyof typeof OPERATIONS)[])) },
  ),
  userId: fc.constantFrom('u', 'v'),
  sessionId: fc.constantFrom('s', 't'),
  at: fc.nat({ max: 7 }),
  state: fc.dictionary(stateKey, fc.constantFrom(0, 1, 'one', null, [2]), { maxKeys: 3 }),
});

/** After every step there is little to read. After some of them, in small batches, every boundary of batches is met. */
const READERS = [
  { reader: 'read after every step', positionedAtOnce: 500, isReadAfter: () => true },
  { reader: 'positions given three at a time', positionedAtOnce: 3, isReadAfter: (at: number) => at % 3 === 1 },
];

test.each(availableDatabases().flatMap((name) => READERS.map((reader) => ({ name, ...reader }))))(
  'J2 L1 whatever was done at random, the log folds to what the tables hold, and an export has it, on $name, $reader',
  async ({ name, positionedAtOnce, isReadAfter }) => {
    const database = await createDatabase(name);
    const otherDatabase = await createDatabase(name);
    const orm = await MikroORM.init({ ...database.options, entities: adkEntities() });
    const other = await MikroORM.init({ ...otherDatabase.options, entities: adkEntities() });
    try {
      await migrate(orm);
      await migrate(other);
      let app = 0;
      const steps = fc.array(step, { minLength: 5, maxLength: 25, size: 'max' });
      const expectFolded = async (sequence: (typeof step extends fc.Arbitrary<infer Drawn> ? Drawn : never)[]) => {
        const appName = `app ${app++}`;
        const world: World = {
          service: new MikroOrmSessionService(orm.em),
          softly: new MikroOrmSessionService(orm.em, { deletion: 'soft' }),
          maintenance: new SessionMaintenance(orm.em),
          log: new EventLog(orm.em),
          handles: new Map(),
        };
        const live = new FoldedLog();
        let cursor = await world.log.complete().head();
        let isErased = false;
        for (const [index, each] of sequence.entries()) {
          const { do: operation, userId, sessionId, at, state } = each;
          try {
            await OPERATIONS[operation](world, { key: { appName, userId, sessionId }, at, state, index });
          } catch (error) {
            expectRefusal(REFUSALS, operation, error);
          }
          if (!isReadAfter(at) && index < sequence.length - 1) continue;
          const tables = await tablesOf(orm, appName);
          expectSame(await folded(world.log, appName), tables);
          await expectOrder(orm, appName);
          if (operation !== 'read' && at % 2 === 0) continue;
          // A reader that follows comes to the same; it gets nothing of an erased user.
          isErased ||= sequence.some((step) => step.do === 'erase');
          for await (const entry of world.log.complete().since(cursor, { appName })) {
            live.add(entry);
            cursor = entry.cursor ?? cursor;
          }
          if (!isErased) expectSame(resultOf(live), tables);
        }
        // L1: whatever was done, an export has all of it.
        const records = await all(world.maintenance.exportSessions({ appName }));
        const copies = new SessionMaintenance(other.em);
        await copies.importSessions(records);
        expect(await all(copies.exportSessions({ appName }))).toEqual(records);
        const copied = await tablesOf(other, appName);
        expectSame(await folded(new EventLog(other.em), appName), copied);
        expectSame(copied, await tablesOf(orm, appName));
      };
      await inBatchesOf(positionedAtOnce, () => expectOfRandom('complete log', steps, expectFolded, { runs: 16 }));
    } finally {
      await orm.close(true);
      await other.close(true);
      await database.drop();
      await otherDatabase.drop();
    }
  },
  600_000,
);
