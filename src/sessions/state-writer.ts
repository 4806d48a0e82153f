import type { Sql } from '../database/dialects/dialect.js';
import { recordChange } from '../database/statements/changes.js';
import { setState } from '../database/dialects/session-rows.js';
import { encodedState, writtenState } from '../database/statements/state.js';
import { aString, anything, nullable, object, objects } from '../model/arguments.js';
import { InvalidArgumentError } from '../model/errors.js';
import { encode } from '../model/json.js';
import { checkKeys, type SessionKey } from '../model/keys.js';
import type { AppRecord, StateRecord, UserRecord } from '../model/records.js';
import { byScope, checkStateKey, prefixed, scopeOf, type Scope, type StateEntry } from '../model/state.js';
import type { ImportRun, RecordWriter } from '../owned/record-writer.js';

const checks = {
  app: object<AppRecord>({ type: anything, appName: anything, state: objects }, 'state'),
  user: object<UserRecord>({ type: anything, appName: anything, userId: anything, state: objects }, 'state'),
};
const checkState = object<StateRecord>({ key: aString, value: anything, eventId: nullable(aString) }, 'key', 'eventId');

/** Writes the state of apps and users. */
export const stateWriter = (run: ImportRun): RecordWriter => ({
  types: ['app', 'user'],
  check(record: { type: 'app' | 'user' }, name) {
    const { type: scope } = record;
    const checked = checks[scope](record, name);
    const { appName, userId } = { userId: '', ...checked };
    checkKeys({ appName, ...(scope === 'user' && { userId }) });
    const owner = { appName, userId, sessionId: '' };
    const state = storableState(checked.state, scope, owner);
    return async () => {
      await run.write((sql) => writeState(sql, run, scope, owner, state));
    };
  },
});

async function writeState(
  sql: Sql,
  { rules }: ImportRun,
  scope: Scope,
  owner: SessionKey,
  entries: readonly StateEntry[],
): Promise<void> {
  const known = { ...owner, origin: '' };
  const stored = await writtenState(sql, owner, scope);
  const textOf = ({ json, eventId }: Omit<StateEntry, 'key'>) => JSON.stringify([json, eventId]);
  const byKey = new Map(stored.map((entry) => [prefixed(scope, entry.key), textOf(entry)]));
  const isKept = (key: string) => rules.sharedState === 'keep' && byKey.has(key);
  const fresh = entries.filter((entry) => byKey.get(entry.key) !== textOf(entry) && !isKept(entry.key));
  if (fresh.length === 0) return;
  await setState(sql, owner, encodedState(sql.texts, known, byScope(fresh)));
  await recordChange(sql, { session: known, kind: 'state', seq: 0 });
}

/** @returns the state of a record as it can be stored. @throws InvalidArgumentError, InvalidKeyError, UnserializableValueError. */
export function storableState(state: readonly StateRecord[], scope: Scope, owner: SessionKey): StateEntry[] {
  const names = new Set<string>();
  return state.map((each) => {
    checkState(each, 'state');
    const { key, value, eventId } = each;
    const name = prefixed(scope, key);
    if (scopeOf(name).scope !== scope)
      throw new InvalidArgumentError(`The key '${key}' of the state of a session has a prefix of another scope.`);
    if (names.has(name)) throw new InvalidArgumentError(`The key '${key}' of the state occurs twice.`);
    names.add(name);
    checkStateKey(owner, name);
    if (eventId !== null) checkKeys({ eventId });
    return { key: name, json: encode(value, `state.${key}`).json, eventId };
  });
}
