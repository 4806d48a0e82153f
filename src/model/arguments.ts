import { InvalidArgumentError } from './errors.js';
import { isObject, isPlainObject, isRecord } from './json.js';
import { MAX_TIMER_MS } from './signals.js';

/**
 * Checks a value that a caller passed.
 *
 * @returns a copy to use instead, so that later changes by the caller do not reach the call; undefined to use the value itself.
 * @throws InvalidArgumentError whose message begins with the name.
 */
export interface Check {
  (value: unknown, name: string): unknown;
  /** Whether an explicit `undefined` is refused; see `condition`. */
  readonly isCondition?: boolean;
}

/** The properties that an object may have, with the checks of their values. A forgotten property is a type error. */
export type Checks<T> = { readonly [K in keyof T]-?: Check };

/**
 * Checks the properties of an object. Otherwise a misspelt one would be ignored, and a filter without its condition returns the
 * events of all users. The properties of a class instance would be ignored, too, since they are not its own, and so would those that a
 * `Proxy` hides.
 *
 * @param required the properties that must be there and may not be `undefined`.
 * @returns a check that returns a copy of the object.
 * @throws InvalidArgumentError for an unknown property, also an inherited one (as an `AbortSignal` has), for an object that is not
 *   plain, or if a value is refused.
 */
export function object<T extends object>(
  checks: Checks<T>,
  ...required: readonly (keyof T)[]
): (value: unknown, name: string) => T {
  const entries = Object.entries<Check>(checks);
  const isRequired = new Set<PropertyKey>(required);
  return (value, name) => {
    if (!isRecord(value)) {
      throw new InvalidArgumentError(`${name} must be an object.`, [name]);
    }
    for (const key in value) {
      if (Object.hasOwn(checks, key)) continue;
      throw new InvalidArgumentError(
        `${name} may not have '${key}'; known are ${entries.map(([each]) => each).join(', ')}.`,
      );
    }
    const copy = aPlainObject(value, name);
    for (const [key, check] of entries) {
      const each = copy[key];
      if (each === undefined && value[key] !== undefined)
        throw new InvalidArgumentError(`${name} must be a plain object, which does not hide its '${key}'.`);
      const mustBeChecked = isRequired.has(key) || (check.isCondition && Object.hasOwn(copy, key));
      if (each !== undefined || mustBeChecked) copy[key] = check(each, key) ?? each;
    }
    return copy as T;
  };
}

/** @param what follows `must be` in the error. */
export function rule(what: string, holds: (value: unknown) => boolean): Check {
  return (value, name) => {
    if (!holds(value)) throw new InvalidArgumentError(`${name} must be ${what}.`, [name]);
  };
}

export function oneOf(...allowed: readonly unknown[]): Check {
  return rule(allowed.map((value) => `'${String(value)}'`).join(' or '), (value) => allowed.includes(value));
}

/**
 * For a property whose absence means "all". For a visitor who is not logged in, `{ userId: request.user?.id }` would mean all
 * users, and `prune` would delete the sessions of all of them.
 *
 * @returns a check that also refuses an explicit undefined.
 */
export function condition(check: Check): Check {
  const checkValue = (value: unknown, name: string) => {
    if (value === undefined)
      throw new InvalidArgumentError(`${name} is undefined. Nothing was done. If you mean all, leave it out.`, [name]);
    return check(value, name);
  };
  return Object.assign(checkValue, { isCondition: true });
}

export function nullable(check: Check): Check {
  return (value, name) => (value === null ? undefined : check(value, name));
}

/** @returns a check that also copies a list, but not its elements. */
export function copied(check: Check): Check {
  return (value, name) => {
    check(value, name);
    return Array.isArray(value) ? Array.from<unknown>(value) : undefined;
  };
}

/** Its values are not copied. */
export function aPlainObject(value: unknown, name: string): Record<string, unknown> {
  if (!isPlainObject(value)) throw new InvalidArgumentError(`${name} must be a plain object.`, [name]);
  return { ...value };
}

/** For values that are checked where they are used, such as keys. */
export const anything: Check = () => undefined;
/** The names of a session, as conditions. `checkKeys` checks the values. */
export const keyConditions = {
  ...{ appName: condition(anything), userId: condition(anything), sessionId: condition(anything) },
};
export const aBoolean = rule('true or false', (value) => typeof value === 'boolean');
export const aString = rule('a string', (value) => typeof value === 'string');
/** For a text to search for: every text contains the empty one. */
export const someText = rule('a string that is not empty', (value) => typeof value === 'string' && value !== '');
export const strings = copied(rule('an array of strings', (value) => isArrayOf('string', value)));
export const objects = copied(rule('an array of objects', (value) => isArrayOf('object', value)));
export const aRecord = rule('an object', (value) => isRecord(value));
/** Its ids are checked later. An object literal or a clone is enough (contract A15). */
export const aSession = rule(
  'an object with events and state, as getSession returns it',
  (value) => isRecord(value) && Array.isArray(value['events']) && isRecord(value['state']),
);
export const aFunction = rule('a function', (value) => typeof value === 'function');
export const aTime = rule('a number of ms since 1970', Number.isFinite);
export const isDate = (value: unknown): value is number => typeof value === 'number' && Math.abs(value) <= 8.64e15;
/** For a time that is shown as a date. */
export const aDate = rule('a number of ms since 1970 that a date can have', isDate);
export const aWholeNumber = rule('a whole number, 0 or more', isWhole);
export const aCount = rule('a whole number, 1 or more', (value) => isWhole(value) && value !== 0);
/** The delay of one timer. */
export const aDuration = rule(
  `a number of ms above 0, and ${MAX_TIMER_MS} at most`,
  (value) => typeof value === 'number' && value > 0 && value <= MAX_TIMER_MS,
);
/** The delay of one timer, or none. */
export const aTimeout = rule(
  `a number of ms, 0 for no limit, and ${MAX_TIMER_MS} at most`,
  (value) => typeof value === 'number' && value >= 0 && value <= MAX_TIMER_MS,
);
const msFromZero = rule('a number of ms, 0 or more', (value) => typeof value === 'number' && value >= 0);
/** Used for `Infinity`, which MySQL cannot add to a time: the result is still a valid date. */
const FOR_EVER_MS = 8e15;
/** A wait that may be longer than one timer; `Infinity` for ever. */
export const aWait: Check = (value, name) => {
  msFromZero(value, name);
  return Math.min(Number(value), FOR_EVER_MS);
};
export const anAbortSignal = rule(
  'an AbortSignal',
  (value) => isObject(value) && 'aborted' in value && 'addEventListener' in value,
);

function isWhole(value: unknown): boolean {
  return Number.isSafeInteger(value) && Number(value) >= 0;
}

function isArrayOf(type: 'string' | 'object', value: unknown): boolean {
  // `every` skips the missing elements of an array such as `new Array(1)`; `Array.from` makes them undefined.
  return Array.isArray(value) && Array.from<unknown>(value).every((each) => typeof each === type && each !== null);
}
