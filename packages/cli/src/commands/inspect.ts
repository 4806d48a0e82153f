import { Database, currentLease, nextApp, storedSession } from '../../../../src/internal.js';
import {
  type LogCursor,
  EventLog,
  type LogFilter,
  type LogChange,
  type LogEntry,
  SessionMaintenance,
  type OwnerOptions,
  type SessionStats,
  type FindOpenCallsRequest,
  type FindSessionsRequest,
  type SessionSummary,
  SessionNotFoundError,
  MikroOrmSessionService,
} from '../../../../src/index.js';
import { sessionIdentity } from '../../../../src/model/keys.js';
import { eachName } from '../../../../src/model/pages.js';
import {
  bytes,
  json,
  number,
  printable,
  quoted,
  shortened,
  shownTime,
  textOrJson,
} from '../../../studio/src/operations/words.js';
import { DAY_MS } from '../../../studio/src/operations/days.js';
import { DAYS, Reading, positionBefore, sortSessions, askedAbout } from '../../../studio/src/internal.js';
import type { EntityManager } from '@mikro-orm/core';
import { changeLine, eventLines } from '../conversation.js';
import type { Context, SessionWork, Work } from '../run.js';
import { Unfinished, UsageError } from '../errors.js';
import { timeAfter, type timeOrTimeOfDay } from '../values.js';
import { countOf, noteEmpty } from './owner.js';

export const stats: Work<[OwnerOptions & { byApp?: true }]> = async ({ em, terminal }, { byApp, ...owner }) => {
  const maintenance = new SessionMaintenance(em, { timeoutMs: 0 });
  if (byApp) {
    const apps = await maintenance.stats({ ...owner, groupBy: 'app' });
    if (apps.length === 0) await noteEmpty({ em, terminal }, owner);
    const head = ['app', 'sessions', 'users', 'events', 'events’ size', 'state', 'artifacts', 'newest update'];
    const rows = apps.map((each) => [
      ...[each.appName, each.sessions, each.users, each.events],
      ...[each.eventBytes, each.stateBytes, each.artifactBytes].map((size) => ({ amount: bytes(size) })),
      { time: each.newestUpdate },
    ]);
    return terminal.result(apps, () => terminal.table([head, ...rows]));
  }
  const all = await maintenance.stats(owner);
  if (all.sessions === 0) await noteEmpty({ em, terminal }, owner);
  await terminal.result(all, () => statsLines(all).map(([name, value]) => `${terminal.dim(name.padEnd(18))}${value}`));
};

function statsLines({ eventsPerSession, ...all }: SessionStats): [string, string][] {
  const { mean, median, percentile95, largest } = eventsPerSession;
  return [
    [
      'sessions',
      number(all.sessions) + (all.deletedSessions > 0 ? `, ${number(all.deletedSessions)} of them soft-deleted` : ''),
    ],
    ['users', number(all.users)],
    ['events', `${number(all.events)}, ${bytes(all.eventBytes)}`],
    ['state', bytes(all.stateBytes)],
    ['artifacts', `${number(all.artifacts)}, ${bytes(all.artifactBytes)}`],
    ['memories', `${number(all.memories)}, ${bytes(all.memoryBytes)}`],
    [
      'events a session',
      `mean ${number(mean)}, median ${number(median)}, 95th percentile ${number(percentile95)}, largest ${number(largest)}`,
    ],
    ['updates', `from ${shownTime(all.oldestUpdate)} to ${shownTime(all.newestUpdate)}`],
  ];
}

/** The names of the apps that have sessions. */
export async function appNames(em: EntityManager): Promise<string[]> {
  const read = new Database(em).reader('list');
  const names: string[] = [];
  for await (const name of eachName(undefined, (after) => read((sql) => nextApp(sql, after, 'sessions'))))
    names.push(name);
  return names;
}

type Filter = Omit<FindSessionsRequest, 'appName' | 'status' | 'order'>;

interface ListFlags extends Filter {
  appName?: string;
  deleted?: true;
  oldestFirst?: true;
  by?: 'size' | 'events' | 'tokens';
}

export const list: Work<[ListFlags]> = async (context, options) => {
  const { em, terminal } = context;
  const { appName, deleted, oldestFirst, by, ...filter } = options;
  if (appName === undefined) {
    if (Object.keys(options).length > 0)
      throw new UsageError('Without --app, list prints the names of the apps: name one.');
    const names = await appNames(em);
    return terminal.result(names, () => terminal.table([['app'], ...names.map((name) => [name])]));
  }
  const request: FindSessionsRequest = {
    ...{ ...filter, appName, status: deleted ? 'deleted' : 'active', order: oldestFirst ? 'asc' : 'desc' },
  };
  if (filter.limit === 0) throw new UsageError('--limit must be a whole number from 1.');
  const page: { sessions: Measured[]; next?: string } = by
    ? { sessions: await sorted(context, request, by) }
    : await new MikroOrmSessionService(em).findSessions(request);
  const amounts = by === undefined || by === 'events' ? [] : [by];
  const rows = page.sessions.map(({ userId, sessionId, eventCount, lastUpdateTime, title, labels, ...measured }) => [
    ...[userId, { id: sessionId }, eventCount],
    ...amounts.map((each) => (each === 'size' ? { amount: bytes(measured.size ?? 0) } : (measured.tokens ?? 0))),
    { time: lastUpdateTime },
    title ?? '',
    Object.entries(labels)
      .map(([name, value]) => `${name}=${value}`)
      .join(' '),
  ]);
  const head = ['user', 'session', 'events', ...amounts, 'last update', 'title', 'labels'];
  await terminal.result(page, () => terminal.table([head, ...rows]));
  if (rows.length === 0) await noteEmpty({ em, terminal }, options, 'No session matches.');
  noteNext(terminal, page);
};

/** A session, and what it was sorted by: `size` is in bytes. */
type Measured = SessionSummary & { size?: number; tokens?: number };

/** Sorts sessions as the studio does, the largest first, and notes what was looked at. */
async function sorted(
  { em, codec, terminal, signal }: Context,
  { limit = 50, appName, ...request }: FindSessionsRequest,
  by: NonNullable<ListFlags['by']>,
): Promise<Measured[]> {
  const reading = new Reading(em, codec);
  while (by === 'tokens' && !(await reading.lastMonth.update()))
    if (signal.aborted) throw new Unfinished('Ended before all tokens were counted.');
  const { found, lookedAt, counts, sizeOf } = await sortSessions(reading, [appName], request, { name: by });
  if (sizeOf) terminal.note('Sizes are those of events; of long sessions they are estimated from the newest events.');
  if (counts) terminal.note(`Tokens are those of ${DAYS} days; copies of forks do not count.`);
  if (lookedAt !== undefined) terminal.note(`Only of the ${number(lookedAt)} sessions that were updated last.`);
  return found.slice(0, limit).map((session) => ({
    ...session,
    ...(sizeOf && { size: Math.round(sizeOf(session)?.bytes ?? 0) }),
    ...(counts && { tokens: counts.get(sessionIdentity(session))?.tokens ?? 0 }),
  }));
}

export const waiting: Work<[FindOpenCallsRequest]> = async ({ em, codec, terminal }, request) => {
  const page = await new MikroOrmSessionService(em, codec).findOpenCalls(request);
  const rows = page.calls.map(({ timestamp, userId, sessionId, name, args, id }) => {
    const { tool = name, args: ofTool = args, hint = '' } = askedAbout(name, args) ?? {};
    const given = args === undefined ? 'cannot be read' : shortened(textOrJson(ofTool ?? {}), MOST_ARGUMENTS);
    return [
      { time: timestamp },
      userId,
      { id: sessionId },
      tool === name ? name : `${tool}?`,
      `${given} ${shortened(hint, MOST_ARGUMENTS)}`.trimEnd(),
      { id },
    ];
  });
  await terminal.result(page, () => terminal.table([['since', 'user', 'session', 'call', 'arguments', 'id'], ...rows]));
  if (rows.length === 0) await noteEmpty({ em, terminal }, request, 'No call waits for a person.');
  noteNext(terminal, page);
};

function noteNext(terminal: Context['terminal'], { next }: { next?: string | undefined }): void {
  if (next !== undefined) terminal.note(`There are more: --after ${quoted(next)}`);
}

const MOST_ARGUMENTS = 80;

interface ShowFlags {
  numRecentEvents?: number;
  from?: number;
  to?: number;
  full?: true;
}

export const show: SessionWork<ShowFlags> = async ({ em, codec, terminal }, key, { from, to, full, ...config }) => {
  const service = new MikroOrmSessionService(em, codec);
  const { sessionId } = key;
  const read = new Database(em).reader('show');
  const row = await read((sql) => storedSession(sql, key));
  const lease = await read((sql) => currentLease(sql, key));
  const title = row?.title ?? undefined;
  const holder = lease?.isHeld ? lease.holder : undefined;
  const head = (updated: number) => [
    ...(title === undefined ? [] : [terminal.bold(printable(title))]),
    `${terminal.bold(Object.values(key).map(printable).join(' / '))}  ${terminal.dim(`updated ${shownTime(updated)} UTC`)}`,
    ...(holder === undefined ? [] : [terminal.yellow(`held by ${printable(holder)}`)]),
  ];
  if (from !== undefined || to !== undefined) {
    if (config.numRecentEvents !== undefined) throw new UsageError('Give either --last, or --from and --to.');
    const { firstSeq = 1, lastSeq = 0, lastUpdateTime = 0 } = row ?? {};
    const limit = Math.max(1, Math.min(to ?? lastSeq, lastSeq) - Math.max(from ?? 1, firstSeq) + 1);
    const page = await service.readEvents(key, {
      after: Math.max(0, (from ?? 1) - 1),
      before: (to ?? lastSeq) + 1,
      limit,
    });
    return terminal.result({ ...key, title, holder, ...page }, () => [
      ...head(lastUpdateTime),
      ...page.events.flatMap(({ seq, event }) => eventLines(terminal, seq, event, full)),
    ]);
  }
  const session = await service.getSession({ ...key, config });
  if (!session) throw new SessionNotFoundError(sessionId);
  const first = (row?.lastSeq ?? session.events.length) - session.events.length + 1;
  await terminal.result({ ...session, title, holder }, () => [
    ...head(session.lastUpdateTime),
    ...session.events.flatMap((event, i) => eventLines(terminal, first + i, event, full)),
    ...Object.entries(session.state).map(([key, value]) => terminal.cyan(`${printable(key)} = ${json(value)}`)),
  ]);
};

interface TailFlags {
  from?: LogCursor | number;
  since?: ReturnType<typeof timeOrTimeOfDay>;
  until?: ReturnType<typeof timeOrTimeOfDay>;
  full?: true;
}

export const tail: Work<[LogFilter & TailFlags]> = async (
  { em, codec, terminal, signal },
  { from, full, since: begin, until: end, ...filter },
) => {
  const now = Date.now();
  // A time of the day has passed, and its end comes after it.
  const since = begin === undefined ? undefined : timeAfter(begin, now - DAY_MS, terminal.isUtc);
  const earliest = since ?? (from === undefined ? now : now - DAY_MS);
  const until = end === undefined ? undefined : timeAfter(end, earliest, terminal.isUtc);
  if (since !== undefined && since > now) throw new UsageError('--since must be a time that has passed.');
  if (until !== undefined && since !== undefined && until <= since)
    throw new UsageError('--until must be later than --since.');
  if (until !== undefined && until <= now && since === undefined && from === undefined)
    throw new UsageError('--until has passed: also say --since.');
  const isLimited = filter.appName !== undefined || filter.userId !== undefined;
  if (isLimited && (await countOf({ em }, filter)).done.sessions === 0) await noteEmpty({ em, terminal }, filter);
  let shown = '';
  const emit = (entry: LogEntry | LogChange) => {
    const { appName, userId, sessionId, seq } = entry;
    // A change of the app's or the user's state has no session.
    const names = [appName, userId, sessionId].filter((each) => each !== '').map(printable);
    // Named again when another one has come between.
    const key = names.join(' / ') === shown ? [] : [terminal.dim(names.join(' / '))];
    const result = (value: unknown, lines: readonly string[]) => {
      if (lines.length > 0) shown = names.join(' / ');
      return terminal.result(value, () => [...(lines.length > 0 ? key : []), ...lines]);
    };
    if (entry.change) {
      // `eraseUser` leaves an entry without state, for readers that keep the app's.
      const isEmpty = entry.change === 'state' && Object.keys(entry.state).length + entry.removed.length === 0;
      return result(entry, isEmpty ? [] : [changeLine(terminal, entry)]);
    }
    const { event, error } = entry;
    if (event) return result(entry, eventLines(terminal, seq, event, full));
    const message = error?.message ?? '';
    return result({ ...entry, error: error?.message }, [terminal.red(`${seq}  ${printable(message)}`)]);
  };
  const events = new EventLog(em, codec);
  const log = events.complete();
  const read = new Database(em).reader('tail');
  const cursor = since === undefined ? (from ?? (await log.head())) : await positionBefore(events, since, read);
  if (until !== undefined && until <= now) {
    // A change has no time: it goes with the event before it.
    const last = await positionBefore(events, until, read);
    for await (const entry of log.since(cursor, filter)) {
      if (signal.aborted || entry.cursor.position > last) return;
      await emit(entry);
    }
    return;
  }
  const ends = until === undefined ? [] : [AbortSignal.timeout(Math.min(until - now, LONGEST_TIMER_MS))];
  const watching = AbortSignal.any([signal, ...ends]);
  for await (const entry of log.watch(cursor, filter, { signal: watching })) await emit(entry);
};

/** Node.js has no longer timers: 24 days. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;
