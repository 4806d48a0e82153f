export function isObject(value: unknown): value is object {
  return typeof value === 'object' && value !== null;
}

/** Whether JSON is an object, as state is. */
export function isRecord(value: unknown): value is Record<string, unknown> {
  return isObject(value) && !Array.isArray(value);
}
