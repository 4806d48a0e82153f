/** Measures, in its own process, the memory of one that keeps many sessions, or a long one. */
import type { Session } from '@google/adk';
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { EventLog, MikroOrmSessionService, type SessionLogEntry } from '../../src/index.js';
import type { SessionKey } from '../../src/model/keys.js';
import type { DatabaseName } from '../../test/support/servers.js';
import { connect } from '../connect.js';
import { collect } from '../memory.js';
import type { Population } from './population.js';

const HANDLES = 10_000;
const WATCHERS = 1_000;

const POLLS_MS = 1_000;

/** How many events each session with a handle has. */
const EVENTS = 20;

/** Memory in megabytes. */
export interface MemoryUse {
  what: string;
  /** Objects in use, including their memory outside of the heap. */
  heap: number;
  /** How much of the system's memory the process uses. */
  rss: number;
}

interface Job {
  kind: 'many' | 'long';
  name: DatabaseName;
  url: string;
  keys: SessionKey[];
}

/** @returns the memory at first, then with each thing that is kept. */
export async function memoryUses({ name, database, sessions }: Population): Promise<MemoryUse[]> {
  const keys = sessions.map(({ appName, userId, sessionId }) => ({ appName, userId, sessionId }));
  const longest = sessions.reduce((most, { length }, i) => (length > sessions[most]!.length ? i : most), 0);
  const [before, ...many] = await measured({ kind: 'many', name, url: database.url, keys: keys.slice(0, HANDLES) });
  const [, ...long] = await measured({ kind: 'long', name, url: database.url, keys: [keys[longest]!] });
  return [before!, ...many, ...long];
}

async function measured(job: Job): Promise<MemoryUse[]> {
  const child = fork(fileURLToPath(import.meta.url), ['measure']);
  const ended = once(child, 'exit').then(() => {
    throw new Error('The process whose memory is measured has ended.');
  });
  child.send(job);
  const [uses] = (await Promise.race([once(child, 'message'), ended])) as [MemoryUse[]];
  child.kill();
  return uses;
}

async function measure({ kind, name, url, keys }: Job): Promise<MemoryUse[]> {
  const orm = await connect(name, url);
  const service = new MikroOrmSessionService(orm.em);
  // Call once before measuring: the first call loads code.
  await service.listSessions({ appName: 'none' });
  const uses = [use('before')];
  const kept: unknown[] = [];
  if (kind === 'long') {
    const session = await service.getSession(keys[0]!);
    const most = process.resourceUsage().maxRSS / 1_000;
    const what = `one getSession of ${number(session?.events.length ?? 0)} events`;
    uses.push({ ...use(what), rss: most });
    kept.push(session);
  } else {
    kept.push(await handles(service, keys));
    uses.push(use(`${number(HANDLES)} handles with the newest ${EVENTS} events each`));
    kept.push(await watchers(new EventLog(orm.em), keys));
    uses.push(use(`the same and ${number(WATCHERS)} watchers of a session each`));
  }
  if (kept.length === 0) throw new Error('Nothing was kept.');
  return uses;
}

async function handles(service: MikroOrmSessionService, keys: readonly SessionKey[]): Promise<Session[]> {
  const opened: Session[] = [];
  for (let i = 0; i < HANDLES; i++) {
    const session = await service.getSession({ ...keys[i % keys.length]!, config: { numRecentEvents: EVENTS } });
    if (session) opened.push(session);
  }
  return opened;
}

/** @returns watchers that have started and wait for events. */
async function watchers(log: EventLog, keys: readonly SessionKey[]): Promise<Promise<unknown>[]> {
  const waiting: Promise<unknown>[] = [];
  for (let i = 0; i < WATCHERS; i++) {
    const session = log.session(keys[i % keys.length]!);
    const entries: AsyncIterator<SessionLogEntry> = session.watch(await session.head())[Symbol.asyncIterator]();
    waiting.push(entries.next());
  }
  // Waits for a few polls without news.
  await setTimeout(POLLS_MS);
  return waiting;
}

function use(what: string): MemoryUse {
  collect();
  const { heapUsed, external, rss } = process.memoryUsage();
  return { what, heap: (heapUsed + external) / 1e6, rss: rss / 1e6 };
}

const number = (value: number) => value.toLocaleString('en-US');

if (process.argv[2] === 'measure') {
  const [job] = (await once(process, 'message')) as [Job];
  process.send?.(await measure(job));
}
