import type { Scope } from '../../model/state.js';
import type { Tables } from './tables.js';

export const SESSION_KEY = ['app_name', 'user_id', 'session_id'];

export const SESSION_COLUMNS = SESSION_KEY.join(', ');

/** The columns that name a session, with the alias of one of several tables. */
export const sessionColumnsOf = (alias: string) => SESSION_KEY.map((column) => `${alias}.${column}`).join(', ');

/** Finds one session; takes `sessionValues`. */
export const SESSION_WHERE = equal(SESSION_KEY);

/** Finds one session by the names of `keyed`. */
export const IN_SESSION = 'app_name = :app and user_id = :user and session_id = :session';

/** Finds one session by the names of `keyed`, in the table with an alias. */
export const inSession = (alias: string) =>
  `${alias}.app_name = :app and ${alias}.user_id = :user and ${alias}.session_id = :session` as const;

/** The names of the values before `state_key` in a row of state. */
const OWNER_NAMES = { session: ':app, :user, :session', user: ':app, :user', app: ':app' } as const;

export const ownerNames = (scope: Scope): string => OWNER_NAMES[scope];

/** Finds the state of one owner, by the names of `keyed`. */
const IN_OWNER = { session: IN_SESSION, user: 'app_name = :app and user_id = :user', app: 'app_name = :app' } as const;

export const inOwner = (scope: Scope): string => IN_OWNER[scope];

/** The condition that rows of two aliases belong to the same session. */
export function isSameSession(one: string, other: string): string {
  return SESSION_KEY.map((column) => `${one}.${column} = ${other}.${column}`).join(' and ');
}

/**
 * The condition that a session's events have this number or a higher one. Use it together with a plain condition on the number.
 *
 * PostgreSQL assumes that the columns of a session's key are independent, and expects one event for a session. The index by event
 * id then seems to cost as much as the primary key, and PostgreSQL reads all events of the session in it to find a few numbers.
 * This condition makes that index cost more, since it must be checked on each row. `create statistics` would need `analyze`, and is
 * not used for the rows of a join.
 */
export function isFromNumber(one: string, session: string, number: string, numberedBy = 'seq'): string {
  return `(${one}session_id, ${one}${numberedBy}) >= (${session}, ${number})`;
}

/** Selects the origin of the session to which another table's row belongs. */
export function originOf({ sessions }: Tables, alias: string): string {
  return `(select owner.origin from ${sessions} as owner where ${isSameSession('owner', alias)})`;
}

/**
 * Selects the origin of the session that `keyed` names. It is named by value, so that one server can answer (contract F7).
 *
 * @param end see `underLock`.
 */
export function originOfSession({ sessions }: Tables, end = ''): string {
  return `(select owner.origin from ${sessions} as owner where ${inSession('owner')}${end})`;
}

const STATE_TABLES = { session: 'sessionStates', user: 'userStates', app: 'appStates' } as const;

/** The primary key of each state table. All columns except the last name the owner of the state. */
export const STATE_KEYS: Record<Scope, readonly string[]> = {
  session: [...SESSION_KEY, 'state_key'],
  user: ['app_name', 'user_id', 'state_key'],
  app: ['app_name', 'state_key'],
};

export function stateTable(tables: Tables, scope: Scope): string {
  return tables[STATE_TABLES[scope]];
}

function equal(columns: readonly string[]): string {
  return columns.map((column) => `${column} = ?`).join(' and ');
}

/** Inserts state; the values of a row follow. */
export function insertIntoState(tables: Tables, scope: Scope): string {
  return `insert into ${stateTable(tables, scope)} (${STATE_KEYS[scope].join(', ')}, value, event_id)`;
}

/** Inserts events; the values of their rows follow. */
export function insertIntoEvents({ events }: Tables): string {
  return `insert into ${events} (${SESSION_COLUMNS}, seq, event_id, timestamp, data, superseded, begins_turn, append_time)`;
}

/** The primary key of artifacts; those of versions and parts have more columns. */
export const ARTIFACT_COLUMNS = `${SESSION_COLUMNS}, filename`;

/** The names of their values: those of `keyed`, and the file. */
export const ARTIFACT_NAMES = ':app, :user, :session, :file';

/** Finds one artifact, or its versions or parts, by these names. */
export const IN_ARTIFACT = `${IN_SESSION} and filename = :file` as const;

/** Inserts artifacts; takes the values of these columns, the version and the time for each row. */
export const insertIntoArtifacts = (artifacts: string) =>
  `insert into ${artifacts} (${ARTIFACT_COLUMNS}, last_version, update_time)`;
