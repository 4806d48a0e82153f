import type { MikroORM } from '@mikro-orm/core';
import { placeOf, tableNames } from '../../../migrations/tables.js';

/** How MikroORM rebuilds a table of SQLite; it finds our composite foreign keys different there each time. */
const REBUILDING = /pragma foreign_keys = off;.*?pragma foreign_keys = on;/gs;

/** The table that a statement changes, quoted. */
const TABLE = /^(?:create table|alter table|create (?:unique )?index [^(]* on) (?:["`][^"`]+["`]\.)?["`]([^"`]+)["`]/;

/**
 * Compares our tables with the entities, as MikroORM's schema generator does. What the host has added to them is left as it
 * is, and so are other tables. Collations are not compared, nor foreign keys of SQLite.
 *
 * @returns the statements that add what is missing.
 */
export async function schemaDifferences(orm: MikroORM): Promise<string[]> {
  const ours = new Set(tableNames(placeOf(orm.getMetadata())));
  const text = await orm.schema.getUpdateSchemaSQL({ wrap: false, safe: true, dropTables: false });
  return text
    .replace(REBUILDING, '')
    .split(/;\s*(?:\n|$)/)
    .map((statement) => statement.trim())
    .filter((statement) => ours.has(TABLE.exec(statement)?.[1] ?? '') && !/\bdrop\b/.test(statement))
    .map((statement) => `${statement};`);
}
