import {
  BaseSessionService,
  type AppendEventRequest,
  type CreateSessionRequest,
  type DeleteSessionRequest,
  type Event,
  type GetSessionRequest,
  type ListSessionsRequest,
  type ListSessionsResponse,
  type Session,
} from '@google/adk';
import type { EntityManager } from '@mikro-orm/core';
import type { EventPage } from '../conversation/messages.js';
import type { SessionKey } from '../model/keys.js';
import { checkServiceOptions, type MikroOrmSessionServiceOptions } from '../model/options.js';
import { Appender } from './append.js';
import { createSession, getOrCreateSession, newSession } from './create.js';
import { deleteSession, restoreSession } from './delete.js';
import { forkSession, rewindSession, type HistoryPoint } from './history.js';
import { listSessions } from './list.js';
import { readEvents, type ReadEventsRequest } from './pages.js';
import { findOpenCalls, type FindOpenCallsRequest, type FindOpenCallsResponse } from './open-calls.js';
import { getSession, getState } from './read.js';
import { checkRequest, type AppendEventsRequest, type ForkPoint, type UpdateStateRequest } from './requests.js';
import { SessionCalls, type Within } from './session-calls.js';
import { updateState } from './state.js';
import {
  describeSession,
  findSessions,
  type FindSessionsRequest,
  type FindSessionsResponse,
  type SessionDescription,
} from './summaries.js';

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
 * `InsideTransactionError` inside a transaction of the same ORM, which `withEntityManager` joins. No error holds SQL, contents
 * or credentials; `onError` gets the driver's own error.
 */
export class MikroOrmSessionService extends BaseSessionService {
  readonly #calls: SessionCalls;
  readonly #appender: Appender;

  /**
   * @param em the host's `EntityManager`, whose schema the tables are in, also inside of a `RequestContext` of another. Its ORM is
   *   never closed.
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
  constructor(em: EntityManager, options: MikroOrmSessionServiceOptions = {}, within: Within = {}) {
    super();
    const checked = checkServiceOptions(options, 'The options of MikroOrmSessionService');
    this.#calls = new SessionCalls(em, checked, within);
    this.#appender = new Appender(this.#calls);
  }

  /**
   * The same service inside the caller's transaction, so that what it writes and the caller's own rows commit or roll
   * back together (contract E5). Calls that join one transaction run one after the other, in the order they were started. What
   * fails inside is undone to a savepoint and not retried: the transaction is the caller's. After a rollback a `Session` object
   * that was appended to in it is behind, as if somebody else had written: see `onStaleSession`. One that was only read or created in it must be read again.
   *
   * @param tx the `EntityManager` that `em.transactional` hands out. Calls after the transaction has ended throw
   *   `InvalidArgumentError`.
   * @throws InvalidArgumentError when `tx` has other tables than this service: of another schema or another ORM.
   */
  withEntityManager(tx: EntityManager): MikroOrmSessionService {
    const { database, leases, options } = this.#calls;
    return new MikroOrmSessionService(tx, options, { database: database.join(tx), fence: leases.fence });
  }

  /**
   * Creates a session. `app:` and `user:` keys of `state` go to app and user, `temp:` keys nowhere.
   *
   * @throws SessionExistsError when the id is taken, also by a racing call (contract D1).
   * @throws UnserializableValueError when JSON cannot carry a value of `state`.
   */
  override async createSession(request: CreateSessionRequest): Promise<Session> {
    const session = newSession(checkRequest.createSession(request, 'The request of createSession'));
    return createSession(this.#calls, session, 'createSession');
  }

  /**
   * Reads a session with its merged state and its events in append order.
   *
   * @param request `config.numRecentEvents`: only the newest n; 0 for all. Absent means `defaultNumRecentEvents`, or
   *   all. `config.afterTimestamp`: only events later than this, in ms. Both together: the newest of those.
   * @returns an object private to the caller; undefined when there is no such session.
   * @throws DamagedSessionError when rows of what is asked for are missing or cannot be read, unless `onDamagedEvent` is
   *   `skip`. A missing event has no time: for `afterTimestamp` it counts as one of the time of the event after it.
   */
  override async getSession(request: GetSessionRequest): Promise<Session | undefined> {
    return getSession(this.#calls, checkRequest.getSession(request, 'The request of getSession'), 'getSession');
  }

  /**
   * Reads a page of a session's events by their numbers, without its state: what a chat page needs that scrolls up
   * (contract C6).
   *
   * ```ts
   * const newest = await service.readEvents(key);
   * const older = await service.readEvents(key, { before: newest.events[0]?.seq ?? 1 });
   * ```
   *
   * @param request without `before` and `after` the newest events are read.
   * @returns the events that there are, at most `limit`, and the numbers of the session's oldest and newest event.
   * @throws SessionNotFoundError when there is no such session.
   * @throws DamagedSessionError when an event of the page is missing or cannot be read, unless `onDamagedEvent` is `skip`.
   * @throws InvalidArgumentError when a number is not whole, or `limit` is 0.
   */
  async readEvents(session: SessionKey, request: ReadEventsRequest = {}): Promise<EventPage> {
    return readEvents(this.#calls, session, checkRequest.readEvents(request, 'The request of readEvents'));
  }

  /**
   * Reads a session, or creates it; racing callers all get the one session (contract D2).
   *
   * @throws DamagedSessionError as `getSession`; a damaged session is never created anew.
   */
  override async getOrCreateSession(request: CreateSessionRequest): Promise<Session> {
    const session = newSession(checkRequest.createSession(request, 'The request of getOrCreateSession'));
    return getOrCreateSession(this.#calls, session);
  }

  /**
   * Lists sessions with their merged state and without events; oldest update first, then by id, unless `order` is `desc`.
   * State values that cannot be read are left out, and reported to `onDamage`: once for each session, user and app.
   *
   * @throws InvalidArgumentError when `limit`, `offset` or `page` is not a whole number, or `page` is 0.
   */
  override async listSessions(request: ListSessionsRequest): Promise<ListSessionsResponse> {
    return listSessions(this.#calls, checkRequest.listSessions(request, 'The request of listSessions'));
  }

  /**
   * Finds sessions by what people call them and by their last update, without events and state. The pages stay right while
   * sessions change: no session comes twice or is left out, but one that is updated meanwhile may move past the reader.
   *
   * @returns a page, and the cursor for the next one.
   * @throws InvalidArgumentError also when `after` is not the `next` of a response.
   */
  async findSessions(request: FindSessionsRequest): Promise<FindSessionsResponse> {
    return findSessions(this.#calls, checkRequest.findSessions(request, 'The request of findSessions'));
  }

  /**
   * Finds the calls that wait for a person (contract H5): of long-running tools, and ADK's questions for a confirmation, a
   * credential or an input. The oldest come first, in pages by a cursor that stays right while calls are opened and answered.
   *
   * @throws InvalidArgumentError for a request that is not understood.
   */
  async findOpenCalls(request: FindOpenCallsRequest): Promise<FindOpenCallsResponse> {
    return findOpenCalls(this.#calls, checkRequest.findOpenCalls(request, 'The request of findOpenCalls'));
  }

  /**
   * Sets what people call a session. That is not an event: `lastUpdateTime` stays, and `Session` objects don't show it.
   *
   * @throws InvalidArgumentError for a title or labels that cannot be stored.
   * @throws SessionNotFoundError when there is no such session.
   */
  async describeSession(session: SessionKey, description: SessionDescription): Promise<void> {
    await describeSession(this.#calls, session, checkRequest.describeSession(description, 'The description'));
  }

  /**
   * Deletes a session with its events, state and lease, at once (contract D4); one that is not there is no error. With
   * `deletion: 'soft'` the session is soft-deleted, and `restoreSession` brings it back, without its lease.
   *
   * @throws CallAnsweredError with `onAnsweredCall: 'reject'`, for an answer of the user to a call that has one.
   * @throws LeaseLostError on the service of a lease that is lost.
   * @throws LeaseHeldError with `onUnleasedAppend: 'reject'`, while somebody else holds the session's lease.
   */
  override async deleteSession(request: DeleteSessionRequest): Promise<void> {
    await deleteSession(this.#calls, checkRequest.deleteSession(request, 'The request of deleteSession'));
  }

  /**
   * Brings a session back that was deleted with `deletion: 'soft'`: events, state, numbers and title are as they were
   * (contract K3). `Session` objects from before it can be appended to again. A session that is not deleted stays as it is.
   *
   * @throws SessionNotFoundError when there is none, or `prune` or `eraseUser` has begun to delete it for good.
   */
  async restoreSession(request: SessionKey): Promise<void> {
    await restoreSession(this.#calls, checkRequest.restoreSession(request, 'The request of restoreSession'));
  }

  /**
   * Makes a session of another one's past (contract K4): the events up to a point, with their ids and numbers, the
   * versions of artifacts that they name, and the state of its own that the session had then. State of user and app is shared and stays as it is; so does the session itself.
   *
   * @param point.at the number of the last event to copy, 0 for none; or
   * @param point.beforeInvocationId copy what comes before this invocation. Without both everything is copied.
   * @param point.as the id of the new session; one is made where it is left out.
   * @returns the new session. It was created and updated now, so that `prune` does not take it for an old one.
   * @throws SessionNotFoundError when there is no such session.
   * @throws SessionExistsError when `as` is taken.
   * @throws InvalidArgumentError also when the session has no such event, or does not have it any more.
   * @throws StaleSessionError in a transaction of the host's that does not see the newest change of the session.
   * @throws DamagedSessionError when one of its events up to the point cannot be read.
   */
  async forkSession(session: SessionKey, point: ForkPoint = {}): Promise<Session> {
    return forkSession(this.#calls, session, checkRequest.forkSession(point, 'The point'));
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
   * @throws SessionNotFoundError, DamagedSessionError, StaleSessionError as `forkSession`.
   * @throws LeaseLostError on the service of a lease that is lost.
   * @throws LeaseHeldError with `onUnleasedAppend: 'reject'`, while somebody else holds the session's lease.
   */
  async rewindSession(session: SessionKey, point: HistoryPoint): Promise<Session> {
    return rewindSession(this.#calls, session, checkRequest.rewindSession(point, 'The point'));
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
    const { session, event } = checkRequest.appendEvent(request, 'The request of appendEvent');
    await this.#appender.appendEvents(session, [event], 'appendEvent');
    return event;
  }

  /**
   * Appends events in one transaction, all or none, with the rules and errors of `appendEvent`.
   *
   * @returns the events that were passed in.
   */
  async appendEvents(request: AppendEventsRequest): Promise<readonly Event[]> {
    const { session, events } = checkRequest.appendEvents(request, 'The request of appendEvents');
    await this.#appender.appendEvents(session, events, 'appendEvents');
    return events;
  }

  /**
   * @returns the app's state, keys with `app:`.
   * @throws DamagedSessionError as `getSession`.
   */
  async getAppState(request: { appName: string }): Promise<Record<string, unknown>> {
    const { appName } = checkRequest.getAppState(request, 'The request of getAppState');
    return getState(this.#calls, { appName }, 'app', 'getAppState');
  }

  /**
   * @returns the user's state in an app, keys with `user:`.
   * @throws DamagedSessionError as `getSession`.
   */
  async getUserState(request: { appName: string; userId: string }): Promise<Record<string, unknown>> {
    const { appName, userId } = checkRequest.getUserState(request, 'The request of getUserState');
    return getState(this.#calls, { appName, userId }, 'user', 'getUserState');
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
    await updateState(this.#calls, checkRequest.updateState(request, 'The request of updateState'));
  }
}
