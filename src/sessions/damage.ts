import type { Tables } from '../database/sql/tables.js';
import { processWidePerTables } from '../database/sql/values.js';
import { DamagedSessionError, type Damage } from '../model/errors.js';
import { sessionIdentity, type SessionKey } from '../model/keys.js';
import { SCOPES, scopeOf, type Scope } from '../model/state.js';

/** Sessions for which the process has already emitted a warning. */
const warnedOf = processWidePerTables('warned', () => new Set<string>());

/** Emits one warning of the process for each session, user and app. */
export function warnOnce(tables: Tables, error: DamagedSessionError): void {
  const identities = warnedOf({ tables });
  const identity = sessionIdentity(error);
  if (identities.has(identity)) return;
  identities.add(identity);
  process.emitWarning(error);
}

/** @returns undefined if there is no damage. */
export function damageError(
  key: SessionKey,
  ...damages: readonly (Damage | undefined)[]
): DamagedSessionError | undefined {
  const events = damages.flatMap((damage) => damage?.events ?? []);
  const stateKeys = damages.flatMap((damage) => damage?.stateKeys ?? []);
  if (events.length + stateKeys.length === 0) return undefined;
  const encodings = [...new Set(damages.flatMap((damage) => damage?.encodings ?? []))];
  const damage = { events, stateKeys, encodings };
  return new DamagedSessionError(messageOf(key, damage), key, damage);
}

const PROBLEMS = [
  ['missing', 'event', 'missing'],
  ['unreadable', 'event', 'not readable as an event'],
  ['uncounted', 'event', "above the last_seq of the session's row"],
  ['change', 'the change recorded after event', 'not readable'],
] as const;

const OF_SCOPE: Record<Scope, string> = { session: 'session_states', user: 'user_states', app: 'app_states' };

/** How many of each kind a message names. */
const MAX_NAMED = 10;

function messageOf(key: SessionKey, { events, stateKeys, encodings = [] }: Damage): string {
  const found = PROBLEMS.flatMap(([problem, what, is]) => {
    const ranges = events.filter((each) => each.problem === problem);
    const numbers = ranges.map(({ from, to }) => (from === to ? String(from) : `${from}-${to}`));
    return numbers.length > 0 ? [`${what} ${list(numbers)} ${is}`] : [];
  });
  if (stateKeys.length > 0) found.push(`state key ${list(stateKeys)} without a readable value`);
  if (encodings.length > 0) found.push(`texts that cannot be decoded: ${list(encodings)}`);
  const scopes = new Set(stateKeys.map((name) => scopeOf(name).scope));
  const tables = [
    ...(events.some(({ problem }) => problem !== 'change') ? ['events'] : []),
    ...(events.some(({ problem }) => problem === 'change') ? ['changes'] : []),
    ...SCOPES.filter((scope) => scopes.has(scope)).map((scope) => OF_SCOPE[scope]),
  ];
  return (
    `${nameOf(key)} is damaged: ${found.join('; ')}. Look at these rows in ${tables.join(', ')}; ` +
    `docs/damage.md says how to repair them, and SessionMaintenance.repair removes them. With onDamagedEvent: 'skip' the rest is read.`
  );
}

function list(names: readonly string[]): string {
  const more = names.length > MAX_NAMED ? ` and ${names.length - MAX_NAMED} more` : '';
  return names.slice(0, MAX_NAMED).join(', ') + more;
}

function nameOf({ appName, userId, sessionId }: SessionKey): string {
  if (sessionId) return `Session ${sessionId} of user ${userId} in app ${appName}`;
  return userId ? `The state of user ${userId} in app ${appName}` : `The state of app ${appName}`;
}
