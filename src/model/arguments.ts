import { InvalidArgumentError } from './errors.js';
import { isObject, isPlainObject, isRecord } from './objects.js';

/**
 * Checks a value that a caller passed.
 *
 * @returns a copy to use in its place, so that what the caller changes in it later does not reach the call; undefined if it is
 *   used as it is.
 * @throws InvalidArgumentError that begins with the name.
 */
export interface Check {
  (value: unknown, name: string): unknown;
  /** Whether the value of a name that is there may not be undefined; see `condition`. */
  readonly isCondition?: boolean;
}

/** The names that an object may have, each with the check of its value; one that is forgotten is a type error. */
export type Known<T> = { readonly [K in keyof T]-?: Check };

/**
 * Checks an object by the names that it may have. Without it a mistyped name would be ignored, and a filter without its
 * condition returns the events of all users. So would the names of an instance of a class be, which are not its own.
 *
 * @param required the names whose value may not be `undefined`, which means a name that is left out.
 * @returns what gives a copy of the object, as `Check` does.
 * @throws InvalidArgumentError when it has another name, also by inheritance, as an `AbortSignal` has, when it is no plain
 *   object, or when the value of a name is refused.
 */
export function object<T extends object>(
  known: Known<T>,
  ...required: readonly (keyof T)[]
): (value: unknown, name: string) => T {
  const checks = Object.entries<Check>(known);
  const isRequired = new Set<PropertyKey>(required);
  return (value, name) => {
    if (!isRecord(value)) {
      throw new InvalidArgumentError(`${name} must be an object.`);
    }
    for (const key in value) {
      if (Object.hasOwn(known, key)) continue;
      throw new InvalidArgumentError(
        `${name} may not have '${key}'; known are ${checks.map(([each]) => each).join(', ')}.`,
      );
    }
    const copy = aPlainObject(value, name);
    for (const [key, check] of checks) {
      const each = copy[key];
      const isMeant = isRequired.has(key) || (check.isCondition && Object.hasOwn(copy, key));
      if (each !== undefined || isMeant) copy[key] = check(each, key) ?? each;
    }
    return copy as T;
  };
}

/** @param what follows `must be` in the error. */
export function rule(what: string, holds: (value: unknown) => boolean): Check {
  return (value, name) => {
    if (!holds(value)) throw new InvalidArgumentError(`${name} must be ${what}.`);
  };
}

export function oneOf(...allowed: readonly unknown[]): Check {
  return rule(allowed.map((value) => `'${String(value)}'`).join(' or '), (value) => allowed.includes(value));
}

/**
 * For a name whose absence means "all". `{ userId: request.user?.id }` of a visitor who is not logged in would ask for all
 * users, and `prune` would delete the sessions of all of them.
 *
 * @returns a check that also refuses undefined, if the name is there.
 */
export function condition(check: Check): Check {
  const checkValue = (value: unknown, name: string) => {
    if (value === undefined)
      throw new InvalidArgumentError(
        `${name} is given as undefined. Nothing was done. Leave the name out if all are meant.`,
      );
    return check(value, name);
  };
  return Object.assign(checkValue, { isCondition: true });
}

export function nullable(check: Check): Check {
  return (value, name) => (value === null ? undefined : check(value, name));
}

/** @returns a check that also copies a list. What is in it is the caller's. */
export function copied(check: Check): Check {
  return (value, name) => {
    check(value, name);
    return Array.isArray(value) ? Array.from<unknown>(value) : undefined;
  };
}

/** What is in its values is the caller's. */
export function aPlainObject(value: unknown, name: string): Record<string, unknown> {
  if (!isPlainObject(value)) throw new InvalidArgumentError(`${name} must be a plain object.`);
  return { ...value };
}

/** The longest delay of a timer, 24 days; a longer one fires at once. */
const MAX_TIMER_MS = 2 ** 31 - 1;

/** For values that are checked where they are used, such as keys. */
export const anything: Check = () => undefined;
export const aBoolean = rule('true or false', (value) => typeof value === 'boolean');
export const aString = rule('a string', (value) => typeof value === 'string');
/** For a part of a text: every text has the empty one in it. */
export const someText = rule('a string that is not empty', (value) => typeof value === 'string' && value !== '');
export const strings = copied(rule('an array of strings', (value) => isArrayOf('string', value)));
export const objects = copied(rule('an array of objects', (value) => isArrayOf('object', value)));
export const aRecord = rule('an object', (value) => isRecord(value));
/** Whether its ids are keys is checked later. What an object literal or a clone has is enough (contract A15). */
export const aSession = rule(
  'an object with events and state, as getSession gives it',
  (value) => isRecord(value) && Array.isArray(value['events']) && isRecord(value['state']),
);
export const aFunction = rule('a function', (value) => typeof value === 'function');
export const aTime = rule('a number of ms since 1970', Number.isFinite);
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
/** As good as for ever: a time that much later is one that dates can have, and MySQL adds no `Infinity`. */
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
  return Array.isArray(value) && value.every((each: unknown) => typeof each === type && each !== null);
}
