import { createEvent, type Session } from '@google/adk';
import { EventLog, MikroOrmSessionService, type EventLogOptions } from '../../src/index.js';
import { Ours } from '../contenders/ours.js';
import type { Case, Lane } from '../measure.js';
import { parallelLane } from './concurrency.js';
import { APP, USER, newContent, newPayloads } from './sessions.js';
import { count, oursOf, type Open, type Workload } from './workload.js';

const WRITERS = 16;

/** The cost of the event log, which only ours has. */
export const log: Workload = {
  name: 'log',
  note: 'Ours alone. Another ORM appends, as another process would. Watchers poll every 150 ms.',

  async cases(open, { longHistory }) {
    const ours = await oursOf(open);
    const cases: Case[] = [
      {
        id: 'log-position',
        title: 'Give positions to events',
        unit: 'event',
        maxCount: 5_000,
        minCount: 500,
        lanes: { ours: positionLane(await oursOf(open)) },
      },
      {
        id: 'log-since',
        title: `Read a log of ${count(longHistory)} events`,
        unit: 'event',
        maxCount: longHistory,
        minCount: longHistory,
        lanes: { ours: await sinceLane(await oursOf(open), longHistory) },
      },
      {
        id: 'log-watch-by-polling',
        title: 'Append, until a watcher has it by polling',
        unit: 'event',
        maxCount: 5,
        minCount: 5,
        lanes: { ours: watchLane(ours) },
      },
    ];

    const listen = ours.listen();
    if (listen) {
      cases.push({
        id: 'log-watch-by-push',
        title: 'Append, until a watcher has it by push',
        unit: 'event',
        maxCount: 100,
        minCount: 5,
        lanes: { ours: watchLane(ours, { postgresql: { listen } }) },
      });
    }
    return [...cases, ...(await writersCases(open, listen !== undefined))];
  },

  comparisons: () => [
    {
      id: 'append-with-notify',
      title: `Append to ${WRITERS} sessions at once with notifications against without`,
      more: 'log-writers-notifying',
      less: 'log-writers',
    },
    {
      id: 'append-while-watched',
      title: `Append to ${WRITERS} sessions at once while watched against not`,
      more: 'log-writers-watched',
      less: 'log-writers',
    },
  ],
};

/** The cost of the log's readers for writers. */
async function writersCases(open: Open, hasPush: boolean): Promise<Case[]> {
  const title = `Append to ${WRITERS} sessions at once`;
  const rest = { unit: 'event', maxCount: 480, minCount: WRITERS };
  const lane = (ours: Ours) => parallelLane(ours, WRITERS, WRITERS);
  const cases: Case[] = [
    { id: 'log-writers', title: `${title}, unwatched`, ...rest, lanes: { ours: lane(await oursOf(open)) } },
    {
      id: 'log-writers-watched',
      title: `${title}, watched`,
      ...rest,
      lanes: { ours: watched(await oursOf(open), lane) },
    },
  ];
  if (hasPush) {
    const { parts } = await oursOf(open);
    const notifying = new Ours(...parts, new MikroOrmSessionService(parts[0].em, { postgresql: { notify: true } }));
    cases.push({
      id: 'log-writers-notifying',
      title: `${title}, with notifications`,
      ...rest,
      lanes: { ours: lane(notifying) },
    });
  }
  return cases;
}

function positionLane(ours: Ours): Lane {
  const eventLog = new EventLog(ours.orm.em);
  const payloads = newPayloads();
  return {
    async prepare(events) {
      const sessions = 10;
      await ours.fill(Array.from({ length: sessions }, () => newContent(payloads, Math.ceil(events / sessions))));
    },
    async run() {
      await eventLog.head();
    },
  };
}

async function sinceLane(ours: Ours, size: number): Promise<Lane> {
  const eventLog = new EventLog(ours.orm.em);
  const payloads = newPayloads();
  // In sessions of a usual length, a few at a time, since a long history takes much memory.
  for (let filled = 0; filled < size; filled += 1_000) {
    await ours.fill(Array.from({ length: 10 }, () => newContent(payloads, 100)));
  }
  await eventLog.head();
  let mostBytes = 0;
  return {
    async run(events) {
      let read = 0;
      const before = process.memoryUsage().heapUsed;
      for await (const { event } of eventLog.since(0, { limit: events })) {
        if (event) read++;
        if (read % 1_000 === 0) mostBytes = Math.max(mostBytes, process.memoryUsage().heapUsed - before);
      }
      if (read !== events) throw new Error(`The log has ${read} events instead of ${events}.`);
    },
    // Including garbage that is not collected yet.
    memoryMb: () => mostBytes / 1e6,
  };
}

/** Appends one event at a time, when the watcher has the previous one; fails if the watcher does. */
function watchLane(ours: Ours, options: EventLogOptions = {}): Lane {
  let session: Session;
  let service: MikroOrmSessionService;
  let next: () => void = () => undefined;
  let watcher: Watcher | undefined;
  const append = async () => {
    const arrived = new Promise<void>((resolve) => (next = resolve));
    await service.appendEvent({ session, event: createEvent({ author: 'agent' }) });
    await Promise.race([arrived, watcher?.ended]);
  };
  return {
    async prepare() {
      if (watcher) return;
      const writer = await ours.connect();
      service = new MikroOrmSessionService(writer.em, { postgresql: { notify: options.postgresql !== undefined } });
      session = await service.createSession({ appName: APP, userId: USER });
      watcher = await watch(new EventLog(ours.orm.em, options), () => next());
      await append();
    },
    async run(events) {
      for (let i = 0; i < events; i++) await append();
    },
    async verify() {
      await watcher?.stop();
    },
  };
}

/**
 * A lane that a watcher follows on its own connections. The watcher stops while the lane fills tables: on the driver `sqlite` another
 * copy of SQLite fills them, and two copies in one process do not see each other's locks. Rows of one of them would be lost.
 */
function watched(ours: Ours, laneOf: (ours: Ours) => Lane): Lane {
  const lane = laneOf(ours);
  let log: EventLog | undefined;
  let watcher: Watcher | undefined;
  let seen = 0;
  return {
    ...lane,
    async prepare(events) {
      await watcher?.stop();
      await lane.prepare?.(events);
      log ??= new EventLog((await ours.connect()).em);
      watcher = await watch(log, () => seen++);
    },
    async verify() {
      await lane.verify?.();
      await watcher?.stop();
      if (seen === 0) throw new Error('The watcher has seen nothing.');
    },
  };
}

interface Watcher {
  /** Rejects if the watcher fails. */
  ended: Promise<void>;
  stop(): Promise<void>;
}

/** Calls back for each event that comes after those which the log has now. */
async function watch(log: EventLog, onEvent: () => void): Promise<Watcher> {
  const { position } = await log.head();
  const abort = new AbortController();
  const ended = (async () => {
    for await (const { error } of log.watch(position, {}, { signal: abort.signal })) if (!error) onEvent();
  })();
  // Unhandled, it would end the process before the failure that closed the connections is shown.
  ended.catch(() => undefined);
  return {
    ended,
    stop() {
      abort.abort();
      return ended;
    },
  };
}
