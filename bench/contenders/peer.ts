import { createSession, type DatabaseSessionService, type Event, type Session } from '@google/adk';
import type { SessionKey } from '../../src/model/keys.js';
import { byScope, type Scope } from '../../src/model/state.js';
import type { Contender, SessionContent } from './contender.js';
import type { BareDriver } from './drivers/bare-driver.js';
import { insertRows } from './fill.js';

const TABLES = ['sessions', 'events', 'app_states', 'user_states'];
const DAY_MS = 86_400_000;

/** The most events in a handle: the peer only searches them for the new event's id. */
const EVENTS_IN_HANDLE = 10_000;

/** `DatabaseSessionService` of `@google/adk`. */
export class Peer implements Contender<Session> {
  readonly name = 'peer';
  readonly #service: DatabaseSessionService;
  readonly #filler: BareDriver;
  readonly #close: () => Promise<void>;

  constructor(service: DatabaseSessionService, filler: BareDriver, close: () => Promise<void>) {
    this.#service = service;
    this.#filler = filler;
    this.#close = close;
  }

  async fill(sessions: Iterable<SessionContent>): Promise<void> {
    const contents = [...sessions];
    // Adds rows for app and user even if they are empty: otherwise two concurrent first appends both insert them, and one fails.
    const apps = new Map<string, Record<string, unknown>>();
    const users = new Map<string, { appName: string; userId: string; state: Record<string, unknown> }>();
    for (const { key, state } of contents) {
      const { appName, userId } = key;
      apps.set(appName, { ...apps.get(appName), ...stateOf(state, 'app') });
      const user = `${appName}\0${userId}`;
      users.set(user, { appName, userId, state: { ...users.get(user)?.state, ...stateOf(state, 'user') } });
    }
    // In the past, so that the handles, which are made afterwards, are not behind.
    const past = (i: number) => this.#filler.date(Date.now() - DAY_MS + i);
    await insertRows(this.#filler, [
      {
        table: 'app_states',
        columns: ['app_name', 'state', 'update_time'],
        rows: [...apps].map(([appName, state]) => [appName, JSON.stringify(state), past(0)]),
        missingOnly: true,
      },
      {
        table: 'user_states',
        columns: ['app_name', 'user_id', 'state', 'update_time'],
        rows: [...users.values()].map(({ appName, userId, state }) => [
          appName,
          userId,
          JSON.stringify(state),
          past(0),
        ]),
        missingOnly: true,
      },
      {
        table: 'sessions',
        columns: ['id', 'app_name', 'user_id', 'state', 'create_time', 'update_time'],
        rows: contents.map(({ key, state }, i) => {
          const own = JSON.stringify(stateOf(state, 'session'));
          return [key.sessionId, key.appName, key.userId, own, past(i), past(i)];
        }),
      },
      {
        table: 'events',
        columns: ['id', 'app_name', 'user_id', 'session_id', 'invocation_id', 'timestamp', 'event_data'],
        rows: eventRows(contents, past),
      },
    ]);
    await this.#filler.analyze(TABLES);
  }

  /** Built by hand: the peer hides nothing in a handle, and reading a session scans its whole table. */
  async open({ key, state, events }: SessionContent): Promise<Session> {
    const { appName, userId, sessionId: id } = key;
    const newest = events.slice(-EVENTS_IN_HANDLE);
    return createSession({ id, appName, userId, state: { ...state }, events: newest, lastUpdateTime: Date.now() });
  }

  create(key: SessionKey, state: Record<string, unknown>): Promise<Session> {
    return this.#service.createSession({ ...key, state });
  }

  append(session: Session, event: Event): Promise<Event> {
    return this.#service.appendEvent({ session, event });
  }

  async read(key: SessionKey, newest?: number): Promise<number> {
    const session = await this.#service.getSession({ ...key, config: { numRecentEvents: newest } });
    return session?.events.length ?? 0;
  }

  async list(appName: string, limit: number): Promise<number> {
    const { sessions } = await this.#service.listSessions({ appName, limit, order: 'desc' });
    return sessions.length;
  }

  delete(key: SessionKey): Promise<void> {
    return this.#service.deleteSession(key);
  }

  close(): Promise<void> {
    return this.#close();
  }
}

function stateOf(state: Record<string, unknown>, scope: Scope): Record<string, unknown> {
  const entries = Object.entries(state).map(([key, value]) => ({ key, json: JSON.stringify(value), eventId: null }));
  return Object.fromEntries(byScope(entries)[scope].map(({ key, json }) => [key, JSON.parse(json)]));
}

function* eventRows(contents: readonly SessionContent[], past: (i: number) => unknown) {
  for (const { key, events } of contents) {
    const { appName, userId, sessionId } = key;
    for (const [i, event] of events.entries()) {
      const data = JSON.stringify(snakeCased(event));
      yield [event.id, appName, userId, sessionId, event.invocationId, past(i), data];
    }
  }
}

/** The peer stores its own keys in snake case, and users' keys unchanged. */
function snakeCased(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(snakeCased);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).map(([key, inner]) => {
      const isUsers = key === 'args' || key === 'response' || key === 'stateDelta';
      return [key.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`), isUsers ? inner : snakeCased(inner)];
    }),
  );
}
