import type { Event } from '@google/adk';
import type { LoggedEvent } from '../database/statements/logged-events.js';
import { aString, aTime, aWholeNumber, anything, condition, object, someText, type Known } from '../model/arguments.js';
import { DamagedEventError } from '../model/errors.js';
import { decodeEvent } from '../model/event-codec.js';
import { checkKeys } from '../model/keys.js';
import type { LogEntry, LogEntryPosition } from './entries.js';

/** What to read of one session's log; all conditions given must hold. */
export interface SessionLogFilter {
  /** The event's branch begins with this, character by character. */
  branchPrefix?: string;
  author?: string;
  /** The event's author ends with this. */
  authorSuffix?: string;
  invocationId?: string;
  /** Only events later than this, in ms since 1970. */
  afterTimestamp?: number;
  /** End after n entries. */
  limit?: number;
}

/**
 * What to read of the log. Conditions on events apply to events only; `appName`, `userId`, `sessionId` and `sessionTree`
 * apply to changes of the complete log, too.
 */
export interface LogFilter extends SessionLogFilter {
  appName?: string;
  userId?: string;
  sessionId?: string;
  /** A session's id: reads that session and those of its subagents, see `deriveSessionId`. */
  sessionTree?: string;
}

/** The conditions of a filter. */
type LogConditions = Omit<LogFilter, 'limit'>;

const FILTER = 'The filter';

const SESSION_FILTER: Known<SessionLogFilter> = {
  branchPrefix: condition(someText),
  author: condition(aString),
  authorSuffix: condition(someText),
  invocationId: condition(aString),
  afterTimestamp: condition(aTime),
  limit: aWholeNumber,
};

const checkSessionNames = object(SESSION_FILTER);

/** `checkKeys` checks the names and ids. */
const KEYS: Known<Pick<LogFilter, 'appName' | 'userId' | 'sessionId' | 'sessionTree'>> = {
  appName: condition(anything),
  userId: condition(anything),
  sessionId: condition(anything),
  sessionTree: condition(anything),
};

const checkNames = object<LogFilter>({ ...KEYS, ...SESSION_FILTER });

const { limit: _, ...CONDITIONS } = SESSION_FILTER;
const checkConditions = object<LogConditions>({ ...KEYS, ...CONDITIONS });

/** @returns a copy. @throws InvalidArgumentError when it has a name or a value that it cannot have. */
export function checkSessionFilter(filter: SessionLogFilter): SessionLogFilter {
  return checkSessionNames(filter, FILTER);
}

/** @returns a copy. @throws InvalidArgumentError as `checkSessionFilter`; InvalidKeyError when a name or an id cannot be a key. */
export function checkFilter(filter: LogFilter): LogFilter {
  return withIds(checkNames(filter, FILTER));
}

/** @returns a copy. @throws InvalidArgumentError, InvalidKeyError as `checkFilter`. */
export function checkConditionsOf(filter: LogConditions): LogConditions {
  return withIds(checkConditions(filter, FILTER));
}

function withIds<Filter extends LogConditions>(filter: Filter): Filter {
  const { appName, userId, sessionId, sessionTree } = filter;
  if (appName !== undefined) checkKeys({ appName });
  if (userId !== undefined) checkKeys({ userId });
  if (sessionId !== undefined) checkKeys({ sessionId });
  if (sessionTree !== undefined) checkKeys({ sessionId: sessionTree });
  return filter;
}

/** The first entries, as many as the filter asks for. */
export async function* limited<Entry>(
  { limit }: SessionLogFilter,
  entries: AsyncIterable<Entry>,
): AsyncGenerator<Entry> {
  if (limit === 0) return;
  let count = 0;
  for await (const entry of entries) {
    yield entry;
    if (++count === limit) return;
  }
}

/**
 * The entries of the events that match the filter, and of all events that cannot be read: they might match (contract G4).
 */
export function* entriesOf(events: readonly LoggedEvent[], filter: SessionLogFilter): Generator<LogEntry> {
  for (const { session, seq, position, json, undecodable } of events) {
    if (json === undefined) continue;
    const entryPosition: LogEntryPosition = { ...(position !== null && { position }), seq, ...session };
    const event = decodeEvent(json ?? undefined);
    if (!event)
      yield { ...entryPosition, error: new DamagedEventError(session.sessionId, seq, seq, undecodable?.encoding) };
    else if (matches(event, filter)) yield { ...entryPosition, event };
  }
}

/** Whether an event meets the conditions that have no column. */
function matches(event: Event, { branchPrefix, author, authorSuffix, invocationId }: SessionLogFilter): boolean {
  return (
    (branchPrefix === undefined || text(event.branch).startsWith(branchPrefix)) &&
    (author === undefined || event.author === author) &&
    (authorSuffix === undefined || text(event.author).endsWith(authorSuffix)) &&
    (invocationId === undefined || event.invocationId === invocationId)
  );
}

/** A stored event may hold anything; the reader continues anyway (contract G4). */
function text(value: unknown): string {
  return typeof value === 'string' ? value : '';
}
