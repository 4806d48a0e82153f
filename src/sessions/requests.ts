import type {
  AppendEventRequest,
  CreateSessionRequest,
  DeleteSessionRequest,
  Event,
  GetSessionConfig,
  GetSessionRequest,
  ListSessionsRequest,
  Session,
} from '@google/adk';
import {
  aBoolean,
  aCount,
  aPlainObject,
  aRecord,
  aSession,
  aString,
  aTime,
  aWait,
  aWholeNumber,
  anything,
  condition,
  object,
  objects,
  oneOf,
  nullable,
  someText,
  strings,
  type Checks,
} from '../model/arguments.js';
import { aTitle, someLabels } from '../model/description.js';
import type { SessionKey } from '../model/keys.js';
import type { ReadEventsRequest } from './pages.js';
import type { FindOpenCallsRequest } from './open-calls.js';
import type { FindSessionsRequest } from './stored-summaries.js';
import type { SessionDescription } from './summaries.js';

export interface UpdateStateRequest {
  appName: string;
  /** Required for `user:` keys and for keys without a prefix. */
  userId?: string;
  /** Required for keys without a prefix. */
  sessionId?: string;
  /** Keys with their prefixes, and their new values. */
  set?: Record<string, unknown>;
  /** Keys with their prefixes; a key that does not exist is ignored. */
  remove?: readonly string[];
}

/** A point of a session's history: give one of the two properties. */
export interface HistoryPoint {
  /** After the event with this number; 0 for the beginning. */
  at?: number;
  /** Before the first event of this invocation. */
  beforeInvocationId?: string;
}

export type RewindPoint = HistoryPoint & { includeLeased?: boolean };

export type ForkPoint = HistoryPoint & { as?: string };

/** Accepts `null` where ADK's own services treat it as absent: requests may come from JSON. */
const config: Checks<GetSessionConfig> = {
  numRecentEvents: nullable(aWholeNumber),
  afterTimestamp: nullable(aTime),
};

/** Every request may have all three names, so that callers can pass a whole key. `checkKeys` checks the values. */
const sessionKey: Checks<SessionKey> = { appName: anything, userId: anything, sessionId: anything };

const historyPoint: Checks<HistoryPoint> = {
  at: condition(aWholeNumber),
  beforeInvocationId: condition(aString),
};

/** The properties that each request may have. ADK's `Runner`, tools and API server of 2.0.0 pass no others. */
export const checkRequest = {
  createSession: object<CreateSessionRequest>({ ...sessionKey, state: nullable(aPlainObject) }),
  getSession: object<GetSessionRequest>({ ...sessionKey, config: nullable(object(config)) }),
  readEvents: object<ReadEventsRequest>({
    before: condition(aWholeNumber),
    after: condition(aWholeNumber),
    limit: aCount,
    order: oneOf('asc', 'desc'),
  }),
  listSessions: object<ListSessionsRequest & SessionKey>({
    ...sessionKey,
    userId: condition(anything),
    limit: aWholeNumber,
    offset: aWholeNumber,
    page: aCount,
    order: oneOf('asc', 'desc'),
  }),
  deleteSession: object<DeleteSessionRequest>(sessionKey),
  restoreSession: object(sessionKey),
  forkSession: object<ForkPoint>({ ...historyPoint, as: anything }),
  rewindSession: object<RewindPoint>({ ...historyPoint, includeLeased: aBoolean }),
  findSessions: object<FindSessionsRequest>({
    appName: anything,
    userId: condition(anything),
    title: condition((value, name) => someText(value, name) ?? aTitle(value, name)),
    labels: condition(someLabels),
    status: oneOf('active', 'deleted'),
    updatedAfter: condition(aTime),
    updatedBefore: condition(aTime),
    after: aString,
    limit: aCount,
    order: oneOf('asc', 'desc'),
  }),
  findOpenCalls: object<FindOpenCallsRequest>({
    appName: anything,
    userId: condition(anything),
    sessionId: condition(anything),
    name: condition(aString),
    openFor: condition(aWait),
    after: aString,
    limit: aCount,
  }),
  describeSession: object<SessionDescription>({ title: nullable(aTitle), labels: nullable(someLabels) }),
  appendEvent: object<AppendEventRequest>({ session: aSession, event: aRecord }, 'session', 'event'),
  appendEvents: object<{ session: Session; events: readonly Event[] }>(
    { session: aSession, events: objects },
    'session',
    'events',
  ),
  getAppState: object(sessionKey),
  getUserState: object(sessionKey),
  updateState: object<UpdateStateRequest>({ ...sessionKey, set: aPlainObject, remove: strings }),
};
