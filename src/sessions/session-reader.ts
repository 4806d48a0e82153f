import { mapTexts } from '../model/stored-texts.js';
import type { SessionKey } from '../model/keys.js';
import { MAX_SEQ, gapsIn, type SeqRange } from '../model/seq-ranges.js';
import { SCOPES, type Scope } from '../model/state.js';
import type { Sql } from '../database/dialects/dialect.js';
import { perLock } from '../database/dialects/event-parts.js';
import type { Bound } from '../database/drivers/driver.js';
import { IN_SESSION, inOwner, inSession, stateTable } from '../database/sql/columns.js';
import type { Tables } from '../database/sql/tables.js';
import {
  perTables,
  numberOf,
  optionalTextOf,
  textOf,
  keyed,
  named,
  contentOf,
  stateValueOf,
  type EventContent,
  type StateRow,
  type StateValue,
} from '../database/sql/values.js';
import type { ReadHead } from '../database/statements/stored-session.js';

/** A session with the state of all three scopes and events, as of one moment. */
interface FoundSession extends ReadHead {
  state: StateValue[];
  /** In order. The time is in ms; 0 unless the statement filters by it. */
  events: (EventContent & { time: number })[];
  /** The first requested number, if the statement finds it out. */
  first: number | undefined;
}

interface ReadSession extends FoundSession {
  /** The requested numbers that have no row. */
  missing: SeqRange[];
  /** The rows with numbers above the session's last one. */
  uncounted: EventContent[];
}

// One statement reads a session: on every database and at every isolation level it sees one moment (contract D8).

/**
 * Reads a session with all of its events, or the newest n.
 *
 * @returns undefined if there is no such session.
 */
export async function readSession(sql: Sql, session: SessionKey, newest = MAX_SEQ): Promise<ReadSession | undefined> {
  const most = Math.min(newest, MAX_SEQ);
  const found = await find(sql, session, ({ newest }, key) => newest({ ...key, newest: most }));
  return found && withGaps(found, Math.max(found.firstSeq - 1, found.lastSeq - most));
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
  const found = await find(sql, session, ({ turns }, key) => turns({ ...key, newest: most }));
  if (!found) return undefined;
  const first = Math.max(found.firstSeq, found.first ?? found.lastSeq - newest + 1);
  const before = found.events.filter(({ seq }) => seq < first);
  const read = withGaps({ ...found, events: found.events.slice(before.length) }, first - 1);
  return { ...read, events: [...before, ...read.events] };
}

/** Reads a session with its events after a number. */
export async function readAfter(sql: Sql, session: SessionKey, seq: number): Promise<ReadSession | undefined> {
  const found = await find(sql, session, ({ after }, key) => after({ ...key, after: seq }));
  return found && withGaps(found, Math.max(found.firstSeq - 1, seq));
}

/** Reads a session with its events later than a time in ms, or the newest n of those. */
export async function readSince(
  sql: Sql,
  session: SessionKey,
  time: number,
  newest?: number,
): Promise<ReadSession | undefined> {
  const found = await find(sql, session, ({ since, newestSince }, key) =>
    newest === undefined ? since({ ...key, time }) : newestSince({ ...key, time, newest: Math.min(newest, MAX_SEQ) }),
  );
  return found && sinceTime(found, time, newest);
}

/**
 * A row of the union, in which numbers may be text:
 *
 * | `kind` | `state_key` | `value` | `seq` | `first_seq` | `updated` |
 * | --- | --- | --- | --- | --- | --- |
 * | `head`; `waiting` with pending calls | origin | incarnation | last number | first number | last update |
 * | a scope | key of the state | its value | | | |
 * | `event` | its id | its content; null if it is in parts, was not requested, or is lost | its number | the first requested number, or 0 | its time, if the statement filters by it, or 0 |
 * | `part` of an event | | its text | the event's number | its number | |
 */
interface Row extends Record<'seq' | 'first_seq' | 'updated' | 'last_change', number | string> {
  kind: Scope | 'head' | 'waiting' | 'event' | 'part';
  state_key: string;
  value: string | null;
}

/**
 * Runs one of the statements; in a host's transaction that would see old rows of the session, the one that reads what is there now.
 * Sorts the rows of its union, which has no order.
 */
async function find(
  sql: Sql,
  key: SessionKey,
  statement: (all: ReturnType<typeof readStatements>, key: ReturnType<typeof keyed>) => Bound,
): Promise<FoundSession | undefined> {
  const read = statements(sql);
  let head: ReadHead | undefined;
  let first: number | undefined;
  const state: StateRow[] = [];
  const texts: { seq: number; id: string; text: string | undefined; time: number }[] = [];
  const parts = new Map<number, string[]>();
  for (const row of await sql.all<Row>(...statement(sql.behind ? read(sql, key) : read.plain, keyed(key)))) {
    const { kind } = row;
    const seq = numberOf(row.seq);
    if (kind === 'event') {
      const text = optionalTextOf(row.value) ?? undefined;
      texts.push({ seq, id: textOf(row.state_key), text, time: numberOf(row.updated) });
      first ??= numberOf(row.first_seq) || undefined;
    } else if (kind === 'head' || kind === 'waiting') {
      const [incarnation, origin] = [textOf(row.value), textOf(row.state_key)];
      const [firstSeq, lastUpdateTime] = [numberOf(row.first_seq), numberOf(row.updated)];
      const [lastChange, hasPendingCalls] = [numberOf(row.last_change), kind === 'waiting'];
      head = { incarnation, origin, firstSeq, lastSeq: seq, lastChange, hasPendingCalls, lastUpdateTime };
    } else if (kind === 'part') {
      const ofEvent = parts.get(seq) ?? [];
      parts.set(seq, ofEvent);
      ofEvent[numberOf(row.first_seq)] = textOf(row.value);
    } else {
      state.push({ ...row, kind, value: textOf(row.value) });
    }
  }
  if (!head) return undefined;
  for (const event of parts.size > 0 ? texts : []) event.text ??= joined(parts.get(event.seq));
  texts.sort((a, b) => a.seq - b.seq);
  // A turn may be there for several calls.
  const events = texts.filter(({ seq }, i) => seq !== texts[i - 1]?.seq);
  const session = { ...key, origin: head.origin };
  return {
    first,
    state: mapTexts(state, (row) => stateValueOf(sql.texts, session, row)),
    events: mapTexts(events, ({ seq, id, text, time }) => ({
      seq,
      id,
      time,
      ...contentOf(sql.texts, session, id, text),
    })),
    ...head,
  };
}

/** @returns undefined if a part is missing; a missing last part is noticed when the JSON is parsed. */
function joined(parts: readonly string[] | undefined): string | undefined {
  return parts && Object.keys(parts).length === parts.length ? parts.join('') : undefined;
}

/** @param first the number before the first requested event. */
function withGaps(found: FoundSession, first: number): ReadSession {
  const { lastSeq } = found;
  const events = found.events.filter(({ seq }) => seq <= lastSeq);
  const numbers = events.map(({ seq }) => seq);
  // A whole session, as most are, has an event for each number.
  const missing = numbers.length === lastSeq - first ? [] : gapsIn(numbers, first, lastSeq);
  return { missing, uncounted: found.events.slice(events.length), ...found, events };
}

/**
 * A missing event has no time: it gets the time of the event after it, and counts as requested if no event comes after it.
 *
 * @param found from the event before the first requested one.
 */
function sinceTime(found: FoundSession, time: number, newest = MAX_SEQ): ReadSession {
  const { missing, ...read } = withGaps(found, found.firstSeq - 1);
  const events = read.events.filter((event) => event.time > time).slice(-newest);
  const behindGaps = new Set(events.slice(events.length === newest ? 1 : 0).map(({ seq }) => seq));
  behindGaps.add(found.lastSeq + 1);
  return { ...read, events, missing: missing.filter(({ to }) => behindGaps.has(to + 1)) };
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
  return { firstOfTurns, ofCalls, last };
}

/** @param end see `underLock`; it ends each select of the session's rows, since a lock around a select does not hold inside of it. */
function readStatements({ dialect: { sql, limits }, tables }: Sql, end: string) {
  const { sessions, events, eventParts, select } = tables;
  const own = (text: string) => (end === '' ? text : `(${text}${end})`);
  const join = sql.joinByNumber ?? plainJoin;
  const union = (...selects: readonly string[]) => selects.join(' union all ');
  const headAndState = union(
    own(`select case when has_pending_calls then 'waiting' else 'head' end as kind, origin as state_key, incarnation as value, last_seq as seq, first_seq,
      last_update_time as updated, last_change from ${sessions} where ${IN_SESSION} and status = 'active'`),
    ...SCOPES.map((scope) => {
      const text = `select '${scope}', state_key, ${select.value}, 0, 0, 0, 0
        from ${stateTable(tables, scope)} where ${inOwner(scope)}`;
      // Others write the state of apps and users, so it is not locked.
      return scope === 'session' ? own(text) : text;
    }),
  );
  // Joined to the session's single row, whose numbers bound the index scan. SQLite uses one lower limit for the index, and would
  // read everything after it. Both tables name the session by value, so that the statement can be routed (contract F7).
  const joined = (table: string, alias: string, conditions: string) =>
    `${sessions} as s ${join(table, alias, `${inSession(alias)} and ${conditions}`)}
      where ${inSession('s')} and s.status = 'active'`;
  const ofSession = (...given: Parameters<typeof joined>) => `from ${joined(...given)}`;
  const isAfter = (alias: string) =>
    `${alias}.seq > case when :after >= s.first_seq then :after else s.first_seq - 1 end`;
  const isAmongNewest = (alias: string) =>
    `${alias}.seq > case when s.last_seq - :newest >= s.first_seq then s.last_seq - :newest else s.first_seq - 1 end`;

  const event = (first: string, from: string) =>
    own(`select 'event', event_id, ${select.data}, seq, ${first}, 0, 0 ${from}`);
  /** For events in parts, if the database has them. */
  const part = (from: string) => (limits ? [own(`select 'part', '', text, seq, part, 0, 0 ${from}`)] : []);

  const byNumber = (isAsked: (alias: string) => string) =>
    union(
      headAndState,
      event('0', ofSession(events, 'e', isAsked('e'))),
      ...part(ofSession(eventParts, 'p', isAsked('p'))),
    );

  const { firstOfTurns, ofCalls, last } = turnsOf(tables, end);
  /** @param first a table of one row with the first number. */
  const fromFirst = (first: string, table: string, alias: string) => {
    const isFromFirst = `${alias}.seq >= case when turn.first >= s.first_seq then turn.first else s.first_seq end`;
    return `from ${first} as turn cross join ${joined(table, alias, isFromFirst)}`;
  };
  const fromCalls = (table: string, alias: string) => {
    // MySQL and MariaDB compute `turn.first` before they plan the join, so they don't read the session to its end.
    const on = `${inSession(alias)} and ${alias}.seq >= turn_begin and ${alias}.seq < turn_end and ${alias}.seq < turn.first`;
    return `from ${firstOfTurns} as turn cross join ${ofCalls} as called ${join(table, alias, on)}`;
  };
  const turns = union(
    headAndState,
    event('first', fromFirst(firstOfTurns, events, 'e')),
    event('0', fromCalls(events, 'e')),
    ...part(fromFirst(firstOfTurns, eventParts, 'p')),
    ...part(fromCalls(eventParts, 'p')),
  );

  const seqOf = (conditions: string, offset = '') =>
    `(select seq from ${events} where ${IN_SESSION} and ${conditions} limit 1${offset}${end})`;
  const firstLater = seqOf('timestamp > :time order by seq');
  const nextNewest = seqOf(`timestamp > :time and seq <= ${last} order by seq desc`, ' offset :newest');
  const isLater = `exists (select 1 from ${events} as e where ${inSession('e')} and e.seq = p.seq and e.timestamp > :time${end})`;
  const since = (...more: readonly string[]) => {
    // An event before those that are later shows which numbers between are missing.
    const before = seqOf(`seq < coalesce(${firstLater}, ${MAX_SEQ}) order by seq desc`);
    const from = `(select coalesce(${[...more, before, '0'].join(', ')}) as first${end})`;
    return union(
      headAndState,
      own(`select 'event', event_id, case when timestamp > :time then ${select.data} end, seq, 0, timestamp, 0
        ${fromFirst(from, events, 'e')}`),
      ...part(`${fromFirst(from, eventParts, 'p')} and ${isLater}`),
    );
  };
  return {
    newest: named(byNumber(isAmongNewest)),
    after: named(byNumber(isAfter)),
    turns: named(turns),
    since: named(since()),
    newestSince: named(since(nextNewest)),
  };
}

const statements = perTables((sql: Sql) => perLock(sql.dialect, (end) => readStatements(sql, end)));
