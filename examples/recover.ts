/**
 * A session that outlives its worker. Run it with `npm run example:recover`.
 *
 * Two workers want the same session, and the one that gets its lease is killed while a tool runs: money was sent, and nobody
 * knows. When the lease has expired, the other worker takes over, repairs the turn and ends the conversation. A third process
 * follows the log meanwhile, and prints what it sees.
 */
import { LogLevel, Runner, getFunctionCalls, isFinalResponse, setLogLevel, type Event } from '@google/adk';
import { MikroORM } from '@mikro-orm/core';
import assert from 'node:assert/strict';
import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { databaseOptions } from '../mikro-orm.config.js';
import { adkEntities, adkServices, interruptedToolResponses, migrate } from '../src/index.js';
import { Bank } from './bank.js';
import { officeAgent } from './office-agent.js';
import * as print from './print.js';
import { Processes, onceAbandoned } from './processes.js';

const APP = { appName: 'office', userId: 'ada' };
const TASK = 'Pay invoice 17: 240 euros to Vienna Print.';

/** How long the others wait for a dead worker. In production, use the default of 30 seconds. */
const OPTIONS = { leases: { ttlMs: 3_000 } };

type WorkerName = 'A' | 'B';

/** What workers and watcher report to the process that prints what happens. */
type News =
  | { what: 'asks' | 'paid' }
  | { what: 'holds'; name: WorkerName; token: number }
  | { what: 'event'; seq: number; event: Event };

const report = (news: News) => process.send?.(news);

async function openOrm(): Promise<MikroORM> {
  setLogLevel(LogLevel.ERROR);
  return MikroORM.init({ ...(await databaseOptions(process.env.ADK_DATABASE_URL ?? '')), entities: adkEntities() });
}

/** A worker. It gets a session's key, and decides itself whether to begin, to continue or to do nothing. */
async function work(sessionId: string, name: WorkerName, bankFile: string): Promise<void> {
  onceAbandoned(() => process.exit(1));
  const orm = await openOrm();
  const { leases } = adkServices(orm.em, OPTIONS);
  const bank = new Bank(bankFile, () => report({ what: 'paid' }));
  const key = { ...APP, sessionId };

  // Step 1. The lease. One worker gets it; the others wait until it is released or expires.
  report({ what: 'asks' });
  const holder = `worker ${name} (pid ${process.pid})`;
  await leases.run(key, { holder, waitMs: 60_000 }, async ({ token, signal, sessionService }) => {
    report({ what: 'holds', name, token });

    // Step 2. Where the session stands.
    const session = await sessionService.getSession(key);
    if (!session) throw new Error('The session is gone.');
    const last = session.events.at(-1);
    if (last && isAnswer(last)) return;

    // Step 3. The repair. If a call has no response, a worker died in it. A new session has no such call.
    await sessionService.appendEvents({ session, events: interruptedToolResponses(session) });

    // Step 4. A run. It writes with the lease's own service, which refuses once somebody else has the lease; then the run ends.
    const text = last ? 'Please go on.' : String(session.state.task);
    const newMessage = { role: 'user', parts: [{ text }] };
    const runner = new Runner({ appName: APP.appName, agent: officeAgent(bank), sessionService });
    const run = runner.runAsync({ userId: APP.userId, sessionId, newMessage, abortSignal: signal });
    for await (const event of run) if (event.errorMessage) throw new Error(event.errorMessage);
    signal.throwIfAborted();
  });
  await orm.close();
}

/** Follows the log of the session from its beginning. */
async function watch(sessionId: string): Promise<void> {
  const stop = new AbortController();
  onceAbandoned(() => stop.abort());
  const orm = await openOrm();
  const { log } = adkServices(orm.em);
  for await (const { seq, event, error } of log.watch(0, { sessionId }, { signal: stop.signal })) {
    if (error) throw error;
    report({ what: 'event', seq, event });
  }
  await orm.close();
}

/** The agent has given its last answer. */
const isAnswer = (event: Event) => event.author !== 'user' && isFinalResponse(event);

/** Starts the others, kills the worker that holds the lease, and prints what happens. */
async function main(): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), 'adk-recover-'));
  const bankFile = join(folder, 'bank.jsonl');
  // All processes find the database by this variable.
  process.env.ADK_DATABASE_URL ??= `sqlite:${join(folder, 'recover.sqlite')}`;
  const [scheme, file] = process.env.ADK_DATABASE_URL.split(/:(.*)/);
  print.title({
    title: 'A session that outlives its worker',
    // The URL of a server can hold a password.
    database: scheme === 'sqlite' ? `SQLite, ${file}` : `${scheme} (ADK_DATABASE_URL)`,
    model: 'scripted',
  });

  const orm = await openOrm();
  await migrate(orm);
  const { id: sessionId } = await adkServices(orm.em).sessionService.createSession({ ...APP, state: { task: TASK } });

  const processes = new Processes<News>(fileURLToPath(import.meta.url));
  const watcher = processes.start('watch', sessionId);
  const pool = {
    A: processes.start('work', sessionId, 'A', bankFile),
    B: processes.start('work', sessionId, 'B', bankFile),
  };
  const printEvents = async (isLast: (event: Event) => boolean) => {
    for (;;) {
      const { seq, event } = await processes.next('event');
      print.logged(seq, event);
      if (isLast(event)) return;
    }
  };

  print.heading('TWO WORKERS ASK FOR ONE SESSION');
  const first = await processes.next('holds');
  const other: WorkerName = first.name === 'A' ? 'B' : 'A';
  await processes.next('asks'); // the first worker
  await processes.next('asks'); // the other one
  const [holding, waiting] = [first.name, other].map((name) => `worker ${name} (pid ${pool[name].process.pid})`);
  print.said('lease', `${holding} has it, token ${first.token}; ${waiting} waits`);
  await printEvents((event) => getFunctionCalls(event).length > 0);
  await processes.next('paid');
  print.said('bank', `the money has left; worker ${first.name} is about to hear of it`);

  const victim = pool[first.name];
  victim.process.kill('SIGKILL');
  const [, signal] = await victim.ended;
  const killedAt = performance.now();
  print.killed(victim.process.pid, signal, `worker ${first.name}`);

  print.heading('THE LEASE RUNS OUT');
  const second = await processes.next('holds');
  const seconds = ((performance.now() - killedAt) / 1_000).toFixed(1);
  print.said('lease', `worker ${second.name} has it, token ${second.token}, ${seconds} s after the kill`);
  print.note('       it answers the call that was left open, and has the agent go on');
  await printEvents(isAnswer);
  await pool[second.name].ended;
  const lease = await adkServices(orm.em).leases.current({ ...APP, sessionId });
  print.said('lease', lease ? `${lease.holder} still has it` : `given back by worker ${second.name}, nobody has it`);
  const payments = await new Bank(bankFile).payments();
  print.said('bank', `invoice 17 was paid ${payments.length === 1 ? 'once' : `${payments.length} times`}`);

  watcher.process.disconnect();
  await watcher.ended;
  await orm.close();
  assert.equal(second.name, other, 'The worker that waited takes over.');
  assert(second.token > first.token, 'Tokens grow.');
  assert.equal(lease, undefined, 'The lease is given back.');
  assert.equal(payments.length, 1, 'The invoice is paid once.');
}

const [role, sessionId = '', name = '', bankFile = ''] = process.argv.slice(2);
if (role === 'work') await work(sessionId, name as WorkerName, bankFile);
else if (role === 'watch') await watch(sessionId);
else await main();
