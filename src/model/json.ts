import type { Event } from '@google/adk';
import { UnserializableValueError } from './errors.js';

/** ADK's brand on its events; `isEvent` looks for it, and JSON drops it. */
const EVENT_BRAND = Symbol.for('google.adk.event');

/**
 * The tags of objects that JSON turns into `{}` or something else; boxed primitives would come back as primitives. Unlike
 * `instanceof`, a tag is the same in every realm.
 */
const UNSERIALIZABLE =
  /^(Map|Set|WeakMap|WeakSet|WeakRef|Promise|RegExp|Error|ArrayBuffer|SharedArrayBuffer|Number|String|Boolean|BigInt|Symbol|Arguments)$/;

/**
 * How many levels of objects and arrays a value may have. On an empty stack, `JSON.stringify` can handle about 4,000 and
 * `structuredClone` 1,900; a host's call may begin on a stack that is half full.
 */
export const MOST_LEVELS = 1_000;

/** How many levels a stored text may have: it may have values inside, like the state in an entry of the log. */
const MOST_STORED_LEVELS = MOST_LEVELS + 100;

interface EncodedJson {
  json: string;
  /** The value as a later read returns it: after its `toJSON` methods. */
  value: unknown;
}

/**
 * Encodes a value as JSON that comes back equal (contract C2, I6). As with `structuredClone`, properties that are undefined, named
 * by symbols or not enumerable are left out, and an object loses its class.
 *
 * @param path the name of the value in errors.
 * @param levels how deeply it may be nested.
 * @throws UnserializableValueError with the path of a value that JSON would silently change, or that is nested too deeply.
 */
export function encode(value: unknown, path: string, levels = MOST_LEVELS): EncodedJson {
  try {
    const isConverted = new JsonCheck(path, levels).isConverted(value);
    const json: string | undefined = JSON.stringify(value);
    if (json === undefined) throw new UnserializableValueError(path, 'undefined');
    return { json, value: isConverted ? JSON.parse(json) : value };
  } catch (error) {
    if (error instanceof RangeError)
      throw new UnserializableValueError(path || 'event', 'nested too deeply or too large');
    throw error;
  }
}

/** An object or an array, and the index of the next value to check. */
type JsonLevel = { of: object; next: number } & (
  | { values: Readonly<Record<string, unknown>>; names: readonly string[] }
  | { values: readonly unknown[]; names: undefined }
);

/** How many names of a path an error about too deep nesting has. */
const SHOWN_LEVELS = 10;

/** Searches for values that JSON would change. Without recursion, since the host's stack may be nearly full. */
class JsonCheck {
  readonly #path: string;
  readonly #levels: number;
  /** The objects and arrays around the current value, the outermost first. */
  readonly #around: JsonLevel[] = [];
  #isConverted = false;

  constructor(path: string, levels: number) {
    this.#path = path;
    this.#levels = levels;
  }

  /** @returns whether a `toJSON` converts the value or a part of it. */
  isConverted(whole: unknown): boolean {
    this.#look(whole);
    for (let walked = this.#around.at(-1); walked; walked = this.#around.at(-1)) {
      const { values, names, next } = walked;
      if (next >= (names ?? values).length) {
        this.#around.pop();
        continue;
      }
      walked.next++;
      if (names) {
        this.#look(values[names[next] ?? '']);
        continue;
      }
      const value = values[next];
      // In an array, JSON turns undefined and holes into null.
      if (value === undefined) this.#refuse('undefined');
      this.#look(value);
    }
    return this.#isConverted;
  }

  /** @param isResult whether the value is the result of a `toJSON`: JSON does not call that of a result. */
  #look(value: unknown, isResult = false): void {
    switch (typeof value) {
      case 'number':
        if (!Number.isFinite(value)) this.#refuse(String(value));
        if (Object.is(value, -0)) this.#refuse('-0');
        return;
      case 'bigint':
      case 'function':
      case 'symbol':
        return this.#refuse(`a ${typeof value}`);
      case 'object':
        if (value !== null) this.#enter(value, isResult);
    }
  }

  #enter(value: object, isResult: boolean): void {
    for (const { of } of this.#around) if (of === value) this.#refuse('a cycle');
    if (this.#around.length >= this.#levels)
      this.#refuse(`nested too deeply, more than ${this.#levels} levels`, SHOWN_LEVELS);
    // Before its `toJSON`: a Buffer has one, but comes back as an object with a list of numbers.
    if (ArrayBuffer.isView(value)) this.#refuse(`a ${tagOf(value)}`);
    if (!isResult && 'toJSON' in value && typeof value.toJSON === 'function') {
      const converted: unknown = Reflect.apply(value.toJSON, value, []);
      if (converted === undefined) this.#refuse('undefined after its toJSON');
      if (converted === null && tagOf(value) === 'Date') this.#refuse('an invalid Date');
      this.#isConverted = true;
      this.#around.push({ of: value, values: {}, names: [], next: 0 });
      this.#look(converted, true);
    } else if (isRecord(value)) {
      const names = Object.keys(value);
      const what = unlikeJson(value, names.length === 0);
      if (what !== undefined) this.#refuse(what);
      this.#around.push({ of: value, values: value, names, next: 0 });
    } else if (Array.isArray(value)) {
      this.#around.push({ of: value, values: value, names: undefined, next: 0 });
    }
  }

  /** @param most how many names of the path the error shows. */
  #refuse(what: string, most = Infinity): never {
    const keys = this.#around.flatMap(({ names, next }) =>
      next === 0 ? [] : [names ? (names[next - 1] ?? '') : next - 1],
    );
    const path = keys.slice(0, most).reduce<string>((before, key) => {
      if (typeof key === 'number') return `${before}[${key}]`;
      return before ? `${before}.${key}` : key;
    }, this.#path);
    throw new UnserializableValueError(path, what);
  }
}

/** Checks only the object itself, not its values. @throws UnserializableValueError if it comes back as another kind of object. */
export function refuseUnlikeJson(value: object, path: string): void {
  const what = unlikeJson(value, Object.keys(value).length === 0);
  if (what !== undefined) throw new UnserializableValueError(path, what);
}

/** @returns the kind of an object that would come back as something else; undefined for others. */
function unlikeJson(value: object, isEmpty: boolean): string | undefined {
  // Nearly all are, and a part of this text would be a new one for each.
  if (Object.prototype.toString.call(value) === '[object Object]') return undefined;
  const tag = tagOf(value);
  // An object of a class without enumerable properties, such as a Blob or URLSearchParams, would come back as `{}`.
  return UNSERIALIZABLE.test(tag) || isEmpty ? `a ${tag}` : undefined;
}

function tagOf(value: object): string {
  return Object.prototype.toString.call(value).slice('[object '.length, -1);
}

/**
 * Reads a stored event back, with ADK's brand.
 *
 * @param json null or undefined if the content of its row is lost.
 * @returns undefined if there is no text, or it is not the JSON of an object.
 */
export function decodeEvent(json: string | null | undefined): Event | undefined {
  const value = decode(json ?? '')?.value;
  if (!isObject(value) || Array.isArray(value)) return undefined;
  return Object.assign(value as Event, { [EVENT_BRAND]: true as const });
}

/** @returns undefined if the text is not JSON, or nested so deeply that it could not be written again. */
export function decode(json: string): { value: unknown } | undefined {
  return isTooDeep(json) ? undefined : parse(json);
}

/** @returns undefined if the text is not JSON. */
export function parse(json: string): { value: unknown } | undefined {
  try {
    return { value: JSON.parse(json) };
  } catch {
    return undefined;
  }
}

/** Checks the text, since a parsed value could be checked only by recursion. */
function isTooDeep(json: string): boolean {
  // A fast check: most texts are shorter, or have fewer brackets.
  if (json.length < 2 * MOST_STORED_LEVELS || !hasBrackets(json, MOST_STORED_LEVELS)) return false;
  let level = 0;
  for (let i = 0; i < json.length; i++) {
    switch (json[i]) {
      case '"':
        i = endOfString(json, i);
        break;
      case '[':
      case '{':
        if (++level > MOST_STORED_LEVELS) return true;
        break;
      case ']':
      case '}':
        level--;
    }
  }
  return false;
}

/** Whether a text has more than `most` opening brackets, in strings or not. */
function hasBrackets(json: string, most: number): boolean {
  let count = 0;
  for (const bracket of '[{')
    for (let i = json.indexOf(bracket); i !== -1; i = json.indexOf(bracket, i + 1)) if (++count > most) return true;
  return false;
}

/** @param start index of the opening quote. @returns the index of the closing one; the length of the text if it is missing. */
function endOfString(json: string, start: number): number {
  for (let i = start + 1; i < json.length; i++) {
    if (json[i] === '\\') i++;
    else if (json[i] === '"') return i;
  }
  return json.length;
}

export function isObject(value: unknown): value is object {
  return typeof value === 'object' && value !== null;
}

/** Without `instanceof`: a host's promise may be from another realm. */
export const isPromise = <T>(value: T | PromiseLike<T>): value is PromiseLike<T> =>
  isObject(value) && 'then' in value && typeof value.then === 'function';

/** @returns a copy without properties that are undefined, which a filter would refuse. */
export function withoutUndefined<T extends object>(values: T): T {
  const copy = { ...values };
  for (const name in copy) if (copy[name] === undefined) delete copy[name];
  return copy;
}

/**
 * Whether it is an object literal, of any realm, with enumerable properties only. Instances of classes may keep their values
 * elsewhere: a `Map`, a `Response` and an `Error` look like `{}`.
 */
export function isPlainObject(value: unknown): value is Record<string, unknown> {
  if (!isObject(value)) return false;
  const prototype: unknown = Object.getPrototypeOf(value);
  const isRoot =
    isObject(prototype) && Object.getPrototypeOf(prototype) === null && Object.hasOwn(prototype, 'isPrototypeOf');
  return (prototype === null || isRoot) && Reflect.ownKeys(value).length === Object.keys(value).length;
}

/** Whether a JSON value is an object. */
export function isRecord(value: unknown): value is Record<string, unknown> {
  return isObject(value) && !Array.isArray(value);
}

/** @returns the value if it is an object; otherwise an empty one. */
export function recordOf(value: unknown): Record<string, unknown> {
  return isRecord(value) ? value : {};
}
