import type { EventRecord, SessionRecord } from '../../../src/internal.js';
import type { ForeignRow } from './foreign-store.js';
import { decodeExactly } from './exact-json.js';
import { isRecord } from '../../../src/model/json.js';

/** How to read the rows of one of ADK's stores. */
export interface ForeignKind {
  /** The event of a row, as ADK JS has it. @throws UnreadableRow */
  event(row: ForeignRow): EventRecord['event'];
  /** The state in a row of a session, a user or an app. @throws UnreadableRow */
  state(row: ForeignRow): Record<string, unknown>;
  /**
   * The times of a session's row, in ms since 1970. @throws UnreadableRow
   *
   * @param lastEvent the time of its last event; undefined if it has none.
   */
  times(row: ForeignRow, lastEvent: number | undefined): Pick<SessionRecord, 'createTime' | 'lastUpdateTime'>;
}

/** What is wrong with a row; part of the reason that `importFrom` reports. */
export class UnreadableRow extends Error {}

/** The object in a JSON column. @throws UnreadableRow */
export function jsonObject(row: ForeignRow, column: string): Record<string, unknown> {
  const value = row[column];
  if (value === null || value === undefined) throw new UnreadableRow(`${column} is empty`);
  const parsed = typeof value === 'string' ? decodeExactly(value)?.value : undefined;
  if (!isRecord(parsed)) throw new UnreadableRow(`${column} is not the JSON of an object`);
  return parsed;
}

/** Date, time, fraction and offset; Go's `time.String()` adds the name of the zone and more. */
const TIME = /^(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(\.\d+)? ?(?:Z|UTC|([+-]\d\d)(?::?(\d\d))?)?(?: \S+)*$/;

/** Reads a time from text, with an offset or in UTC, with fractions of a ms. @throws UnreadableRow */
export function utcTime(value: unknown): number {
  const [, date, time, fraction = '', hours = '+00', minutes = '00'] = TIME.exec(String(value)) ?? [];
  const seconds = Date.parse(`${date}T${time}${hours}:${minutes}`);
  return checkedTime(seconds + Math.round(Number(`0${fraction}`) * 1e6) / 1e3);
}

/** @throws UnreadableRow */
export function checkedTime(time: unknown): number {
  if (typeof time !== 'number' || !Number.isFinite(time))
    throw new UnreadableRow('a time is missing or cannot be read');
  return time;
}
