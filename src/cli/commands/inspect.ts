import { transferredSession } from '../../transfer/transferred-sessions.js';
import type { EntityManager } from '@mikro-orm/core';
import type { LogCursor } from '../../model/log-history.js';
import { EventLog } from '../../log/event-log.js';
import type { LogFilter } from '../../log/filters.js';
import type { LogChange, LogEntry } from '../../log/entries.js';
import { SessionMaintenance } from '../../maintenance/session-maintenance.js';
import type { SessionStats } from '../../maintenance/stats.js';
import { SessionNotFoundError } from '../../model/errors.js';
import { given } from '../../model/objects.js';
import { revisionOf } from '../../sessions/handle.js';
import { MikroOrmSessionService } from '../../sessions/session-service.js';
import { changeLine, eventLines } from '../conversation.js';
import { nextApp } from '../../database/statements/walk.js';
import { readerOf } from '../../operations/reader.js';
import type { Context, SessionWork, Work } from '../run.js';
import { UsageError } from '../usage-error.js';
import { countOf, noteNone, ownerOf, type OwnerFlags } from './owner.js';
import { bytes, counted, json, number, printable, quoted, shownTime } from '../../operations/words.js';

export const stats: Work<[OwnerFlags & { byApp?: true }]> = async ({ em, terminal }, options) => {
  const maintenance = new SessionMaintenance(em, { timeoutMs: 0 });
  const owner = ownerOf(options);
  if (options.byApp) {
    const apps = await maintenance.stats({ ...owner, groupBy: 'app' });
    if (apps.length === 0) noteNone(terminal, options);
    const rows = apps.map((each) => [
      each.appName,
      each.sessions,
      each.users,
      each.events,
      bytes(each.eventBytes),
      bytes(each.stateBytes),
      bytes(each.artifactBytes),
      shownTime(each.newestUpdate),
    ]);
    await terminal.result(apps, () =>
      terminal.table([
        ['app', 'sessions', 'users', 'events', 'events’ size', 'state', 'artifacts', 'newest update'],
        ...rows,
      ]),
    );
    return undefined;
  }
  const all = await maintenance.stats(owner);
  if (all.sessions === 0) noteNone(terminal, options);
  await terminal.result(all, () => statsLines(all).map(([name, value]) => `${terminal.dim(name.padEnd(18))}${value}`));
  return undefined;
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
    [
      'artifacts',
      `${number(all.artifacts)}, ${bytes(all.artifactBytes)}` +
        (all.uploads > 0 ? `, ${counted(all.uploads, 'stream')} not saved to the end` : ''),
    ],
    ['memories', `${number(all.memories)}, ${bytes(all.memoryBytes)}`],
    [
      'events a session',
      `mean ${number(mean)}, median ${number(median)}, 95th percentile ${number(percentile95)}, largest ${number(largest)}`,
    ],
    ['updates', `from ${shownTime(all.oldestUpdate)} to ${shownTime(all.newestUpdate)}`],
  ];
}

interface ListOptions extends OwnerFlags {
  title?: string;
  label?: Record<string, string>;
  deleted?: true;
  updatedAfter?: number;
  updatedBefore?: number;
  oldestFirst?: true;
  limit?: number;
  after?: string;
}

/** The names of the apps that have sessions. */
async function appNames(em: EntityManager): Promise<string[]> {
  const { read } = readerOf(em, 'list');
  const next = (after: string) => read((sql) => nextApp(sql, after, 'sessions'));
  const names: string[] = [];
  for (let name = await next(''); name !== undefined; name = await next(name)) names.push(name);
  return names;
}

export const list: Work<[ListOptions]> = async ({ em, terminal }, options) => {
  if (options.app === undefined) {
    const [other] = Object.keys(options).filter((name) => name !== 'json');
    if (other !== undefined) throw new UsageError('Without --app, list prints the names of the apps: name one.');
    const names = await appNames(em);
    await terminal.result(names, () => terminal.table([['app'], ...names.map((name) => [name])]));
    return undefined;
  }
  const { title, updatedAfter, updatedBefore, limit, after } = options;
  const page = await new MikroOrmSessionService(em).findSessions({
    ...given({ title, updatedAfter, updatedBefore, limit, after, userId: options.user, labels: options.label }),
    appName: options.app,
    status: options.deleted ? 'deleted' : 'active',
    order: options.oldestFirst ? 'asc' : 'desc',
  });
  const rows = page.sessions.map(({ userId, sessionId, eventCount, lastUpdateTime, title, labels }) => [
    userId,
    sessionId,
    eventCount,
    shownTime(lastUpdateTime),
    [title ?? '', ...Object.entries(labels).map(([name, value]) => `${name}=${value}`)].join(' ').trim(),
  ]);
  await terminal.result(page, () =>
    terminal.table([['user', 'session', 'events', 'last update (UTC)', 'title'], ...rows]),
  );
  if (page.sessions.length === 0) {
    if ((await countOf(em, options)).sessions > 0) terminal.note('No session matches.');
    else noteNone(terminal, options);
  }
  if (page.next !== undefined) terminal.note(`There are more: --after ${quoted(page.next)}`);
  return undefined;
};

interface WaitingOptions extends OwnerFlags {
  app: string;
  name?: string;
  openFor?: number;
  limit?: number;
  after?: string;
}

export const waiting: Work<[WaitingOptions]> = async ({ em, codec, terminal }, options) => {
  const { app: appName, user: userId, name, openFor, limit, after } = options;
  const page = await new MikroOrmSessionService(em, codec).findOpenCalls({
    appName,
    ...given({ userId, name, openFor, limit, after }),
  });
  const rows = page.calls.map((call) => [
    shownTime(call.timestamp),
    call.userId,
    call.sessionId,
    call.name,
    call.args === undefined ? 'cannot be read' : cut(JSON.stringify(call.args)),
    call.id,
  ]);
  await terminal.result(page, () =>
    terminal.table([['since (UTC)', 'user', 'session', 'call', 'arguments', 'id'], ...rows]),
  );
  if (page.calls.length === 0) {
    if ((await countOf(em, options)).sessions > 0) terminal.note('No call waits for a person.');
    else noteNone(terminal, options);
  }
  if (page.next !== undefined) terminal.note(`There are more: --after ${quoted(page.next)}`);
  return undefined;
};

const MOST_ARGUMENTS = 80;
const cut = (text: string) => (text.length > MOST_ARGUMENTS ? `${text.slice(0, MOST_ARGUMENTS)}…` : text);

export const show: SessionWork<{ last?: number }> = async ({ em, codec, terminal }, key, { last }) => {
  const { appName, userId, sessionId } = key;
  const session = await new MikroOrmSessionService(em, codec).getSession({ ...key, config: { numRecentEvents: last } });
  if (!session) throw new SessionNotFoundError(sessionId);
  const { read } = readerOf(em, 'show');
  const title = (await read((sql) => transferredSession(sql, key)))?.title ?? undefined;
  const first = (revisionOf(session)?.seq ?? session.events.length) - session.events.length + 1;
  await terminal.result({ ...session, title }, () => [
    ...(title === undefined ? [] : [terminal.bold(printable(title))]),
    `${terminal.bold([appName, userId, sessionId].map(printable).join(' / '))}  ${terminal.dim(`updated ${shownTime(session.lastUpdateTime)} UTC`)}`,
    ...session.events.flatMap((event, i) => eventLines(terminal, first + i, event)),
    ...Object.entries(session.state).map(([key, value]) => terminal.cyan(`${printable(key)} = ${json(value)}`)),
  ]);
  return undefined;
};

interface TailOptions extends OwnerFlags {
  session?: string;
  from?: LogCursor | number;
}

export const tail: Work<[TailOptions]> = async (
  { em, codec, terminal, signal },
  { session: sessionId, from, ...owner },
) => {
  const isLimited = owner.app !== undefined || owner.user !== undefined;
  if (isLimited && (await countOf(em, owner)).sessions === 0) noteNone(terminal, owner);
  const log = new EventLog(em, codec).complete();
  const filter: LogFilter = given({ ...ownerOf(owner), sessionId });
  const cursor = from ?? (await log.head());
  for await (const entry of log.watch(cursor, filter, { signal })) await emit(terminal, entry);
  return undefined;
};

function emit(terminal: Context['terminal'], entry: LogEntry | LogChange): Promise<void> {
  const { appName, userId, sessionId, seq } = entry;
  const key = terminal.dim([appName, userId, sessionId].map(printable).join(' / '));
  if (entry.change) return terminal.result(entry, () => [key, changeLine(terminal, entry)]);
  const { event, error } = entry;
  if (event) return terminal.result(entry, () => [key, ...eventLines(terminal, seq, event)]);
  return terminal.result({ ...entry, error: error?.message }, () => [
    key,
    terminal.red(`${seq}  ${printable(error?.message ?? '')}`),
  ]);
}
