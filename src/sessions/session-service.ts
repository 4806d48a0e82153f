import {
  BaseSessionService,
  type AppendEventRequest,
  type Context,
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
import { exactlyOnce } from './exactly-once.js';
import { forkSession, rewindSession } from './history.js';
import { listSessions } from './list.js';
import { readEvents, type ReadEventsRequest } from './pages.js';
import { findOpenCalls, type FindOpenCallsRequest, type OpenCall } from './open-calls.js';
import { getSession, getState } from './read.js';
import { resumedBy } from './resumed.js';
import { checkRequest, type HistoryPoint, type UpdateStateRequest } from './requests.js';
import { ServiceContext, type ServiceScope } from './service-context.js';
import { updateState } from './state.js';
import type { FindSessionsRequest, SessionSummary } from './stored-summaries.js';
import { describeSession, findSessions } from './summaries.js';

/**
 * ADK sessions in the host's own database, through its own MikroORM.
 *
 * ```ts
 * const orm = await MikroORM.init({ driver: SqliteDriver, dbName: 'agent.db', entities: adkEntities() });
 * const runner = new Runner({ agent, appName: 'support', sessionService: new MikroOrmSessionService(orm.em) });
 * ```
 *
 * Every method may throw, before anything is written, `InvalidArgumentError` for a request with an unknown property or an invalid
 * value, and `InvalidKeyError` for a name or an id that cannot be a key on every database; `SchemaError` if tables are missing,
 * or the config has `disableTransactions`; `DatabaseError` if the database fails and retries do not help; `CodecError` if the `codec`
 * fails; and `InsideTransactionError` inside a transaction of the same ORM (join it with `withEntityManager`). No error contains SQL,
 * stored contents or credentials; `onError` gets the driver's own error.
 */
export class MikroOrmSessionService extends BaseSessionService {
  readonly #em: EntityManager;
  readonly #context: ServiceContext;
  readonly #appender: Appender;
  #resumed: readonly Event[];

  /**
   * @param em the host's `EntityManager`. The tables are in its schema, even inside a `RequestContext` with another one. The
   *   service never closes its ORM.
   * @throws InvalidArgumentError if an option is unknown or its value is invalid.
   * @throws SchemaError if the ORM has no supported driver, or does not list `adkEntities()`.
   */
  constructor(em: EntityManager, options?: MikroOrmSessionServiceOptions);
  /**
   * @internal
   * @param scope the transaction to join, and the lease that writes need.
   */
  // eslint-disable-next-line @typescript-eslint/unified-signatures -- left out of the package's declarations
  constructor(em: EntityManager, options: MikroOrmSessionServiceOptions, scope: ServiceScope);
  constructor(em: EntityManager, options: MikroOrmSessionServiceOptions = {}, scope: ServiceScope = {}) {
    super();
    const checked = checkServiceOptions(options, 'The options of MikroOrmSessionService');
    this.#em = em;
    this.#context = new ServiceContext(em, checked, scope);
    this.#resumed = scope.resumed ?? [];
    this.#appender = new Appender(this.#context);
  }

  /**
   * This service inside the caller's transaction, so that its writes and the caller's own rows commit or roll back together
   * (contract E5). Calls that join one transaction run one after the other, in the order they were started. A call that fails is
   * rolled back to a savepoint and not retried, since the transaction is the caller's. After a rollback, a `Session` object that
   * got events in the transaction is behind, as if somebody else had appended: see `onStaleSession`. Read sessions again that were
   * read or created in the transaction.
   *
   * @param tx the `EntityManager` from `em.transactional`. After the transaction has ended, calls throw `InvalidArgumentError`.
   * @throws InvalidArgumentError if `tx` has other tables than this service: those of another schema or another ORM.
   */
  withEntityManager(tx: EntityManager): MikroOrmSessionService {
    const { database, leases, options } = this.#context;
    return new MikroOrmSessionService(tx, options, { database: database.join(tx), fence: leases.fence });
  }

  /**
   * Creates a session. `app:` and `user:` keys of `state` go to the app and the user; `temp:` keys are not stored.
   *
   * @throws AlreadyExistsError if the id is taken, also by a concurrent call (contract D1).
   * @throws UnserializableValueError if JSON cannot represent a value of `state`.
   */
  override async createSession(request: CreateSessionRequest): Promise<Session> {
    const session = newSession(checkRequest.createSession(request, 'The request of createSession'));
    return createSession(this.#context, session, 'createSession');
  }

  /**
   * Reads a session with its merged state and its events in append order.
   *
   * @param request `config.numRecentEvents`: only the newest n events, 0 for all; if absent, `defaultNumRecentEvents`, or all.
   *   `config.afterTimestamp`: only events later than this, in ms. With both: the newest n of those.
   * @returns an object private to the caller; undefined if there is no such session.
   * @throws DamagedSessionError if a requested row is missing or cannot be read, unless `onDamagedEvent` is `skip`. With
   *   `afterTimestamp`, a missing event counts as having the time of the next one.
   */
  override async getSession(request: GetSessionRequest): Promise<Session | undefined> {
    return getSession(this.#context, checkRequest.getSession(request, 'The request of getSession'), 'getSession');
  }

  /**
   * Reads a page of a session's events by their numbers, without its state, for example for a chat that scrolls up (contract C6).
   *
   * ```ts
   * const newest = await service.readEvents(key);
   * const older = await service.readEvents(key, { before: newest.events[0]?.seq ?? 1 });
   * ```
   *
   * @param request without `before` and `after`, the page has the newest events.
   * @returns at most `limit` events, and the numbers of the session's oldest and newest event.
   * @throws SessionNotFoundError if there is no such session.
   * @throws DamagedSessionError if an event of the page is missing or cannot be read, unless `onDamagedEvent` is `skip`.
   * @throws InvalidArgumentError if a number is not whole, or `limit` is 0.
   */
  async readEvents(session: SessionKey, request: ReadEventsRequest = {}): Promise<EventPage> {
    return readEvents(this.#context, session, checkRequest.readEvents(request, 'The request of readEvents'));
  }

  /**
   * Reads a session, or creates it; concurrent callers all get the same session (contract D2).
   *
   * @throws DamagedSessionError as `getSession`; a damaged session is never replaced by a new one.
   */
  override async getOrCreateSession(request: CreateSessionRequest): Promise<Session> {
    const session = newSession(checkRequest.createSession(request, 'The request of getOrCreateSession'));
    return getOrCreateSession(this.#context, session);
  }

  /**
   * Lists sessions with their merged state and without events, by last update (oldest first, unless `order` is `desc`) and id.
   * State values that cannot be read are left out, and reported to `onDamage`: once for each session, user and app.
   *
   * @throws InvalidArgumentError if `limit`, `offset` or `page` is not a whole number, or `page` is 0.
   */
  override async listSessions(request: ListSessionsRequest): Promise<ListSessionsResponse> {
    return listSessions(this.#context, checkRequest.listSessions(request, 'The request of listSessions'));
  }

  /**
   * Finds sessions by title, labels and last update, without events and state. Pages stay correct while sessions change: none
   * comes twice or is left out, unless it is updated between two pages.
   *
   * @returns a page, and the cursor for the next one.
   * @throws InvalidArgumentError also if `after` is not the `next` of a response.
   */
  async findSessions(request: FindSessionsRequest): Promise<{ sessions: SessionSummary[]; next?: string }> {
    return findSessions(this.#context, checkRequest.findSessions(request, 'The request of findSessions'));
  }

  /**
   * Finds the calls that wait for a person (contract H5): those of long-running tools, and ADK's requests for a confirmation, a
   * credential or an input. The oldest come first. A cursor stays valid while calls are opened and answered.
   *
   * @throws InvalidArgumentError also if `after` is not the `next` of a response.
   */
  async findOpenCalls(request: FindOpenCallsRequest): Promise<{ calls: OpenCall[]; next?: string }> {
    return findOpenCalls(this.#context, 'person', checkRequest.findOpenCalls(request, 'The request of findOpenCalls'));
  }

  /**
   * Finds the calls whose answer somebody has stored, for example in the studio, and with which the agent has not continued since:
   * it has said nothing, and called nothing. The oldest come first. Those that a Runner is answering now are among them.
   * `runTurn` without a message continues with them, in one process only.
   *
   * @param request as for `findOpenCalls`; `openFor` counts from the call, not from its answer.
   * @throws InvalidArgumentError also if `after` is not the `next` of a response.
   */
  async findAnsweredCalls(request: FindOpenCallsRequest): Promise<{ calls: OpenCall[]; next?: string }> {
    return findOpenCalls(
      this.#context,
      'agent',
      checkRequest.findOpenCalls(request, 'The request of findAnsweredCalls'),
    );
  }

  /**
   * Sets a session's title and labels. This adds no event: `lastUpdateTime` does not change, and `Session` objects do not show it.
   *
   * @throws InvalidArgumentError for a title or labels that cannot be stored.
   * @throws SessionNotFoundError if there is no such session.
   */
  async describeSession(
    session: SessionKey,
    description: { title?: string | null; labels?: Readonly<Record<string, string>> | null },
  ): Promise<void> {
    await describeSession(this.#context, session, checkRequest.describeSession(description, 'The description'));
  }

  /**
   * Deletes a session with its events, state and lease in one transaction (contract D4). Does nothing if there is no such
   * session. With `deletion: 'soft'` the session is soft-deleted, and `restoreSession` brings it back, without its lease.
   *
   * @throws LeaseLostError on the service of a lost lease.
   * @throws LeaseHeldError with `onUnleasedAppend: 'reject'`, while somebody else holds the session's lease.
   */
  override async deleteSession(request: DeleteSessionRequest): Promise<void> {
    await deleteSession(this.#context, checkRequest.deleteSession(request, 'The request of deleteSession'));
  }

  /**
   * Brings back a session that was deleted with `deletion: 'soft'`: events, state, numbers and title are as they were
   * (contract K3). Earlier `Session` objects can be appended to again. Does nothing to a session that is not deleted.
   *
   * @throws SessionNotFoundError if there is no such session, or `prune` or `eraseUser` has begun to delete it for good.
   */
  async restoreSession(request: SessionKey): Promise<void> {
    await restoreSession(this.#context, checkRequest.restoreSession(request, 'The request of restoreSession'));
  }

  /**
   * Creates a session from another one's past (contract K4): the events up to a point, with their ids and numbers, the versions
   * of artifacts that they name or that the Runner has saved from what the user sent, and the session's own state at that point. What
   * is copied counts once, for usage (adk-mikro-orm-studio) as for memory. With `toolApps` the fork has what its tools were asked
   * until then. The other session does not change, and neither does the state of user and app, which both sessions share.
   *
   * @param point.at the number of the last event to copy, 0 for none; or
   * @param point.beforeInvocationId copy the events before this invocation. Without either, everything is copied.
   * @param point.as the id of the new session; by default a new id.
   * @returns the new session. Its creation and update times are now, so `prune` treats it as new.
   * @throws SessionNotFoundError if there is no such session.
   * @throws AlreadyExistsError if `as` is taken, also by a session of a tool.
   * @throws InvalidArgumentError also if the session has no such event, or no longer has it.
   * @throws StaleSessionError inside a host's transaction that does not see the newest change of the session.
   * @throws DamagedSessionError if an event up to the point cannot be read.
   */
  async forkSession(session: SessionKey, point: HistoryPoint & { as?: string } = {}): Promise<Session> {
    return forkSession(this.#context, session, checkRequest.forkSession(point, 'The point'));
  }

  /**
   * Takes a session back to a point (contract K4): deletes the events after it, and restores the session's own state at that
   * point. State of user and app does not change. The next event gets the number after the last one that is kept. Earlier
   * `Session` objects are behind: their next append reads the session again, or is refused with `onStaleSession: 'reject'`. A
   * watcher of this session's log gets a `reset`. With `toolApps` the sessions of its tools lose their events that are later than all
   * that are kept.
   *
   * @param point.at the number of the last event to keep, 0 for none; or
   * @param point.beforeInvocationId keep the events before this invocation.
   * @param point.includeLeased also rewind a session whose lease somebody else holds; false by default.
   * @returns the rewound session.
   * @throws InvalidArgumentError also unless exactly one of the two is given, or if the session has no such event.
   * @throws SessionNotFoundError, DamagedSessionError, StaleSessionError as `forkSession`.
   * @throws LeaseLostError on the service of a lost lease.
   * @throws LeaseHeldError while somebody else holds the session's lease, unless `point.includeLeased` is true: the holder would
   *   go on with a history that is gone.
   */
  async rewindSession(session: SessionKey, point: HistoryPoint & { includeLeased?: boolean }): Promise<Session> {
    return rewindSession(this.#context, session, checkRequest.rewindSession(point, 'The point'));
  }

  /**
   * Appends an event and updates the handle to match. Calls on one handle take effect in the order they were made. A stored
   * event with the same id is replaced, so it is safe to repeat a call (contract A5).
   *
   * @returns the event that was passed in, now in `session.events`; an event with `partial: true` is only returned.
   * @throws SessionNotFoundError if the session is missing or deleted.
   * @throws StaleSessionError with `onStaleSession: 'reject'`, if the handle is behind.
   * @throws EventConflictError with `onRewrittenEvent: 'reject'`, if the id is stored with other content.
   * @throws CallAnsweredError with `onAnsweredCall: 'reject'`, if the event is the user's answer to a call that does not wait for one.
   * @throws LeaseLostError on the service of a lost lease.
   * @throws LeaseHeldError with `onUnleasedAppend: 'reject'`, while somebody else holds the session's lease.
   * @throws UnserializableValueError if JSON cannot represent a value of the event.
   * @throws ValueTooLargeError if a value of its delta is larger than the largest packet that the server accepts.
   */
  override async appendEvent(request: AppendEventRequest): Promise<Event> {
    const { session, event } = checkRequest.appendEvent(request, 'The request of appendEvent');
    const resumed = event.author === 'user' ? this.#resumed : [];
    if (resumed.length > 0) this.#resumed = [];
    const events = resumed.length > 0 ? resumedBy(event, resumed) : [event];
    await this.#appender.appendEvents(session, events, 'appendEvent');
    return event;
  }

  /**
   * Appends events in one transaction, all or none, with the rules and errors of `appendEvent`.
   *
   * @returns the events that were passed in.
   */
  async appendEvents(request: { session: Session; events: readonly Event[] }): Promise<readonly Event[]> {
    const { session, events } = checkRequest.appendEvents(request, 'The request of appendEvents');
    await this.#appender.appendEvents(session, events, 'appendEvents');
    return events;
  }

  /**
   * @internal This service for one run that continues with stored events of the user (see `runTurn`): the message that its Runner
   * appends becomes the last of them.
   */
  resuming(resumed: readonly Event[]): MikroOrmSessionService {
    const { database, leases, options } = this.#context;
    return new MikroOrmSessionService(this.#em, options, { database, fence: leases.fence, resumed });
  }

  /** @internal See `adkServices`. */
  async exactlyOnce<Em extends EntityManager, T>(
    em: Em,
    toolContext: Context,
    work: (tx: Em) => Promise<T>,
  ): Promise<T> {
    return exactlyOnce(this.#context, em, toolContext, work);
  }

  /**
   * @returns the app's state; keys have the prefix `app:`.
   * @throws DamagedSessionError as `getSession`.
   */
  async getAppState(request: { appName: string }): Promise<Record<string, unknown>> {
    const { appName } = checkRequest.getAppState(request, 'The request of getAppState');
    return getState(this.#context, { appName }, 'app', 'getAppState');
  }

  /**
   * @returns the user's state in an app; keys have the prefix `user:`.
   * @throws DamagedSessionError as `getSession`.
   */
  async getUserState(request: { appName: string; userId: string }): Promise<Record<string, unknown>> {
    const { appName, userId } = checkRequest.getUserState(request, 'The request of getUserState');
    return getState(this.#context, { appName, userId }, 'user', 'getUserState');
  }

  /**
   * Changes state outside a run, in one transaction. Keys have the usual prefixes: `app:`, `user:`, or none for the session's
   * own. A handle shows the change when it is read again, or when it catches up with an event that writes the key.
   *
   * @throws InvalidKeyError for a `temp:` key, for a key whose `userId` or `sessionId` is missing, and for one that is
   *   both set and removed.
   * @throws SessionNotFoundError if a session's key is given and there is no such session.
   * @throws LeaseLostError on the service of a lost lease, if a session's key is given.
   * @throws LeaseHeldError with `onUnleasedAppend: 'reject'`, if a session's key is given and somebody else holds its lease.
   * @throws UnserializableValueError if JSON cannot represent a value.
   */
  async updateState(request: UpdateStateRequest): Promise<void> {
    await updateState(this.#context, checkRequest.updateState(request, 'The request of updateState'));
  }
}
