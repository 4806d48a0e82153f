import type { EventCursor, ForeignRow, ForeignStore } from './foreign-store.js';
import { encode } from '../../../src/model/json.js';
import { checkKeys, sessionIdentity } from '../../../src/model/keys.js';
import type { SessionKey } from '../../../src/index.js';
import { pagesOf } from '../../../src/model/pages.js';
import { scopeOf } from '../../../src/model/state.js';
import type { SqlRunner, ExportRecord, EventRecord, SessionRecord } from '../../../src/internal.js';
import { UnreadableRow, type ForeignKind } from './foreign-rows.js';
import {
  foreignEvent,
  inOrder,
  stateRecords,
  withoutAnnulled,
  type ForeignEvent,
  type Refuse,
} from './foreign-event.js';
import type { RefusedRow } from './options.js';

/** How many sessions are read at a time. Meanwhile a summary of each of their events is in memory. */
const SESSIONS = 100;

/** How many events are in memory at a time. */
const EVENTS = 200;

/** A session, while its events are read. */
interface ForeignSession {
  key: SessionKey;
  row: ForeignRow;
  state: Record<string, unknown>;
  events: ForeignEvent[];
}

/** State of an app or a user, until all of their sessions have been read. */
interface Shared {
  scope: 'app' | 'user';
  owner: { appName: string; userId?: string };
  state: Record<string, unknown>;
  /** The events that wrote the keys. */
  writers: Map<string, ForeignEvent>;
}

/** Reads one of ADK's stores as the records of an export, each session as of one moment, even while the store is in use. */
export class ForeignReader {
  readonly #run: SqlRunner;
  readonly #store: ForeignStore;
  readonly #kind: ForeignKind;
  readonly #refuse: Refuse;
  /** Called with the number of a session's annulled events; undefined if they are imported, too. */
  readonly #onAnnulled: ((count: number) => void) | undefined;
  /** By app and user, for the sessions that are being read. */
  #shared = new Map<string, Shared>();

  constructor(
    run: SqlRunner,
    store: ForeignStore,
    kind: ForeignKind,
    { refuse, onAnnulled }: { refuse: Refuse; onAnnulled: ((count: number) => void) | undefined },
  ) {
    this.#run = run;
    this.#store = store;
    this.#kind = kind;
    this.#refuse = refuse;
    this.#onAnnulled = onAnnulled;
  }

  async *records(): AsyncGenerator<ExportRecord> {
    const read = (after?: ForeignRow) =>
      this.#run((sql) => this.#store.sessions(sql, after && sessionKeyOf(after), SESSIONS));
    for await (const rows of pagesOf(SESSIONS, read)) yield* this.#page(rows);
    yield* this.#finishShared(new Set());
    for (const scope of ['user', 'app'] as const) yield* this.#alone(scope);
  }

  async *#page(rows: readonly ForeignRow[]): AsyncGenerator<ExportRecord> {
    const sessions = rows.map((row) => this.#foreignSession(row));
    const shared = new Set<string>();
    for (const { key } of sessions) {
      for (const scope of ['app', 'user'] as const) shared.add((await this.#sharedOf(scope, key)).identity);
    }
    yield* this.#finishShared(shared);
    await this.#readAllEvents(sessions);
    for (const session of sessions) yield* this.#session(session);
  }

  #foreignSession(row: ForeignRow): ForeignSession {
    const key = sessionKeyOf(row);
    return { key, row, state: this.#state(row, key), events: [] };
  }

  /** The state in a row. If it cannot be read, it is reported and treated as empty. */
  #state(row: ForeignRow, owner: Omit<RefusedRow, 'reason'>): Record<string, unknown> {
    try {
      return this.#kind.state(row);
    } catch (error) {
      this.#refuse(owner, error);
      return {};
    }
  }

  async #sharedOf(scope: 'app' | 'user', key: SessionKey): Promise<{ identity: string; shared: Shared }> {
    const owner = ownerOf(scope, key);
    const identity = identityOf(owner);
    let shared = this.#shared.get(identity);
    if (!shared) {
      const row = await this.#run((sql) => this.#store.sharedState(sql, scope, Object.values(owner)));
      shared = { scope, owner, state: row ? this.#state(row, owner) : {}, writers: new Map() };
      this.#shared.set(identity, shared);
    }
    return { identity, shared };
  }

  /** Yields the state of apps and users that have no more sessions. */
  *#finishShared(others: ReadonlySet<string>): Generator<ExportRecord> {
    for (const [identity, shared] of this.#shared) {
      if (others.has(identity)) continue;
      this.#shared.delete(identity);
      yield* this.#sharedRecord(shared);
    }
  }

  *#sharedRecord({ scope, owner, state: values, writers }: Shared): Generator<ExportRecord> {
    const state = stateRecords(owner, scope, values, idsOf(writers), this.#refuse);
    const { appName, userId = '' } = owner;
    if (state.length > 0)
      yield scope === 'app' ? { type: scope, appName, state } : { type: scope, appName, userId, state };
  }

  /** State of apps and users without sessions. */
  async *#alone(scope: 'app' | 'user'): AsyncGenerator<ExportRecord> {
    const ownerIn = (row: ForeignRow) => ownerOf(scope, sessionKeyOf(row));
    const read = (after?: ForeignRow) =>
      this.#run((sql) => this.#store.stateAlone(sql, scope, after && Object.values(ownerIn(after)), SESSIONS));
    for await (const rows of pagesOf(SESSIONS, read))
      for (const row of rows) {
        const owner = ownerIn(row);
        yield* this.#sharedRecord({ scope, owner, state: this.#state(row, owner), writers: new Map() });
      }
  }

  /** Reads all events of some sessions, and keeps their order and the keys that they wrote. */
  async #readAllEvents(sessions: readonly ForeignSession[]): Promise<void> {
    const byKey = new Map(sessions.map((session) => [sessionIdentity(session.key), session]));
    const keys = sessions.map(({ key }) => key);
    const read = (after?: ForeignRow) =>
      this.#run((sql) => this.#store.events(sql, keys, after && eventCursorOf(after), EVENTS));
    for await (const rows of pagesOf(EVENTS, read))
      for (const row of rows) {
        const cursor = eventCursorOf(row);
        const session = byKey.get(sessionIdentity(cursor));
        const event = session && this.#event(cursor, row);
        if (event) session.events.push(this.#foreignEvent(session, row, event));
        if (!session)
          this.#refuse(asEvent(cursor), new UnreadableRow('its session has another spelling of these names'));
      }
    for (const session of sessions) {
      const all = inOrder(session.events);
      session.events = this.#onAnnulled ? withoutAnnulled(all) : all;
      this.#onAnnulled?.(all.length - session.events.length);
    }
  }

  /** @returns undefined for an event that cannot be imported, which is reported. */
  #event(cursor: EventCursor, row: ForeignRow): EventRecord['event'] | undefined {
    try {
      const event = this.#kind.event(row);
      const { id: _, ...session } = cursor;
      checkKeys({ ...session, eventId: event.id });
      encode(event, 'event');
      return event;
    } catch (error) {
      this.#refuse(asEvent(cursor), error);
      return undefined;
    }
  }

  #foreignEvent({ key, state }: ForeignSession, row: ForeignRow, event: EventRecord['event']): ForeignEvent {
    const order = row['insertion_order'];
    return foreignEvent(event, typeof order === 'number' ? order : event.id, (scope) =>
      scope === 'session' ? state : (this.#shared.get(identityOf(ownerOf(scope, key)))?.state ?? {}),
    );
  }

  async *#session({ key, row, state, events }: ForeignSession): AsyncGenerator<SessionRecord | EventRecord> {
    const writers = new Map<string, ForeignEvent>();
    for (const event of events) {
      for (const name of event.wrote) {
        const { scope, key: bare } = scopeOf(name);
        if (scope === 'session') writers.set(bare, event);
        else this.#noteWriter(scope, key, bare, event);
      }
    }
    let times: Pick<SessionRecord, 'createTime' | 'lastUpdateTime'>;
    try {
      checkKeys(key);
      times = this.#kind.times(row, events.at(-1)?.timestamp);
    } catch (error) {
      this.#refuse(key, error);
      return;
    }
    yield {
      type: 'session',
      ...key,
      ...times,
      firstSeq: 1,
      lastSeq: events.length,
      state: stateRecords(key, 'session', state, idsOf(writers), this.#refuse),
    };
    for (let from = 0; from < events.length; from += EVENTS) {
      const batch = events.slice(from, from + EVENTS);
      const ids = batch.map(({ id }) => id);
      const rows = await this.#run((sql) => this.#store.eventsById(sql, key, ids));
      const byId = new Map(rows.map((each) => [each['id'], each]));
      for (const [i, id] of ids.entries()) {
        const read = byId.get(id);
        // It was deleted meanwhile, and the session is reported, since it lacks events.
        if (!read) return;
        yield { type: 'event', ...key, seq: from + i + 1, event: this.#kind.event(read) };
      }
    }
  }

  #noteWriter(scope: 'app' | 'user', session: SessionKey, key: string, event: ForeignEvent): void {
    const writers = this.#shared.get(identityOf(ownerOf(scope, session)))?.writers;
    const known = writers?.get(key);
    if (!known || known.timestamp <= event.timestamp) writers?.set(key, event);
  }
}

const idsOf = (writers: ReadonlyMap<string, ForeignEvent>) =>
  new Map(Array.from(writers, ([key, { id }]) => [key, id]));

const text = (value: unknown) => (typeof value === 'string' ? value : '');
const identityOf = ({ appName, userId }: { appName: string; userId?: string }) => JSON.stringify([appName, userId]);
const ownerOf = (scope: 'app' | 'user', { appName, userId }: SessionKey) =>
  scope === 'app' ? { appName } : { appName, userId };

/** @param column that of the session's id. */
const sessionKeyOf = (row: ForeignRow, column = 'id'): SessionKey => ({
  appName: text(row['app_name']),
  userId: text(row['user_id']),
  sessionId: text(row[column]),
});

const eventCursorOf = (row: ForeignRow): EventCursor => ({ ...sessionKeyOf(row, 'session_id'), id: text(row['id']) });

const asEvent = ({ id, ...session }: EventCursor) => ({ ...session, eventId: id });
