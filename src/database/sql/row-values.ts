/**
 * Reads the values of rows, whatever the host has set for its driver: numbers that come as text or bigint are converted, and a
 * value of another type is an error (contract O7). Without this, `'0'` and `'f'` would be true.
 */
import { types } from 'node:util';
import { SchemaError } from '../../model/errors.js';

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
      "Leave rowsAsArray, nestTables and typeCast out of 'driverOptions' in the config of MikroORM; leave 'types' and the type " +
      'parsers of node-postgres (pg.types.setTypeParser) for numbers, booleans and texts as they are; use no plugin that renames columns.',
  );
}

function shapeOf(value: unknown): string {
  if (value === undefined) return 'no column of that name';
  if (value === null) return 'null';
  if (Array.isArray(value)) return 'an array';
  return typeof value === 'object' ? 'an object' : `a ${typeof value}`;
}
