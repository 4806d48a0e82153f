import type { StateValue } from '../database/sql/values.js';
import type { ListSessionsRequest, ListSessionsResponse } from '@google/adk';
import type { Sql } from '../database/dialects/dialect.js';
import type { StoredSession } from '../database/statements/stored-session.js';
import { aWholeNumber } from '../model/arguments.js';
import { InvalidArgumentError } from '../model/errors.js';
import { checkKeys, sessionIdentity } from '../model/keys.js';
import { ownerOf } from '../model/state.js';
import { countSessions, listedSessions } from './listed-sessions.js';
import { stateOfSessions } from './listed-state.js';
import { handleOf } from './handle.js';
import { readableState } from './read.js';
import type { ServiceContext } from './service-context.js';

export async function listSessions(
  service: ServiceContext,
  request: ListSessionsRequest,
): Promise<ListSessionsResponse> {
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

  const { listed, states, totalItems } = await service.read('listSessions', key, async (sql: Sql) => {
    const listed = limit === 0 ? [] : await listedSessions(sql, range);
    // A page that is not full is the last one: the total is known without counting.
    const isLast = limit !== undefined && listed.length < limit && (listed.length > 0 || skipped === 0);
    const [states, totalItems] = await Promise.all([
      stateOfSessions(sql, range, listed, isWhole),
      isWhole || isLast ? skipped + listed.length : countSessions(sql, range),
    ]);
    return { listed, states, totalItems };
  });

  const sessions = handlesOf(service, listed, states);
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

/** @param states the state of the app, the users and the sessions, by `sessionIdentity`. */
function handlesOf(
  service: ServiceContext,
  listed: readonly StoredSession[],
  states: ReadonlyMap<string, readonly StateValue[]>,
) {
  const reported = new Set<string>();
  return listed.map((session) => {
    const { key } = session;
    const state = {};
    for (const scope of ['app', 'user', 'session'] as const) {
      const owner = ownerOf(key, scope);
      const id = sessionIdentity(owner);
      const { damaged } = readableState(states.get(id) ?? [], state);
      // All sessions show the app's state. Report its damage once.
      if (!reported.has(id)) service.reportDamage(owner, damaged);
      reported.add(id);
    }
    return handleOf(key, session, state, []);
  });
}
