import { setImmediate, setTimeout } from 'node:timers/promises';
import { createEvent } from '@google/adk';
import { MikroORM } from '@mikro-orm/core';
import { adkEntities } from '../../../entities/index.js';
import { databaseOptions } from '../../../mikro-orm.config.js';
import { DatabaseError, EventLog, MikroOrmSessionService } from '../../../src/index.js';
import { keyOf } from './protocol.js';
import { STORM_SESSION, type StormJob, type StormReport } from './storm-protocol.js';

// A process whose connections keep ending in every way. It appends to a session that others also append to, or follows the
// log, and reports the answers.

/** Long enough for a server that answers on a busy machine, and short enough for a test. */
const TIMEOUT_MS = 700;
const AT_ONCE = { maxDelayMs: 5 };

/** A pause after each failure, without which an outage makes thousands of them. */
const PAUSE_MS = 10;

/** Resolves when the parent will get the report even if this process is killed. */
const send = (report: StormReport) =>
  new Promise<void>((resolve) => process.send!(report, undefined, undefined, () => resolve()));

process.on('unhandledRejection', (reason) => void send({ kind: 'unhandled', error: String(reason) }));
process.on('uncaughtException', (error) => void send({ kind: 'unhandled', error: String(error) }));
// The test ended without ending this process.
process.on('disconnect', () => process.exit());

async function append(orm: MikroORM, job: Extract<StormJob, { kind: 'append' }>): Promise<void> {
  const { label, isPatient, retry = AT_ONCE } = job;
  let { count } = job;
  process.on('message', (changed: number) => {
    count = changed;
  });
  const patient = new MikroOrmSessionService(orm.em, { timeoutMs: TIMEOUT_MS, retry });
  const service = isPatient
    ? patient
    : new MikroOrmSessionService(orm.em, { timeoutMs: TIMEOUT_MS, retry: { ...retry, forMs: 0 } });
  const read = async () => {
    const session = (await patient.getSession(keyOf(STORM_SESSION)))!;
    void send({ kind: 'read', ids: session.events.map(({ id }) => id) });
    return session;
  };
  const session = await read();
  const appendWith = async (by: MikroOrmSessionService, n: number): Promise<boolean> => {
    const id = `${label}-${n}`;
    const stateDelta = { last: id, [`of ${n % 5}`]: id, 'user:last': id, 'app:last': id };
    await send({ kind: 'tries', id });
    try {
      await by.appendEvent({ session, event: createEvent({ id, author: 'agent', actions: { stateDelta } }) });
      void send({ kind: 'acknowledged', id });
      return true;
    } catch (error) {
      if (!(error instanceof DatabaseError)) throw error;
      const { outcome, driverCode, reason } = error;
      void send({ kind: 'failed', id, outcome, code: driverCode ?? reason });
      return false;
    }
  };
  let n = 0;
  for (; n < count; n++) {
    if (!(await appendWith(service, n))) await setTimeout(PAUSE_MS);
    // A driver that runs in this process would leave no time for messages of the parent.
    await setImmediate();
    // Reads a long history rarely, since each read takes all of it.
    if (n % (n < 100 ? 10 : 200) === 0) await read();
  }
  // A handle that could not read the events it missed is behind until its next append (contract E2).
  if (await appendWith(patient, n)) void send({ kind: 'handle', ids: session.events.map(({ id }) => id) });
}

async function watch(
  orm: MikroORM,
  { after = 0, retry = AT_ONCE }: Extract<StormJob, { kind: 'watch' }>,
): Promise<void> {
  const log = new EventLog(orm.em, { timeoutMs: TIMEOUT_MS, retry, pollIntervalMs: 20 });
  const end = new AbortController();
  let seen = 0;
  let expected = Infinity;
  const endWhenDone = () => {
    if (seen >= expected) end.abort();
  };
  process.on('message', (count: number) => {
    expected = count;
    endWhenDone();
  });
  for await (const { event, position, cursor } of log.watch(after, {}, { signal: end.signal })) {
    void send({ kind: 'seen', id: event!.id, position: position, cursor });
    seen++;
    endWhenDone();
  }
}

async function main(job: StormJob): Promise<void> {
  const options = await databaseOptions(job.url);
  if (job.name === 'better-sqlite') options.driver = (await import('@mikro-orm/better-sqlite')).BetterSqliteDriver;
  const orm = await MikroORM.init({
    ...options,
    entities: adkEntities(),
    connect: false,
    // Adds a message after the login.
    forceUtcTimezone: true,
  });
  await (job.kind === 'append' ? append(orm, job) : watch(orm, job));
  await orm.close(true).catch(() => undefined);
}

await main(JSON.parse(process.argv[2] ?? '') as StormJob).then(
  () => send({ kind: 'done' }),
  (error: unknown) =>
    send({ kind: 'error', error: error instanceof Error ? (error.stack ?? error.message) : String(error) }),
);
