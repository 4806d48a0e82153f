import { types } from 'node:util';
import type { EntityManager, EntityMetadata, EntityProperty } from '@mikro-orm/core';
import { TRAITS, supportedDialect } from '../../../entities/dialect-name.js';
import { entityNamed } from '../../../entities/mikro-orm.js';
import { refusePlaceholder } from '../../../entities/naming.js';
import { ofEvent, ofState, type KnownSession } from '../../model/codec.js';
import type { StoredTexts, Undecodable } from '../../model/stored-texts.js';
import { SchemaError } from '../../model/errors.js';
import type { SessionKey } from '../../model/keys.js';
import type { Bound } from '../drivers/driver.js';
import { processWide } from '../../model/process-wide.js';
import type { Scope } from '../../model/state.js';
import { SETTINGS } from '../../model/setting-words.js';

const ENTITIES = {
  sessions: 'AdkSession',
  events: 'AdkEvent',
  eventParts: 'AdkEventPart',
  openCalls: 'AdkOpenCall',
  sessionStates: 'AdkSessionState',
  userStates: 'AdkUserState',
  appStates: 'AdkAppState',
  changes: 'AdkChange',
  counters: 'AdkCounter',
  projections: 'AdkProjection',
  artifacts: 'AdkArtifact',
  artifactVersions: 'AdkArtifactVersion',
  artifactParts: 'AdkArtifactPart',
  memories: 'AdkMemory',
  forgottenMemories: 'AdkForgottenMemory',
  credentials: 'AdkCredential',
} as const;

export type Table = keyof typeof ENTITIES;

const TABLES = Object.keys(ENTITIES) as Table[];

/** The quoted names of the tables in the host's database. Columns have the names that the entities give them, so SQL writes them out. */
export type Tables = Readonly<Record<Table, string>> & {
  readonly select: Readonly<Record<keyof typeof SELECTED, string>>;
  /** The quoted name of the index of events by id. */
  readonly eventsById: string;
};

/** The columns whose entity's type selects them so that their text or bytes come back unchanged. `bytesOf` reads bytes. */
const SELECTED = {
  /** JSON of events and changes. */
  data: ['events', 'data'],
  value: ['sessionStates', 'value'],
  labels: ['sessions', 'labels'],
  info: ['artifactVersions', 'info'],
  bytes: ['artifactParts', 'data'],
  words: ['memories', 'words'],
  embedding: ['memories', 'embedding'],
} as const satisfies Record<string, readonly [Table, string]>;

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

/** The values of the columns that name a session. */
export function sessionValues({ appName, userId, sessionId }: SessionKey): [string, string, string] {
  return [appName, userId, sessionId];
}

/** Columns of a row, whose values `numberOf` and the like must check. */
export type Row<Columns extends string> = Readonly<Record<Columns, unknown>>;

export type SessionKeyRow = Row<'app_name' | 'user_id' | 'session_id'>;

export function sessionKeyOf(row: Partial<SessionKeyRow>): SessionKey {
  return { appName: textOf(row.app_name), userId: textOf(row.user_id), sessionId: textOf(row.session_id) };
}

const STATE_TABLES = { session: 'sessionStates', user: 'userStates', app: 'appStates' } as const;

/** The primary key of each state table. All columns except the last name the owner of the state, see `ownerValues`. */
export const STATE_KEYS: Record<Scope, readonly string[]> = {
  session: [...SESSION_KEY, 'state_key'],
  user: ['app_name', 'user_id', 'state_key'],
  app: ['app_name', 'state_key'],
};

export function stateTable(tables: Tables, scope: Scope): string {
  return tables[STATE_TABLES[scope]];
}

/** The values of a state table's columns before `state_key`. */
export function ownerValues(key: SessionKey, scope: Scope): unknown[] {
  return sessionValues(key).slice(0, STATE_KEYS[scope].length - 1);
}

/** Finds the state of one owner; takes `ownerValues`. */
export function ownerWhere(scope: Scope): string {
  return equal(STATE_KEYS[scope].slice(0, -1));
}

function equal(columns: readonly string[]): string {
  return columns.map((column) => `${column} = ?`).join(' and ');
}

/** A value to bind. An undefined one would be bound as null, or refused by the driver. */
export type BoundValue = string | number | null;

/** A condition with a `?` for each of its values. */
export type Condition = readonly [text: string, ...values: readonly BoundValue[]];

/**
 * A condition that is left out if its value is undefined: nothing was asked for. Not for an owner that a call must name: without
 * the condition a statement would read or delete the rows of all.
 */
export const ifGiven = (text: string, value: BoundValue | undefined): Condition | undefined =>
  value === undefined ? undefined : [text, value];

/** Joins conditions by `and`. */
export function allOf(...conditions: readonly (Condition | undefined)[]): { where: string; values: BoundValue[] } {
  let where = '';
  const values: BoundValue[] = [];
  for (const condition of conditions) {
    if (!condition) continue;
    const [text, ...bound] = condition;
    where += where ? ` and ${text}` : text;
    values.push(...bound);
  }
  return { where, values };
}

/** The letters at the beginning of a text. */
type Word<Text extends string, Begun extends string = ''> = Text extends `${infer First}${infer Rest}`
  ? Uppercase<First> extends Lowercase<First>
    ? Begun
    : Word<Rest, `${Begun}${First}`>
  : Begun;

/** The names in a text, as far as its type shows them. */
export type NamesIn<Text extends string> = Text extends `${string}:${infer Rest}`
  ? (Rest extends `:${string}` ? never : Word<Rest>) | NamesIn<Rest extends `:${infer Cast}` ? Cast : Rest>
  : never;

/** A statement that was compiled once: takes the values by their names. */
export type Named<Names extends string = never> = (
  values: Readonly<Record<Names, unknown>> & Readonly<Record<string, unknown>>,
) => Bound;

/** A name, and what only looks like one: what is in quotes, and a cast of PostgreSQL. */
const NAME = /'[^']*'|"[^"]*"|`[^`]*`|::|:([a-z]\w*)/gi;

/**
 * Compiles a statement whose values have names of letters, such as `:seq`, so that neither their order nor how often each occurs
 * matters to its callers.
 */
export function named<const Text extends string>(text: Text): Named<NamesIn<Text>> {
  const names: string[] = [];
  const compiled = text.replace(NAME, (found, name?: string) => {
    if (name === undefined) return found;
    names.push(name);
    return '?';
  });
  return (values) => {
    const bound: unknown[] = [];
    for (const name of names) bound.push(valueOf(values, name));
    return [compiled, bound];
  };
}

export function keyed({ appName: app, userId: user, sessionId: session }: SessionKey) {
  return { app, user, session };
}

/** An undefined value would be bound as null, or refused by the driver. */
function valueOf(values: Readonly<Record<string, unknown>>, name: string): unknown {
  const value = values[name];
  if (value === undefined) throw new Error(`A statement has no value for :${name}`);
  return value;
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

/** Finds one artifact, or its versions or parts; takes the values of `ARTIFACT_COLUMNS`. */
export const ARTIFACT_WHERE = `${SESSION_WHERE} and filename = ?`;

/** Inserts artifacts; takes the values of these columns, the version and the time for each row. */
export const insertIntoArtifacts = (artifacts: string) =>
  `insert into ${artifacts} (${ARTIFACT_COLUMNS}, last_version, update_time)`;

const known = processWide('tables', () => new WeakMap<object, Map<string, Tables>>());

/**
 * The tables of an `EntityManager` itself, whatever `RequestContext` it is used in (contract E5). The same ORM and schema always
 * give the same object.
 *
 * @throws SchemaError if the ORM does not know the entities of this package, or leaves their schema open with `'*'`.
 */
export function tablesOf(em: EntityManager): Tables {
  const metaOf = (entity: string) => {
    const meta = entityNamed(em.getMetadata(), entity);
    if (!meta) {
      throw new SchemaError(`The ORM does not know ${entity}. Add ...adkEntities() to 'entities' in its config.`);
    }
    return meta;
  };
  const name = (entity: string) => quotedTable(em, metaOf(entity));
  const select = ([table, column]: readonly [Table, string]) => {
    const properties: Record<string, EntityProperty> = metaOf(ENTITIES[table]).properties;
    return properties[column]?.customType?.convertToJSValueSQL?.(column, em.getPlatform()) ?? column;
  };
  const all = known.get(em.getMetadata()) ?? new Map<string, Tables>();
  known.set(em.getMetadata(), all);
  const sessions = name(ENTITIES.sessions);
  const tables = all.get(sessions) ?? {
    ...mapped(ENTITIES, name),
    eventsById: em.getPlatform().quoteIdentifier(`${metaOf(ENTITIES.events).tableName}_event_id`),
    select: mapped(SELECTED, select),
  };
  all.set(sessions, tables);
  return tables;
}

const mapped = <Name extends string, Value>(of: Readonly<Record<Name, Value>>, text: (value: Value) => string) =>
  Object.fromEntries(Object.entries<Value>(of).map(([name, value]) => [name, text(value)])) as Record<Name, string>;

/** For the database of another program, whose tables have other names. */
export const NO_TABLES: Tables = {
  ...mapped(ENTITIES, () => ''),
  eventsById: '',
  select: mapped(SELECTED, () => ''),
};

export function namesOf(tables: Tables): string[] {
  return TABLES.map((table) => tables[table]);
}

/** Makes a value once for each set of tables, such as its statements, so that a call only binds values. */
export function perTables<Context extends { tables: Tables }, Value>(
  make: (context: Context) => Value,
): (context: Context) => Value {
  const made = new WeakMap<Tables, Value>();
  return (context) => {
    let value = made.get(context.tables);
    if (!value) made.set(context.tables, (value = make(context)));
    return value;
  };
}

/** Like `perTables`, for what all copies of this package share: see `processWide`. */
export function processWidePerTables<Value>(name: string, make: () => Value): (context: { tables: Tables }) => Value {
  const made = processWide(name, () => new WeakMap<Tables, Value>());
  return ({ tables }) => {
    const value = made.get(tables) ?? make();
    made.set(tables, value);
    return value;
  };
}

/** @throws SchemaError for MikroORM's wildcard, with which each query must name its schema. */
export function refuseWildcard(schema: string | undefined): void {
  if (schema === '*') {
    throw new SchemaError(`schema: '*' is not supported. Name one schema: adkEntities({ schema: 'kb' }).`);
  }
}

/** @throws SchemaError for MikroORM's wildcard. */
export function quotedTable(em: EntityManager, meta: EntityMetadata): string {
  const platform = em.getPlatform();
  // `em.schema` would be that of the request's `EntityManager`.
  const { schema: ofManager = em.config.get('schema') } = em.fork({ disableContextResolution: true });
  const schema = meta.schema ?? ofManager;
  refuseWildcard(schema);
  refusePlaceholder(`${schema}${meta.tableName}`);
  const table = platform.quoteIdentifier(meta.tableName);
  // Like MikroORM, leave the schema out if the database has none.
  return schema && TRAITS[supportedDialect(platform)].hasSchemas
    ? `${platform.quoteIdentifier(schema)}.${table}`
    : table;
}

export function placeholders(count: number): string {
  return '?, '.repeat(count).slice(0, -2);
}

export function placeholderRows(rows: number, columns: number): string {
  return `(${placeholders(columns)}), `.repeat(rows).slice(0, -2);
}

// The values of rows, whatever the host has set for its driver: numbers that come as text or bigint are converted, and a value of
// another type is an error (contract O7). Without this, `'0'` and `'f'` would be true.

/** @throws SchemaError if it is not a number. */
export function numberOf(value: unknown): number {
  if (typeof value === 'number') return value;
  const number = typeof value === 'bigint' || (typeof value === 'string' && value.trim() !== '') ? Number(value) : NaN;
  if (Number.isNaN(number)) throw changedValues('a number', value);
  return number;
}

/** Like `numberOf`, for a column that may be null. */
export function optionalNumberOf(value: unknown): number | undefined {
  return value === null ? undefined : numberOf(value);
}

const TRUE = new Set<unknown>([true, 1, 1n, '1', 't', 'true']);
const FALSE = new Set<unknown>([false, 0, 0n, '0', 'f', 'false']);

/** @throws SchemaError if it is neither true nor false. */
export function booleanOf(value: unknown): boolean {
  if (TRUE.has(value)) return true;
  if (!FALSE.has(value)) throw changedValues('a boolean', value);
  return false;
}

/** @throws SchemaError if it is not a text. */
export function textOf(value: unknown): string {
  if (typeof value !== 'string') throw changedValues('a text', value);
  return value;
}

/** Like `textOf`, for a column that may be null. */
export function optionalTextOf(value: unknown): string | null {
  return value === null ? null : textOf(value);
}

/**
 * Reads bytes that were selected by `Tables.select.bytes`.
 *
 * @throws SchemaError if the value is not bytes.
 */
export function bytesOf(value: unknown): Buffer {
  if (Buffer.isBuffer(value)) return value;
  if (typeof value === 'string') return Buffer.from(value, 'base64');
  if (types.isAnyArrayBuffer(value)) return Buffer.from(value);
  if (!ArrayBuffer.isView(value)) throw changedValues('bytes', value);
  return Buffer.from(value.buffer, value.byteOffset, value.byteLength);
}

/** The error for a value that a setting of the driver has changed. */
export function changedValues(what: string, value: unknown): SchemaError {
  return new SchemaError(
    `The driver gave ${shapeOf(value)} where ${what} should be, so what is stored cannot be read. Its settings change rows or values. ` +
      `Leave rowsAsArray, nestTables and typeCast out of ${SETTINGS.driverOptions}; leave 'types' and the type ` +
      'parsers of node-postgres (pg.types.setTypeParser) for numbers, booleans and texts as they are; use no plugin that renames columns.',
  );
}

function shapeOf(value: unknown): string {
  if (value === undefined) return 'no column of that name';
  if (value === null) return 'null';
  if (Array.isArray(value)) return 'an array';
  return typeof value === 'object' ? 'an object' : `a ${typeof value}`;
}

// What rows hold, decoded.

export interface EventContent {
  seq: number;
  /** Undefined if the row has lost its content, or the content cannot be decoded. */
  json: string | undefined;
  /** Why it cannot be decoded. */
  undecodable?: Undecodable | undefined;
  id: string;
}

export interface StateValue {
  scope: Scope;
  key: string;
  /** Not JSON if it cannot be decoded. */
  json: string;
  /** Why it cannot be decoded. */
  undecodable?: Undecodable | undefined;
}

/** A row of a state table, selected with its scope as `kind`. */
export interface StateRow {
  kind: Scope;
  state_key: string;
  value: string;
}

/** @param text undefined if there is none. */
export function contentOf(
  texts: StoredTexts,
  session: KnownSession,
  eventId: string,
  text: string | undefined,
): Pick<EventContent, 'json' | 'undecodable'> {
  if (text === undefined) return { json: undefined };
  const json = texts.decode(text, () => ofEvent(session, eventId));
  return typeof json === 'string' ? { json } : { json: undefined, undecodable: json };
}

export function stateValueOf(
  texts: StoredTexts,
  owner: KnownSession,
  { kind: scope, state_key, value }: StateRow,
): StateValue {
  const key = textOf(state_key);
  const json = texts.decode(textOf(value), () => ofState(owner, scope, key));
  return typeof json === 'string' ? { scope, key, json } : { scope, key, json: '', undecodable: json };
}
