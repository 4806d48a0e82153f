import { createEvent, type Session } from '@google/adk';
import { createReadStream, createWriteStream } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { performance } from 'node:perf_hooks';
import { createInterface } from 'node:readline';
import { pipeline } from 'node:stream/promises';
import { setImmediate } from 'node:timers/promises';
import { MikroOrmSessionService, SessionMaintenance } from '../../src/index.js';
import type { Ours } from '../contenders/ours.js';
import { Maintainer, type Job } from '../maintaining.js';
import type { Case, Lane } from '../measure.js';
import { MemoryGauge } from '../memory.js';
import { APP, USER, expectEvents, newContent, newPayloads } from './sessions.js';
import { count, oursOf, type Open, type Scale, type Workload } from './workload.js';

const DAY = 24 * 3_600_000;
const YEAR = 365 * DAY;

/** How many events are filled at a time, since they are in memory with their contents. */
const EVENTS_AT_ONCE = 50_000;

/** The number of events in a session, by what is done to it. */
const LENGTH = { counted: 100, exported: 20, pruned: 2, trimmed: 50 };

/** Maintenance of tables that are in use, which only ours has. */
export const maintenance: Workload = {
  name: 'maintenance',
  note: 'Ours alone, filled by SQL. What is beside the writer is a process of its own.',
  isOnlyNamed: true,
  mostRounds: 3,

  async cases(open, scale) {
    return [
      {
        id: 'maintenance-stats',
        title: `Count what ${count(scale.countedEvents)} events are`,
        unit: 'call',
        maxCount: 1,
        lanes: { ours: await statsLane(await oursOf(open), scale.countedEvents) },
      },
      {
        id: 'maintenance-prune',
        title: `Prune ${count(scale.prunedSessions)} sessions of ${LENGTH.pruned} events`,
        unit: 'session',
        maxCount: scale.prunedSessions,
        minCount: scale.prunedSessions,
        lanes: { ours: pruneLane(await oursOf(open)) },
      },
      ...(await transferCases(open, scale)),
      ...(await writerCases(open, scale)),
    ];
  },

  comparisons: () => [
    {
      id: 'append-while-pruned',
      title: 'Slowest append beside a prune against without',
      more: 'maintenance-writer-pruned',
      less: 'maintenance-writer',
    },
    {
      id: 'append-while-trimmed',
      title: 'Slowest append beside a trim against without',
      more: 'maintenance-writer-trimmed',
      less: 'maintenance-writer',
    },
  ],
};

async function statsLane(ours: Ours, events: number): Promise<Lane> {
  await fill(ours, events / LENGTH.counted, LENGTH.counted);
  const maintenance = new SessionMaintenance(ours.orm.em);
  const memory = new MemoryGauge();
  return {
    async run() {
      const stats = await memory.during(() => maintenance.stats());
      if (stats.events !== events) throw new Error(`There are ${stats.events} events instead of ${events}.`);
    },
    memoryMb: () => memory.mostMb,
  };
}

function pruneLane(ours: Ours): Lane {
  const maintenance = new SessionMaintenance(ours.orm.em);
  const memory = new MemoryGauge();
  return {
    prepare: (sessions) => fill(ours, sessions, LENGTH.pruned),
    async run(sessions) {
      const { done } = await memory.during(() => maintenance.prune({ idleFor: DAY }));
      if (done.sessions !== sessions) throw new Error(`${done.sessions} sessions went instead of ${sessions}.`);
    },
    memoryMb: () => memory.mostMb,
  };
}

/** Export and import through a file of lines, as users do. */
async function transferCases(open: Open, { transferredEvents: events }: Scale): Promise<Case[]> {
  const source = await oursOf(open);
  await fill(source, events / LENGTH.exported, LENGTH.exported);
  const folder = await mkdtemp(path.join(tmpdir(), 'adk-bench-'));
  const file = path.join(folder, 'export.jsonl');
  const rest = { unit: 'event', maxCount: events, minCount: events };
  return [
    {
      id: 'maintenance-export',
      title: `Export ${count(events)} events in sessions of ${LENGTH.exported}`,
      ...rest,
      lanes: { ours: exportLane(source, file) },
    },
    {
      id: 'maintenance-import',
      title: `Import ${count(events)} events in sessions of ${LENGTH.exported}`,
      ...rest,
      lanes: { ours: importLane(open, file, folder) },
    },
  ];
}

function exportLane(ours: Ours, file: string): Lane {
  const maintenance = new SessionMaintenance(ours.orm.em);
  const memory = new MemoryGauge();
  return {
    async run(events) {
      let exported = 0;
      const lines = async function* () {
        for await (const record of maintenance.exportSessions()) {
          if (record.type === 'event') exported++;
          yield `${JSON.stringify(record)}\n`;
        }
      };
      await memory.during(() => pipeline(lines, createWriteStream(file)));
      if (exported !== events) throw new Error(`${exported} events were exported instead of ${events}.`);
    },
    memoryMb: () => memory.mostMb,
  };
}

/** @param file the file that the export wrote in the same round. */
function importLane(open: Open, file: string, folder: string): Lane {
  const memory = new MemoryGauge();
  let maintenance: SessionMaintenance;
  return {
    async prepare() {
      // A new database, since the import would not write existing sessions again.
      maintenance = new SessionMaintenance((await oursOf(open)).orm.em);
    },
    async run(events) {
      const records = async function* () {
        for await (const line of createInterface({ input: createReadStream(file) })) yield JSON.parse(line) as unknown;
      };
      const { done } = await memory.during(() => maintenance.importSessions(records()));
      if (done.events !== events) throw new Error(`${done.events} events were imported instead of ${events}.`);
    },
    memoryMb: () => memory.mostMb,
    verify: () => rm(folder, { recursive: true }),
  };
}

/** The cost of maintenance for concurrent writers to other sessions of the same app. */
async function writerCases(open: Open, { prunedSessions, transferredEvents }: Scale): Promise<Case[]> {
  const rest = { unit: 'slowest append', maxCount: 1 };
  const appends = { made: 0 };
  const [pruned, trimmed] = [prunedSessions / 10, transferredEvents / LENGTH.trimmed];
  return [
    {
      id: 'maintenance-writer-pruned',
      title: `Slowest append beside a prune of ${count(pruned)} sessions`,
      ...rest,
      lanes: {
        ours: writerLane(await oursOf(open), appends, {
          prepare: (ours) => fill(ours, pruned, LENGTH.pruned),
          job: { prune: { idleFor: DAY } },
          sessions: pruned,
        }),
      },
    },
    {
      id: 'maintenance-writer-trimmed',
      title: `Slowest append beside a trim of ${count(trimmed)} sessions`,
      ...rest,
      lanes: {
        ours: writerLane(await oursOf(open), appends, {
          prepare: (ours) => fill(ours, trimmed, LENGTH.trimmed),
          job: { trim: { userId: USER, keepLast: 1 } },
          sessions: trimmed,
        }),
      },
    },
    {
      id: 'maintenance-writer',
      title: 'Slowest of as many appends without',
      ...rest,
      lanes: { ours: writerLane(await oursOf(open), appends) },
    },
  ];
}

interface Maintaining {
  prepare(ours: Ours): Promise<void>;
  job: Job;
  /** How many sessions it maintains. */
  sessions: number;
}

/**
 * Appends one event after the other while maintenance runs.
 *
 * @param appends the most appends that were made beside maintenance. Without maintenance the same number is made: among
 *   more appends the slowest would be slower.
 */
function writerLane(ours: Ours, appends: { made: number }, beside?: Maintaining): Lane {
  const [orm, database] = ours.parts;
  const service = new MikroOrmSessionService(orm.em);
  let maintainer: Maintainer | undefined;
  let session: Session;
  let slowestMs = 0;
  return {
    async prepare() {
      await beside?.prepare(ours);
      if (beside) maintainer ??= await Maintainer.start(database);
      session = await service.createSession({ appName: APP, userId: 'writer' });
    },
    async run() {
      slowestMs = 0;
      let made = 0;
      let isDone = false;
      const append = async () => {
        for (; beside ? !isDone : made < appends.made; made++) {
          const begin = performance.now();
          await service.appendEvent({ session, event: createEvent({ author: 'agent' }) });
          slowestMs = Math.max(slowestMs, performance.now() - begin);
          // better-sqlite leaves the event loop no time to receive the other process's messages.
          await setImmediate();
        }
      };
      const maintain = async () => {
        try {
          const sessions = beside && (await maintainer?.do(beside.job));
          if (sessions !== beside?.sessions) throw new Error(`${sessions} sessions instead of ${beside?.sessions}.`);
        } finally {
          isDone = true;
        }
      };
      await Promise.all([append(), maintain()]);
      if (beside) appends.made = Math.max(appends.made, made);
    },
    ms: () => slowestMs,
    async verify() {
      await maintainer?.end();
      await expectEvents(ours, { appName: APP, userId: 'writer', sessionId: session.id }, session.events.length);
    },
  };
}

/** Sessions whose last event is a year old. */
async function fill(ours: Ours, sessions: number, length: number): Promise<void> {
  const payloads = newPayloads();
  const atOnce = EVENTS_AT_ONCE / length;
  for (let filled = 0; filled < sessions; filled += atOnce) {
    const contents = Array.from({ length: Math.min(atOnce, sessions - filled) }, () => newContent(payloads, length));
    for (const { events } of contents) for (const event of events) event.timestamp -= YEAR;
    await ours.fill(contents);
  }
  // As `createSession` records it for the event log.
  await ours.orm.em.getConnection().execute(`insert into adk_changes
    (app_name, user_id, session_id, change_id, kind, seq, time, data)
    select app_name, user_id, session_id, 0, 'created', 0, create_time, '{}' from adk_sessions as s
    where not exists (select 1 from adk_changes as c
      where c.app_name = s.app_name and c.user_id = s.user_id and c.session_id = s.session_id)`);
}
