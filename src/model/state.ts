import { checkKeys, type SessionKey } from './keys.js';

/** The owner of a key of the state: the session, the user (`user:`) or the app (`app:`). */
export type Scope = 'session' | 'user' | 'app';

export const SCOPES: readonly Scope[] = ['session', 'user', 'app'];

/** @returns who has the state of a scope: an app has it for all users, and a user for all sessions. */
export const ownerOf = ({ appName, userId, sessionId }: SessionKey, scope: Scope): SessionKey => ({
  appName,
  userId: scope === 'app' ? '' : userId,
  sessionId: scope === 'session' ? sessionId : '',
});

/** One value for each scope. */
export function perScope<T>(of: (scope: Scope) => T): Record<Scope, T> {
  return { session: of('session'), user: of('user'), app: of('app') };
}

// The prefixes are those of ADK's `State`, which is not imported: migrations load this file, and each `mikro-orm` command would
// wait a second for ADK to load.
const PREFIXES: Record<Scope, string> = { session: '', user: 'user:', app: 'app:' };
const TEMPORARY_PREFIX = 'temp:';

/** Splits `user:theme` into its scope and the key it is stored under. */
export function scopeOf(key: string): { scope: Scope; key: string } {
  for (const scope of ['user', 'app'] as const) {
    if (key.startsWith(PREFIXES[scope])) return { scope, key: key.slice(PREFIXES[scope].length) };
  }
  return { scope: 'session', key };
}

/** The key as agents know it. */
export function prefixed(scope: Scope, key: string): string {
  return PREFIXES[scope] + key;
}

export function isTemporary(key: string): boolean {
  return key.startsWith(TEMPORARY_PREFIX);
}

/** Sets an own key; plain assignment of `__proto__` would change the object's prototype (contract B5). */
export function setOwn(target: object, key: string, value: unknown): void {
  Object.defineProperty(target, key, { value, writable: true, enumerable: true, configurable: true });
}

/** A key and its value as JSON text, as it is stored. */
export interface StateEntry {
  key: string;
  json: string;
  /** The event that wrote it; null outside a run. */
  eventId: string | null;
}

/** @returns the JSON of an object from keys with their prefixes and the JSON of their values, whose text does not change. */
export function stateJson(values: Iterable<readonly [name: string, json: string]>): string {
  return `{${Array.from(values, ([name, json]) => `${JSON.stringify(name)}:${json}`).join()}}`;
}

/** Entries by scope, each scope in the order of its keys, so that two transactions lock shared rows in one order. */
export type StateEntries = Record<Scope, StateEntry[]>;

export function byScope(entries: Iterable<StateEntry>): StateEntries {
  const result: StateEntries = { session: [], user: [], app: [] };
  for (const entry of entries) {
    const { scope, key } = scopeOf(entry.key);
    result[scope].push({ ...entry, key });
  }
  for (const scope of SCOPES) result[scope].sort((a, b) => (a.key < b.key ? -1 : 1));
  return result;
}

/** Checks a state key together with the keys of the row that it is stored in. */
export function checkStateKey({ appName, userId, sessionId }: SessionKey, name: string): void {
  const { scope, key: stateKey } = scopeOf(name);
  if (scope === 'app') checkKeys({ appName, stateKey });
  else if (scope === 'user') checkKeys({ appName, userId, stateKey });
  else checkKeys({ appName, userId, sessionId, stateKey });
}
