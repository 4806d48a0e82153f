export function isObject(value: unknown): value is object {
  return typeof value === 'object' && value !== null;
}

/** @returns a copy without properties that are undefined, which a filter would refuse. */
export function given<T extends object>(values: T): T {
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
