import type { Event } from '@google/adk';
import { UnserializableValueError } from './errors.js';
import { isObject, isRecord } from './objects.js';

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
    const isConverted = check(value, { path, keys: [], ancestors: [] });
    const json: string | undefined = JSON.stringify(value);
    if (json === undefined) throw new UnserializableValueError(path, 'undefined');
    return { json, value: isConverted ? JSON.parse(json) : value };
  } catch (error) {
    if (error instanceof RangeError) throw new UnserializableValueError(path, 'nested too deeply or too large');
    throw error;
  }
}

/** Where in a value the check is. Its path is put together for an error alone, since most values have none. */
interface Place {
  /** Of the whole value. */
  path: string;
  keys: (string | number)[];
  ancestors: object[];
}

function refuse({ path, keys }: Place, what: string): never {
  const named = keys.reduce<string>((before, key) => {
    if (typeof key === 'number') return `${before}[${key}]`;
    return before ? `${before}.${key}` : key;
  }, path);
  throw new UnserializableValueError(named, what);
}

/**
 * @param isResult whether a `toJSON` has returned the value; JSON does not call the one that the value itself may have.
 * @returns whether some `toJSON` converts the value, or a part of it.
 */
function check(value: unknown, place: Place, isResult = false): boolean {
  switch (typeof value) {
    case 'number':
      if (!Number.isFinite(value)) refuse(place, String(value));
      if (Object.is(value, -0)) refuse(place, '-0');
      return false;
    case 'bigint':
    case 'function':
    case 'symbol':
      return refuse(place, `a ${typeof value}`);
    case 'object':
      return value !== null && checkObject(value, place, isResult);
    default:
      return false;
  }
}

/** A value of an object or of an array. */
function checkInner(value: unknown, key: string | number, place: Place): boolean {
  place.keys.push(key);
  // A hole of an array is undefined, too; JSON makes null of both.
  if (value === undefined && typeof key === 'number') refuse(place, 'undefined');
  const isConverted = check(value, place);
  place.keys.pop();
  return isConverted;
}

function checkObject(value: object, place: Place, isResult: boolean): boolean {
  const { ancestors } = place;
  if (ancestors.includes(value)) refuse(place, 'a cycle');
  // They are checked before their `toJSON`: a Buffer has one, and comes back as an object with a list of numbers.
  if (ArrayBuffer.isView(value)) refuse(place, `a ${tagOf(value)}`);

  ancestors.push(value);
  let isConverted = false;
  if (!isResult && 'toJSON' in value && typeof value.toJSON === 'function') {
    const converted: unknown = Reflect.apply(value.toJSON, value, []);
    if (converted === undefined) refuse(place, 'undefined after its toJSON');
    if (converted === null && tagOf(value) === 'Date') refuse(place, 'an invalid Date');
    check(converted, place, true);
    isConverted = true;
  } else if (isRecord(value)) {
    const keys = Object.keys(value);
    checkTag(value, keys.length === 0, place);
    for (const key of keys) if (checkInner(value[key], key, place)) isConverted = true;
  } else if (Array.isArray(value)) {
    for (let i = 0; i < value.length; i++) if (checkInner(value[i], i, place)) isConverted = true;
  }
  ancestors.pop();
  return isConverted;
}

function checkTag(value: object, isEmpty: boolean, place: Place): void {
  const tag = tagOf(value);
  if (tag === 'Object') return;
  // What is of a kind of its own and shows nothing, such as a Blob or URLSearchParams, would come back as `{}`.
  if (UNSERIALIZABLE.test(tag) || isEmpty) refuse(place, `a ${tag}`);
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
