import { createEvent } from '@google/adk';
import { SessionMaintenance } from '../../../src/index.js';
import type { SessionKey } from '../../../src/model/keys.js';
import type { StateEntry } from '../../../src/model/state.js';
import { readerOf } from '../../../src/operations/reader.js';
import { readPast } from '../../../src/sessions/history.js';
import { pastStateOf, type PastLimits } from '../../../src/studio/past-state.js';
import { randomNumbers } from '../../../packages/session-contract/src/random.js';
import { availableDatabases } from '../../support/servers.js';
import { Served } from './served.js';

const LENGTH = 40;
/** A session is trimmed where the seed is divisible by three. */
const SEEDS = process.env['ADK_TEST_LONG'] ? [1, 2, 3, 4, 5, 6] : [1, 3];
const ALL: PastLimits = { keys: 100, events: 1_000, step: 7, text: 1_000_000, changes: 1_000 };

describe.each(availableDatabases())('on %s', (name) => {
  let served: Served;
  beforeAll(async () => {
    served = await Served.open(name);
  });
  afterAll(() => served.close());

  /** A session in which state is set by events and outside of them, removed, rewritten, taken back and trimmed. */
  async function live(key: SessionKey, seed: number): Promise<void> {
    const { service, orm } = served;
    const random = randomNumbers(seed);
    const someKey = () => `k${random(8)}`;
    let session = await service.createSession({ ...key, state: { given: seed, [someKey()]: 'created' } });
    while (session.events.length < LENGTH) {
      const choice = random(12);
      if (choice < 8) {
        const event = createEvent({ author: 'agent' });
        if (choice < 4) event.actions.stateDelta[someKey()] = session.events.length;
        await service.appendEvent({ session, event });
      } else if (choice < 10) {
        await service.updateState({ ...key, set: { [someKey()]: `outside ${session.events.length}` } });
      } else if (choice === 10) {
        await service.updateState({ ...key, remove: [someKey()] });
      } else if (session.events.length > 4 && random(3) === 0) {
        await service.rewindSession(key, { at: session.events.length - 1 - random(4) });
      } else {
        const event = session.events.at(-1) ?? createEvent();
        const stateDelta = { [someKey()]: `rewritten ${session.events.length}` };
        await service.appendEvent({ session, event: { ...event, actions: { ...event.actions, stateDelta } } });
      }
      const read = await service.getSession(key);
      if (!read) throw new Error('The session is gone');
      session = read;
    }
    if (seed % 3 === 0) await new SessionMaintenance(orm.em).trim({ ...key, keepLast: 25 });
  }

  test.each(SEEDS)('the state as of each event is that of a fork, %i', async (seed) => {
    const key = { appName: 'app', userId: 'u', sessionId: `s${seed}` };
    await live(key, seed);
    const { database } = readerOf(served.orm.em, 'studio');
    const { stores } = database;
    const statements: number[] = [];
    let unread = 0;
    for (let at = LENGTH; at >= 0; at--) {
      const compared = await database.snapshot(async (sql) => {
        const session = await stores.transfer.session(sql, key);
        if (!session || at < session.firstSeq - 1) return undefined;
        const past = await readPast(sql, stores, key, { at });
        const shown = async (limits: PastLimits) => {
          let count = 0;
          const counting: typeof sql = {
            ...sql,
            all: (text, values) => {
              count++;
              return sql.all(text, values);
            },
          };
          const found = await pastStateOf(counting, stores, session, at, limits);
          statements.push(count);
          return found;
        };
        // Values that a trimmed event has written are found with its id, or without.
        const ids = new Set(past.events.map(({ id }) => id));
        const sorted = (entries: readonly StateEntry[]) =>
          entries
            .map(({ eventId, ...entry }) => ({ ...entry, eventId: ids.has(eventId ?? '') ? eventId : null }))
            .sort((a, b) => (a.key < b.key ? -1 : 1));
        return {
          sorted,
          wanted: past.state,
          all: await shown(ALL),
          few: await shown({ ...ALL, events: 6, step: 3, changes: 6 }),
        };
      });
      if (!compared) break;
      const { sorted, wanted, all, few } = compared;
      expect([at, sorted(all.values), all.unread]).toEqual([at, sorted(wanted), []]);
      // What is told of it is right, and what is not told is named.
      const told = new Set(few.values.map((entry) => entry.key));
      expect([at, sorted(few.values)]).toEqual([at, sorted(wanted.filter((entry) => told.has(entry.key)))]);
      const missing = wanted.filter((entry) => !told.has(entry.key) && !few.unread.includes(entry.key));
      expect([at, few.isPartial ? [] : missing]).toEqual([at, []]);
      unread += few.unread.length;
    }
    expect(unread).toBeGreaterThan(0);
    // State, changes twice, writers, and the steps: 40 / 7, or 6 / 3.
    expect(Math.max(...statements)).toBeLessThanOrEqual(4 + 6);
  });

  test('an event that cannot be read may have written anything', async () => {
    const key = { appName: 'app', userId: 'u', sessionId: 'damaged' };
    const session = await served.service.createSession({ ...key, state: { given: 0, kept: 0 } });
    for (const stateDelta of [{ given: 1 }, { given: 2 }, {}, { given: 4 }]) {
      const event = createEvent({ author: 'agent' });
      Object.assign(event.actions.stateDelta, stateDelta);
      await served.service.appendEvent({ session, event });
    }
    const execute = (text: string) => served.orm.em.getConnection().execute(text, ['damaged']);
    await execute('delete from adk_events where session_id = ? and seq = 2');
    const { database } = readerOf(served.orm.em, 'studio');
    const past = await database.snapshot(async (sql) => {
      const row = await database.stores.transfer.session(sql, key);
      return row && pastStateOf(sql, database.stores, row, 3);
    });
    expect(past).toMatchObject({ values: [{ key: 'kept', json: '0' }], unread: ['given'] });
  });
});
