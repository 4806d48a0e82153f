import { types } from 'node:util';
import { ofEvent, ofState, type KnownSession } from '../../model/codec.js';
import { SchemaError } from '../../model/errors.js';
import type { SessionKey } from '../../model/keys.js';
import { processWide } from '../../model/process-wide.js';
import { SETTINGS } from '../../model/setting-words.js';
import type { Scope } from '../../model/state.js';
import type { StoredTexts, Undecodable } from '../../model/stored-texts.js';
import type { Bound } from '../drivers/driver.js';
import type { Tables } from './tables.js';

/** The values of the columns that name a session. */
export function sessionValues({ appName, userId, sessionId }: SessionKey): [string, string, string] {
  return [appName, userId, sessionId];
}

/** The values that name a session, for statements with names. */
export function keyed({ appName: app, userId: user, sessionId: session }: SessionKey) {
  return { app, user, session };
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

/** Joins conditions by `or`. */
export function anyOf(conditions: readonly Bound[]): Bound {
  return [`(${conditions.map(([text]) => text).join(' or ')})`, conditions.flatMap(([, values]) => values)];
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

/** Compiles a statement for one use of it. */
export const bound = (text: string, values: Readonly<Record<string, unknown>>): Bound => named(text)(values);

/** An undefined value would be bound as null, or refused by the driver. */
function valueOf(values: Readonly<Record<string, unknown>>, name: string): unknown {
  const value = values[name];
  if (value === undefined) throw new Error(`A statement has no value for :${name}`);
  return value;
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

export function placeholders(count: number): string {
  return '?, '.repeat(count).slice(0, -2);
}

/** A statement with a list in brackets, whose length varies, after those values that have names. */
export function withList([text, values]: Bound, list: readonly unknown[], end = ''): Bound {
  return [`${text} (${placeholders(list.length)})${end}`, [...values, ...list]];
}

export function placeholderRows(rows: number, columns: number): string {
  return `(${placeholders(columns)}), `.repeat(rows).slice(0, -2);
}

// The values of rows, whatever the host has set for its driver: numbers that come as text or bigint are converted, and a value of
// another type is an error (contract O7). Without this, `'0'` and `'f'` would be true.

/** Columns of a row, whose values `numberOf` and the like must check. */
export type Row<Columns extends string> = Readonly<Record<Columns, unknown>>;

export type SessionKeyRow = Row<'app_name' | 'user_id' | 'session_id'>;

export function sessionKeyOf(row: Partial<SessionKeyRow>): SessionKey {
  return { appName: textOf(row.app_name), userId: textOf(row.user_id), sessionId: textOf(row.session_id) };
}

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
