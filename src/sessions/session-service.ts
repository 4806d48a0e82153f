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
import { confirm } from '../database/calls/confirm.js';
import type { Sql } from '../database/sql/sql.js';
import { once } from '../database/calls/once.js';
import { stateText } from '../database/stores/change-store.js';
import type { SessionHead } from '../database/stores/session-store.js';
import { ownerKey, type StateValue } from '../database/stores/state-store.js';
import type { Stores } from '../database/stores/stores.js';
import { Database, type Outcome } from '../database/calls/database.js';
import { Announcer } from '../log/announcer.js';
import { checkLabels, checkTitle } from '../model/description.js';
import {
  InvalidArgumentError,
  InvalidKeyError,
  SessionExistsError,
  SessionNotFoundError,
  UnserializableValueError,
  type Damage,
} from '../model/errors.js';
import { aWholeNumber } from '../model/arguments.js';
import { encode } from '../model/event-codec.js';
import { checkKeys, checkedSessionKey, givenKey, isIncomplete, type SessionKey } from '../model/keys.js';
import { checkServiceOptions, type MikroOrmSessionServiceOptions } from '../model/options.js';
import { byScope, checkStateKey, isTemporary, scopeOf, type Scope, type StateEntry } from '../model/state.js';
import { Appender, isNonEmpty } from './append.js';
import { DamageReporter, damageError, readEvents, readState } from './damage.js';
import { keyOf, refuseUnchangeable, setRevision } from './handle.js';
import { forkSession, rewindSession, type HistoryPoint } from './history.js';
import { LeaseGuard, type Fence } from './lease-guard.js';
import { pendingEvent } from './pending-event.js';
import { checkRequest, type AppendEventsRequest, type ForkPoint, type UpdateStateRequest } from './requests.js';
import {
  DEFAULT_LIMIT,
  cursorText,
  labelText,
  parseCursor,
  summaryOf,
  type FindSessionsRequest,
  type FindSessionsResponse,
  type SessionDescription,
} from './summaries.js';
import { Turns } from './turns.js';

/** A try fails when the session is deleted between reading and creating it. Five times in a row is a bug. */
const CREATE_ATTEMPTS = 5;

/** @internal */
interface Within {
  database?: Database;
  fence?: Fence | undefined;
}

/**
 * ADK sessions in the host's own database, through its own MikroORM.
 *
 * ```ts
 * const orm = await MikroORM.init({ driver: SqliteDriver, dbName: 'agent.db', entities: adkEntities() });
 * const runner = new Runner({ agent, appName: 'support', sessionService: new MikroOrmSessionService(orm.em) });
 * ```
 *
 * Every method may throw `InvalidArgumentError` for a request with a name that is not known or a value that it cannot
 * have, and `InvalidKeyError` for names and ids that cannot be keys on every database, before anything is written;
 * `SchemaError` when the tables are missing, or the config has `disableTransactions`; `DatabaseError` when the database fails and trying again does not help; and
 * `InsideTransactionError` inside a transaction of the same ORM, which `withEntityManager` joins. No error holds SQL, stored
 * data or credentials; `onError` gets the driver's own error.
 */
export class MikroOrmSessionService extends BaseSessionService {
  readonly #options: MikroOrmSessionServiceOptions;
  readonly #stores: Stores;
  readonly #turns: Turns;
  readonly #damage: DamageReporter;
  readonly #database: Database;
  readonly #leases: LeaseGuard;
  readonly #announcer: Announcer;
  readonly #appender: Appender;

  /**
   * @param em the host's `EntityManager`. It is forked for each call; its ORM is never opened, configured or closed.
   * @throws InvalidArgumentError when an option is not known, or has a value that it cannot have.
   * @throws SchemaError when the ORM has no supported driver, or does not list `adkEntities()`.
   */
  constructor(em: EntityManager, options?: MikroOrmSessionServiceOptions);
  /**
   * @internal
   * @param within the transaction to join, and the lease without which no session is written to.
   */
  // eslint-disable-next-line @typescript-eslint/unified-signatures -- left out of the package's declarations
  constructor(em: EntityManager, options: MikroOrmSessionServiceOptions, within: Within);
  constructor(em: EntityManager, options: MikroOrmSessionServiceOptions = {}, { database, fence }: Within = {}) {
    super();
    checkServiceOptions(options, 'The options of MikroOrmSessionService');
    const { onDamage, onUnleasedAppend, notify = false } = options;
    this.#options = options;
    this.#database = database ?? new Database(em, options);
    this.#stores = this.#database.stores;
    this.#turns = Turns.of(this.#stores);
    this.#damage = new DamageReporter(this.#stores, onDamage);
    this.#leases = new LeaseGuard(this.#stores.leases, onUnleasedAppend, fence);
    this.#announcer = new Announcer(this.#database, notify);
    this.#appender = new Appender(this.#database, this.#leases, this.#announcer, this.#damage, options);
  }

  /**
   * The same service inside the caller's transaction, so that what it writes and the caller's own rows commit or roll
   * back together (contract E5). What fails inside is undone to a savepoint and not retried: the transaction is the
   * caller's. After a rollback a `Session` object that was appended to in it is behind, as if somebody else had written: see
   * `onStaleSession`. One that was only read or created in it must be read again.
   *
   * @param tx the `EntityManager` that `em.transactional` hands out. Calls after the transaction has ended throw
   *   `InvalidArgumentError`.
   */
  withEntityManager(tx: EntityManager): MikroOrmSessionService {
    const within = { database: this.#database.join(tx), fence: this.#leases.fence };
    return new MikroOrmSessionService(tx, this.#options, within);
  }

  /**
   * Creates a session. `app:` and `user:` keys of `state` go to app and user, `temp:` keys nowhere.
   *
   * @throws SessionExistsError when the id is taken, also by a racing call (contract D1).
   * @throws UnserializableValueError when JSON cannot carry a value of `state`.
   */
  override async createSession(request: CreateSessionRequest): Promise<Session> {
    checkRequest.createSession(request, 'The request of createSession');
    return this.#createSession(request, 'createSession');
  }

  async #createSession(
    { appName, userId, state, sessionId }: CreateSessionRequest,
    operation: string,
  ): Promise<Session> {
    const key = { appName, userId, sessionId: sessionId || randomUUID() };
    checkKeys(key);
    const entries = byScope(stateEntries(key, state ?? {}, 'state'));
    const head: SessionHead = { incarnation: randomUUID(), firstSeq: 1, lastSeq: 0, lastUpdateTime: Date.now() };
    const outcome: Outcome = {};
    const create = async (replacesSoftDeleted = false): Promise<Session> => {
      try {
        const created = await this.#database.transaction(
          async (sql) => {
            if (replacesSoftDeleted) await this.#stores.sessions.deleteSoftDeleted(sql, key);
            await this.#stores.sessions.create(sql, key, head);
            await this.#stores.state.set(sql, key, entries);
            await this.#stores.changes.record(sql, { session: key, kind: 'created', seq: 0, data: stateText(entries) });
            return this.#stores.reader.read(sql, key, { newest: 0 });
          },
          { outcome },
        );
        return this.#created(key, created ?? { ...head, state: [] });
      } catch (error) {
        if (!(error instanceof UniqueConstraintViolationException)) throw error;
        // When the answer to the commit was lost, the retry finds the session that this call has created.
        const existing = await this.#database.run((sql) => this.#stores.reader.read(sql, key, { newest: 0 }), {
          outcome,
        });
        // The id is that of a soft-deleted session (contract K3).
        if (!existing && !replacesSoftDeleted) return create(true);
        if (existing?.incarnation !== head.incarnation) throw new SessionExistsError(key.sessionId);
        await confirm(this.#database, outcome);
        return this.#created(key, existing);
      }
    };
    return this.#write(operation, key, () => create());
  }

  /** Damage to the state of the user or the app goes to `onDamage` and is not thrown, since the session is stored. */
  #created(key: SessionKey, session: SessionHead & { state: readonly StateValue[] }): Session {
    const state = readState(session.state);
    this.#damage.report(key, state.damaged);
    return handleOf(key, session, state.value, []);
  }

  /**
   * Reads a session with its merged state and its events in append order.
   *
   * @param config.numRecentEvents only the newest so many; 0 for all. Absent stands for `defaultNumRecentEvents`, or all.
   * @param config.afterTimestamp only events later than this, in ms. Both together: the newest of those.
   * @returns an object private to the caller; undefined when there is no such session.
   * @throws DamagedSessionError when rows of what is asked for are missing or cannot be read, unless `onDamagedEvent` is
   *   `skip`. A missing event has no time: for `afterTimestamp` it counts as one of the time of the event after it.
   */
  override async getSession(request: GetSessionRequest): Promise<Session | undefined> {
    checkRequest.getSession(request, 'The request of getSession');
    return this.#getSession(request, 'getSession');
  }

  async #getSession(
    { appName, userId, sessionId, config }: GetSessionRequest,
    operation: string,
  ): Promise<Session | undefined> {
    const key = { appName, userId, sessionId };
    // This is no error: the Runner reports the missing name itself when it gets no session.
    if (isIncomplete(key)) return undefined;
    checkKeys(key);
    const newest = (config?.numRecentEvents ?? this.#options.defaultNumRecentEvents) || undefined;
    const afterTimestamp = config?.afterTimestamp || undefined;
    return this.#database.call({ operation, key }, async () => {
      const range = { newest, afterTimestamp };
      const found = await this.#database.run((sql) => this.#stores.reader.read(sql, key, range));
      if (!found) return undefined;
      const [state, events] = [readState(found.state), readEvents(found)];
      this.#onDamage(key, events.damaged, state.damaged);
      return handleOf(key, found, state.value, events.value);
    });
  }

  /** @throws DamagedSessionError unless the damage is to be skipped. */
  #onDamage(key: SessionKey, ...damages: readonly Damage[]): void {
    if (this.#options.onDamagedEvent === 'skip') this.#damage.report(key, ...damages);
    else {
      const error = damageError(key, ...damages);
      if (error) throw error;
    }
  }

  /**
   * Reads a session, or creates it; racing callers all get the one session (contract D2).
   *
   * @throws DamagedSessionError as `getSession`; a damaged session is never created anew.
   */
  override async getOrCreateSession(request: CreateSessionRequest): Promise<Session> {
    checkRequest.createSession(request, 'The request of getOrCreateSession');
    const operation = 'getOrCreateSession';
    const { appName, userId, sessionId } = request;
    if (!sessionId) return this.#createSession(request, operation);
    for (let attempt = 1; ; attempt++) {
      const session = await this.#getSession({ appName, userId, sessionId }, operation);
      if (session) return session;
      try {
        return await this.#createSession(request, operation);
      } catch (error) {
        if (!(error instanceof SessionExistsError) || attempt === CREATE_ATTEMPTS) throw error;
      }
    }
  }

  /**
   * Lists sessions with their merged state and without events; oldest update first, then by id, unless `order` is `desc`.
   * State values that cannot be read are left out, and reported to `onDamage`: once for each session, user and app.
   *
   * @throws InvalidArgumentError when `limit`, `offset` or `page` is not a whole number, or `page` is 0.
   */
  override async listSessions(request: ListSessionsRequest): Promise<ListSessionsResponse> {
    checkRequest.listSessions(request, 'The request of listSessions');
    const { appName, userId, limit, offset, page, order } = request;
    const key = userId === undefined ? { appName } : { appName, userId };
    checkKeys(key);

    const skipped = (limit !== undefined && page !== undefined ? (page - 1) * limit : offset) ?? 0;
    aWholeNumber(skipped, 'page times limit');
    const range = { appName, userId, descending: order === 'desc', limit, offset: skipped };
    return this.#database.call({ operation: 'listSessions', key }, () =>
      this.#database.run(async (sql) => {
        const isWhole = limit === undefined && skipped === 0;
        const listed = limit === 0 ? [] : await this.#stores.sessions.list(sql, range);
        const states = await this.#stores.state.ofSessions(sql, range, listed, isWhole);
        // A page that is not full is the last one: the total follows from it without a count.
        const isLast = limit !== undefined && listed.length < limit && (listed.length > 0 || skipped === 0);
        const totalItems = isWhole || isLast ? skipped + listed.length : await this.#stores.sessions.count(sql, range);
        const reported = new Set<string>();
        const sessions = listed.map((session) => {
          const key = { appName, userId: session.userId, sessionId: session.id };
          const state = {};
          for (const owner of [{ ...key, userId: '', sessionId: '' }, { ...key, sessionId: '' }, key]) {
            const id = ownerKey(owner.userId, owner.sessionId);
            const { damaged } = readState(states.get(id) ?? [], state);
            // All sessions of an app have its state; its damage is reported once.
            if (!reported.has(id)) this.#damage.report(owner, damaged);
            reported.add(id);
          }
          return handleOf(key, session, state, []);
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
   * Finds sessions by what people call them and by their last update, without events and state. The pages stay right while
   * sessions change: no session comes twice or is left out, but one that is updated meanwhile may move past the reader.
   *
   * @returns a page, and the cursor for the next one.
   * @throws InvalidArgumentError also when `after` is not the `next` of a response.
   */
  async findSessions(request: FindSessionsRequest): Promise<FindSessionsResponse> {
    checkRequest.findSessions(request, 'The request of findSessions');
    const { appName, userId, title, labels = {}, status, updatedAfter, updatedBefore, after, order } = request;
    const { limit = DEFAULT_LIMIT } = request;
    const key = userId === undefined ? { appName } : { appName, userId };
    checkKeys(key);
    if (title !== undefined) checkTitle(title);
    checkLabels(labels);
    const filter = {
      ...key,
      isSoftDeleted: status === 'deleted',
      // An empty text asks for nothing; a session without a title is found, too.
      title: title === '' ? undefined : title,
      labels: Object.entries(labels).map(([name, value]) => labelText(name, value)),
      updatedAfter,
      updatedBefore,
    };
    const cursor = after === undefined ? undefined : parseCursor(after);
    const found = await this.#database.call({ operation: 'findSessions', key }, () =>
      this.#database.run((sql) => this.#stores.summaries.find(sql, filter, cursor, order !== 'asc', limit + 1)),
    );
    const sessions = found.slice(0, limit).map(summaryOf);
    const last = sessions.at(-1);
    return { sessions, ...(found.length > limit && last && { next: cursorText(last) }) };
  }

  /**
   * Sets what people call a session. That is no event: `lastUpdateTime` stays, and `Session` objects don't show it.
   *
   * @throws InvalidArgumentError for a title or labels that cannot be stored.
   * @throws SessionNotFoundError when there is no such session.
   */
  async describeSession(session: SessionKey, description: SessionDescription): Promise<void> {
    const key = checkedSessionKey(session);
    checkRequest.describeSession(description, 'The description');
    const { title, labels } = description;
    if (title) checkTitle(title);
    if (labels) checkLabels(labels);
    const texts = { title, labels: labels ? JSON.stringify(labels) : labels };
    await this.#write('describeSession', key, () =>
      this.#onlyOnce('describeSession', async (sql) => {
        if (!(await this.#stores.summaries.describe(sql, key, texts))) throw new SessionNotFoundError(key.sessionId);
      }),
    );
  }

  /**
   * Deletes a session with its events, state and lease, at once (contract D4); one that is not there is no error. With
   * `deletion: 'soft'` the session is soft-deleted, and `restoreSession` brings it back, without its lease.
   *
   * @throws LeaseLostError on the service of a lease that is lost.
   * @throws LeaseHeldError with `onUnleasedAppend: 'reject'`, while somebody else holds the session's lease.
   */
  override async deleteSession(request: DeleteSessionRequest): Promise<void> {
    checkRequest.deleteSession(request, 'The request of deleteSession');
    const { appName, userId, sessionId } = request;
    const key = { appName, userId, sessionId };
    checkKeys(key);
    await this.#write('deleteSession', key, async () => {
      const found = await this.#database.run((sql) => this.#stores.sessions.head(sql, key));
      if (!found) return;
      // It is deleted by its incarnation: when the answer is lost, somebody may create the session anew before the next try.
      const { incarnation } = found;
      const { sessions } = this.#stores;
      const isSoftDeletion = this.#options.deletion === 'soft';
      const removeUnderLock = async (sql: Sql) => {
        const locked = await sessions.lock(sql, key);
        if (locked?.incarnation !== incarnation) return;
        await this.#leases.check(sql, key);
        await (isSoftDeletion ? sessions.softDelete(sql, key, locked) : sessions.delete(sql, key, incarnation));
      };
      // A session that somebody has restored since is the same one.
      if (isSoftDeletion) await this.#onlyOnce('deleteSession', removeUnderLock);
      else {
        const isGuarded = this.#leases.ruleFor(key) !== undefined;
        const remove = isGuarded ? removeUnderLock : (sql: Sql) => sessions.delete(sql, key, incarnation);
        const outcome: Outcome = {};
        await this.#database.transaction(remove, { outcome });
        await confirm(this.#database, outcome);
      }
    });
  }

  /**
   * Brings a session back that was deleted with `deletion: 'soft'`: events, state, numbers and title are as they were
   * (contract K3). `Session` objects from before it can be appended to again. A session that is not deleted stays as it is.
   *
   * @throws SessionNotFoundError when there is none, or `prune` or `eraseUser` has begun to delete it for good.
   */
  async restoreSession(request: SessionKey): Promise<void> {
    checkRequest.restoreSession(request, 'The request of restoreSession');
    const key = checkedSessionKey(request);
    await this.#write('restoreSession', key, () =>
      this.#onlyOnce('restoreSession', async (sql) => {
        if (!(await this.#stores.sessions.restore(sql, key))) throw new SessionNotFoundError(key.sessionId);
      }),
    );
  }

  /**
   * Makes a session of another one's past (contract K4): the events up to a point, with their ids and numbers, and the state
   * of its own that the session had then. State of user and app is shared and stays as it is; so does the session itself.
   *
   * @param point.at the number of the last event to copy, 0 for none; or
   * @param point.beforeInvocationId copy what comes before this invocation. Without both everything is copied.
   * @param point.as the id of the new session; one is made where it is left out.
   * @returns the new session. It was created and updated now, so that `prune` does not take it for an old one.
   * @throws SessionNotFoundError when there is no such session.
   * @throws SessionExistsError when `as` is taken.
   * @throws InvalidArgumentError also when the session has no such event, or does not have it any more.
   * @throws DamagedSessionError when its events cannot be read.
   */
  async forkSession(session: SessionKey, point: ForkPoint = {}): Promise<Session> {
    const source = checkedSessionKey(session);
    checkRequest.forkSession(point, 'The point');
    checkPoint(point);
    const { as: sessionId = randomUUID() } = point;
    const key = { ...source, sessionId };
    checkKeys(key);
    const incarnation = randomUUID();
    await this.#write('forkSession', key, async () => {
      try {
        await this.#onlyOnce('forkSession', (sql) => forkSession(sql, this.#stores, source, key, point, incarnation), {
          locksRowsOnly: true,
        });
      } catch (error) {
        if (error instanceof UniqueConstraintViolationException) throw new SessionExistsError(sessionId);
        throw error;
      }
      await this.#announcer.announce();
    });
    return this.#reread(key, 'forkSession');
  }

  /**
   * Takes a session back (contract K4): the events after a point are deleted, and the state of its own becomes what it was
   * then. State of user and app stays as it is. The next event gets the number after the last one that is kept. `Session`
   * objects that were read before are behind: their next append reads the session anew, or is refused with
   * `onStaleSession: 'reject'`. A watcher of this session's log begins again, as with one that is created again.
   *
   * @param point.at the number of the last event to keep, 0 for none; or
   * @param point.beforeInvocationId keep what comes before this invocation.
   * @returns the session as it is then.
   * @throws InvalidArgumentError also unless one of the two is given, or when the session has no such event.
   * @throws SessionNotFoundError, DamagedSessionError as `forkSession`.
   * @throws LeaseLostError on the service of a lease that is lost.
   * @throws LeaseHeldError with `onUnleasedAppend: 'reject'`, while somebody else holds the session's lease.
   */
  async rewindSession(session: SessionKey, point: HistoryPoint): Promise<Session> {
    const key = checkedSessionKey(session);
    checkRequest.rewindSession(point, 'The point');
    checkPoint(point);
    if (point.at === undefined && point.beforeInvocationId === undefined)
      throw new InvalidArgumentError('rewindSession needs at or beforeInvocationId.');
    const incarnation = randomUUID();
    await this.#write('rewindSession', key, async () => {
      const rewind = async (sql: Sql) => {
        const head = await this.#stores.sessions.lock(sql, key);
        if (!head) throw new SessionNotFoundError(key.sessionId);
        await this.#leases.check(sql, key);
        await rewindSession(sql, this.#stores, key, head, point, incarnation);
      };
      await this.#onlyOnce('rewindSession', rewind, { locksRowsOnly: true });
      await this.#announcer.announce();
    });
    return this.#reread(key, 'rewindSession');
  }

  /** Reads a session that this call has just written. */
  async #reread(key: SessionKey, operation: string): Promise<Session> {
    const session = await this.#getSession({ ...key, config: { numRecentEvents: 0 } }, operation);
    if (!session) throw new SessionNotFoundError(key.sessionId);
    return session;
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
  override async appendEvent(request: AppendEventRequest): Promise<Event> {
    checkRequest.appendEvent(request, 'The request of appendEvent');
    const { session, event } = request;
    await this.#append(session, [event], 'appendEvent');
    return event;
  }

  /**
   * Appends events in one transaction, all or none, with the rules and errors of `appendEvent`.
   *
   * @returns the events that were passed in.
   */
  async appendEvents(request: AppendEventsRequest): Promise<readonly Event[]> {
    checkRequest.appendEvents(request, 'The request of appendEvents');
    const { session, events } = request;
    await this.#append(session, events, 'appendEvents');
    return events;
  }

  async #append(session: Session, events: readonly Event[], operation: string): Promise<void> {
    // The events are copied before the first await: the caller may change the objects after this call has returned its promise.
    const whole = events.filter((event) => !event.partial);
    if (whole.length > 0) refuseUnchangeable(session, whole);
    const pending = whole.map((event) => pendingEvent(session, event, this.#options.maxEventBytes));
    if (!isNonEmpty(pending)) return;
    // This is checked at once: in its turn it might wait for a call that waits for the transaction.
    this.#appender.refuseBesideTransaction(session);
    const key = keyOf(session);
    const append = { handle: session, pending };
    await this.#database.call({ operation, key }, async () => {
      if (!this.#database.isJoined) return this.#turns.append(key, this.#appender, append);
      const [result] = await this.#appender.append([append]);
      return result;
    });
  }

  /**
   * @returns the app's state, keys with `app:`.
   * @throws DamagedSessionError as `getSession`.
   */
  async getAppState(request: { appName: string }): Promise<Record<string, unknown>> {
    checkRequest.getAppState(request, 'The request of getAppState');
    const { appName } = request;
    checkKeys({ appName });
    return this.#readState('getAppState', { appName }, 'app');
  }

  /**
   * @returns the user's state in an app, keys with `user:`.
   * @throws DamagedSessionError as `getSession`.
   */
  async getUserState(request: { appName: string; userId: string }): Promise<Record<string, unknown>> {
    checkRequest.getUserState(request, 'The request of getUserState');
    const { appName, userId } = request;
    checkKeys({ appName, userId });
    return this.#readState('getUserState', { appName, userId }, 'user');
  }

  /**
   * Changes state outside a run, in one transaction. Keys carry the usual prefixes: `app:`, `user:`, or none for the
   * session's own. Handles see it when they are read again, and when they catch up with an event that writes the key.
   *
   * @throws InvalidKeyError for a `temp:` key, for a key whose `userId` or `sessionId` is missing, and for one that is
   *   both set and removed.
   * @throws SessionNotFoundError when a session's key is given and the session is not there.
   * @throws LeaseLostError on the service of a lease that is lost, when a session's key is given.
   * @throws LeaseHeldError with `onUnleasedAppend: 'reject'`, when a session's key is given and somebody else holds its lease.
   * @throws UnserializableValueError when JSON cannot carry a value.
   */
  async updateState(request: UpdateStateRequest): Promise<void> {
    checkRequest.updateState(request, 'The request of updateState');
    const { appName, userId, sessionId, set = {}, remove = [] } = request;
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
    for (const [name, value] of Object.entries(set)) {
      // JSON.stringify drops undefined, so the key would silently keep its old value.
      if (value === undefined) throw new UnserializableValueError(`set.${name}`, 'undefined');
    }
    const entries = byScope(stateEntries(key, set, 'set'));
    const removed = byScope(remove.map((name) => ({ key: name, json: '', eventId: null })));
    const isOfSession = entries.session.length + removed.session.length > 0;
    const isOfUser = isOfSession || entries.user.length + removed.user.length > 0;
    const owner = { appName, userId: isOfUser ? key.userId : '', sessionId: isOfSession ? key.sessionId : '' };
    const change = () =>
      this.#onlyOnce('updateState', async (sql) => {
        let seq = 0;
        if (isOfSession) {
          const head = await this.#stores.sessions.lock(sql, key);
          if (!head) throw new SessionNotFoundError(key.sessionId);
          await this.#leases.check(sql, key);
          seq = head.lastSeq;
        }
        await this.#stores.state.set(sql, key, entries);
        await this.#stores.state.remove(sql, key, removed);
        if (keys.length > 0)
          await this.#stores.changes.recordState(sql, { session: owner, seq, set: entries, removed: remove });
      });
    if (isOfSession) await this.#write('updateState', key, change);
    else await this.#database.call({ operation: 'updateState', key: givenKey(request) }, change);
  }

  #onlyOnce(
    operation: string,
    work: (sql: Sql) => Promise<void>,
    options?: { locksRowsOnly?: boolean },
  ): Promise<void> {
    return once(this.#database, { operation, key: {} }, work, options);
  }

  /** Runs a call that writes to a session, after those of this process that were made before. */
  #write<T>(operation: string, key: SessionKey, work: () => Promise<T>): Promise<T> {
    // In the host's transaction calls do not queue: the call before it may wait for a lock of that transaction.
    const run = this.#database.isJoined ? work : () => this.#turns.run(key, work);
    return this.#database.call({ operation, key }, run);
  }

  async #readState(operation: string, given: Partial<SessionKey>, scope: Scope): Promise<Record<string, unknown>> {
    const key = { appName: '', userId: '', sessionId: '', ...given };
    return this.#database.call({ operation, key: given }, async () => {
      const state = readState(await this.#database.run((sql) => this.#stores.state.read(sql, key, scope)));
      this.#onDamage(key, state.damaged);
      return state.value;
    });
  }
}

/** @throws InvalidArgumentError when both are given. */
function checkPoint({ at, beforeInvocationId }: HistoryPoint): void {
  if (at !== undefined && beforeInvocationId !== undefined)
    throw new InvalidArgumentError('Give either at or beforeInvocationId.');
}

function handleOf(key: SessionKey, head: SessionHead, state: Record<string, unknown>, events: Event[]): Session {
  const { appName, userId, sessionId } = key;
  const { incarnation, lastSeq, lastUpdateTime } = head;
  const session = createSession({ id: sessionId, appName, userId, state, events, lastUpdateTime });
  setRevision(session, incarnation, lastSeq);
  return session;
}

/** @param path what the values are called in an error. */
function stateEntries(session: SessionKey, state: Record<string, unknown>, path: string): StateEntry[] {
  return Object.entries(state)
    .filter(([name, value]) => !isTemporary(name) && value !== undefined)
    .map(([name, value]) => {
      checkStateKey(session, name);
      return { key: name, json: encode(value, `${path}.${name}`).json, eventId: null };
    });
}
