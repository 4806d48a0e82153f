import { types } from 'node:util';
import type { EntityManager } from '@mikro-orm/core';
import type { Migrator } from '@mikro-orm/migrations';
import { SchemaError } from '../src/model/errors.js';
import { isObject } from '../src/model/json.js';
import { executedNames } from './executed-names.js';

/**
 * What differs between MikroORM 6 and 7 in `@mikro-orm/migrations`; `src/database/orm` has the rest. The major version is recognised by
 * the members of an object, never by a version number.
 */

/** Methods of `Migrator`, by the names that 6 and 7 give them. */
const METHODS = {
  check: ['checkMigrationNeeded', 'checkSchema'],
  getPending: ['getPendingMigrations', 'getPending'],
  getSchemaFromSnapshot: ['getSchemaFromSnapshot'],
} as const;

type Method = (this: Migrator, ...args: unknown[]) => unknown;

/** @throws SchemaError if the migrator has none of the names, because the change would silently have no effect. */
function methodOf(migrator: Migrator, names: readonly string[]): { name: string; method: Method } {
  const name = names.find((candidate) => candidate in migrator);
  if (name === undefined) {
    throw new SchemaError(
      `The Migrator of this @mikro-orm/migrations has no ${names.join(' and no ')}, so adk-mikro-orm doesn't know it. ` +
        'Install a version that the peerDependencies of adk-mikro-orm name.',
    );
  }
  return { name, method: Reflect.get(migrator, name) as Method };
}

/**
 * Changes a method in the prototype of a subclass of `Migrator`, whichever of its names it has.
 *
 * @param change replaces the method; `inherited` calls MikroORM's own with the same arguments.
 */
export function changeMethod<M extends Migrator>(
  prototype: M,
  names: keyof typeof METHODS,
  change: (migrator: M, inherited: () => unknown) => unknown,
): void {
  const { name, method } = methodOf(prototype, METHODS[names]);
  Object.defineProperty(prototype, name, {
    configurable: true,
    writable: true,
    value: function (this: M, ...args: unknown[]) {
      return change(this, () => Reflect.apply(method, this, args));
    },
  });
}

/** @returns the migrations that `up` would run. */
export function pendingMigrations(migrator: Migrator): Promise<object[]> {
  return methodOf(migrator, METHODS.getPending).method.call(migrator) as Promise<object[]>;
}

type Selection = Parameters<Migrator['down']>[0];

/**
 * @returns what `down` must revert. Without a selection, MikroORM 7 reverts the last recorded migration, or nothing if this migrator does
 *   not have it, for example after `migrate(orm)`. MikroORM 6 reverts the last one that it has.
 */
export async function lastKnown(em: EntityManager, migrator: Migrator, selection: Selection): Promise<Selection> {
  const isEmpty = selection === undefined || Object.keys(selection).length === 0;
  if (!('discoverMigrations' in migrator) || !isEmpty) return selection;
  const executed = await executedNames(em);
  const discover = Reflect.get(migrator, 'discoverMigrations') as (this: Migrator) => Promise<{ name: string }[]>;
  const known = new Set((await discover.call(migrator)).map(({ name }) => name));
  const last = executed.findLast((name) => known.has(name));
  return last === undefined ? selection : { migrations: [last] };
}

/** The part of MikroORM's `DatabaseSchema` that is used here; its package is not a dependency of ours. */
export interface Schema {
  getTables(): { name: string }[];
}

function isSchema(value: unknown): value is Schema {
  return isObject(value) && 'getTables' in value && typeof value.getTables === 'function';
}

/**
 * Changes the result of `getSchemaFromSnapshot`, which is a schema with MikroORM 6, and a promise of one with MikroORM 7.
 *
 * @returns the changed schema, or a promise of it.
 * @throws SchemaError if it is something else.
 */
export function changeSchema(found: unknown, change: (schema: Schema) => void): unknown {
  if (types.isPromise(found)) return found.then((schema) => changeSchema(schema, change));
  if (found === undefined) return found;
  if (!isSchema(found))
    throw new SchemaError('This version of MikroORM reads snapshots in a way that adk-mikro-orm doesn’t know.');
  change(found);
  return found;
}
