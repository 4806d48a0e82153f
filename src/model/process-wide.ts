/** Add one if the shape of a shared value changes: two versions of this package must not read each other's. */
const SHARED: unique symbol = Symbol.for('adk-mikro-orm.shared.1');

/**
 * A value that all copies of this package in a process share. A host may load two: one by `import`, one by `require`. Whatever
 * orders calls, or belongs to an object of the host, must be known to both; otherwise calls of two copies that join one transaction
 * would undo each other's work.
 *
 * @param make makes plain data or functions, since an object of the other copy's classes is no `instanceof` of ours.
 */
export function processWide<T>(name: string, make: () => T): T {
  const all = ((globalThis as { [SHARED]?: Map<string, unknown> })[SHARED] ??= new Map());
  if (!all.has(name)) all.set(name, make());
  // The same name always has the same type.
  return all.get(name) as T;
}
