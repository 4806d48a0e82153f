import type { Event } from '@google/adk';
import type { MikroORM } from '@mikro-orm/core';
import { isDeepStrictEqual } from 'node:util';
import type { EventLog, LogChange, LogEntry } from '../../src/index.js';
import { harnessOf } from './harnesses/databases.js';

type State = Record<string, unknown>;

/** What the log says of a session. */
interface FoldedSession {
  events: Record<number, unknown>;
  state: State;
}

/** What the log says, and what the tables hold. Ids are JSON. */
export interface Folded {
  sessions: Record<string, FoldedSession>;
  users: Record<string, State>;
  apps: Record<string, State>;
}

/** Builds from the entries of a complete log what the tables hold (contract J2). */
export class Fold {
  readonly sessions = new Map<string, { events: Map<number, Event>; state: Map<string, unknown> }>();
  readonly users = new Map<string, Map<string, unknown>>();
  readonly apps = new Map<string, Map<string, unknown>>();

  static async of(log: EventLog, appName: string): Promise<Folded> {
    const fold = new Fold();
    for await (const entry of log.since(0, { appName, changes: true })) fold.add(entry);
    return fold.result;
  }

  add(entry: LogEntry | LogChange): void {
    if (!entry.change) {
      if (!entry.event) return;
      this.#session(entry).events.set(entry.seq, entry.event);
      this.#set(entry, entry.event.actions?.stateDelta ?? {}, entry.superseded ?? []);
      return;
    }
    switch (entry.change) {
      case 'created': {
        const { events, state } = this.#session(entry);
        // As a rule of a session that is not known any more. Of one that is older than the log, some events are.
        for (const seq of events.keys()) if (seq > entry.seq) events.delete(seq);
        state.clear();
        this.#set(entry, entry.state, entry.superseded);
        return;
      }
      case 'state':
        this.#set(entry, entry.state, entry.superseded);
        for (const key of entry.removed)
          if (!entry.superseded.includes(key)) this.#valuesOf(entry, key).delete(bare(key));
        return;
      case 'rewritten':
        this.#session(entry).events.set(entry.eventSeq, entry.event);
        this.#set(entry, entry.event.actions?.stateDelta ?? {}, entry.superseded);
        return;
      case 'deleted':
        if (entry.soft) return;
        this.sessions.delete(idOf(entry));
        this.#replace(entry, entry.state);
        return;
      case 'restored':
        return;
      case 'trimmed': {
        const { events } = this.#session(entry);
        for (const seq of events.keys()) if (seq < entry.firstSeq) events.delete(seq);
        this.#replace(entry, entry.state);
        return;
      }
      case 'rewound': {
        const session = this.#session(entry);
        for (const seq of session.events.keys()) if (seq > entry.seq) session.events.delete(seq);
        this.#replace(entry, entry.state);
      }
    }
  }

  get result(): Folded {
    const filled = (states: Map<string, Map<string, unknown>>) =>
      Object.fromEntries([...states].filter(([, state]) => state.size > 0).map(([id, state]) => [id, own(state)]));
    return {
      sessions: Object.fromEntries(
        [...this.sessions].map(([id, { events, state }]) => [
          id,
          { events: Object.fromEntries([...events].map(([seq, event]) => [seq, plain(event)])), state: own(state) },
        ]),
      ),
      users: filled(this.users),
      apps: filled(this.apps),
    };
  }

  #session(entry: LogEntry | LogChange) {
    const id = idOf(entry);
    const session = this.sessions.get(id) ?? { events: new Map<number, Event>(), state: new Map<string, unknown>() };
    this.sessions.set(id, session);
    return session;
  }

  #set(entry: LogEntry | LogChange, state: State, superseded: readonly string[]): void {
    for (const [key, value] of Object.entries(state)) {
      if (!superseded.includes(key) && !key.startsWith('temp:')) this.#valuesOf(entry, key).set(bare(key), value);
    }
  }

  /** Sets all state of user and app, and of the session where it exists. */
  #replace(entry: LogChange, state: State): void {
    this.#valuesOf(entry, 'app:').clear();
    this.#valuesOf(entry, 'user:').clear();
    this.sessions.get(idOf(entry))?.state.clear();
    this.#set(entry, state, []);
  }

  #valuesOf(entry: LogEntry | LogChange, key: string): Map<string, unknown> {
    const { appName, userId } = entry;
    if (key.startsWith('app:')) return at(this.apps, JSON.stringify([appName]));
    if (key.startsWith('user:')) return at(this.users, JSON.stringify([appName, userId]));
    return this.#session(entry).state;
  }
}

/** What the tables hold of an app. */
export async function tablesOf({ em }: Pick<MikroORM, 'em'>, appName: string): Promise<Folded> {
  const { json: jsonOf } = harnessOf(em).columns;
  const rows = async (table: string, json?: string): Promise<TableRow[]> => {
    const select = `select ${json === undefined ? '*' : `*, ${jsonOf(json)} as ${json}`} from adk_${table} where app_name = ?`;
    return (await em.getConnection().execute(select, [appName])) as TableRow[];
  };
  const sessions: Record<string, FoldedSession> = {};
  for (const row of await rows('sessions')) sessions[rowId(row)] = { events: {}, state: {} };
  const parts = await rows('event_parts');
  parts.sort((a, b) => a.part - b.part);
  for (const row of await rows('events', 'data')) {
    const ofEvent = parts.filter((part) => rowId(part) === rowId(row) && part.seq === row.seq);
    sessions[rowId(row)]!.events[row.seq] = JSON.parse(row.data ?? ofEvent.map(({ text }) => text).join(''));
  }
  for (const row of await rows('session_states', 'value')) define(sessions[rowId(row)]!.state, row);
  const users: Record<string, State> = {};
  for (const row of await rows('user_states', 'value'))
    define((users[JSON.stringify([row.app_name, row.user_id])] ??= {}), row);
  const apps: Record<string, State> = {};
  for (const row of await rows('app_states', 'value')) define((apps[JSON.stringify([row.app_name])] ??= {}), row);
  return { sessions, users, apps };
}

export function expectSame(folded: Folded, tables: Folded): void {
  // Without jest's own comparison, which takes own keys like `__proto__` for something else.
  if (!isDeepStrictEqual(folded, tables)) expect(text(folded)).toEqual(text(tables));
}

/** A row of any of the tables. */
interface TableRow {
  app_name: string;
  user_id: string;
  session_id: string;
  seq: number;
  /** Null where it is in parts. */
  data: string | null;
  part: number;
  text: string;
  state_key: string;
  value: string;
}

const text = (value: unknown) => JSON.stringify(value, null, 1);
const rowId = (row: TableRow) => JSON.stringify([row.app_name, row.user_id, row.session_id]);
const idOf = ({ appName, userId, sessionId }: LogEntry | LogChange) => JSON.stringify([appName, userId, sessionId]);
const bare = (key: string) => key.replace(/^(app|user):/, '');
const plain = (event: Event): unknown => JSON.parse(JSON.stringify(event));
const own = (state: Map<string, unknown>): State =>
  Object.defineProperties(
    {},
    Object.fromEntries(
      [...state].sort(([a], [b]) => (a < b ? -1 : 1)).map(([key, value]) => [key, { value, enumerable: true }]),
    ),
  );

function define(state: State, row: TableRow): void {
  Object.defineProperty(state, row.state_key, { value: JSON.parse(row.value), enumerable: true });
}

function at(states: Map<string, Map<string, unknown>>, id: string): Map<string, unknown> {
  const state = states.get(id) ?? new Map<string, unknown>();
  states.set(id, state);
  return state;
}
