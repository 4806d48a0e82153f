import {
  BaseSessionService,
  createSession,
  type AppendEventRequest,
  type CreateSessionRequest,
  type DeleteSessionRequest,
  type Event,
  type GetSessionRequest,
  type ListSessionsRequest,
  type ListSessionsResponse,
  type Session,
} from '@google/adk';
import { UniqueConstraintViolationException, type EntityManager } from '@mikro-orm/core';
import { randomUUID } from 'node:crypto';
import { Announcer } from './announcer.js';
import { Appender, isNonEmpty } from './append.js';
import { SessionStore, ownerKey, type SessionHead, type SessionSnapshot } from './dialects/session-store.js';
import { decodeEvent, encode } from './event-codec.js';
import { InvalidKeyError, SessionExistsError, SessionNotFoundError } from './errors.js';
import { inTurn, setRevision, stateOf } from './handle.js';
import { LeaseGuard, type Fence } from './lease-guard.js';
import { checkKeys, checkWholeNumbers, type SessionKey } from './keys.js';
import type { MikroOrmSessionServiceOptions } from './options.js';
import { byScope, checkStateKey, isTemporary, scopeOf, type Scope, type StateEntry } from './state.js';
import { Transactions, guarded } from './transaction.js';

export interface AppendEventsRequest {
  session: Session;
  /** Appended in this order. */
  events: readonly Event[];
}

export interface UpdateStateRequest {
  appName: string;
  /** Needed for `user:` keys and for a session's. */
  userId?: string;
  /** Needed for keys without a prefix. */
  sessionId?: string;
  /** Keys with their prefixes, and their new values. */
  set?: Record<string, unknown>;
  /** Keys with their prefixes; a key that is not there is no error. */
  remove?: readonly string[];
}

/** Each try reads a session that is being deleted and created again; nobody does that more often. */
const READ_ATTEMPTS = 5;

/**
 * ADK sessions in the host's own database, through its own MikroORM.
 *
 * ```ts
 * const orm = await MikroORM.init({ driver: SqliteDriver, dbName: 'agent.db', entities: adkEntities() });
 * const runner = new Runner({ agent, appName: 'support', sessionService: new MikroOrmSessionService(orm.em) });
 * ```
 *
 * Every method may throw `InvalidKeyError` for names that cannot be keys on every database, before anything is
 * written; `SchemaError` when the tables are missing; and `DatabaseError` when the database fails and trying again
 * does not help. No error holds SQL, stored data or credentials.
 */
export class MikroOrmSessionService extends BaseSessionService {
  readonly #options: MikroOrmSessionServiceOptions;
  readonly #store: SessionStore;
  #transactions: Transactions;
  #leases: LeaseGuard;
  #appender: Appender;

  /**
   * @param em the host's `EntityManager`. It is forked for each call; its ORM is never opened, configured or closed.
   * @throws SchemaError when the ORM has no supported driver, or does not list `adkEntities()`.
   */
  constructor(em: EntityManager, options: MikroOrmSessionServiceOptions = {}) {
    super();
    this.#options = options;
    this.#transactions = new Transactions(em, options.retry);
    this.#store = SessionStore.of(em, this.#transactions.dialect);
    [this.#leases, this.#appender] = this.#writersOf(this.#transactions, undefined);
  }

  /**
   * A service that writes to a session only while its lease is the current one.
   *
   * @internal see `SessionLeases`
   */
  static fenced(em: EntityManager, options: MikroOrmSessionServiceOptions, fence: Fence): MikroOrmSessionService {
    const service = new MikroOrmSessionService(em, options);
    service.#use(service.#transactions, fence);
    return service;
  }

  /**
   * The same service inside the caller's transaction, so that what it writes and the caller's own rows commit or roll
   * back together (contract E5). What fails inside is undone to a savepoint and not retried: the transaction is the
   * caller's. After a rollback, handles that were used in it have to be read again.
   *
   * @param tx the `EntityManager` that `em.transactional` hands out.
   */
  withEntityManager(tx: EntityManager): MikroOrmSessionService {
    const joined = new MikroOrmSessionService(tx, this.#options);
    joined.#use(this.#transactions.join(tx), this.#leases.fence);
    return joined;
  }

  #use(transactions: Transactions, fence: Fence | undefined): void {
    this.#transactions = transactions;
    [this.#leases, this.#appender] = this.#writersOf(transactions, fence);
  }

  #writersOf(transactions: Transactions, fence: Fence | undefined): [LeaseGuard, Appender] {
    const { onUnleasedAppend, notify = false } = this.#options;
    const leases = new LeaseGuard(this.#store.leases, onUnleasedAppend, fence);
    const announcer = new Announcer(this.#store, transactions, notify);
    return [leases, new Appender(this.#store, transactions, leases, announcer, this.#options)];
  }

  /**
   * Creates a session. `app:` and `user:` keys of `state` go to app and user, `temp:` keys nowhere.
   *
   * @throws SessionExistsError when the id is taken, also by a racing call (contract D1).
   * @throws UnserializableValueError when JSON cannot carry a value of `state`.
   */
  override async createSession({ appName, userId, state, sessionId }: CreateSessionRequest): Promise<Session> {
    const key = { appName, userId, sessionId: sessionId || randomUUID() };
    checkKeys(key);
    const entries = byScope(stateEntries(key, state ?? {}, 'state'));
    const head: SessionHead = { incarnation: randomUUID(), lastSeq: 0, lastUpdateTime: Date.now() };
    return guarded(async () => {
      try {
        const snapshot = await this.#transactions.transaction(async (sql) => {
          await this.#store.create(sql, key, head, entries);
          return this.#store.snapshot(sql, key);
        });
        return handleOf(key, snapshot ?? { ...head, state: [] }, []);
      } catch (error) {
        if (!(error instanceof UniqueConstraintViolationException)) throw error;
        // A lost connection can hide that the commit went through; then it is our own session that is in the way.
        const existing = await this.#transactions.run((sql) => this.#store.snapshot(sql, key));
        if (existing?.incarnation !== head.incarnation) throw new SessionExistsError(key.sessionId);
        return handleOf(key, existing, []);
      }
    });
  }

  /**
   * Reads a session with its merged state and its events in append order.
   *
   * @param config.numRecentEvents only the newest so many; 0 or absent for all.
   * @param config.afterTimestamp only events later than this, in ms. Both together: the newest of those.
   * @returns an object private to the caller; undefined when there is no such session.
   */
  override async getSession({ appName, userId, sessionId, config }: GetSessionRequest): Promise<Session | undefined> {
    const key = { appName, userId, sessionId };
    checkKeys(key);
    const newest = config?.numRecentEvents || undefined;
    const afterTimestamp = config?.afterTimestamp || undefined;
    checkWholeNumbers({ numRecentEvents: newest });
    return guarded(async () => {
      for (let attempt = 1; ; attempt++) {
        const found = await this.#transactions.run(async (sql) => {
          const snapshot = await this.#store.snapshot(sql, key);
          if (!snapshot) return undefined;
          const { incarnation, lastSeq } = snapshot;
          const range = { incarnation, after: 0, upTo: lastSeq, newest, afterTimestamp };
          return { snapshot, events: lastSeq === 0 ? [] : await this.#store.events(sql, key, range) };
        });
        if (!found) return undefined;
        // Without events the session was deleted between the two reads (contract D8).
        if (found.events) return handleOf(key, found.snapshot, found.events.map(decodeEvent));
        if (attempt === READ_ATTEMPTS) return undefined;
      }
    });
  }

  /** Reads a session, or creates it; racing callers all get the one session (contract D2). */
  override async getOrCreateSession(request: CreateSessionRequest): Promise<Session> {
    const { appName, userId, sessionId } = request;
    if (!sessionId) return this.createSession(request);
    for (let attempt = 1; ; attempt++) {
      const session = await this.getSession({ appName, userId, sessionId });
      if (session) return session;
      try {
        return await this.createSession(request);
      } catch (error) {
        if (!(error instanceof SessionExistsError) || attempt === READ_ATTEMPTS) throw error;
      }
    }
  }

  /**
   * Lists sessions with their merged state and without events; oldest update first, then by id, unless `order` is `desc`.
   *
   * @throws InvalidKeyError when `limit`, `offset` or `page` is not a whole number.
   */
  override async listSessions({
    appName,
    userId,
    limit,
    offset,
    page,
    order,
  }: ListSessionsRequest): Promise<ListSessionsResponse> {
    checkKeys(userId === undefined ? { appName } : { appName, userId });
    checkWholeNumbers({ limit, offset, page });
    if (page === 0) throw new InvalidKeyError('Pages are counted from 1.');

    const skipped = (limit !== undefined && page !== undefined ? (page - 1) * limit : offset) ?? 0;
    const request = { appName, userId, descending: order === 'desc', limit, offset: skipped };
    return guarded(() =>
      this.#transactions.run(async (sql) => {
        const isWhole = limit === undefined && skipped === 0;
        const listed = limit === 0 ? [] : await this.#store.list(sql, request);
        const states = await this.#store.statesOf(sql, request, listed, isWhole);
        // A page that is not full is the last one, and says how many there are.
        const isLast = limit !== undefined && listed.length < limit && (listed.length > 0 || skipped === 0);
        const totalItems = isWhole || isLast ? skipped + listed.length : await this.#store.count(sql, request);
        const sessions = listed.map((session) => {
          const key = { appName, userId: session.userId, sessionId: session.id };
          const state = [
            ['', ''],
            [session.userId, ''],
            [session.userId, session.id],
          ].flatMap(([user = '', id = '']) => states.get(ownerKey(user, id)) ?? []);
          return handleOf(key, { ...session, state }, []);
        });
        if (limit === undefined) {
          return { sessions, page: 1, limit: totalItems, totalItems, totalPages: totalItems === 0 ? 0 : 1 };
        }
        return {
          sessions,
          page: page ?? (limit === 0 ? 1 : Math.floor(skipped / limit) + 1),
          limit,
          totalItems,
          totalPages: limit === 0 ? 0 : Math.ceil(totalItems / limit),
        };
      }),
    );
  }

  /**
   * Deletes a session with its events, state and lease, at once (contract D4); one that is not there is no error.
   *
   * @throws LeaseLostError on the service of a lease that is lost.
   */
  override async deleteSession({ appName, userId, sessionId }: DeleteSessionRequest): Promise<void> {
    const key = { appName, userId, sessionId };
    checkKeys(key);
    await guarded(() =>
      this.#leases.fence
        ? this.#transactions.transaction(async (sql) => {
            if (await this.#store.lock(sql, key)) await this.#leases.check(sql, key);
            await this.#store.delete(sql, key);
          })
        : this.#transactions.statement((sql) => this.#store.delete(sql, key)),
    );
  }

  /**
   * Appends an event and changes the handle to match. Calls on one handle take effect in the order they were made. An
   * event that is stored already is replaced, so the same call can safely be made again (contract A5).
   *
   * @returns the event that was passed in, now in `session.events`; an event with `partial: true` is only returned.
   * @throws SessionNotFoundError when the session is missing or deleted.
   * @throws StaleSessionError with `onStaleSession: 'reject'`, when the handle is behind.
   * @throws LeaseLostError on the service of a lease that is lost.
   * @throws LeaseHeldError with `onUnleasedAppend: 'reject'`, while somebody else holds the session's lease.
   * @throws UnserializableValueError when JSON cannot carry a value of the event.
   * @throws EventTooLargeError when its JSON is larger than `maxEventBytes`.
   */
  override async appendEvent({ session, event }: AppendEventRequest): Promise<Event> {
    await this.appendEvents({ session, events: [event] });
    return event;
  }

  /**
   * Appends events in one transaction, all or none, with the rules and errors of `appendEvent`.
   *
   * @returns the events that were passed in.
   */
  async appendEvents({ session, events }: AppendEventsRequest): Promise<readonly Event[]> {
    // Before anything waits: what is stored is what the caller passed, whatever becomes of the objects later.
    const pending = events.filter((event) => !event.partial).map((event) => this.#appender.prepare(session, event));
    if (isNonEmpty(pending)) await guarded(() => inTurn(session, () => this.#appender.append(session, pending)));
    return events;
  }

  /** @returns the app's state, keys with `app:`. */
  async getAppState({ appName }: { appName: string }): Promise<Record<string, unknown>> {
    checkKeys({ appName });
    return this.#readState({ appName, userId: '', sessionId: '' }, 'app');
  }

  /** @returns the user's state in an app, keys with `user:`. */
  async getUserState({ appName, userId }: { appName: string; userId: string }): Promise<Record<string, unknown>> {
    checkKeys({ appName, userId });
    return this.#readState({ appName, userId, sessionId: '' }, 'user');
  }

  /**
   * Changes state outside a run, in one transaction. Keys carry the usual prefixes: `app:`, `user:`, or none for the
   * session's own. Handles see it when they are read again, and when they catch up with an event that writes the key.
   *
   * @throws InvalidKeyError for a `temp:` key, for a key whose `userId` or `sessionId` is missing, and for one that is
   *   both set and removed.
   * @throws SessionNotFoundError when a session's key is given and the session is not there.
   * @throws UnserializableValueError when JSON cannot carry a value.
   */
  async updateState({ appName, userId, sessionId, set = {}, remove = [] }: UpdateStateRequest): Promise<void> {
    const key = { appName, userId: userId ?? '', sessionId: sessionId ?? '' };
    const keys = [...Object.keys(set), ...remove];
    for (const name of keys) {
      const { scope } = scopeOf(name);
      if (isTemporary(name)) throw new InvalidKeyError('A temp: key is never stored.');
      if (scope !== 'app' && userId === undefined) throw new InvalidKeyError('A key without app: needs a userId.');
      if (scope === 'session' && sessionId === undefined) {
        throw new InvalidKeyError(
          "A key without a prefix is a session's and needs a sessionId; prefix it with user: or app:.",
        );
      }
      checkStateKey(key, name);
      if (Object.hasOwn(set, name) && remove.includes(name))
        throw new InvalidKeyError('A key is both set and removed.');
    }
    const entries = byScope(stateEntries(key, set, 'set'));
    const removed = byScope(remove.map((name) => ({ key: name, json: '', eventId: null })));
    await guarded(() =>
      this.#transactions.transaction(async (sql) => {
        if (entries.session.length + removed.session.length > 0) {
          if (!(await this.#store.lock(sql, key))) throw new SessionNotFoundError(key.sessionId);
          await this.#leases.check(sql, key);
        }
        await this.#store.setState(sql, key, entries);
        await this.#store.removeState(sql, key, removed);
      }),
    );
  }

  async #readState(key: SessionKey, scope: Scope): Promise<Record<string, unknown>> {
    return guarded(async () =>
      stateOf({ state: await this.#transactions.run((sql) => this.#store.state(sql, key, scope)) }),
    );
  }
}

function handleOf({ appName, userId, sessionId }: SessionKey, snapshot: SessionSnapshot, events: Event[]): Session {
  const { incarnation, lastSeq, lastUpdateTime } = snapshot;
  const session = createSession({ id: sessionId, appName, userId, state: stateOf(snapshot), events, lastUpdateTime });
  setRevision(session, incarnation, lastSeq);
  return session;
}

/** @param path what the values are called in an error. */
function stateEntries(session: SessionKey, state: Record<string, unknown>, path: string): StateEntry[] {
  return Object.entries(state)
    .filter(([name, value]) => !isTemporary(name) && value !== undefined)
    .map(([name, value]) => {
      checkStateKey(session, name);
      return { key: name, json: encode(value, `${path}.${name}`), eventId: null };
    });
}
