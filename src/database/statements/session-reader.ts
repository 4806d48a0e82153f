import { ofEvent, ofState, type KnownSession } from '../../model/codec.js';
import { mapTexts, type StoredTexts, type Undecodable } from '../../model/stored-texts.js';
import type { SessionKey } from '../../model/keys.js';
import { MAX_SEQ, gapsIn, type SeqRange } from '../../model/seq-ranges.js';
import { SCOPES, type Scope } from '../../model/state.js';
import type { Sql } from '../dialects/dialect.js';
import { lockedFor, perLock } from '../dialects/event-parts.js';
import type { Bound } from '../drivers/driver.js';
import {
  IN_SESSION,
  inOwner,
  inSession,
  perTables,
  stateTable,
  type Tables,
  booleanOf,
  numberOf,
  optionalTextOf,
  textOf,
  keyed,
  named,
} from '../sql/tables.js';
import type { ReadHead } from './sessions.js';

/** A stored event. */
export interface EventContent {
  seq: number;
  /** Undefined if the row has lost its content, or the content cannot be decoded. */
  json: string | undefined;
  /** Why it cannot be decoded. */
  undecodable?: Undecodable | undefined;
  id: string;
}

/** A stored value of state. */
export interface StateValue {
  scope: Scope;
  key: string;
  /** Not JSON if it cannot be decoded. */
  json: string;
  /** Why it cannot be decoded. */
  undecodable?: Undecodable | undefined;
}

/** A row of a state table, selected with its scope as `kind`. */
export interface StateRow {
  kind: Scope;
  state_key: string;
  value: string;
}

/** Events, and the damaged numbers. */
export interface ReadEvents {
  /** In append order. */
  events: EventContent[];
  /** The requested numbers that have no row. */
  missing: SeqRange[];
  /** The rows with numbers above the session's last one. */
  uncounted: EventContent[];
}

/** A session with the state of all three scopes and events, as of one moment. */
interface ReadSession extends ReadHead, ReadEvents {
  state: StateValue[];
}

// One statement reads a session: on every database and at every isolation level it sees one moment (contract D8).

/**
 * Reads a session with all of its events, or the newest n.
 *
 * @returns undefined if there is no such session.
 */
export async function readSession(sql: Sql, session: SessionKey, newest = MAX_SEQ): Promise<ReadSession | undefined> {
  const most = Math.min(newest, MAX_SEQ);
  const found = sorted(await rowsOf(sql, session, ({ newest }, key) => newest({ ...key, newest: most })));
  return decoded(sql, session, found && withGaps(found, Math.max(found.head.firstSeq - 1, found.head.lastSeq - most)));
}

/**
 * Reads a session with the newest n events, extended back to the beginning of the oldest turn among them. If no turn begins there,
 * because an agent began the session or a trim cut a turn, the events begin with the first turn among them; without any turn, they
 * are the newest n. Before them come the turns whose calls wait for a person, or are answered among them, since a model needs the
 * call of an answer, and the calls that were made with it; and what these turns need in turn, so that no call that was answered
 * looks as if it waits.
 */
export async function readTurns(sql: Sql, session: SessionKey, newest: number): Promise<ReadSession | undefined> {
  const most = Math.min(newest, MAX_SEQ);
  const rows = await rowsOf(sql, session, ({ turns }, key) => turns({ ...key, newest: most }));
  const found = sorted(rows);
  if (!found) return decoded(sql, session, found);
  const { firstSeq, lastSeq } = found.head;
  const requested = rows.flatMap((row) => (row.kind === 'event' ? numberOf(row.first_seq) : []));
  const first = Math.max(firstSeq, requested.find((number) => number !== 0) ?? lastSeq - newest + 1);
  const isBefore = ({ seq }: { seq: number }) => seq < first;
  const before = found.events.filter((event, i) => isBefore(event) && event.seq !== found.events[i - 1]?.seq);
  const read = withGaps({ ...found, events: found.events.filter((event) => !isBefore(event)) }, first - 1);
  return decoded(sql, session, { ...read, events: [...before, ...read.events] });
}

/** Reads a session with its events after a number. */
export async function readAfter(sql: Sql, session: SessionKey, seq: number): Promise<ReadSession | undefined> {
  const found = sorted(await rowsOf(sql, session, ({ after }, key) => after({ ...key, after: seq })));
  return decoded(sql, session, found && withGaps(found, Math.max(found.head.firstSeq - 1, seq)));
}

/** Reads a session with its events later than a time in ms, or the newest n of those. */
export async function readSince(
  sql: Sql,
  session: SessionKey,
  time: number,
  newest?: number,
): Promise<ReadSession | undefined> {
  const rows = await rowsOf(sql, session, ({ since, newestSince }, key) =>
    newest === undefined ? since({ ...key, time }) : newestSince({ ...key, time, limit: newest + 1 }),
  );
  const found = sorted(rows);
  const read = found && sinceTime(found, newest);
  if (!found || read) return decoded(sql, session, read);
  // An event is missing or in parts, so everything is read again, as of one moment.
  const all = sorted(await rowsOf(sql, session, ({ whole }, key) => whole({ ...key, time })));
  return decoded(sql, session, all && wholeSinceTime(all, newest));
}

/** Runs one of the statements; in a host's transaction that would see old rows of the session, the one that reads what is there now. */
function rowsOf(
  sql: Sql,
  session: SessionKey,
  statement: (all: ReturnType<typeof readStatements>, key: ReturnType<typeof keyed>) => Bound,
): Promise<Row[]> {
  const read = statements(sql);
  return sql.all<Row>(...statement(sql.behind ? lockedFor(read, sql, session) : read.plain, keyed(session)));
}

/** The session's row, a row of its state, or an event; in a union numbers may be text. */
type Row = { seq: number | string } & (
  | {
      kind: 'head';
      /** The origin. */ state_key: string;
      value: string;
      first_seq: number | string;
      updated: number | string;
      last_change: number | string;
    }
  | StateRow
  | EventRow
  | { kind: 'part'; value: string; first_seq: number | string }
);

interface EventRow {
  kind: 'event';
  /** The id of the event. */
  state_key: string;
  /** Null if the event is in parts, was not requested, or has lost its content. */
  value: string | null;
  /** The first requested number, if the statement finds it out; otherwise 0. */
  first_seq: number | string;
  /** Selected with a filter by time: whether the event is later. */
  is_later?: boolean | number;
  /** Selected with a filter by time: whether the number before has a row. */
  follows?: boolean | number;
}

interface EventText {
  seq: number;
  id: string;
  /** As it is stored; undefined like `json` of `EventContent`. */
  text: string | undefined;
  isLater: boolean;
  follows: boolean;
}

interface SessionRows {
  head: ReadHead;
  state: StateRow[];
  /** In order. */
  events: EventText[];
}

/** A session as it is stored, with the requested events. */
interface RequestedRows extends SessionRows {
  missing: SeqRange[];
  uncounted: EventText[];
}

function decoded({ texts }: Sql, key: SessionKey, requested: RequestedRows | undefined): ReadSession | undefined {
  if (!requested) return undefined;
  const { head, state, events, missing, uncounted } = requested;
  const session = { ...key, origin: head.origin };
  const content = ({ seq, id, text }: EventText) => ({ seq, id, ...contentOf(texts, session, id, text) });
  return {
    ...head,
    state: mapTexts(state, (row) => stateValueOf(texts, session, row)),
    events: mapTexts(events, content),
    missing,
    uncounted: mapTexts(uncounted, content),
  };
}

/** Sorts the rows of a union, which has no order. @returns undefined without the session's row. */
function sorted(rows: readonly Row[]): SessionRows | undefined {
  let head: ReadHead | undefined;
  const state: StateRow[] = [];
  const events: EventText[] = [];
  const parts = new Map<number, string[]>();
  for (const row of rows) {
    const seq = numberOf(row.seq);
    if (row.kind === 'event') {
      const text = optionalTextOf(row.value) ?? undefined;
      const [isLater, follows] = [booleanOf(row.is_later ?? 1), booleanOf(row.follows ?? 1)];
      events.push({ seq, id: textOf(row.state_key), text, isLater, follows });
    } else if (row.kind === 'head') {
      const [incarnation, origin] = [textOf(row.value), textOf(row.state_key)];
      const [firstSeq, lastUpdateTime] = [numberOf(row.first_seq), numberOf(row.updated)];
      head = { incarnation, origin, firstSeq, lastSeq: seq, lastChange: numberOf(row.last_change), lastUpdateTime };
    } else if (row.kind === 'part') {
      const ofEvent = parts.get(seq) ?? [];
      parts.set(seq, ofEvent);
      ofEvent[numberOf(row.first_seq)] = textOf(row.value);
    } else {
      state.push(row);
    }
  }
  if (!head) return undefined;
  for (const event of parts.size > 0 ? events : []) event.text ??= joined(parts.get(event.seq));
  return { head, state, events: events.sort((a, b) => a.seq - b.seq) };
}

/** @param text undefined if there is none. */
export function contentOf(
  texts: StoredTexts,
  session: KnownSession,
  eventId: string,
  text: string | undefined,
): Pick<EventContent, 'json' | 'undecodable'> {
  if (text === undefined) return { json: undefined };
  const json = texts.decode(text, () => ofEvent(session, eventId));
  return typeof json === 'string' ? { json } : { json: undefined, undecodable: json };
}

export function stateValueOf(
  texts: StoredTexts,
  owner: KnownSession,
  { kind: scope, state_key, value }: StateRow,
): StateValue {
  const key = textOf(state_key);
  const json = texts.decode(textOf(value), () => ofState(owner, scope, key));
  return typeof json === 'string' ? { scope, key, json } : { scope, key, json: '', undecodable: json };
}

/** @returns undefined if a part is missing; a missing last part is noticed when the JSON is parsed. */
function joined(parts: readonly string[] | undefined): string | undefined {
  return parts && Object.keys(parts).length === parts.length ? parts.join('') : undefined;
}

/** @param first the number before the first requested event. */
function withGaps({ head, state, events }: SessionRows, first: number): RequestedRows {
  const { lastSeq } = head;
  const counted = events.filter(({ seq }) => seq <= lastSeq);
  const numbers = counted.map(({ seq }) => seq);
  // A whole session, as most are, has an event for each number.
  const missing = numbers.length === lastSeq - first ? [] : gapsIn(numbers, first, lastSeq);
  return { head, state, events: counted, missing, uncounted: events.slice(counted.length) };
}

/** @returns undefined if more rows are needed, to know what is missing or to read an event. */
function sinceTime({ head, state, events }: SessionRows, newest: number | undefined): RequestedRows | undefined {
  const { firstSeq, lastSeq } = head;
  // The last event may be found twice, by its time and by its number.
  const once = events.filter(({ seq }, i) => seq >= firstSeq && seq !== events[i - 1]?.seq);
  const last = once.at(-1);
  const later = once.filter(({ isLater }) => isLater);
  const isWhole =
    (last ? last.seq === lastSeq : firstSeq > lastSeq) &&
    later.every(({ seq, text, follows }) => text !== undefined && (follows || seq === firstSeq));
  return isWhole ? { head, state, events: newestOf(later, newest), missing: [], uncounted: [] } : undefined;
}

/**
 * A missing event has no time: it gets the time of the event after it, and counts as requested if no event comes after it.
 *
 * @param rows with all of the session's rows.
 */
function wholeSinceTime({ head, state, events }: SessionRows, newest: number | undefined): RequestedRows {
  const { firstSeq, lastSeq } = head;
  const counted = events.filter(({ seq }) => seq <= lastSeq);
  const requested = newestOf(
    counted.filter(({ isLater }) => isLater),
    newest,
  );
  const numbers = counted.map(({ seq }) => seq);
  const behindGaps = new Set(requested.slice(requested.length === newest ? 1 : 0).map(({ seq }) => seq));
  behindGaps.add(lastSeq + 1);
  const missing = gapsIn(numbers, firstSeq - 1, lastSeq).filter(({ to }) => behindGaps.has(to + 1));
  return { head, state, events: requested, missing, uncounted: events.slice(counted.length) };
}

function newestOf(events: readonly EventText[], newest: number | undefined): EventText[] {
  return newest === undefined ? [...events] : events.slice(Math.max(0, events.length - newest));
}

const plainJoin = (table: string, alias: string, on: string) => `join ${table} as ${alias} on ${on}`;

/** The pieces of the statements that depend on whether they lock the session's rows. @param end see `underLock`. */
function turnsOf(tables: Tables, end: string) {
  const turnOf = (conditions: string) =>
    `(select b.seq from ${tables.events} as b where ${inSession('b')} and b.begins_turn and ${conditions} limit 1${end})`;
  const number = (column: string) => `(select ${column} from ${tables.sessions} where ${IN_SESSION}${end})`;
  const [first, last] = [number('first_seq'), number('last_seq')];
  const before = turnOf(`b.seq >= ${first} and b.seq <= ${last} - :newest + 1 order by b.seq desc`);
  const after = turnOf(`b.seq > ${last} - :newest order by b.seq`);
  /**
   * A table of one row, whose `first` is the number with which `readTurns` begins. It refers to no other table, so MariaDB computes
   * it before it plans, and reads only the events from there on. Its search backwards reads the events of one turn, which are needed
   * anyway.
   */
  const firstOfTurns = `(select coalesce(${before}, case when ${last} - :newest >= ${first} then ${after} end,
    ${last} - :newest + 1) as first${end})`;
  const turnAt = (seq: string) =>
    `coalesce(${turnOf(`b.seq <= ${seq} order by b.seq desc`)}, ${seq}),
      coalesce(${turnOf(`b.seq > ${seq} order by b.seq`)}, ${MAX_SEQ})`;
  const calls = `(select seq, open_until, answered_from from ${tables.openCalls} where ${IN_SESSION}${end}) as o`;
  const answered = 'case when is_answer = 1 then o.open_until else o.seq end';
  /**
   * A table of turns, from `turn_begin` up to `turn_end`, before the number of `first`: those whose calls wait or are answered by an
   * event from that number on; then, for each call that was made or answered in one of these, those of the call and of its last
   * answer. A row names the first answer and the last one, so a turn between the two also counts. The selects of a recursion cannot
   * lock rows.
   */
  const ofCalls = `(with recursive called (window_first, turn_begin, turn_end) as (select turn.first, ${turnAt('o.seq')}
      from ${firstOfTurns} as turn cross join ${calls} where o.open_until >= turn.first and o.seq < turn.first
    union select window_first, ${turnAt(answered)}
      from called join ${calls} on o.open_until >= turn_begin and o.seq < turn_end
          and (o.seq >= turn_begin or o.answered_from < turn_end)
        cross join (select 0 as is_answer union select 1) as numbers
      where ${answered} < window_first
    ) select distinct turn_begin, turn_end from called)`;
  return { firstOfTurns, ofCalls };
}

/** @param end see `underLock`; it ends each select of the session's rows, since a lock around a select does not hold inside of it. */
function readStatements({ dialect: { sql, limits }, tables }: Sql, end: string) {
  const { sessions, events, eventParts, select } = tables;
  const own = (text: string) => (end === '' ? text : `(${text}${end})`);
  const join = sql.joinByNumber ?? plainJoin;
  const union = (...selects: readonly string[]) => selects.join(' union all ');
  /** @param flags further columns, which only events have. */
  const headAndState = (flags: readonly string[] = []) =>
    union(
      own(`select 'head' as kind, origin as state_key, incarnation as value, last_seq as seq, first_seq,
        ${['last_update_time as updated', 'last_change', ...flags.map((flag) => `0 as ${flag}`)].join(', ')}
        from ${sessions} where ${IN_SESSION} and status = 'active'`),
      ...SCOPES.map((scope) => {
        const text = `select '${scope}', state_key, ${select.value}, 0, 0, ${['0', '0', ...flags.map(() => '0')].join(', ')}
          from ${stateTable(tables, scope)} where ${inOwner(scope)}`;
        // Others write the state of apps and users, so it is not locked.
        return scope === 'session' ? own(text) : text;
      }),
    );
  // Joined to the session's single row, whose numbers bound the index scan. SQLite uses one lower limit for the index, and would
  // read everything after it. Both tables name the session by value, so that the statement can be routed (contract F7).
  const joined = (table: string, alias: string, conditions: string, joins = join) =>
    `${sessions} as s ${joins(table, alias, `${inSession(alias)} and ${conditions}`)}
      where ${inSession('s')} and s.status = 'active'`;
  const ofSession = (...given: Parameters<typeof joined>) => `from ${joined(...given)}`;
  const isKept = (alias: string) => `${alias}.seq >= s.first_seq`;
  const isAfter = (alias: string) =>
    `${alias}.seq > case when :after >= s.first_seq then :after else s.first_seq - 1 end`;
  const isAmongNewest = (alias: string) =>
    `${alias}.seq > case when s.last_seq - :newest >= s.first_seq then s.last_seq - :newest else s.first_seq - 1 end`;

  const event = (first: string, from: string) =>
    own(`select 'event', event_id, ${select.data}, seq, ${first}, 0, 0 ${from}`);
  /** For events in parts, if the database has them. @param columns the further columns of the event's row. */
  const part = (from: string, columns = '0, 0') =>
    limits ? [own(`select 'part', '', text, seq, part, ${columns} ${from}`)] : [];

  const byNumber = (isAsked: (alias: string) => string) =>
    union(
      headAndState(),
      event('0', ofSession(events, 'e', isAsked('e'))),
      ...part(ofSession(eventParts, 'p', isAsked('p'))),
    );

  const { firstOfTurns, ofCalls } = turnsOf(tables, end);
  const fromTurn = (table: string, alias: string) => {
    const isFromTurn = `${alias}.seq >= case when turn.first >= s.first_seq then turn.first else s.first_seq end`;
    return `from ${firstOfTurns} as turn cross join ${joined(table, alias, isFromTurn)}`;
  };
  const fromCalls = (table: string, alias: string) => {
    // MySQL and MariaDB compute `turn.first` before they plan the join, so they don't read the session to its end.
    const on = `${inSession(alias)} and ${alias}.seq >= turn_begin and ${alias}.seq < turn_end and ${alias}.seq < turn.first`;
    return `from ${firstOfTurns} as turn cross join ${ofCalls} as called ${join(table, alias, on)}`;
  };
  const turns = union(
    headAndState(),
    event('first', fromTurn(events, 'e')),
    event('0', fromCalls(events, 'e')),
    ...part(fromTurn(eventParts, 'p')),
    ...part(fromCalls(eventParts, 'p')),
  );

  // On MariaDB the column is unsigned, and this is computed even if no row is found.
  const before = 'case when e.seq > 0 then e.seq - 1 else 0 end';
  const FLAGS = ['is_later', 'follows'];
  const flagged = (conditions: string, joins?: typeof plainJoin) =>
    `select 'event' as kind, event_id as state_key, case when timestamp > :time then ${select.data} end as value, seq, 0 as first_seq,
      0 as updated, 0 as last_change, case when timestamp > :time then 1 else 0 end as is_later,
      case when exists (select 1 from ${events} as previous where ${inSession('previous')} and previous.seq = ${before}${end})
        then 1 else 0 end as follows
      ${ofSession(events, 'e', conditions, joins)}`;
  const isLater = `exists (select 1 from ${events} as e where ${inSession('e')} and e.seq = p.seq and e.timestamp > :time${end})`;
  const newest = `(${flagged(`${isKept('e')} and timestamp > :time`, plainJoin)} order by seq desc limit :limit${end})`;
  return {
    newest: named(byNumber(isAmongNewest)),
    after: named(byNumber(isAfter)),
    turns: named(turns),
    since: named(
      union(headAndState(FLAGS), own(flagged(`${isKept('e')} and (timestamp > :time or seq >= s.last_seq)`))),
    ),
    newestSince: named(
      union(headAndState(FLAGS), own(`select * from ${newest} as newest`), own(flagged('seq >= s.last_seq'))),
    ),
    whole: named(
      union(
        headAndState(FLAGS),
        own(flagged(isKept('e'))),
        ...part(ofSession(eventParts, 'p', `${isKept('p')} and ${isLater}`), '0, 0, 0, 0'),
      ),
    ),
  };
}

const statements = perTables((sql: Sql) => perLock(sql.dialect, (end) => readStatements(sql, end)));
