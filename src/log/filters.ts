import type { Event } from '@google/adk';
import type { LoggedEvent } from './logged-events.js';
import {
  aString,
  aTime,
  aWholeNumber,
  anything,
  condition,
  keyConditions,
  object,
  someText,
  type Checks,
} from '../model/arguments.js';
import { DamagedEventError } from '../model/errors.js';
import { decodeEvent } from '../model/json.js';
import { checkKeys, partialKey } from '../model/keys.js';
import type { LogEntry, WithoutCursor } from './entries.js';

/** Which entries of one session's log to read: those that meet all conditions. */
export interface SessionLogFilter {
  /** Only events whose branch begins with this, character by character. */
  branchPrefix?: string;
  author?: string;
  /** Only events whose author ends with this. */
  authorSuffix?: string;
  invocationId?: string;
  /** Only events later than this, in ms since 1970. */
  afterTimestamp?: number;
  /** Ends after this many entries. */
  limit?: number;
}

/**
 * Which entries of the log to read. `appName`, `userId`, `sessionId` and `sessionTree` also apply to the changes of the complete
 * log, the other conditions only to events.
 */
export interface LogFilter extends SessionLogFilter {
  appName?: string;
  userId?: string;
  sessionId?: string;
  /** Only this session and those of its subagents, whose ids are `<this>:sub:…`. */
  sessionTree?: string;
}

type LogConditions = Omit<LogFilter, 'limit'>;

const FILTER = 'The filter';

const SESSION_FILTER: Checks<SessionLogFilter> = {
  branchPrefix: condition(someText),
  author: condition(aString),
  authorSuffix: condition(someText),
  invocationId: condition(aString),
  afterTimestamp: condition(aTime),
  limit: aWholeNumber,
};

const checkSessionNames = object(SESSION_FILTER);

const KEYS = { ...keyConditions, sessionTree: condition(anything) };

const checkNames = object<LogFilter>({ ...KEYS, ...SESSION_FILTER });

const { limit: _, ...CONDITIONS } = SESSION_FILTER;
const checkConditions = object<LogConditions>({ ...KEYS, ...CONDITIONS });

/** @returns a copy. @throws InvalidArgumentError for an unknown name or an invalid value. */
export function checkSessionFilter(filter: SessionLogFilter): SessionLogFilter {
  return checkSessionNames(filter, FILTER);
}

/** @returns a copy. @throws InvalidArgumentError as `checkSessionFilter`; InvalidKeyError if a name or an id cannot be a key. */
export function checkFilter(filter: LogFilter): LogFilter {
  return withIds(checkNames(filter, FILTER));
}

/** @returns a copy. @throws InvalidArgumentError, InvalidKeyError as `checkFilter`. */
export function checkConditionsOf(filter: LogConditions): LogConditions {
  return withIds(checkConditions(filter, FILTER));
}

function withIds<Filter extends LogConditions>(filter: Filter): Filter {
  const { sessionTree } = filter;
  checkKeys(partialKey(filter));
  if (sessionTree !== undefined) checkKeys({ sessionId: sessionTree });
  return filter;
}

/**
 * Makes entries of the events that match the filter, and of all events that cannot be read: they might match (contract G4).
 */
export function* entriesOf(
  events: readonly LoggedEvent[],
  filter: SessionLogFilter,
): Generator<WithoutCursor<LogEntry>> {
  for (const { session, seq, position, appendTime, isCopy, json, undecodable } of events) {
    if (json === undefined) continue;
    const entryPosition = {
      // One session's log has none.
      position: position ?? 0,
      ...{ seq, ...session },
      ...(appendTime !== null && { appendTime }),
      ...(isCopy && { copied: true as const }),
    };
    const event = decodeEvent(json ?? undefined);
    if (!event)
      yield { ...entryPosition, error: new DamagedEventError(session.sessionId, seq, seq, undecodable?.encoding) };
    else if (matches(event, filter)) yield { ...entryPosition, event };
  }
}

/** Whether an event meets the conditions that SQL cannot check. */
function matches(event: Event, { branchPrefix, author, authorSuffix, invocationId }: SessionLogFilter): boolean {
  return (
    (branchPrefix === undefined || text(event.branch).startsWith(branchPrefix)) &&
    (author === undefined || event.author === author) &&
    (authorSuffix === undefined || text(event.author).endsWith(authorSuffix)) &&
    (invocationId === undefined || event.invocationId === invocationId)
  );
}

/** A stored event may hold anything: one that is not a text must not stop the reader (contract G4). */
function text(value: unknown): string {
  return typeof value === 'string' ? value : '';
}
