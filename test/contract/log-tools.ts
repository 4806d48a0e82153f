import type { EntityManager } from '@mikro-orm/core';
import { EventLog, type LogEntry, type SessionLogEntry } from '../../src/index.js';
import type { OwnHarness, OwnStore } from '../support/harnesses/harness.js';
import { expectSame, folded, tablesOf } from '../support/fold.js';
import type { OwnContext } from './rule.js';
import { faulty, range } from './tools.js';

export const onPostgresql = ({ dialect, hasConnections }: OwnHarness) => dialect === 'postgresql' && hasConnections;

/** Databases that store large events in parts. */
export const onMysql = ({ columns }: OwnHarness) => columns.keepLargeEventsInParts;

/** So long that whatever arrives was not found by polling. */
export const NEVER_MS = 3_600_000;

/** So short that whatever polls does it again and again during a test. */
export const OFTEN_MS = 2;

/** The log of all sessions, or of one. */
export type AnyEntry = LogEntry | SessionLogEntry;

/** What the logs of a union of types give. */
type EntryOf<Log> = Log extends AsyncIterable<infer Entry> ? Entry : never;

/** Reads a log to its end. */
export async function read<Log extends AsyncIterable<unknown>>(entries: Log): Promise<EntryOf<Log>[]> {
  const all: EntryOf<Log>[] = [];
  for await (const entry of entries) all.push(entry as EntryOf<Log>);
  return all;
}

/** Reads n entries, and leaves the loop. */
export async function readSome<Log extends AsyncIterable<unknown>>(
  entries: Log,
  count: number,
): Promise<EntryOf<Log>[]> {
  const some: EntryOf<Log>[] = [];
  for await (const entry of entries) if (some.push(entry as EntryOf<Log>) === count) break;
  return some;
}

/** The ids of the events; `error` for an entry that carries one, and `reset`. */
export const idsIn = (entries: readonly AnyEntry[]) =>
  entries.map(({ event, change }) => event?.id ?? change ?? 'error');

export const positionsIn = (entries: readonly AnyEntry[]) =>
  entries.map((entry) => ('position' in entry ? entry.position : undefined));

/** 1, 2 … n. */
export const upTo = (n: number) => range(n).map((i) => i + 1);

/** Follows a log while `work` looks at what comes. The loop must continue until the signal fires, and then end quietly. */
export async function following<Entry>(
  watch: (signal: AbortSignal) => AsyncIterable<Entry>,
  work: (seen: readonly Entry[], signal: AbortSignal) => Promise<void>,
): Promise<void> {
  const stop = new AbortController();
  const seen: Entry[] = [];
  const reading = (async () => {
    for await (const entry of watch(stop.signal)) seen.push(entry);
  })();
  try {
    await Promise.race([
      work(seen, stop.signal),
      reading.then(() => Promise.reject(new Error('The loop has ended by itself'))),
    ]);
  } finally {
    stop.abort();
    await reading;
  }
}

/** An `EntityManager` that records its statements, as they come. The log on it must be the first of its store. */
export function observed(
  em: EntityManager,
  before?: (text: string) => Promise<void>,
): { em: EntityManager; texts: string[] } {
  const texts: string[] = [];
  const faults = {
    before: async (text: string) => {
      texts.push(text);
      await before?.(text);
    },
  };
  return { em: faulty(em, faults), texts };
}

/** An event's position in the table. */
export interface PositionedRow {
  session_id: string;
  seq: number;
  event_id: string;
  position: number | null;
}

/** All events in the order of their positions, as the table has them; the rest comes first or last. */
export async function positioned({ query }: Pick<OwnStore, 'query'>): Promise<PositionedRow[]> {
  const rows = await query<Omit<PositionedRow, 'position'> & { position: number | string | null }>(
    'select session_id, seq, event_id, position from adk_events order by position, session_id, seq',
  );
  return rows.map((row) => ({ ...row, position: row.position === null ? null : Number(row.position) }));
}

/** Expects all events to have a position: 1, 2, 3 … and in append order inside each session. */
export async function expectDense(store: Pick<OwnStore, 'query'>): Promise<PositionedRow[]> {
  const rows = await positioned(store);
  expect(rows.map(({ position }) => position)).toEqual(upTo(rows.length));
  for (const sessionId of new Set(rows.map((row) => row.session_id))) {
    const seqs = rows.filter((row) => row.session_id === sessionId).map(({ seq }) => seq);
    expect(seqs).toEqual(upTo(seqs.length));
  }
  return rows;
}

/** Expects that the complete log of an app folds to what its tables hold (contract J2). */
export async function expectFold({ app, orm, peer }: Pick<OwnContext, 'app' | 'orm' | 'peer'>): Promise<void> {
  expectSame(await folded(new EventLog(orm.em), app), await tablesOf(peer, app));
}
