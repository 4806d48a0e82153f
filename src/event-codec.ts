import type { Event } from '@google/adk';
import { UnserializableValueError } from './errors.js';

/** ADK's brand on its events; `isEvent` looks for it, and JSON drops it. */
const EVENT_BRAND = Symbol.for('google.adk.event');

/** Objects that JSON turns into `{}` or into something else, by their tag, which also holds for objects of another realm. */
const UNSERIALIZABLE =
  /^\[object (Map|Set|WeakMap|WeakSet|WeakRef|Promise|RegExp|Error|ArrayBuffer|SharedArrayBuffer|DataView|\w+Array)\]$/;

/**
 * Turns a value into JSON that comes back equal.
 *
 * @param path what the value is called in an error.
 * @throws UnserializableValueError naming the path of what JSON would silently change (contract C2).
 */
export function encode(value: unknown, path: string): string {
  try {
    check(value, path, []);
    return JSON.stringify(value);
  } catch (error) {
    if (error instanceof RangeError) throw new UnserializableValueError(path, 'nested too deeply or too large');
    throw error;
  }
}

function check(value: unknown, path: string, ancestors: object[]): void {
  switch (typeof value) {
    case 'number':
      if (!Number.isFinite(value)) throw new UnserializableValueError(path, String(value));
      return;
    case 'bigint':
    case 'function':
    case 'symbol':
      throw new UnserializableValueError(path, `a ${typeof value}`);
    case 'object':
      if (value !== null) checkObject(value, path, ancestors);
  }
}

function checkObject(value: object, path: string, ancestors: object[]): void {
  if (ancestors.includes(value)) throw new UnserializableValueError(path, 'a cycle');
  if ('toJSON' in value && typeof value.toJSON === 'function') {
    ancestors.push(value);
    check(Reflect.apply(value.toJSON, value, []), path, ancestors);
    ancestors.pop();
    return;
  }
  const tag = Object.prototype.toString.call(value);
  if (UNSERIALIZABLE.test(tag)) throw new UnserializableValueError(path, `a ${tag.slice(8, -1)}`);

  ancestors.push(value);
  if (Array.isArray(value)) {
    for (let i = 0; i < value.length; i++) check(value[i], `${path}[${i}]`, ancestors);
  } else {
    for (const [key, inner] of Object.entries(value)) check(inner, path ? `${path}.${key}` : key, ancestors);
  }
  ancestors.pop();
}

/** Reads a stored event back, with ADK's brand. */
export function decodeEvent(json: string): Event {
  return branded(JSON.parse(json) as object);
}

/** What JSON has made of an event, with ADK's brand. */
export function branded(event: object): Event {
  return Object.assign(event as Event, { [EVENT_BRAND]: true as const });
}
