import { setImmediate } from 'node:timers/promises';
import {
  BaseSessionService,
  InMemorySessionService,
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
import type { SessionKey } from '../../../src/model/keys.js';
import type { Level, ServiceStore } from '../../../packages/session-contract/src/index.js';
import { keyOf } from '../../support/harnesses/harness.js';
import { InMemory, Store, type KeptSession, type Scope, type Texts } from './in-memory.js';

/** A service that is broken in one thing. */
export interface Mutant {
  /** Which rule must find it. */
  rule: string;
  fault: string;
  /** The level of the tests that must find it: with one service, with several at once, or after the end of a process. */
  level: Level;
  open(): Promise<ServiceStore>;
}

type Service = new (store: Store) => BaseSessionService;

export function storeOf(Service: Service, store = new Store()): ServiceStore {
  return {
    service: new Service(store),
    another: new Service(store),
    reopen: async () => storeOf(Service, store),
  };
}

type Fault = [rule: string, fault: string, Service: Service];

const mutants = (level: Level, faults: readonly Fault[]): Mutant[] =>
  faults.map(([rule, fault, Service]) => ({ rule, fault, level, open: async () => storeOf(Service) }));

/** What comes to pass between two steps of a service that waits for its database. */
const pause = () => setImmediate();

type Values = Record<string, unknown>;

/** A service that changes what it stores, as `change` says of the JSON of each event and of each state value. */
const storing = (change: (json: string) => string): Service =>
  class extends InMemory {
    protected override jsonOf(value: unknown): string {
      return change(super.jsonOf(value));
    }
  };

/** As `storing`, of each value within. */
const replacing = (replace: (key: string, value: unknown) => unknown): Service => {
  const replaced = (key: string, value: unknown): unknown => {
    const result = replace(key, value);
    if (typeof result !== 'object' || result === null) return result;
    if (Array.isArray(result)) return result.map((inner, i) => replaced(String(i), inner));
    return Object.fromEntries(Object.entries(result).map(([name, inner]) => [name, replaced(name, inner)]));
  };
  return storing((json) => JSON.stringify(replaced('', JSON.parse(json))) ?? 'null');
};

const dropping = (field: string) => replacing((key, value) => (key === field ? undefined : value));

const replacingTexts = (replace: (text: string) => unknown) =>
  replacing((_key, value) => (typeof value === 'string' ? replace(value) : value));

/** A service that makes JSON of values in its own way. */
const accepting = (json: (value: unknown, stored: () => string) => string | undefined): Service =>
  class extends InMemory {
    protected override jsonOf(value: unknown): string {
      return json(value, () => super.jsonOf(value)) ?? 'null';
    }
  };

/** A service that confuses keys for which `fold` gives the same text. */
const folding = (fold: (name: string) => string): Service =>
  class extends InMemory {
    protected override nameOf({ appName, userId, sessionId }: SessionKey): string {
      return JSON.stringify(
        [appName, userId, sessionId].map((name: unknown) => (typeof name === 'string' ? fold(name) : name)),
      );
    }
  };

/** A service whose events come in an order of their own. */
const sorting = (
  compare: (a: Event, b: Event) => number,
  when: (events: Event[], config: GetSessionConfig) => boolean = () => true,
): Service =>
  class extends InMemory {
    protected override select(events: Event[], config: GetSessionConfig): Event[] {
      return super.select(when(events, config) ? events.sort(compare) : events, config);
    }
  };

const byId = (a: Event, b: Event) => (a.id < b.id ? -1 : 1);

const byTime = (a: Event, b: Event) => a.timestamp - b.timestamp || byId(a, b);

const byEqualTimeAndId = (a: Event, b: Event) => (a.timestamp === b.timestamp ? byId(a, b) : 0);

const byWholeTime = (a: Event, b: Event) => Math.floor(a.timestamp) - Math.floor(b.timestamp) || byId(a, b);

type Select = (events: Event[], config: GetSessionConfig) => Event[];

/** A service whose `getSession` treats the config in its own way. */
const selecting = (select: (events: Event[], config: GetSessionConfig, asUsual: Select) => Event[]): Service =>
  class extends InMemory {
    protected override select(events: Event[], config: GetSessionConfig): Event[] {
      return select(events, config, (...wanted) => super.select(...wanted));
    }
  };

type Compare = (a: KeptSession, b: KeptSession, order?: 'asc' | 'desc') => number;

/** A service whose lists come in an order of their own. */
const comparing = (
  compare: (a: KeptSession, b: KeptSession, order: 'asc' | 'desc' | undefined, asUsual: Compare) => number,
): Service =>
  class extends InMemory {
    protected override compare(a: KeptSession, b: KeptSession, order?: 'asc' | 'desc'): number {
      return compare(a, b, order, (...compared) => super.compare(...compared));
    }
  };

type CatchUp = (handle: Session, session: KeptSession) => void;

/** A service whose handles catch up in their own way. */
const catchingUp = (catchUp: (handle: Session, session: KeptSession, asUsual: CatchUp) => void): Service =>
  class extends InMemory {
    protected override catchUp(handle: Session, session: KeptSession): void {
      catchUp(handle, session, (...given) => super.catchUp(...given));
    }
  };

/** Exposes its internal state. */
class Open extends InMemory {
  override sharedScope(...owner: string[]): Scope {
    return super.sharedScope(...owner);
  }

  override find(key: SessionKey): KeptSession | undefined {
    return super.find(key);
  }
}

const timeOf = (json: string) => (JSON.parse(json) as Event).timestamp;

const isPlain = (value: unknown) => typeof value === 'object' && value !== null && !Array.isArray(value);

/** A service that writes back a scope that it read before it waited for its database. */
const overwriting = (
  method: 'appendEvent' | 'createSession',
  scopeOf: (service: Open, key: SessionKey) => Scope | undefined,
): Service =>
  class extends Open {
    async #overwriting<T>(key: SessionKey, work: () => Promise<T>): Promise<T> {
      const scope = scopeOf(this, key);
      const before = [...(scope?.values ?? [])];
      await pause();
      scope?.values.clear();
      for (const [name, value] of before) scope?.values.set(name, value);
      return work();
    }

    override appendEvent(request: AppendEventRequest): Promise<Event> {
      const work = () => super.appendEvent(request);
      return method === 'appendEvent' ? this.#overwriting(keyOf(request.session), work) : work();
    }

    override createSession(request: CreateSessionRequest): Promise<Session> {
      const work = () => super.createSession(request);
      return method === 'createSession' ? this.#overwriting({ sessionId: '', ...request }, work) : work();
    }
  };

/** A service whose `listSessions` answers otherwise. */
const listing = (change: (list: ListSessionsResponse, request: ListSessionsRequest) => ListSessionsResponse): Service =>
  class extends InMemory {
    override async listSessions(request: ListSessionsRequest): Promise<ListSessionsResponse> {
      return change(await super.listSessions(request), request);
    }
  };

/** A service that changes handle or event after each append. */
const appending = (change: (handle: Session, event: Event, before: Session) => void): Service =>
  class extends InMemory {
    override async appendEvent(request: AppendEventRequest): Promise<Event> {
      const before = { ...request.session, state: { ...request.session.state } };
      const event = await super.appendEvent(request);
      change(request.session, event, before);
      return event;
    }
  };

/** A service that stores `temp:` keys, if `isSo` holds of the call. */
const keepingTemp = (isSo: (call: string) => boolean): Service =>
  class extends InMemory {
    #call = '';

    protected override lasting(state: Values): Values {
      return isSo(this.#call) ? { ...state } : super.lasting(state);
    }

    override createSession(request: CreateSessionRequest): Promise<Session> {
      this.#call ||= 'create';
      const session = super.createSession(request);
      this.#call = '';
      return session;
    }

    override getOrCreateSession(request: CreateSessionRequest): Promise<Session> {
      this.#call = 'getOrCreate';
      const session = super.getOrCreateSession(request);
      this.#call = '';
      return session;
    }

    override appendEvent(request: AppendEventRequest): Promise<Event> {
      this.#call = request.session.events.some(({ id }) => id === request.event.id) ? 'replace' : 'append';
      const event = super.appendEvent(request);
      this.#call = '';
      return event;
    }
  };

/** Faults that show with one service. */
const SEQUENTIAL: readonly Fault[] = [
  ['B1', 'createSession keeps shared keys in the session', InMemorySessionService],
  [
    'A1',
    'what a user says is not stored',
    class extends InMemory {
      override async appendEvent(request: AppendEventRequest): Promise<Event> {
        return request.event.author === 'user' ? request.event : super.appendEvent(request);
      }
    },
  ],
  [
    'A1',
    'a key without a part throws',
    class extends InMemory {
      override async getSession(request: GetSessionRequest): Promise<Session | undefined> {
        if (!request.userId || !request.sessionId) throw new Error('A part of the key is missing');
        return super.getSession(request);
      }
    },
  ],
  [
    'A1',
    'getOrCreateSession makes a new session each time',
    class extends InMemory {
      override getOrCreateSession({ sessionId: _sessionId, ...request }: CreateSessionRequest): Promise<Session> {
        return this.createSession(request);
      }
    },
  ],
  ['A2', 'getSession gives the newest 100 events', selecting((events) => events.slice(-100))],
  [
    'A2',
    'reads share what is deep in their events',
    class extends InMemory {
      protected override eventFrom(json: string): Event {
        return { ...this.store.noted(json, super.eventFrom(json)) };
      }
    },
  ],
  [
    'A2',
    'reads share what is deep in the state',
    class extends InMemory {
      override async getSession(request: GetSessionRequest): Promise<Session | undefined> {
        const session = await super.getSession(request);
        for (const [name, value] of Object.entries(session?.state ?? {}))
          Object.assign(session!.state, { [name]: this.store.noted(JSON.stringify(value), value) });
        return session;
      }
    },
  ],
  [
    'A2',
    'a listed session is the one that is read next',
    class extends InMemory {
      override async listSessions(request: ListSessionsRequest): Promise<ListSessionsResponse> {
        const list = await super.listSessions(request);
        for (const session of list.sessions) this.store.notes.set(session.id, session.state);
        return list;
      }

      override async getSession(request: GetSessionRequest): Promise<Session | undefined> {
        const session = await super.getSession(request);
        return session && { ...session, state: this.store.noted(session.id, session.state) };
      }
    },
  ],
  [
    'A2',
    'a session that is missing is null',
    class extends InMemory {
      override async getSession(request: GetSessionRequest): Promise<Session | undefined> {
        return (await super.getSession(request)) ?? (null as unknown as undefined);
      }
    },
  ],
  [
    'A2',
    'the handle of createSession has the values of the request',
    class extends InMemory {
      override async createSession(request: CreateSessionRequest): Promise<Session> {
        const session = await super.createSession(request);
        for (const [name, value] of Object.entries(request.state ?? {}))
          if (name in session.state && typeof value === 'object') session.state[name] = value;
        return session;
      }
    },
  ],
  [
    'A2',
    'createSession waits before it copies the state',
    class extends InMemory {
      override async createSession(request: CreateSessionRequest): Promise<Session> {
        await pause();
        return super.createSession(request);
      }
    },
  ],
  [
    'A3',
    'a copy of the event is in the handle',
    class extends InMemory {
      override appendEvent({ session, event }: AppendEventRequest): Promise<Event> {
        return super.appendEvent({ session, event: { ...event } });
      }
    },
  ],
  [
    'A3',
    'the event object itself is what is stored',
    class extends InMemory {
      override appendEvent(request: AppendEventRequest): Promise<Event> {
        const { appName } = request.session;
        this.store.notes.set(`${appName} ${request.event.id}`, request.event);
        return super.appendEvent(request);
      }

      protected override eventsOf(session: KeptSession): Event[] {
        return super.eventsOf(session).map((event) => {
          const kept = this.store.notes.get(`${session.key.appName} ${event.id}`);
          return kept ? this.eventFrom(JSON.stringify(kept)) : event;
        });
      }
    },
  ],
  [
    'A3',
    'appendEvent waits before it copies the event',
    class extends InMemory {
      override async appendEvent(request: AppendEventRequest): Promise<Event> {
        await pause();
        return super.appendEvent(request);
      }
    },
  ],
  [
    'A4',
    'an append replaces the state of the handle',
    appending((handle) => Object.assign(handle, { state: { ...handle.state } })),
  ],
  [
    'A5',
    'a retry sets lastUpdateTime back',
    class extends InMemory {
      protected override keep(session: KeptSession, event: Event, json: string): number {
        const order = super.keep(session, event, json);
        session.lastUpdateTime = event.timestamp;
        return order;
      }
    },
  ],
  [
    'A5',
    'an event that is replaced moves to the end',
    class extends InMemory {
      protected override keep(session: KeptSession, event: Event, json: string): number {
        session.events = session.events.filter(({ id }) => id !== event.id);
        return super.keep(session, event, json);
      }
    },
  ],
  [
    'A5',
    'an event that is replaced overwrites what later events wrote',
    class extends InMemory {
      protected override winning(_session: KeptSession, _delta: object, texts: Texts): Texts {
        return texts;
      }
    },
  ],
  [
    'A5',
    'an event that replaces another writes no state',
    class extends InMemory {
      protected override winning(session: KeptSession, delta: Values, texts: Texts, order: number): Texts {
        return order === this.store.order ? super.winning(session, delta, texts, order) : [];
      }
    },
  ],
  [
    'A6',
    'partial events are stored',
    class extends InMemory {
      override async appendEvent({ session, event }: AppendEventRequest): Promise<Event> {
        await super.appendEvent({ session, event: { ...event, partial: false } });
        return event;
      }
    },
  ],
  ['A7', 'appendEvent stores temp: keys', keepingTemp((call) => call === 'append')],
  ['A7', 'createSession stores temp: keys', keepingTemp((call) => call === 'create')],
  ['A7', 'getOrCreateSession stores temp: keys', keepingTemp((call) => call === 'getOrCreate')],
  ['A7', 'temp: keys of an event that replaces another are stored', keepingTemp((call) => call === 'replace')],
  [
    'A7',
    'temp: keys are gone after an append',
    appending(({ state }) => {
      for (const name of Object.keys(state)) if (name.startsWith('temp:')) delete state[name];
    }),
  ],
  [
    'A8',
    'the event that comes last wins',
    class extends InMemory {
      protected override isApplied(): boolean {
        return true;
      }
    },
  ],
  [
    'A8',
    'the event of a write that lost loses its delta',
    class extends InMemory {
      protected override keep(session: KeptSession, event: Event, json: string): number {
        const delta = Object.entries(event.actions?.stateDelta ?? {});
        const won = delta.filter(([name]) => this.isApplied(session.state, event.actions.stateDelta, name));
        const isLost = won.length < delta.length;
        const actions = { ...event.actions, stateDelta: Object.fromEntries(won) };
        return super.keep(session, event, isLost ? JSON.stringify({ ...event, actions }) : json);
      }
    },
  ],
  [
    'A9',
    'every second append is overtaken by those that come after it',
    class extends InMemory {
      #count = 0;

      override async appendEvent(request: AppendEventRequest): Promise<Event> {
        if (this.#count++ % 2) await pause();
        return super.appendEvent(request);
      }
    },
  ],
  [
    'A9',
    'appends behind one that fails fail as well',
    class extends InMemory {
      #last: Promise<unknown> = Promise.resolve();

      override appendEvent(request: AppendEventRequest): Promise<Event> {
        const next = this.#last.then(() => super.appendEvent(request));
        this.#last = next;
        setTimeout(() => {
          this.#last = Promise.resolve();
        });
        return next;
      }
    },
  ],
  ['A10', 'events are sorted by time', sorting(byTime)],
  ['A10', 'events are sorted by whole milliseconds', sorting(byWholeTime)],
  [
    'A10',
    'equal times are sorted by ids, with afterTimestamp',
    sorting(byEqualTimeAndId, (_events, { afterTimestamp }) => afterTimestamp !== undefined),
  ],
  ['A10', 'equal times are sorted by ids, above 100 events', sorting(byEqualTimeAndId, ({ length }) => length > 100)],
  [
    'A11',
    'the handle is changed before the event is checked',
    class extends InMemory {
      override appendEvent(request: AppendEventRequest): Promise<Event> {
        const { state, events } = request.session;
        Object.assign(state, request.event.actions?.stateDelta);
        events.push(request.event);
        return super.appendEvent(request);
      }
    },
  ],
  [
    'A11',
    'a time that is no number is taken',
    class extends InMemory {
      override appendEvent({ session, event }: AppendEventRequest): Promise<Event> {
        if (!Number.isFinite(event.timestamp)) event.timestamp = 0;
        return super.appendEvent({ session, event });
      }
    },
  ],
  ['A13', 'apps that begin alike share sessions', folding((name) => name.replace(/-sub$/, ''))],
  [
    'A14',
    'deleting a missing session throws',
    class extends InMemory {
      override async deleteSession(key: DeleteSessionRequest): Promise<void> {
        if (!this.find(key)) throw new Error('There is no such session');
        await super.deleteSession(key);
      }
    },
  ],
  [
    'A15',
    'an event needs an invocationId',
    class extends InMemory {
      override async appendEvent(request: AppendEventRequest): Promise<Event> {
        if (request.event.invocationId === undefined) throw new Error('invocationId is null');
        return super.appendEvent(request);
      }
    },
  ],
  [
    'A15',
    'a handle has to be one that the service gave',
    class extends InMemory {
      readonly #given = this.store.noted('given', new WeakSet<Session>());

      protected override read(session: KeptSession, config?: GetSessionConfig): Session {
        const given = super.read(session, config);
        this.#given.add(given);
        return given;
      }

      override async appendEvent(request: AppendEventRequest): Promise<Event> {
        if (!this.#given.has(request.session)) throw new Error('Another made this session object');
        return super.appendEvent(request);
      }
    },
  ],

  [
    'B1',
    'user: keys are those of all users',
    class extends InMemory {
      protected override sharedScope(appName: string): Scope {
        return super.sharedScope(appName);
      }
    },
  ],
  [
    'B1',
    'a second prefix counts as well',
    class extends InMemory {
      protected override lasting(state: Values): Values {
        const lasting = Object.entries(super.lasting(state));
        return Object.fromEntries(
          lasting.map(([name, value]) => [name.replace(/^(user|app):(?=user:|app:)/, ''), value]),
        );
      }
    },
  ],
  [
    'B2',
    'null removes a key',
    class extends InMemory {
      protected override lasting(state: Values): Values {
        return Object.fromEntries(Object.entries(super.lasting(state)).filter(([, value]) => value !== null));
      }
    },
  ],
  [
    'B4',
    'an append leaves lastUpdateTime of the handle',
    appending((handle, _event, { lastUpdateTime }) => Object.assign(handle, { lastUpdateTime })),
  ],
  [
    'B5',
    '__proto__ is assigned',
    class extends InMemory {
      protected override stateOf(session: KeptSession): Values {
        const state: Values = {};
        for (const [name, value] of Object.entries(super.stateOf(session))) state[name] = value;
        return state;
      }
    },
  ],

  ['C1', 'texts lose NUL', replacingTexts((text) => text.replaceAll('\0', ''))],
  ['C1', 'texts are stored as UTF-8, and lose lone surrogates', replacingTexts((text) => Buffer.from(text).toString())],
  [
    'C1',
    'texts lose what has four bytes in UTF-8',
    replacingTexts((text) => text.replace(/[\u{10000}-\u{10ffff}]/gu, '')),
  ],
  ['C1', 'an empty text is null', replacingTexts((text) => text || null)],
  ['C1', 'texts have at most 65,535 characters', replacingTexts((text) => text.slice(0, 65_535))],
  ['C1', 'texts have at most 600,000 characters', replacingTexts((text) => text.slice(0, 600_000))],
  [
    'C1',
    'numbers have 15 digits',
    replacing((_key, value) => (typeof value === 'number' ? Number(value.toPrecision(15)) : value)),
  ],
  ['C1', 'null is left out', replacing((_key, value) => value ?? undefined)],
  ['C1', 'fields that ADK does not know are dropped', dropping('inventedField')],
  ['C1', 'a newer field of ADK is dropped', dropping('isolationScope')],
  [
    'C1',
    'keys come back in order',
    replacing((_key, value) => {
      if (typeof value !== 'object' || value === null || Array.isArray(value)) return value;
      return Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)));
    }),
  ],
  [
    'C1',
    'events have no brand',
    class extends InMemory {
      protected override eventFrom(json: string): Event {
        return JSON.parse(json);
      }
    },
  ],
  ['C2', 'what JSON damages is stored', accepting((value) => JSON.stringify(value))],
  [
    'C2',
    'what JSON refuses is stored as a text',
    accepting((value) => {
      const seen = new Set<unknown>();
      return JSON.stringify(value, (_key, inner: unknown) => {
        if (typeof inner === 'bigint' || seen.has(inner)) return String(inner);
        if (typeof inner === 'object' && inner !== null) seen.add(inner);
        return inner;
      });
    }),
  ],
  ['C2', 'a Date is an empty object', storing((json) => json.replace(/"1970-[^"]*Z"/g, '{}'))],
  [
    'C2',
    'an object that is there twice is refused',
    accepting((value, stored) => {
      const seen = new Set<unknown>();
      JSON.stringify(value, (_key, inner: unknown) => {
        if (seen.has(inner)) throw new Error('A cycle');
        if (typeof inner === 'object' && inner !== null) seen.add(inner);
        return inner;
      });
      return stored();
    }),
  ],
  [
    'C3',
    'times have whole seconds',
    replacing((key, value) => (key === 'timestamp' ? Math.floor(Number(value) / 1000) * 1000 : value)),
  ],
  [
    'C3',
    'times have whole milliseconds',
    replacing((key, value) => (key === 'timestamp' ? Math.floor(Number(value)) : value)),
  ],
  [
    'C3',
    'lastUpdateTime has whole milliseconds',
    class extends InMemory {
      protected override read(session: KeptSession, config?: GetSessionConfig): Session {
        const read = super.read(session, config);
        return { ...read, lastUpdateTime: Math.floor(read.lastUpdateTime) };
      }
    },
  ],
  [
    'C4',
    'numRecentEvents: 0 gives none',
    selecting((events, config, select) => (config.numRecentEvents === 0 ? [] : select(events, config))),
  ],
  [
    'C4',
    'afterTimestamp is inclusive',
    selecting((events, { afterTimestamp = -Infinity, ...config }, select) =>
      select(
        events.filter(({ timestamp }) => timestamp >= afterTimestamp),
        config,
      ),
    ),
  ],
  [
    'C4',
    'afterTimestamp counts whole milliseconds',
    selecting((events, { afterTimestamp = -Infinity, ...config }, select) =>
      select(
        events.filter(({ timestamp }) => timestamp > Math.floor(afterTimestamp)),
        config,
      ),
    ),
  ],
  [
    'C4',
    'numRecentEvents counts events that are too old',
    selecting((events, { numRecentEvents, ...config }, select) => select(select(events, { numRecentEvents }), config)),
  ],
  [
    'C4',
    'numRecentEvents counts from the oldest',
    selecting((events, { numRecentEvents, ...config }, select) =>
      select(events, config).slice(0, numRecentEvents || undefined),
    ),
  ],
  [
    'C4',
    'afterTimestamp gives what follows the last event that is too old',
    selecting((events, { afterTimestamp = -Infinity, ...config }, select) =>
      select(events.slice(events.findLastIndex(({ timestamp }) => timestamp <= afterTimestamp) + 1), config),
    ),
  ],
  [
    'C4',
    'with numRecentEvents the state is that of the newest events alone',
    class extends InMemory {
      protected override read(session: KeptSession, config?: GetSessionConfig): Session {
        const read = super.read(session, config);
        if (!config?.numRecentEvents) return read;
        return { ...read, state: Object.assign({}, ...read.events.map(({ actions }) => actions?.stateDelta)) };
      }
    },
  ],
  [
    'C4',
    'with afterTimestamp lastUpdateTime is that of the events that are given',
    class extends InMemory {
      protected override read(session: KeptSession, config?: GetSessionConfig): Session {
        const read = super.read(session, config);
        return config?.afterTimestamp ? { ...read, lastUpdateTime: read.events.at(-1)?.timestamp ?? 0 } : read;
      }
    },
  ],
  [
    'C4',
    'an append gives a handle all events that it was read without',
    class extends InMemory {
      protected override catchUp(handle: Session, session: KeptSession): void {
        const known = new Map(handle.events.map((event) => [event.id, event]));
        const all = this.eventsOf(session).map((event) => known.get(event.id) ?? event);
        handle.events.splice(0, handle.events.length, ...all);
        super.catchUp(handle, session);
      }
    },
  ],
  [
    'C5',
    'lastUpdateTime is the greatest time',
    class extends InMemory {
      protected override keep(session: KeptSession, event: Event, json: string): number {
        const { lastUpdateTime } = session;
        const order = super.keep(session, event, json);
        session.lastUpdateTime = Math.max(lastUpdateTime, event.timestamp);
        return order;
      }
    },
  ],

  [
    'D1',
    'an id that exists is overwritten',
    class extends InMemory {
      override createSession(request: CreateSessionRequest): Promise<Session> {
        if (request.sessionId) this.store.sessions.delete(this.nameOf({ ...request, sessionId: request.sessionId }));
        return super.createSession(request);
      }
    },
  ],
  [
    'D1',
    'a session without an id gets the same id each time',
    class extends InMemory {
      override createSession(request: CreateSessionRequest): Promise<Session> {
        return super.createSession({ ...request, sessionId: request.sessionId || 'new' });
      }
    },
  ],
  [
    'D2',
    'getOrCreateSession sets the state of a session that exists',
    class extends InMemory {
      override async getOrCreateSession(request: CreateSessionRequest): Promise<Session> {
        const session = await super.getOrCreateSession(request);
        Object.assign(session.state, request.state);
        return session;
      }
    },
  ],
  [
    'D3',
    'an append creates a session that is missing',
    class extends InMemory {
      override async appendEvent(request: AppendEventRequest): Promise<Event> {
        await this.getOrCreateSession({ ...keyOf(request.session) });
        return super.appendEvent(request);
      }
    },
  ],
  [
    'D4',
    'the events of a deleted session stay',
    class extends InMemory {
      override async deleteSession(key: DeleteSessionRequest): Promise<void> {
        const session = this.find(key);
        if (session) this.store.notes.set(this.nameOf(key), session.events);
        await super.deleteSession(key);
      }

      override async createSession(request: CreateSessionRequest): Promise<Session> {
        const { id } = await super.createSession(request);
        const session = this.find({ ...request, sessionId: id })!;
        session.events = this.store.noted(this.nameOf(session.key), session.events);
        return this.read(session);
      }
    },
  ],
  [
    'D4',
    'state of the user is deleted with a session',
    class extends InMemory {
      override async deleteSession(key: DeleteSessionRequest): Promise<void> {
        this.sharedScope(key.appName, key.userId).values.clear();
        await super.deleteSession(key);
      }
    },
  ],
  [
    'D4',
    'a session is deleted whoever it belongs to',
    class extends InMemory {
      override async deleteSession(key: DeleteSessionRequest): Promise<void> {
        for (const userId of ['alice', 'bob']) await super.deleteSession({ ...key, userId });
      }
    },
  ],
  [
    'D5',
    'a list has the sessions of all users',
    class extends InMemory {
      override listSessions({ userId: _userId, ...request }: ListSessionsRequest): Promise<ListSessionsResponse> {
        return super.listSessions(request);
      }
    },
  ],
  ['D5', 'lists are in order of ids', comparing((a, b) => (a.key.sessionId < b.key.sessionId ? -1 : 1))],
  ['D5', 'order does not count', comparing((a, b, _order, compare) => compare(a, b))],
  [
    'D5',
    'of equal updates the greater id comes first',
    comparing((a, b, order, compare) => (a.lastUpdateTime === b.lastUpdateTime ? -1 : 1) * compare(a, b, order)),
  ],
  ['D5', 'a list without order has none', comparing((a, b, order, compare) => (order ? compare(a, b, order) : 0))],
  [
    'D5',
    'listed sessions have no state',
    listing((list) => ({ ...list, sessions: list.sessions.map((session) => ({ ...session, state: {} })) })),
  ],
  [
    'D5',
    'listed sessions have their events',
    class extends InMemory {
      override async listSessions(request: ListSessionsRequest): Promise<ListSessionsResponse> {
        const { sessions, ...list } = await super.listSessions(request);
        return { ...list, sessions: sessions.map((session) => this.read(this.find(keyOf(session))!)) };
      }
    },
  ],
  ['D5', 'totalItems counts the page', listing((list) => ({ ...list, totalItems: list.sessions.length }))],
  [
    'D5',
    'a list without a limit has 100 sessions',
    listing((list, { limit }) => (limit === undefined ? { ...list, sessions: list.sessions.slice(0, 100) } : list)),
  ],
  ['D5', 'an empty list has a page', listing((list) => ({ ...list, totalPages: Math.max(1, list.totalPages) }))],
  [
    'D5',
    'a session from a list cannot be appended to',
    class extends InMemory {
      readonly #listed = this.store.noted('listed', new WeakSet<Session>());

      override async listSessions(request: ListSessionsRequest): Promise<ListSessionsResponse> {
        const list = await super.listSessions(request);
        for (const session of list.sessions) this.#listed.add(session);
        return list;
      }

      override async appendEvent(request: AppendEventRequest): Promise<Event> {
        if (this.#listed.has(request.session)) throw new Error('The session has no events');
        return super.appendEvent(request);
      }
    },
  ],
  ['D6', 'names compare without case', folding((name) => name.toLowerCase())],
  ['D6', 'names compare without spaces at the end', folding((name) => name.trimEnd())],
  ['D6', 'names compare as Unicode normalizes them', folding((name) => name.normalize())],
  [
    'D6',
    'ids of events compare without case',
    class extends InMemory {
      protected override keep(session: KeptSession, event: Event, json: string): number {
        const known = session.events.find(({ id }) => id.toLowerCase() === event.id.toLowerCase());
        return super.keep(session, { ...event, id: known?.id ?? event.id }, json);
      }
    },
  ],
  [
    'D6',
    'state keys compare without case',
    class extends InMemory {
      protected override write(session: KeptSession, texts: Texts, order: number): void {
        super.write(
          session,
          texts.map(([name, json]) => [name.toLowerCase(), json]),
          order,
        );
      }
    },
  ],
  [
    'D7',
    'names have at most 190 units of UTF-16',
    folding((name) => {
      if (name.length > 190) throw new Error('A name is too long');
      return name;
    }),
  ],
];

/** Faults that show with several services at once. */
const CONCURRENT: readonly Fault[] = [
  [
    'A5',
    'an event that the handle has not seen is appended again',
    class extends InMemory {
      protected override keep(session: KeptSession, event: Event, json: string): number {
        const known = session.events.find(({ id }) => id === event.id);
        if (known) session.events.push({ ...known });
        return super.keep(session, event, json);
      }
    },
  ],
  [
    'A10',
    'of events that are appended at once one is lost, and its state kept',
    class extends InMemory {
      override async appendEvent(request: AppendEventRequest): Promise<Event> {
        const session = this.find(keyOf(request.session));
        const events = session && [...session.events];
        await pause();
        if (session && events) session.events = events;
        return super.appendEvent(request);
      }
    },
  ],
  ['A10', 'events are sorted by time', sorting(byTime)],
  [
    'A12',
    'an error shows its statement',
    class extends InMemory {
      protected override existsError(key: SessionKey, texts: Texts): Error {
        return new Error(
          `Session with id ${key.sessionId} already exists: insert into sessions values (${String(texts)})`,
        );
      }
    },
  ],
  [
    'B2',
    'an append writes all state of its app',
    overwriting('appendEvent', (service, { appName }) => service.sharedScope(appName)),
  ],
  [
    'B2',
    'a creation writes all state of its app',
    overwriting('createSession', (service, { appName }) => service.sharedScope(appName)),
  ],
  [
    'B2',
    'an append writes all state of its session',
    overwriting('appendEvent', (service, key) => service.find(key)?.state),
  ],
  [
    'B2',
    'objects are merged',
    class extends InMemory {
      protected override write(session: KeptSession, texts: Texts, order: number): void {
        const merged = texts.map(([name, json]): Texts[number] => {
          const [old, value] = [this.scopeOf(session, name).values.get(name)?.json, json].map((each) =>
            JSON.parse(each ?? 'null'),
          );
          return [name, isPlain(old) && isPlain(value) ? JSON.stringify({ ...old, ...value }) : json];
        });
        super.write(session, merged, order);
      }
    },
  ],
  ['B4', 'a handle that is behind stays behind', catchingUp(() => undefined)],
  [
    'D1',
    'creations at once of one id all succeed',
    class extends InMemory {
      override async createSession(request: CreateSessionRequest): Promise<Session> {
        const sessionId = request.sessionId || 'new';
        if (this.find({ ...request, sessionId })) return super.createSession(request);
        await pause();
        if (request.sessionId) this.store.sessions.delete(this.nameOf({ ...request, sessionId }));
        return super.createSession(request);
      }
    },
  ],
  [
    'D1',
    'the first sessions of a user that are created at once fail but for one',
    class extends InMemory {
      override async createSession(request: CreateSessionRequest): Promise<Session> {
        const user = JSON.stringify([request.appName, request.userId]);
        const isNew = !this.store.notes.has(user);
        await pause();
        if (isNew && this.store.notes.has(user)) throw new Error('The user exists');
        this.store.notes.set(user, true);
        return super.createSession(request);
      }
    },
  ],
  [
    'D2',
    "getOrCreateSession is that of ADK's base class",
    class extends InMemory {
      override getOrCreateSession(request: CreateSessionRequest): Promise<Session> {
        return BaseSessionService.prototype.getOrCreateSession.call(this, request);
      }
    },
  ],
  [
    'D4',
    'an append that races with the deletion brings the session back',
    class extends InMemory {
      override async appendEvent(request: AppendEventRequest): Promise<Event> {
        const session = this.find(keyOf(request.session));
        await pause();
        if (session) this.store.sessions.set(this.nameOf(session.key), session);
        return super.appendEvent(request);
      }
    },
  ],
  [
    'D8',
    'state and events are read at two moments',
    class extends InMemory {
      override async getSession(request: GetSessionRequest): Promise<Session | undefined> {
        const before = await super.getSession(request);
        await pause();
        const after = await super.getSession(request);
        return before && after && { ...after, state: before.state };
      }
    },
  ],
  ['E2', 'a handle that is behind stays behind', catchingUp(() => undefined)],
  [
    'E2',
    'a handle is behind only if its lastUpdateTime is',
    catchingUp((handle, session, catchUp) => {
      const isBehind = session.events.slice(0, -1).some(({ json }) => timeOf(json) > handle.events.at(-1)!.timestamp);
      if (isBehind) catchUp(handle, session);
    }),
  ],
  [
    'E2',
    'a handle that is behind gets another state object',
    catchingUp((handle, session, catchUp) => {
      const missed = session.events.length > handle.events.length;
      catchUp(handle, session);
      if (!missed) return;
      for (const name of Object.keys(handle.state)) delete handle.state[name];
      catchUp(handle, session);
    }),
  ],
];

/** What a store is without something after the end of a process. */
function losing(rule: string, fault: string, lost: (store: Store, how: { killed: boolean }) => Store): Mutant {
  const open = (store: Store): ServiceStore => ({
    ...storeOf(InMemory, store),
    reopen: async (how) => open(lost(store, how)),
  });
  return { rule, fault, level: 'durable', open: async () => open(new Store()) };
}

/** After the end of a process. */
const KILLED: readonly Mutant[] = [
  losing('O9', 'all is written when the service is closed', (store, { killed }) => (killed ? new Store() : store)),
  losing('O9', 'all is gone when the service is closed', (store, { killed }) => (killed ? store : new Store())),
  losing('O9', 'shared state is written when the service is closed', (store, { killed }) =>
    killed ? Object.assign(new Store(), { sessions: store.sessions }) : store,
  ),
  losing('O9', 'the newest event is written when the next one comes', (store, { killed }) => {
    if (killed) for (const session of store.sessions.values()) session.events.pop();
    return store;
  }),
];

/** Services that are broken, each in one thing. */
export const MUTANTS: readonly Mutant[] = [
  ...mutants('every', SEQUENTIAL),
  ...mutants('shared', CONCURRENT),
  ...KILLED,
];
