import { setTimeout } from 'node:timers/promises';
import { MikroOrmSessionService } from '../../../src/index.js';
import { randomOf } from '../../support/random-numbers.js';
import { openDatabases } from './opened.js';
import { keyOf } from './protocol.js';
import { readTables, upTo } from './tables.js';

const KILLS = process.env['ADK_TEST_LONG'] ? 20 : 3;
const SESSION_ID = 'session';

/** Enough to wait for the connections of a pool, and to be written together. */
const BESIDE = Array.from({ length: 16 }, (_, i) => `beside ${i}`);

const { opened, openedChild } = openDatabases();

beforeAll(async () => {
  for (const { orm } of opened) {
    const service = new MikroOrmSessionService(orm.em);
    for (const id of [SESSION_ID, ...BESIDE]) await service.createSession(keyOf(id));
  }
});

// The process appends to all databases at once, so that one kill counts for each of them.
test(`a process that appends is killed ${KILLS} times: what it acknowledged is there once, and the state is what the events make of it`, async () => {
  const random = randomOf('kills');
  /** The ids of acknowledged events, by database and session. */
  const acknowledged = new Map<string, string[]>();
  let next = openedChild();
  for (let round = 1; round <= KILLS; round++) {
    const child = await next;
    if (round < KILLS) next = openedChild();

    const job = { sessionId: SESSION_ID, label: `life ${round}`, beside: BESIDE };
    const appending = child.call('appendForever', job);
    const end = appending.catch(String);
    // A failed append ends the test with its error.
    for (const { database } of opened)
      await Promise.race([appending, child.untilAcknowledged(1 + random(59), database.name)]);
    // A moment that depends on no acknowledgement.
    await setTimeout(random(10));
    await child.kill();
    expect(await end).toBe('Error: The process has ended');

    for (const { database, orm } of opened) {
      const { name } = database;
      for (const sessionId of [SESSION_ID, ...BESIDE]) {
        const known = acknowledged.get(`${name} ${sessionId}`) ?? [];
        acknowledged.set(`${name} ${sessionId}`, known);
        const told = child.acknowledged.filter((event) => event.name === name && event.sessionId === sessionId);
        known.push(...told.map(({ id }) => id));
        // The last round also shows what the earlier processes left.
        if (round < KILLS && sessionId !== SESSION_ID) continue;
        const stored = await readTables(orm.em, sessionId);
        const count = stored.ids.length;
        // The other sessions write no keys of user and app.
        const state = sessionId === SESSION_ID ? stored.folded : { ...stored.state, ...stored.folded };
        expect({ name, ...stored }).toEqual({ name, ...stored, lastSeq: count, seqs: upTo(count), state });
        // Each process leaves at most one event that it could not acknowledge.
        const isKnown = new Set(known);
        const unacknowledged = stored.ids.filter((id) => !isKnown.has(id));
        expect({ name, ids: stored.ids.filter((id) => isKnown.has(id)) }).toEqual({ name, ids: known });
        expect(new Set(unacknowledged.map((id) => id.split('-')[0])).size).toBe(unacknowledged.length);
        expect(new Set(stored.ids).size).toBe(count);
      }
    }
  }
  for (const { database } of opened) {
    const known = [...acknowledged].filter(([key]) => key.startsWith(`${database.name} `));
    expect(known.flatMap(([, ids]) => ids).length).toBeGreaterThanOrEqual(KILLS);
  }
}, 1_200_000);
