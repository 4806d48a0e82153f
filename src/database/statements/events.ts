import { ofEvent, type KnownSession } from '../../model/codec.js';
import { decode } from '../../model/json.js';
import type { SessionKey } from '../../model/keys.js';
import { MAX_SEQ } from '../../model/seq-ranges.js';
import type { StoredTexts } from '../../model/stored-texts.js';
import type { AppendBatch, Sql, StoredEvent } from '../dialects/dialect.js';
import {
  deletePartsFrom,
  perLock,
  readParts,
  replaceParts,
  underLock,
  type UnderLock,
} from '../dialects/event-parts.js';
import { SESSION_WHERE, IN_SESSION, isFromNumber, originOfSession } from '../sql/columns.js';
import {
  keyed,
  named,
  perTables,
  sessionValues,
  numberOf,
  optionalTextOf,
  textOf,
  contentOf,
  type EventContent,
  type Row,
} from '../sql/values.js';
import { noteIfBehind } from './sessions.js';
import { encodedState, originIn, type OriginRow } from './state.js';

/** How to append to the tables of `Sql`. */
export const appendsOf = perTables(({ dialect, tables }: Pick<Sql, 'dialect' | 'tables'>) =>
  dialect.operations.appends(tables),
);

/** Appends one batch like `DialectAppends.write`, in a transaction or outside one. */
export async function appendBatch(sql: Sql, batch: AppendBatch): Promise<number | undefined> {
  if (sql.behind) await noteIfBehind(sql, batch.session);
  const [lastSeq] = await appendsOf(sql).write(sql, [batch]);
  return lastSeq;
}

/**
 * Replaces the content of a stored event with encoded texts, for the caller that holds the session's lock. The event keeps the time of
 * its first append: it says how long a model or a tool took, which a correction a month later does not change.
 */
export function replaceEvent(sql: Sql, session: SessionKey, seq: number, event: StoredEvent): void {
  const { timestamp, json, superseded = null, beginsTurn } = event;
  const data = replaceParts(sql, session, seq, json);
  const content = { timestamp, data, superseded, begins: Number(beginsTurn) };
  sql.later(...statements(sql).update({ ...keyed(session), seq, ...content }));
}

/** @returns the number of a session's first event before a number with a later timestamp than this, in ms. */
export async function firstLaterThan(
  sql: Sql,
  session: SessionKey,
  timestamp: number,
  before = MAX_SEQ,
): Promise<number | undefined> {
  const select = statements(sql).selectLater({ ...keyed(session), timestamp, before });
  const [row] = await sql.all<{ seq: number }>(...select);
  return row && numberOf(row.seq);
}

/** @returns the number of the last event in a range whose text has one of three words, or is in parts. */
export async function lastWithWords(
  sql: Sql,
  session: SessionKey,
  words: readonly [string, string, string],
  { after, upTo }: { after: number; upTo: number },
): Promise<number | undefined> {
  const [one, two, three] = words;
  const select = statements(sql).selectLastWithWords({ ...keyed(session), after, upTo, one, two, three });
  const [row] = await sql.all(...select);
  return row && numberOf(row.seq);
}

/** Deletes the events after a number, for the caller that holds the session's lock. */
export async function deleteEventsAfter(sql: Sql, session: SessionKey, seq: number): Promise<void> {
  sql.later(...statements(sql).deleteAfter({ ...keyed(session), seq }));
  await deletePartsFrom(sql, session, seq + 1);
}

/**
 * For the caller that holds the session's lock.
 *
 * @returns the highest number of the session's stored events, whatever `last_seq` is; 0 if there is none.
 */
export async function highestSeq(sql: Sql, session: SessionKey): Promise<number> {
  const text = statements(sql).selectHighestNumber + underLock(sql, session);
  const [row] = await sql.all<{ seq: number }>(text, sessionValues(session));
  return row ? numberOf(row.seq) : 0;
}

/**
 * @param by the id of the event, or its number.
 * @param options.isLocked whether the caller holds the session's lock.
 * @returns the number, the id and the content of a stored event.
 */
export async function findEvent(
  sql: Sql,
  session: SessionKey,
  by: string | number,
  options?: UnderLock,
): Promise<EventContent | undefined> {
  const { selectById, selectByNumber } = statements(sql);
  const select = (typeof by === 'string' ? selectById : selectByNumber)(sql, session, options);
  const [row] = await sql.all<EventRow>(...select({ ...keyed(session), by }));
  return row && eventOf(sql, session, row, options);
}

/** @param options.isLocked whether the caller holds the session's lock. */
export async function eventOf(
  sql: Sql,
  session: SessionKey,
  row: EventRow,
  options?: UnderLock,
): Promise<EventContent> {
  const [seq, id] = [numberOf(row.seq), textOf(row.event_id)];
  const text = optionalTextOf(row.data) ?? (await readParts(sql, session, seq, options)) ?? undefined;
  return { seq, id, ...contentOf(sql.texts, { ...session, origin: originIn(row) }, id, text) };
}

/** @returns the number of a stored event, whatever its content is. */
export async function seqOfEvent(sql: Sql, session: SessionKey, eventId: string): Promise<number | undefined> {
  const [row] = await sql.all<Pick<EventRow, 'seq'>>(...statements(sql).selectNumber({ ...keyed(session), eventId }));
  return row && numberOf(row.seq);
}

/** Whether all of these events are stored with exactly this content. */
export async function areStored(sql: Sql, session: SessionKey, events: readonly StoredEvent[]): Promise<boolean> {
  for (const { id, json } of events) if ((await findEvent(sql, session, id))?.json !== json) return false;
  return true;
}

/** @returns the keys of deltas that lost to earlier events (contract A8), by the number of their event. */
export async function supersededKeys(
  sql: Sql,
  session: SessionKey,
  { from, upTo }: { from: number; upTo: number },
): Promise<Map<number, readonly string[]>> {
  const select = statements(sql).selectSuperseded({ ...keyed(session), from, upTo });
  const rows = await sql.all<{ seq: number; superseded: string }>(...select);
  return new Map(rows.map((row) => [numberOf(row.seq), keysIn(textOf(row.superseded))]));
}

/** @returns the numbers of the session's rows of events, and their times, in order. */
export async function eventTimes(sql: Sql, session: SessionKey) {
  const rows = await sql.all(statements(sql).selectTimes, sessionValues(session));
  return rows.map(({ seq, at }) => ({ seq: numberOf(seq), timestamp: numberOf(at) }));
}

/** Ignores what another program may have stored there. */
export function keysIn(superseded: string): string[] {
  const keys = decode(superseded)?.value;
  return Array.isArray(keys) ? keys.filter((key) => typeof key === 'string') : [];
}

export function encodedEvent<Event extends StoredEvent>(
  texts: StoredTexts,
  session: KnownSession,
  event: Event,
): Event {
  if (texts.codec.isNone) return event;
  return { ...event, json: texts.encode(event.json, () => ofEvent(session, event.id)) };
}

/** Encodes a batch for the session that it expects. @param origin the session's origin. */
export function encodedBatch(texts: StoredTexts, batch: AppendBatch, origin: string): AppendBatch {
  if (texts.codec.isNone) return batch;
  const session = { ...batch.session, origin };
  return {
    ...batch,
    events: batch.events.map((event) => encodedEvent(texts, session, event)),
    state: encodedState(texts, session, batch.state),
  };
}

/** `data` is null if the event is in parts. */
type EventRow = OriginRow & Row<'seq' | 'event_id' | 'data'>;

const statements = perTables(({ dialect, tables }: Sql) => {
  const { events, select } = tables;
  const found = `from ${events} where ${IN_SESSION}` as const;
  const origin = originOfSession(tables);
  const one = (column: string) =>
    perLock(dialect, (end) =>
      named(`select seq, event_id, ${select.data} as data, ${origin} as origin ${found} and ${column} = :by${end}`),
    );
  return {
    selectHighestNumber: `select seq from ${events} where ${SESSION_WHERE} order by seq desc limit 1`,
    selectNumber: named(`select seq ${found} and event_id = :eventId`),
    selectLater: named(`select seq ${found} and seq < :before and timestamp > :timestamp order by seq limit 1`),
    selectById: one('event_id'),
    selectByNumber: one('seq'),
    selectLastWithWords: named(`select seq ${found} and seq > :after and seq <= :upTo
      and (data is null or ${[':one', ':two', ':three'].map((word) => dialect.sql.contains('data', word)).join(' or ')})
      order by seq desc limit 1`),
    selectTimes: `select seq, timestamp as at from ${events} where ${SESSION_WHERE} order by seq`,
    selectSuperseded: named(`select seq, superseded ${found} and seq <= :upTo
      and superseded is not null and seq >= :from and ${isFromNumber('', ':session', ':from')}`),
    deleteAfter: named(`${dialect.sql.deleteThrough(events, 'primary')} where ${IN_SESSION} and seq > :seq`),
    update: named(`update ${events}
      set timestamp = :timestamp, data = :data, superseded = :superseded, begins_turn = :begins = 1
      where ${IN_SESSION} and seq = :seq`),
  };
});
