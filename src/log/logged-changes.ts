import { mapTexts } from '../model/stored-texts.js';
import type { Sql } from '../database/dialects/dialect.js';
import { SESSION_COLUMNS, isSameSession, originOf } from '../database/sql/columns.js';
import {
  perTables,
  sessionKeyOf,
  type SessionKeyRow,
  numberOf,
  optionalNumberOf,
  optionalTextOf,
} from '../database/sql/values.js';
import { decodedData, type ChangeKind } from '../database/statements/changes.js';
import { conditions, type LogColumns, type LogRange } from './logged-events.js';
import { originIn, type OriginRow } from '../database/statements/state.js';
import type { SessionKey } from '../model/keys.js';

/** A change of the log. */
export interface LoggedChange {
  /** Ids are empty if the change is one of a user or an app. */
  session: SessionKey;
  kind: ChangeKind;
  seq: number;
  eventSeq: number | null;
  /** The current number of the session's oldest event; null if the session is gone. */
  firstSeq: number | null;
  /** The position of the event that it follows. */
  position: number;
  /** Its number among the changes. */
  number: number;
  /** Null if there is none, or if it cannot be decoded. */
  data: string | null;
}

type ChangeRow = OriginRow & SessionKeyRow & Readonly<Record<string, unknown>> & { kind: ChangeKind };

/** Reads the changes after one number, up to and including another. */
export async function loggedChanges(
  sql: Sql,
  { after, upTo, limit }: LogRange,
  columns: LogColumns,
): Promise<LoggedChange[]> {
  const { where, values } = conditions({ ...columns, afterTimestamp: undefined });
  const text = `${statements(sql).selectChanges}${where} order by number limit ?`;
  const rows = await sql.all<ChangeRow>(text, [after, upTo, ...values, limit]);
  return mapTexts(rows, (row) => {
    const id = numberOf(row['change_id']);
    const eventSeq = optionalNumberOf(row['event_seq']) ?? null;
    const change = { session: sessionKeyOf(row), kind: row.kind, seq: numberOf(row['seq']), eventSeq };
    const session = { ...change.session, origin: originIn(row) };
    return {
      ...change,
      firstSeq: optionalNumberOf(row['first_seq']) ?? null,
      position: numberOf(row['position']),
      number: numberOf(row['number']),
      data: decodedData(sql.texts, session, { id, ...change }, optionalTextOf(row['data'])),
    };
  });
}

/** @returns the number of the last change before the event with this position. */
export async function changeBefore(sql: Sql, position: number): Promise<number> {
  if (position === 0) return 0;
  const [row] = await sql.all(statements(sql).selectChangeBefore, [position]);
  return row ? numberOf(row['number']) : 0;
}

const statements = perTables(({ tables }: Sql) => {
  const { sessions, changes, select } = tables;
  const changed = `select ${SESSION_COLUMNS}, ${originOf(tables, 'c')} as origin, change_id, kind, seq, event_seq, position, number,
    case when kind in ('created', 'state') then ${select.data} end as data,
    (select s.first_seq from ${sessions} as s where ${isSameSession('s', 'c')}) as first_seq`;
  return {
    selectChanges: `${changed} from ${changes} as c where number > ? and number <= ?`,
    // Searches from the newest change: the reader will read those that are passed here anyway.
    selectChangeBefore: `select number from ${changes} where position < ? order by number desc limit 1`,
  };
});
