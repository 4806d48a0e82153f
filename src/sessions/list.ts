import type { ListSessionsRequest, ListSessionsResponse } from '@google/adk';
import type { Sql } from '../database/dialects/dialect.js';
import { countSessions, listedSessions, type ListedSession } from '../database/statements/sessions.js';
import { ownerKey, stateOfSessions } from '../database/statements/state.js';
import type { StateValue } from '../database/statements/session-reader.js';
import { aWholeNumber } from '../model/arguments.js';
import { InvalidArgumentError } from '../model/errors.js';
import { checkKeys } from '../model/keys.js';
import { handleOf } from './handle.js';
import { readState } from './read.js';
import type { SessionCalls } from './session-calls.js';

export async function listSessions(calls: SessionCalls, request: ListSessionsRequest): Promise<ListSessionsResponse> {
  const { appName, userId, limit, offset, page, order } = request;
  const key = userId === undefined ? { appName } : { appName, userId };
  checkKeys(key);
  // With a userId, the caller may have passed a whole key: the list is the user's.
  if (userId === undefined && 'sessionId' in request)
    throw new InvalidArgumentError('A sessionId does not limit a list. Nothing was read. Name the userId as well.');
  const skipped = (limit !== undefined && page !== undefined ? (page - 1) * limit : offset) ?? 0;
  aWholeNumber(skipped, 'page times limit');
  const range = { appName, userId, descending: order === 'desc', limit, offset: skipped };
  const isWhole = limit === undefined && skipped === 0;

  const { listed, states, totalItems } = await calls.read('listSessions', key, async (sql: Sql) => {
    const listed = limit === 0 ? [] : await listedSessions(sql, range);
    // A page that is not full is the last one: the total is known without counting.
    const isLast = limit !== undefined && listed.length < limit && (listed.length > 0 || skipped === 0);
    const [states, totalItems] = await Promise.all([
      stateOfSessions(sql, range, listed, isWhole),
      isWhole || isLast ? skipped + listed.length : countSessions(sql, range),
    ]);
    return { listed, states, totalItems };
  });

  const sessions = handlesOf(calls, appName, listed, states);
  if (limit === undefined)
    return { sessions, page: 1, limit: totalItems, totalItems, totalPages: totalItems === 0 ? 0 : 1 };
  return {
    sessions,
    page: page ?? (limit === 0 ? 1 : Math.floor(skipped / limit) + 1),
    limit,
    totalItems,
    totalPages: limit === 0 ? 0 : Math.ceil(totalItems / limit),
  };
}

/** @param states the state of the app, the users and the sessions, by `ownerKey`. */
function handlesOf(
  { damage }: SessionCalls,
  appName: string,
  listed: readonly ListedSession[],
  states: ReadonlyMap<string, readonly StateValue[]>,
) {
  const reported = new Set<string>();
  return listed.map((session) => {
    const key = { appName, userId: session.userId, sessionId: session.id };
    const state = {};
    for (const owner of [{ ...key, userId: '', sessionId: '' }, { ...key, sessionId: '' }, key]) {
      const id = ownerKey(owner.userId, owner.sessionId);
      const { damaged } = readState(states.get(id) ?? [], state);
      // All sessions show the app's state. Report its damage once.
      if (!reported.has(id)) damage.report(owner, damaged);
      reported.add(id);
    }
    return handleOf(key, session, state, []);
  });
}
