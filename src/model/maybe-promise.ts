import { isObject } from './json.js';

export type MaybePromise<T> = T | Promise<T>;

/** Does not use `instanceof`: a host's promise may be from another realm. */
export const isPromise = <T>(value: MaybePromise<T>): value is Promise<T> =>
  isObject(value) && typeof (value as { then?: unknown }).then === 'function';

/** Calls `next` with a value, at once if it is not a promise. */
export function after<T, R>(value: MaybePromise<T>, next: (value: T) => MaybePromise<R>): MaybePromise<R> {
  return isPromise(value) ? value.then(next) : next(value);
}
