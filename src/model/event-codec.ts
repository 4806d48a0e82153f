import type { Event } from '@google/adk';
import { UnserializableValueError } from './errors.js';
import { isObject } from './objects.js';

/** ADK's brand on its events; `isEvent` looks for it, and JSON drops it. */
const EVENT_BRAND = Symbol.for('google.adk.event');

/**
 * Objects that JSON turns into `{}` or into something else, by their tag, which also holds for objects of another realm.
 * Boxed primitives come back as primitives.
 */
const UNSERIALIZABLE =
  /^(Map|Set|WeakMap|WeakSet|WeakRef|Promise|RegExp|Error|ArrayBuffer|SharedArrayBuffer|Number|String|Boolean|BigInt|Symbol|Arguments)$/;

/** What is stored of a value. */
export interface Encoded {
  json: string;
  /** The value as it will be read: itself, or what its `toJSON` methods make of it. */
  value: unknown;
}

/**
 * Turns a value into JSON that comes back equal (contract C2, I6). Properties that are undefined, named by symbols or
 * not enumerable are no data, for JSON as for `structuredClone`, and the class of an object is lost.
 *
 * @param path what the value is called in an error.
 * @throws UnserializableValueError naming the path of what JSON would silently change.
 */
export function encode(value: unknown, path: string): Encoded {
  try {
    const isConverted = check(value, path, []);
    const json: string | undefined = JSON.stringify(value);
    if (json === undefined) throw new UnserializableValueError(path, 'undefined');
    return { json, value: isConverted ? JSON.parse(json) : value };
  } catch (error) {
    if (error instanceof RangeError) throw new UnserializableValueError(path, 'nested too deeply or too large');
    throw error;
  }
}

/**
 * @param isResult whether a `toJSON` has returned the value; JSON does not call the one that the value itself may have.
 * @returns whether some `toJSON` converts the value, or a part of it.
 */
function check(value: unknown, path: string, ancestors: object[], isResult = false): boolean {
  switch (typeof value) {
    case 'number':
      if (!Number.isFinite(value)) throw new UnserializableValueError(path, String(value));
      if (Object.is(value, -0)) throw new UnserializableValueError(path, '-0');
      return false;
    case 'bigint':
    case 'function':
    case 'symbol':
      throw new UnserializableValueError(path, `a ${typeof value}`);
    case 'object':
      return value !== null && checkObject(value, path, ancestors, isResult);
    default:
      return false;
  }
}

function checkObject(value: object, path: string, ancestors: object[], isResult: boolean): boolean {
  if (ancestors.includes(value)) throw new UnserializableValueError(path, 'a cycle');
  // They are checked before their `toJSON`: a Buffer has one, and comes back as an object with a list of numbers.
  if (ArrayBuffer.isView(value)) throw new UnserializableValueError(path, `a ${tagOf(value)}`);

  ancestors.push(value);
  let isConverted = false;
  if (!isResult && 'toJSON' in value && typeof value.toJSON === 'function') {
    const converted: unknown = Reflect.apply(value.toJSON, value, []);
    if (converted === undefined) throw new UnserializableValueError(path, 'undefined after its toJSON');
    if (converted === null && tagOf(value) === 'Date') throw new UnserializableValueError(path, 'an invalid Date');
    check(converted, path, ancestors, true);
    isConverted = true;
  } else if (Array.isArray(value)) {
    isConverted = checkArray(value, path, ancestors);
  } else {
    const entries = Object.entries(value);
    checkTag(value, entries.length === 0, path);
    for (const [key, inner] of entries) {
      if (check(inner, path ? `${path}.${key}` : key, ancestors)) isConverted = true;
    }
  }
  ancestors.pop();
  return isConverted;
}

function checkArray(array: readonly unknown[], path: string, ancestors: object[]): boolean {
  let isConverted = false;
  for (let i = 0; i < array.length; i++) {
    // A hole of an array is undefined, too; JSON makes null of both.
    if (array[i] === undefined) throw new UnserializableValueError(`${path}[${i}]`, 'undefined');
    if (check(array[i], `${path}[${i}]`, ancestors)) isConverted = true;
  }
  return isConverted;
}

function checkTag(value: object, isEmpty: boolean, path: string): void {
  const tag = tagOf(value);
  // What is of a kind of its own and shows nothing, such as a Blob or URLSearchParams, would come back as `{}`.
  if (UNSERIALIZABLE.test(tag) || (isEmpty && tag !== 'Object')) throw new UnserializableValueError(path, `a ${tag}`);
}

function tagOf(value: object): string {
  return Object.prototype.toString.call(value).slice('[object '.length, -1);
}

/**
 * Reads a stored event back, with ADK's brand.
 *
 * @param json undefined where the content of its row is lost.
 * @returns undefined when there is no text, or it is not the JSON of an object.
 */
export function decodeEvent(json: string | undefined): Event | undefined {
  const value = json === undefined ? undefined : decode(json)?.value;
  if (!isObject(value) || Array.isArray(value)) return undefined;
  return Object.assign(value as Event, { [EVENT_BRAND]: true as const });
}

/** @returns undefined when the text is not JSON. */
export function decode(json: string): { value: unknown } | undefined {
  try {
    return { value: JSON.parse(json) };
  } catch {
    return undefined;
  }
}
