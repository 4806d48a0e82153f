import { MikroORM } from '@mikro-orm/postgresql';
import { LeaseHeldError, adkServices, runTurn, type SessionKey } from 'adk-mikro-orm';
import { createServer } from 'node:http';
import { setTimeout } from 'node:timers/promises';
import { agent, appName } from './agent.js';
import config from './mikro-orm.config.js';

// Runs the sessions with the label `task: open`, whose task is a stored message that no run has begun with. Any number of workers
// may run: one gets a session's lease, and another gets it once the first has released it or died.

const stopping = new AbortController();
process.once('SIGTERM', () => stopping.abort());

const orm = await MikroORM.init(config);
const services = adkServices(orm.em, { leases: { ttlMs: Number(process.env.LEASE_MS ?? 30_000) } });
const { sessionService } = services;
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
    await work({ appName, userId, sessionId }).catch((error: unknown) => {
      if (!(error instanceof LeaseHeldError)) console.error(error); // it stays open, and is retried
    });
  }
}

/** Runs the task of a session, or continues a run whose worker was stopped or died. */
async function work(key: SessionKey): Promise<void> {
  for await (const event of runTurn(services, { key, agent, signal: stopping.signal }))
    if (event.errorMessage) throw new Error(event.errorMessage);
  if (stopping.signal.aborted) return console.log('leaves', key.sessionId, 'to another worker');
  await sessionService.describeSession(key, { labels: { task: 'done' } });
}
