import { randomUUID } from 'node:crypto';
import {
  BaseSessionService,
  createSession,
  type AppendEventRequest,
  type CreateSessionRequest,
  type DeleteSessionRequest,
  type Event,
  type GetSessionConfig,
  type GetSessionRequest,
  type ListSessionsRequest,
  type ListSessionsResponse,
  type Session,
} from '@google/adk';
import { decodeEvent, encode } from '../../../src/model/json.js';
import type { SessionKey } from '../../../src/model/keys.js';
import { keyOf } from '../../support/harnesses/harness.js';

/** Values by their keys, as JSON. */
export class Scope {
  readonly values = new Map<string, { json: string; order: number }>();
  /** ADK remembers by this object in which order keys were written. */
  readonly written: Record<string, unknown> = {};
}

export interface KeptEvent {
  id: string;
  json: string;
  /** The number of its first append among all writes to the store. */
  order: number;
}

export interface KeptSession {
  key: SessionKey;
  state: Scope;
  events: KeptEvent[];
  lastUpdateTime: number;
}

/** What instances of the service share, as processes share a database. */
export class Store {
  readonly sessions = new Map<string, KeptSession>();
  readonly shared = new Map<string, Scope>();
  order = 0;
  /** What mutants keep beside it. */
  readonly notes = new Map<string, unknown>();

  /** @returns the value that was noted first. */
  noted<T>(name: string, value: T): T {
    if (!this.notes.has(name)) this.notes.set(name, value);
    return this.notes.get(name) as T;
  }
}

/** JSON of state values, by their keys. */
export type Texts = [name: string, json: string][];

/**
 * A session service in memory that keeps the whole published contract, to make mutants of: each of them breaks one thing. ADK's own
 * `InMemorySessionService` breaks too many rules for that.
 */
export class InMemory extends BaseSessionService {
  constructor(readonly store = new Store()) {
    super();
  }

  async createSession({ appName, userId, sessionId, state = {} }: CreateSessionRequest): Promise<Session> {
    const key = { appName, userId, sessionId: sessionId || randomUUID() };
    const texts = this.textsOf(this.lasting(state));
    if (this.find(key)) throw this.existsError(key, texts);
    const session = { key, state: new Scope(), events: [], lastUpdateTime: Date.now() };
    this.store.sessions.set(this.nameOf(key), session);
    this.write(session, texts, ++this.store.order);
    return this.read(session);
  }

  async getSession({ config, ...key }: GetSessionRequest): Promise<Session | undefined> {
    const session = this.find(key);
    return session && this.read(session, config);
  }

  override async getOrCreateSession(request: CreateSessionRequest): Promise<Session> {
    const { sessionId } = request;
    const session = sessionId && this.find({ ...request, sessionId });
    return session ? this.read(session) : this.createSession(request);
  }

  async listSessions({
    appName,
    userId,
    limit,
    offset = 0,
    page,
    order,
  }: ListSessionsRequest): Promise<ListSessionsResponse> {
    const found = [...this.store.sessions.values()]
      .filter(({ key }) => key.appName === appName && (userId === undefined || key.userId === userId))
      .sort((a, b) => this.compare(a, b, order))
      .map((session) => ({ ...this.read(session), events: [] }));
    const totalItems = found.length;
    if (limit === undefined)
      return { sessions: found.slice(offset), page: 1, limit: totalItems, totalItems, totalPages: totalItems ? 1 : 0 };
    const start = page === undefined ? offset : (page - 1) * limit;
    return {
      sessions: found.slice(start, start + limit),
      page: page ?? (limit ? Math.floor(start / limit) + 1 : 1),
      limit,
      totalItems,
      totalPages: limit ? Math.ceil(totalItems / limit) : 0,
    };
  }

  async deleteSession(key: DeleteSessionRequest): Promise<void> {
    this.store.sessions.delete(this.nameOf(key));
  }

  override async appendEvent({ session: handle, event }: AppendEventRequest): Promise<Event> {
    if (event.partial) return event;
    const { delta, texts, json } = this.encoded(event);
    const session = this.find(keyOf(handle));
    if (!session) throw new Error(`Session ${handle.id} not found`);
    const order = this.keep(session, event, json);
    this.write(session, this.winning(session, delta, texts, order), order);
    // It does its work before it waits for anything.
    void super.appendEvent({ session: handle, event });
    this.catchUp(handle, session);
    return event;
  }

  /** What is stored of an event. */
  protected encoded(event: Event): { delta: Record<string, unknown>; texts: Texts; json: string } {
    if (!Number.isFinite(event.timestamp)) throw new Error('The timestamp is no number');
    const delta = event.actions?.stateDelta;
    const lasting = delta && this.lasting(delta);
    const content = lasting ? { ...event, actions: { ...event.actions, stateDelta: lasting } } : event;
    return { delta: delta ?? {}, texts: this.textsOf(lasting ?? {}), json: this.jsonOf(content) };
  }

  /** @returns the event's place among all writes. */
  protected keep(session: KeptSession, event: Event, json: string): number {
    const known = session.events.find(({ id }) => id === event.id);
    if (known) known.json = json;
    else session.events.push({ id: event.id, json, order: ++this.store.order });
    if (session.events.at(-1)?.id === event.id) session.lastUpdateTime = event.timestamp;
    return known?.order ?? this.store.order;
  }

  /** Those that no later event has written, and that ADK's base class applies. */
  protected winning(session: KeptSession, delta: Record<string, unknown>, texts: Texts, order: number): Texts {
    return texts.filter(([name]) => {
      const scope = this.scopeOf(session, name);
      return this.isApplied(scope, delta, name) && (scope.values.get(name)?.order ?? 0) <= order;
    });
  }

  protected isApplied({ written }: Scope, delta: Record<string, unknown>, name: string): boolean {
    const untouched = {};
    const define = (value: unknown) =>
      Object.defineProperty(written, name, { value, writable: true, enumerable: true, configurable: true });
    define(untouched);
    const event = { id: '', actions: { stateDelta: delta } } as unknown as Event;
    const session = { ...createSession({ id: '', appName: '' }), state: written };
    void BaseSessionService.prototype.appendEvent.call(this, {
      session,
      event: { ...event, actions: { ...event.actions } },
    });
    return Object.getOwnPropertyDescriptor(written, name)?.value !== untouched;
  }

  protected write(session: KeptSession, texts: Texts, order: number): void {
    for (const [name, json] of texts) this.scopeOf(session, name).values.set(name, { json, order });
  }

  protected scopeOf({ key: { appName, userId }, state }: KeptSession, name: string): Scope {
    if (name.startsWith('app:')) return this.sharedScope(appName);
    return name.startsWith('user:') ? this.sharedScope(appName, userId) : state;
  }

  protected sharedScope(...owner: string[]): Scope {
    const { shared } = this.store;
    const name = JSON.stringify(owner);
    const scope = shared.get(name) ?? new Scope();
    shared.set(name, scope);
    return scope;
  }

  protected read(session: KeptSession, config: GetSessionConfig = {}): Session {
    const { key, lastUpdateTime } = session;
    const events = this.select(this.eventsOf(session), config);
    return createSession({ ...key, id: key.sessionId, state: this.stateOf(session), events, lastUpdateTime });
  }

  protected select(events: Event[], { numRecentEvents, afterTimestamp }: GetSessionConfig): Event[] {
    const after = afterTimestamp === undefined ? events : events.filter(({ timestamp }) => timestamp > afterTimestamp);
    return numRecentEvents ? after.slice(-numRecentEvents) : after;
  }

  protected eventsOf({ events }: KeptSession): Event[] {
    return events.map(({ json }) => this.eventFrom(json));
  }

  protected stateOf(session: KeptSession): Record<string, unknown> {
    const { appName, userId } = session.key;
    const scopes = [session.state, this.sharedScope(appName), this.sharedScope(appName, userId)];
    return Object.fromEntries(
      scopes.flatMap(({ values }) => Array.from(values, ([name, { json }]) => [name, this.valueFrom(json)])),
    );
  }

  /** Adds missed events and state to a handle, in place. */
  protected catchUp(handle: Session, session: KeptSession): void {
    const known = new Map(handle.events.map((event) => [event.id, event]));
    const start = session.events.findIndex(({ id }) => id === (known.size > 1 ? handle.events[0]?.id : undefined));
    const events = session.events
      .slice(Math.max(start, 0))
      .map(({ id, json }) => known.get(id) ?? this.eventFrom(json));
    handle.events.splice(0, handle.events.length, ...events);
    for (const [name, value] of Object.entries(this.stateOf(session))) {
      const own = Object.getOwnPropertyDescriptor(handle.state, name)?.value as unknown;
      if (JSON.stringify(own) !== JSON.stringify(value))
        Object.defineProperty(handle.state, name, { value, writable: true, enumerable: true, configurable: true });
    }
    handle.lastUpdateTime = session.lastUpdateTime;
  }

  /** What is stored of state values: all but `temp:` keys. */
  protected lasting(state: Record<string, unknown>): Record<string, unknown> {
    return Object.fromEntries(
      Object.entries(state).filter(([name, value]) => !name.startsWith('temp:') && value !== undefined),
    );
  }

  protected textsOf(state: Record<string, unknown>): Texts {
    return Object.entries(state).map(([name, value]) => [name, this.jsonOf(value)]);
  }

  protected jsonOf(value: unknown): string {
    return encode(value, 'value').json;
  }

  protected valueFrom(json: string): unknown {
    return JSON.parse(json);
  }

  protected eventFrom(json: string): Event {
    const event = decodeEvent(json);
    if (!event) throw new Error('An event is damaged');
    return event;
  }

  protected find(key: SessionKey): KeptSession | undefined {
    return this.store.sessions.get(this.nameOf(key));
  }

  protected nameOf({ appName, userId, sessionId }: SessionKey): string {
    return JSON.stringify([appName, userId, sessionId]);
  }

  protected compare(a: KeptSession, b: KeptSession, order: 'asc' | 'desc' = 'asc'): number {
    const byTime = a.lastUpdateTime - b.lastUpdateTime;
    return (order === 'asc' ? byTime : -byTime) || (a.key.sessionId < b.key.sessionId ? -1 : 1);
  }

  protected existsError({ sessionId }: SessionKey, _texts: Texts): Error {
    return new Error(`Session with id ${sessionId} already exists`);
  }
}
