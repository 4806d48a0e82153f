import { createEvent } from '@google/adk';
import { mock } from 'node:test';
import { createEventStreamHandler } from '../../../packages/http/src/index.js';
import { EventLog, SessionLeases, SessionMaintenance, adkServices } from '../../../src/index.js';
import { openOrm, type Database } from '../../faults/processes/open-orm.js';

// A CommonJS module, as it is for hosts that are. There a named import reads its module again at each use, so it gets fakes.

/** What has ended under faked timers; in `stuck` what has not, or an error. */
export interface Ended {
  ended: Record<string, unknown>;
  stuck?: string;
}

const { setTimeout: realTimeout } = globalThis;

/** Longer than all calls together take. */
const STUCK_MS = 15_000;

async function main(): Promise<void> {
  const orm = await openOrm(JSON.parse(process.argv[2] ?? '') as Database);
  const { sessionService } = adkServices(orm.em);
  const log = new EventLog(orm.em, { pollIntervalMs: 20 });
  const key = { appName: 'app', userId: 'u', sessionId: 's' };
  const session = await sessionService.createSession(key);
  const handles = [session, ...(await Promise.all(Array.from({ length: 7 }, () => sessionService.getSession(key))))];
  const append = (id: string, i = 0) =>
    sessionService.appendEvent({ session: handles[i]!, event: createEvent({ id, author: 'user' }) });
  const ended: Ended['ended'] = {};
  const work: Record<string, () => Promise<unknown>> = {
    'parallel appends': async () => {
      await Promise.all(handles.map((_, i) => append(`e${i}`, i)));
      return (await sessionService.getSession(key))?.events.length;
    },
    'a reader of the log': async () => {
      const head = await log.head();
      const next = log.watch(head, { appName: 'app' })[Symbol.asyncIterator]();
      const found = next.next();
      await append('watched');
      const result = await found;
      await next.return?.();
      return result.done ? undefined : result.value.event?.id;
    },
    'a stream of events': async () => {
      const { fetch } = createEventStreamHandler(log, { authorize: () => key });
      const response = await fetch(new Request('http://localhost/?lastEventId=9'));
      await append('streamed');
      const reader = response.body!.getReader();
      for (let text = ''; ; text += Buffer.from((await reader.read()).value ?? []).toString())
        if (text.includes('"streamed"')) return reader.cancel().then(() => 'streamed');
    },
    'a wait for a lease': async () => {
      const leases = new SessionLeases(orm.em);
      const held = await leases.acquire(key, { holder: 'first' });
      const waiting = new SessionLeases(orm.em).acquire(key, { holder: 'second', waitMs: 60_000 });
      await held.release();
      const lease = await waiting;
      await lease.release();
      return lease.session.sessionId;
    },
    'a pause of maintenance': async () => {
      const { done } = await new SessionMaintenance(orm.em).trim({ ...key, keepLast: 1, batchSize: 1, pauseMs: 1 });
      return done.events;
    },
  };
  mock.timers.enable();
  let current = '';
  realTimeout(() => report({ ended, stuck: current }), STUCK_MS).unref();
  for (const [name, run] of Object.entries(work)) {
    current = name;
    ended[name] = await run();
  }
  report({ ended });
}

function report(message: Ended): void {
  process.send?.(message, () => process.exit());
}

main().catch((error: unknown) => report({ ended: {}, stuck: String(error) }));
