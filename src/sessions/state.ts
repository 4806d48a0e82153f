import { setState } from '../database/dialects/session-rows.js';
import { once } from '../database/calls/once.js';
import { lockSession } from '../database/statements/sessions.js';
import { encodedState, removeState } from '../database/statements/state.js';
import type { Sql } from '../database/dialects/dialect.js';
import { recordChanges, stateChanges } from '../database/statements/changes.js';
import type { KnownSession } from '../model/codec.js';
import { InvalidKeyError, SessionNotFoundError, UnserializableValueError } from '../model/errors.js';
import { encode as encodeJson } from '../model/json.js';
import { partialKey, type SessionKey } from '../model/keys.js';
import { byScope, checkStateKey, isTemporary, scopeOf, type StateEntry } from '../model/state.js';
import type { UpdateStateRequest } from './requests.js';
import type { ServiceContext } from './service-context.js';

/** @param path the name of the state in errors. */
export function stateEntries(session: SessionKey, state: Record<string, unknown>, path: string): StateEntry[] {
  return Object.entries(state)
    .filter(([name, value]) => !isTemporary(name) && value !== undefined)
    .map(([name, value]) => {
      checkStateKey(session, name);
      return { key: name, json: encodeJson(value, `${path}.${name}`).json, eventId: null };
    });
}

export async function updateState(service: ServiceContext, request: UpdateStateRequest): Promise<void> {
  const { appName, userId, sessionId, set = {}, remove = [] } = request;
  const key = { appName, userId: userId ?? '', sessionId: sessionId ?? '' };
  checkUpdate(key, request);
  const entries = byScope(stateEntries(key, set, 'set'));
  const removed = byScope(remove.map((name) => ({ key: name, json: '', eventId: null })));
  const isOfSession = entries.session.length + removed.session.length > 0;
  const isOfUser = isOfSession || entries.user.length + removed.user.length > 0;
  const owner = { appName, userId: isOfUser ? key.userId : '', sessionId: isOfSession ? key.sessionId : '' };
  const isEmpty = Object.keys(set).length + remove.length === 0;

  const { database, leases } = service;
  const operation = 'updateState';
  const write = async (sql: Sql) => {
    let session: KnownSession = { ...key, origin: '' };
    let seq = 0;
    if (isOfSession) {
      const head = await lockSession(sql, key);
      if (!head) throw new SessionNotFoundError(key.sessionId);
      await leases.check(sql, key);
      session = { ...key, origin: head.origin };
      seq = head.lastSeq;
    }
    await setState(sql, key, encodedState(sql.texts, session, entries));
    removeState(sql, key, removed);
    if (isEmpty) return;
    const changed = { session: { ...owner, origin: session.origin }, seq };
    await recordChanges(sql, stateChanges(sql.texts, changed, entries, remove));
  };
  const change = () => once(database, write);
  if (isOfSession) await service.write(operation, key, change);
  else await database.call({ operation, key: partialKey(request) }, change);
}

/** @throws InvalidKeyError, UnserializableValueError if a key or a value cannot be stored. */
function checkUpdate(key: SessionKey, { userId, sessionId, set = {}, remove = [] }: UpdateStateRequest): void {
  for (const name of [...Object.keys(set), ...remove]) {
    const { scope } = scopeOf(name);
    if (isTemporary(name)) throw new InvalidKeyError('A temp: key is never stored.');
    if (scope !== 'app' && userId === undefined) throw new InvalidKeyError('A key without app: needs a userId.');
    if (scope === 'session' && sessionId === undefined) {
      throw new InvalidKeyError(
        "A key without a prefix is a session's and needs a sessionId; prefix it with user: or app:.",
      );
    }
    checkStateKey(key, name);
    if (Object.hasOwn(set, name) && remove.includes(name)) throw new InvalidKeyError('A key is both set and removed.');
  }
  for (const [name, value] of Object.entries(set)) {
    // JSON.stringify drops undefined, so the key would silently keep its old value.
    if (value === undefined) throw new UnserializableValueError(`set.${name}`, 'undefined');
  }
}
