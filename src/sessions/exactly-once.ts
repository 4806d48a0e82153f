import type { Context, Event } from '@google/adk';
import type { EntityManager } from '@mikro-orm/core';
import { isShared, ownCall } from '../conversation/own-call.js';
import { resultId, toolResultEvent, toolResultOf } from '../conversation/tool-results.js';
import { confirm } from '../database/calls/confirm.js';
import { asThrown } from '../database/calls/public-error.js';
import type { Outcome } from '../database/calls/retry.js';
import type { Sql } from '../database/dialects/dialect.js';
import { isOpen } from '../database/orm/host-transaction.js';
import { findEvent, seqOfEvent } from '../database/statements/events.js';
import { lockSession } from '../database/statements/sessions.js';
import {
  DamagedEventError,
  InsideTransactionError,
  InvalidArgumentError,
  SessionNotFoundError,
  StaleSessionError,
} from '../model/errors.js';
import { decodeEvent, encode } from '../model/json.js';
import type { SessionKey } from '../model/keys.js';
import { Appender, type AppendedEvent } from './append.js';
import { handleOf, keyOf, revisions, tentatives, type Revision } from './handle.js';
import { pendingEvent } from './pending-event.js';
import { ServiceContext } from './service-context.js';

/**
 * Runs the host's work for the call of a tool, and stores its result in the same transaction (contract H6).
 *
 * The session is locked before the work runs. So a lost lease is found before the work, a second process waits and then finds the
 * result, and nobody can take over the lease while it is open whether there will be a result.
 */
export async function exactlyOnce<Em extends EntityManager, T>(
  service: ServiceContext,
  em: Em,
  toolContext: Context,
  work: (tx: Em) => Promise<T>,
): Promise<T> {
  const { database, leases, options } = service;
  const handle = toolContext.invocationContext.session;
  // That transaction has the session's lock, and may end only after this call.
  const around = tentatives.get(handle);
  if (database.isJoined || (around && isOpen(around.transaction))) throw new InsideTransactionError();
  const key = keyOf(handle);
  const callEvent = await ownCall(toolContext, database.connections.timeoutMs || Infinity);
  if (!callEvent) throw noCall();
  if (isShared(callEvent, toolContext.functionCallId ?? '')) throw sharedId();
  const place = { key, callEvent, id: resultId(callEvent, toolContext) };
  const inTurn = async () => {
    const outcome: Outcome = {};
    const attempt = async (tx: Em): Promise<AppendedEvent> => {
      const joined = new ServiceContext(tx, options, { database: database.join(tx), fence: leases.fence });
      const { head, found } = await joined.database.run((sql) => lock(sql, joined, place, revisions.get(handle)));
      const by = handleOf(key, head, {}, []);
      if (found) return { ...found, by };
      const result = await joined.database.runHostWork(tx, () => work(tx));
      const stored = result === undefined ? result : encode(result, 'result').value;
      const event = toolResultEvent(toolContext, stored, place.id);
      const pending = [pendingEvent(by, event)];
      await new Appender(joined).append([{ handle: by, key, pending, concernsCalls: false, ...UNOBSERVED }]);
      return { event, seq: head.lastSeq + 1, by };
    };
    const done = await database.transactional(em, attempt, { outcome });
    // An earlier attempt may have been committed without an answer.
    await confirm(database, outcome);
    for (const wake of service.announcer.wakers) wake();
    await new Appender(service).follow(handle, done);
    return toolResultOf(done.event)?.result as T;
  };
  return service.write('exactlyOnce', key, inTurn).catch(asThrown);
}

const UNOBSERVED = { observed: undefined, waited: undefined };

interface CallPlace {
  key: SessionKey;
  /** The event of the call. */
  callEvent: Event;
  /** The id of the event of its result. */
  id: string;
}

/**
 * Locks the session, and finds the result.
 *
 * @throws StaleSessionError if the session no longer has the call, or, with `onStaleSession: 'reject'`, the handle is behind.
 */
async function lock(
  sql: Sql,
  { leases, options }: ServiceContext,
  { key, callEvent, id }: CallPlace,
  revision?: Revision,
) {
  const { sessionId } = key;
  await leases.checkCaller(sql, key);
  const head = await lockSession(sql, key);
  if (!head) throw new SessionNotFoundError(sessionId);
  const stored = await findEvent(sql, key, id, { isLocked: true });
  if (stored) {
    const event = decodeEvent(stored.json);
    if (!event) throw new DamagedEventError(sessionId, stored.seq);
    return { head, found: { event, seq: stored.seq } };
  }
  await leases.check(sql, key);
  const isBehind = options.onStaleSession === 'reject' && revision && revision.seq !== head.lastSeq;
  // Without its call, the result would be lost after a crash.
  if (isBehind || (await seqOfEvent(sql, key, callEvent.id)) === undefined) throw new StaleSessionError(sessionId);
  return { head };
}

const sharedId = () =>
  new InvalidArgumentError(
    'The model has given one id to several calls of an event, so exactlyOnce cannot tell their results apart. Nothing was written.',
  );

const noCall = () =>
  new InvalidArgumentError(
    'The toolContext of exactlyOnce has a call that is not in its session, or that has a response already. Nothing was written. ' +
      'Call exactlyOnce inside a tool that a Runner runs.',
  );
