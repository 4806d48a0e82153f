import { randomBytes } from 'node:crypto';
import type { Sql } from '../database/dialects/dialect.js';
import { placeholderRows, placeholders } from '../database/sql/values.js';
import {
  WRITER_LENGTH,
  historyText,
  inHistoryOrder,
  isBefore,
  isSameBoundary,
  type HistoryEnd,
  type LogBoundary,
} from '../model/log-history.js';
import {
  FORMER_WRITER,
  NEWEST_WRITERS,
  WRITER,
  countersOf,
  endsIn,
  counterNames,
  selectNewestWriters,
  type CounterRow,
} from './log-head.js';

/** The boundaries before and after the entries that got their places together. */
interface LogStep {
  before: LogBoundary;
  boundary: LogBoundary;
}

/** The log's history after a step was recorded. */
export interface RecordedHistory {
  /** `LogPosition.history` of the head. */
  history: string;
  /** The end of the writer that made the step. */
  writer: HistoryEnd | undefined;
}

/** @returns the stored ends of these writers, without those that the database does not know. */
export async function endsOfWriters(sql: Sql, writers: readonly string[]): Promise<HistoryEnd[]> {
  const names = [WRITER, FORMER_WRITER].flatMap((kind) => writers.flatMap((writer) => counterNames(kind, writer)));
  const text = `select name, value from ${sql.tables.counters} where name in (${placeholders(names.length)})`;
  return endsIn(await sql.all<CounterRow>(text, names));
}

/**
 * Records which writer made a step of the log. Needs the lock of the position's counter.
 *
 * @param writer the writer's end, if its last commit is known.
 */
export async function recordWriter(
  sql: Sql,
  writer: HistoryEnd | undefined,
  { before, boundary }: LogStep,
): Promise<RecordedHistory> {
  const newest = endsIn(await sql.all<CounterRow>(selectNewestWriters(sql.tables)));
  if (isSameBoundary(before, boundary)) return { history: historyText(newest), writer };
  const isNewest = newest.some((end) => end.writer === writer?.writer);
  const [stored] = writer
    ? (isNewest ? newest : await endsOfWriters(sql, [writer.writer])).filter((end) => end.writer === writer.writer)
    : [];
  // If the database does not have the writer's end, it went back. Under the same name, one boundary could have two histories.
  const goesOn = writer && stored && isSameBoundary(stored, writer) && !isBefore(before, stored);
  const end = { ...boundary, writer: goesOn ? writer.writer : newWriter() };
  const ends = inHistoryOrder([end, ...newest.filter((other) => other.writer !== end.writer)]);
  const former = ends.slice(NEWEST_WRITERS);
  const moved = [
    ...former.flatMap((each) => counterNames(WRITER, each.writer)),
    ...(goesOn && !isNewest ? counterNames(FORMER_WRITER, writer.writer) : []),
  ];
  replaceCounters(sql, moved, [
    ...countersOf(WRITER, end),
    ...former.flatMap((each) => countersOf(FORMER_WRITER, each)),
  ]);
  return { history: historyText(ends.slice(0, NEWEST_WRITERS)), writer: end };
}

function replaceCounters(sql: Sql, gone: readonly string[], rows: readonly [string, number][]): void {
  const { counters } = sql.tables;
  if (gone.length > 0) sql.later(`delete from ${counters} where name in (${placeholders(gone.length)})`, gone);
  sql.later(
    `insert into ${counters} (name, value) values ${placeholderRows(rows.length, 2)} ${sql.dialect.sql.onSameKey('name', ['value'])}`,
    rows.flat(),
  );
}

const newWriter = () => randomBytes((WRITER_LENGTH * 3) / 4).toString('base64url');
