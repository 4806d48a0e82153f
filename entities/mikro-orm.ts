/**
 * What differs between MikroORM 6 and 7 in entities; `src/database/orm` has the rest. The major version is recognised by the members
 * of an object, never by a version number.
 */
import { defineEntity, type EntityMetadata } from '@mikro-orm/core';
import { processWide } from '../src/model/process-wide.js';

/** MikroORM 7 also finds an entity by its name, but its types don't say so. */
export function entityNamed(metadata: Iterable<EntityMetadata>, name: string): EntityMetadata | undefined {
  for (const meta of metadata) if (meta.className === name) return meta;
  return undefined;
}

interface Schema {
  readonly meta: { readonly className: string; readonly class?: unknown };
}

/** MikroORM 7 makes a schema's class with the schema, MikroORM 6 when an ORM reads it. */
function hasClass(schema: Schema): schema is Schema & { setClass(entityClass: unknown): void } {
  return schema.meta.class !== undefined;
}

/**
 * MikroORM 6 identifies entities by their names, MikroORM 7 by their classes. For 7, all entities with the same name get the same class,
 * even those of another copy of this package: otherwise `find(AdkSession)`, or a host's relation to `AdkSession`, would mean another
 * entity than the one that `adkEntities` made with options.
 */
export const sharedEntity = ((options: Parameters<typeof defineEntity>[0]) => {
  const schema: Schema = defineEntity(options);
  if (hasClass(schema)) {
    const classes = processWide('entity classes', () => new Map<string, unknown>());
    const { className } = schema.meta;
    if (!classes.has(className)) classes.set(className, schema.meta.class);
    schema.setClass(classes.get(className));
  }
  return schema;
}) as typeof defineEntity;

interface CollatedBuilder<Builder> {
  collation: unknown;
  ignoreSchemaChanges(...changes: string[]): Builder;
}

function comparesCollations<Builder extends object>(builder: Builder): builder is Builder & CollatedBuilder<Builder> {
  return 'collation' in builder && 'ignoreSchemaChanges' in builder;
}

/**
 * For a column whose type contains its collation, and for a foreign key to such a column. The schema generator of MikroORM 7 reads type
 * and collation separately from the database, and would always find a difference.
 */
export function withCollatedType<Builder extends object>(builder: Builder): Builder {
  return comparesCollations(builder) ? builder.ignoreSchemaChanges('type', 'collation') : builder;
}
