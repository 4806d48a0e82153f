import { EventLog, MikroOrmSessionService, SessionMaintenance, type LogCursor } from '../../src/index.js';
import { doctor } from '../../packages/cli/src/commands/doctor.js';
import { Terminal } from '../../packages/cli/src/terminal.js';
import type { Event, Session } from '@google/adk';
import { randomNumbers } from '../payloads.js';
import { newPayloads, oneSessionKey } from '../workloads/sessions.js';
import { BIG_APP, COMMON_LABEL, DAYS, RARE_LABEL, oldDay, type Conversation, type Size } from './conversations.js';
import { rowsOf, type Population } from './population.js';

/** A call that is timed in a population. */
export interface Operation {
  id: string;
  title: string;
  /** Whether it takes so long that a few runs must do. */
  isLong?: boolean;
  /** Prepares a run; not timed. */
  prepare?(): Promise<void>;
  run(): Promise<void>;
}

const NEWEST = 20;
const PAGE = 10;
const LOG_ENTRIES = 1_000;

/** The range for the number of sessions of the user whose sessions are listed: neither few nor many. */
const OF_A_USER = { least: 5, most: 15 };

/** With one seed, keys are chosen in the same order in all populations. */
const SEED = 20_261_123;

/** @param day the population that decides how many sessions of a day are pruned: the same number in each population. */
export function operationsOf(population: Population, day: Size): Operation[] {
  const { orm, sessions } = population;
  const service = new MikroOrmSessionService(orm.em);
  const random = randomNumbers(SEED);
  const oneOf = <T>(list: readonly T[]): T => list[Math.floor(random() * list.length)]!;
  const longest = sessions.reduce((most, each) => (each.length > most.length ? each : most));
  const { usual, busiest } = usersOf(sessions);
  const find = (labels: Record<string, string>) => service.findSessions({ appName: BIG_APP, labels, limit: PAGE });
  return [
    appendOperation(service, () => oneOf(sessions)),
    {
      id: 'newest',
      title: `read the newest ${NEWEST} events of a session`,
      run: () => readNewest(service, oneOf(sessions)),
    },
    {
      id: 'newest-of-longest',
      title: `the same of the longest session`,
      run: () => readNewest(service, longest),
    },
    {
      id: 'list-user',
      title: `list a user's sessions`,
      async run() {
        const { user, count } = oneOf(usual);
        const { sessions: listed } = await service.listSessions(user);
        expectCount('sessions', listed.length, count);
      },
    },
    {
      id: 'list-busiest',
      title: `list ${PAGE} sessions of the user with the most`,
      async run() {
        const { sessions: listed } = await service.listSessions({ ...busiest.user, limit: PAGE, order: 'desc' });
        expectCount('sessions', listed.length, Math.min(PAGE, busiest.count));
      },
    },
    {
      id: 'find-label',
      title: `find ${PAGE} sessions with a label that every tenth has`,
      run: async () => expectCount('sessions', (await find(COMMON_LABEL)).sessions.length, PAGE),
    },
    {
      id: 'find-rare-label',
      title: `find sessions with a label that 1 of 10,000 has`,
      async run() {
        await find(RARE_LABEL);
      },
    },
    {
      id: 'log-head',
      title: 'log head',
      async run() {
        await new EventLog(orm.em).head();
      },
    },
    logOperation(population, random),
    pruneOperation(population, day),
    {
      id: 'stats',
      title: 'stats',
      isLong: true,
      async run() {
        const stats = await new SessionMaintenance(orm.em, { timeoutMs: 0 }).stats();
        if (stats.sessions < sessions.length) throw new Error(`There are ${stats.sessions} sessions.`);
      },
    },
    {
      id: 'doctor',
      title: 'doctor',
      isLong: true,
      async run() {
        const terminal = new SilentTerminal(true);
        await doctor({ codec: {}, em: orm.em, terminal }).catch((cause: unknown) => {
          throw new Error(`doctor has found something: ${JSON.stringify(terminal.value)}`, { cause });
        });
      },
    },
  ];
}

const keyOf = ({ appName, userId, sessionId }: Conversation) => ({ appName, userId, sessionId });

/** Expects that the longest session and the log are complete. */
export async function verify(population: Population): Promise<void> {
  const { orm, sessions, size } = population;
  const longest = sessions.reduce((most, each) => (each.length > most.length ? each : most));
  const session = await new MikroOrmSessionService(orm.em).getSession(keyOf(longest));
  // A kept population also has the appends of earlier runs.
  if ((session?.events.length ?? 0) < longest.length) throw new Error('The longest session lacks events.');
  const { position, change = 0 } = await new EventLog(orm.em).complete().head();
  if (position < size.events || change < size.sessions) throw new Error(`The log ends at ${position} and ${change}.`);
}

function appendOperation(service: MikroOrmSessionService, next: () => Conversation): Operation {
  const payloads = newPayloads(Date.now());
  let session: Session | undefined;
  let event: Event | undefined;
  let count = 0;
  return {
    id: 'append',
    title: 'append an event with one state key',
    async prepare() {
      session = await service.getSession({ ...keyOf(next()), config: { numRecentEvents: 1 } });
      [event] = payloads.events(1, () => oneSessionKey(count++));
    },
    async run() {
      await service.appendEvent({ session: session!, event: event! });
    },
  };
}

async function readNewest(service: MikroOrmSessionService, conversation: Conversation): Promise<void> {
  const session = await service.getSession({ ...keyOf(conversation), config: { numRecentEvents: NEWEST } });
  const found = session?.events.length ?? 0;
  if (found < Math.min(NEWEST, conversation.length)) throw new Error(`${found} events were read.`);
}

/** Continues anywhere in the log, like a reader that returns with its cursor. */
function logOperation({ orm, driver, size }: Population, random: () => number): Operation {
  const log = new EventLog(orm.em);
  let cursor: LogCursor = { position: 0, epoch: 0 };
  return {
    id: 'log-complete',
    title: `read ${LOG_ENTRIES.toLocaleString('en-US')} entries of the complete log`,
    async prepare() {
      const { epoch, history } = await log.head();
      const position = Math.floor(random() * (size.events - LOG_ENTRIES));
      const text = 'select coalesce(max(number), 0) as number from adk_changes where position < ?';
      const [row] = await rowsOf(driver, text, [position]);
      cursor = { position, epoch, history, change: Number(row?.['number']) };
    },
    async run() {
      let read = 0;
      for await (const { cursor: _ } of log.complete().since(cursor, { limit: LOG_ENTRIES })) read++;
      expectCount('entries', read, LOG_ENTRIES);
    },
  };
}

/** Each run adds sessions older than all others, and prunes only these, so that the population does not change. */
function pruneOperation({ orm, sessions, filler }: Population, day: Size): Operation {
  const maintenance = new SessionMaintenance(orm.em);
  let ordinal = sessions.length + 1;
  let filled = 0;
  return {
    id: 'prune',
    title: `prune a day: ${Math.round(day.sessions / DAYS).toLocaleString('en-US')} sessions`,
    isLong: true,
    async prepare() {
      const old = oldDay(day, Date.now(), ordinal);
      await filler.fill(old);
      filled = old.length;
      ordinal += filled;
    },
    async run() {
      // Between the age of these sessions and that of all others.
      const { done } = await maintenance.prune({ idleFor: 1.5 * DAYS * 24 * 3_600_000, pauseMs: 0 });
      expectCount('sessions', done.sessions, filled);
    },
  };
}

interface User {
  user: { appName: string; userId: string };
  count: number;
}

function usersOf(sessions: readonly Conversation[]): { usual: User[]; busiest: User } {
  const users = new Map<string, User>();
  for (const { appName, userId } of sessions) {
    if (appName !== BIG_APP) continue;
    const known = users.get(userId) ?? { user: { appName, userId }, count: 0 };
    known.count++;
    users.set(userId, known);
  }
  const all = [...users.values()];
  return {
    usual: all.filter(({ count }) => count >= OF_A_USER.least && count <= OF_A_USER.most),
    busiest: all.reduce((most, user) => (user.count > most.count ? user : most)),
  };
}

function expectCount(what: string, found: number, expected: number): void {
  if (found !== expected) throw new Error(`There are ${found} ${what} instead of ${expected}.`);
}

/** Keeps the result of a command, and prints nothing. */
class SilentTerminal extends Terminal {
  value: unknown;

  override result(value: unknown): Promise<void> {
    this.value = value;
    return Promise.resolve();
  }
}
