import { callsOf, type ToolCall } from '../conversation/calls.js';
import { findOpenCalls as find, type StoredCall, type OpenCallCursor } from '../database/statements/open-calls.js';
import { decodeEvent, withoutUndefined, isRecord } from '../model/json.js';
import { checkKeys, isKey, type SessionKey } from '../model/keys.js';
import { MAX_SEQ } from '../model/seq-ranges.js';
import { pageOf } from './page-cursor.js';
import type { ServiceContext } from './service-context.js';

/** Which calls to find: those that meet all given conditions. */
export interface FindOpenCallsRequest {
  appName: string;
  userId?: string;
  sessionId?: string;
  /** The name of a tool, or `adk_request_confirmation`, `adk_request_credential` or `adk_request_input`. */
  name?: string;
  /** Only calls that have been open for at least this many ms, by the database's clock. */
  openFor?: number;
  /** The `next` of the previous page, with the same other conditions. */
  after?: string;
  /** How many calls a page has at most; 50 by default. */
  limit?: number;
}

/** A call of a long-running tool, or one of ADK's own questions, that waits for its answer, or for the agent to continue with it. */
export interface OpenCall extends SessionKey, Pick<ToolCall, 'id' | 'name'> {
  /** Absent if the event cannot be read. */
  args?: Record<string, unknown>;
  /** The number of the event that made the call. */
  seq: number;
  eventId?: string;
  /** The time of that event, in ms since 1970. */
  timestamp: number;
}

/** @returns the oldest first, with `next` the `after` of the next page, unless it is the last one. */
export async function findOpenCalls(
  service: ServiceContext,
  waitsFor: 'person' | 'agent',
  { after, limit, ...filter }: FindOpenCallsRequest,
) {
  const { appName, userId, sessionId } = filter;
  const owner = { appName, ...withoutUndefined({ userId, sessionId }) };
  checkKeys(owner);
  const operation = waitsFor === 'person' ? 'findOpenCalls' : 'findAnsweredCalls';
  const { rows, ...next } = await pageOf({ ...CURSOR, operation }, { after, limit }, (page) =>
    service.read(operation, owner, (sql) => find(sql, { ...filter, waitsFor }, page)),
  );
  return { calls: rows.map(openCallOf), ...next };
}

function openCallOf(call: StoredCall): OpenCall {
  const { appName, userId, sessionId, id, name, seq, number, timestamp, eventId, json } = call;
  const event = decodeEvent(json);
  const made = event && callsOf(event)[number];
  const { args = {} } = made ?? {};
  return {
    ...{ appName, userId, sessionId, id, seq, timestamp },
    name: typeof made?.['name'] === 'string' ? made['name'] : name,
    ...(made && { args: isRecord(args) ? args : {} }),
    ...(eventId !== undefined && { eventId }),
  };
}

const CURSOR = {
  valuesOf: (last: OpenCallCursor) => [last.timestamp, last.userId, last.sessionId, last.seq, last.number],
  placeOf([timestamp, userId, sessionId, seq, number]: readonly unknown[]): OpenCallCursor | undefined {
    const isPlace = typeof timestamp === 'number' && isKey('userId', userId) && isKey('sessionId', sessionId);
    return isPlace && isSeq(seq) && isSeq(number) ? { timestamp, userId, sessionId, seq, number } : undefined;
  },
};

const isSeq = (value: unknown): value is number =>
  typeof value === 'number' && Number.isInteger(value) && value >= 0 && value <= MAX_SEQ;
