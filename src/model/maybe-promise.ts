import { isObject } from './objects.js';

export type MaybePromise<T> = T | Promise<T>;

/** Not by `instanceof`: a host's promise may be of another realm. */
export const isPromise = <T>(value: MaybePromise<T>): value is Promise<T> => isObject(value) && 'then' in value;

/** Continues with a value, at once if it is no promise. */
export function after<T, R>(value: MaybePromise<T>, next: (value: T) => MaybePromise<R>): MaybePromise<R> {
  return isPromise(value) ? value.then(next) : next(value);
}
