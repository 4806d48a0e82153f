import type { GetSessionRequest, Session } from '@google/adk';
import { stateOfScope } from '../database/statements/state.js';
import { readSession, readSince, readTurns } from '../database/statements/session-reader.js';
import { SessionNotFoundError } from '../model/errors.js';
import { checkKeys, isIncomplete, type SessionKey } from '../model/keys.js';
import { readEvents, readState } from './damage.js';
import { handleOf } from './handle.js';
import type { SessionCalls } from './session-calls.js';

/** @param operation the name of the call in errors. @throws DamagedSessionError with `onDamagedEvent: 'throw'`. */
export async function getSession(
  calls: SessionCalls,
  { appName, userId, sessionId, config }: GetSessionRequest,
  operation: string,
): Promise<Session | undefined> {
  const key = { appName, userId, sessionId };
  // Not an error: the Runner itself reports the missing name if it gets no session.
  if (isIncomplete(key)) return undefined;
  checkKeys(key);
  const given = config?.numRecentEvents ?? undefined;
  const newest = (given ?? calls.options.defaultNumRecentEvents) || undefined;
  const afterTimestamp = config?.afterTimestamp || undefined;
  const found = await calls.readTexts(operation, key, (sql) => {
    if (afterTimestamp !== undefined) return readSince(sql, key, afterTimestamp, newest);
    const isExact = given !== undefined || newest === undefined;
    return isExact ? readSession(sql, key, newest) : readTurns(sql, key, newest);
  });
  if (!found) return undefined;
  const [state, events] = [readState(found.state), readEvents(found)];
  calls.refuseDamage(key, events.damaged, state.damaged);
  return handleOf(key, found, state.value, events.value);
}

/** Reads a session that this call has just written. */
export async function reread(calls: SessionCalls, key: SessionKey, operation: string): Promise<Session> {
  const session = await getSession(calls, { ...key, config: { numRecentEvents: 0 } }, operation);
  if (!session) throw new SessionNotFoundError(key.sessionId);
  return session;
}

/** @param owner an app or a user. */
export async function getState(
  calls: SessionCalls,
  owner: { appName: string; userId?: string },
  scope: 'user' | 'app',
  operation: string,
): Promise<Record<string, unknown>> {
  checkKeys(owner);
  const key = { userId: '', sessionId: '', ...owner };
  const state = readState(await calls.readTexts(operation, owner, (sql) => stateOfScope(sql, key, scope)));
  calls.refuseDamage(key, state.damaged);
  return state.value;
}
