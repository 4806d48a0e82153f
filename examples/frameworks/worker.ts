import { Runner, isFinalResponse, type Session } from '@google/adk';
import { MikroORM } from '@mikro-orm/postgresql';
import { LeaseHeldError, adkServices, interruptedToolResponses, type Lease, type SessionKey } from 'adk-mikro-orm';
import { createServer } from 'node:http';
import { hostname } from 'node:os';
import { setTimeout } from 'node:timers/promises';
import { agent, appName } from './agent.js';
import config from './mikro-orm.config.js';

// Runs the sessions with the label `task: open`, whose task is in their state. Any number of workers may run: one gets a
// session's lease, and another gets it once the first has released it or died.

const stopping = new AbortController();
process.once('SIGTERM', () => stopping.abort());

const orm = await MikroORM.init(config);
const { sessionService, leases } = adkServices(orm.em, { leases: { ttlMs: Number(process.env.LEASE_MS ?? 30_000) } });
// For the probes: the process answers (/live), and so does the database, which has our tables (/ready).
const probes = createServer((request, response) => {
  const check = request.url === '/ready' ? sessionService.getAppState({ appName }) : Promise.resolve();
  check.then(
    () => response.writeHead(200).end(),
    () => response.writeHead(503).end(),
  );
}).listen(Number(process.env.PORT ?? 8080), () => console.log('listening', probes.address()));

while (!stopping.signal.aborted) {
  await runOpenSessions().catch(console.error); // after an outage it continues
  await setTimeout(250, undefined, { signal: stopping.signal }).catch(() => undefined);
}
probes.close();
await orm.close();

async function runOpenSessions(): Promise<void> {
  const { sessions } = await sessionService.findSessions({ appName, labels: { task: 'open' }, order: 'asc' });
  for (const { userId, sessionId } of sessions) {
    if (stopping.signal.aborted) return;
    const key = { appName, userId, sessionId };
    const ran = leases.run(key, { holder: `${hostname()} ${process.pid}` }, (lease) => work(key, lease));
    await ran.catch((error: unknown) => {
      if (!(error instanceof LeaseHeldError)) console.error(error); // it stays open, and is retried
    });
  }
}

async function work(key: SessionKey, { sessionService, signal, token }: Lease): Promise<void> {
  const session = await sessionService.getSession(key);
  if (!session) return;
  if (!isAnswered(session)) {
    console.log('runs', key.sessionId, 'with token', token);
    // A call without a response: a worker died or was stopped in it.
    await sessionService.appendEvents({ session, events: interruptedToolResponses(session) });
    const text = session.events.length === 0 ? String(session.state.task) : 'Please go on.';
    const runner = new Runner({ appName, agent, sessionService });
    const abortSignal = AbortSignal.any([signal, stopping.signal]);
    const run = runner.runAsync({ ...key, newMessage: { role: 'user', parts: [{ text }] }, abortSignal });
    for await (const event of run) if (event.errorMessage) throw new Error(event.errorMessage);
    if (abortSignal.aborted) return console.log('leaves', key.sessionId, 'to another worker');
  }
  await sessionService.describeSession(key, { labels: { task: 'done' } });
}

function isAnswered({ events }: Session): boolean {
  const last = events.at(-1);
  return last !== undefined && last.author !== 'user' && isFinalResponse(last);
}
