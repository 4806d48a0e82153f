import type { EntityManager, EntityMetadata, EntityProperty, Platform } from '@mikro-orm/core';
import { supportedDialect } from '../../../../entities/dialect-name.js';
import { ourTables, type SqlRunner } from '../../../../src/internal.js';
import { textOf } from '../../../../src/database/sql/values.js';
import { SCHEMA_SQL, type SchemaSql } from './schema-sql.js';

/** A column, an index or a foreign key that a table has. */
interface Part {
  kind: 'column' | 'index' | 'foreign key';
  table_name: string;
  name: string;
  detail: string;
}

/** A part that an entity's table must have, with the statement that adds it. */
interface Needed {
  kind: Part['kind'];
  /** Undefined if it may have any name. */
  name: string | undefined;
  detail: string;
  statement: string;
  /** The statement to run first if another part has the name. */
  drop?: string;
}

const NO_FOREIGN_KEYS_LATER =
  'SQLite adds no foreign key to a table that is there: export the sessions, and import them into a file that migrate has made.';

/**
 * Compares the indexes, foreign keys and collations of our tables with the entities. Missing tables and columns are found by
 * `migrationStatus`. Additions of the host are left as they are.
 *
 * @returns how to correct each difference, usually a statement.
 */
export async function schemaDifferences(em: EntityManager, read: SqlRunner): Promise<string[]> {
  const pieces = SCHEMA_SQL[supportedDialect(em.getPlatform())];
  const { schema, entities } = ourTables(em);
  const values = [schema ?? null, ...entities.map(({ tableName }) => tableName)];
  const rows = await read((sql) => sql.all<Part>(pieces.catalog(entities.length), [...values, ...values, ...values]));
  const parts = rows.map((row) => ({ ...row, detail: textOf(row.detail), name: textOf(row.name) }));
  return entities.flatMap((meta) => {
    const there = parts.filter(({ table_name }) => table_name === meta.tableName);
    // The connection finds the table in a schema that is not its first one.
    if (there.length === 0) return [];
    return neededBy(meta, em.getPlatform(), pieces, schema)
      .filter((needed) => !there.some((part) => isMet(needed, part)))
      .flatMap(({ kind, name, drop, statement }) => {
        const isOther = drop !== undefined && there.some((part) => part.kind === kind && part.name === name);
        return isOther ? [drop, statement] : [statement];
      });
  });
}

function isMet(needed: Needed, part: Part): boolean {
  return (
    part.kind === needed.kind &&
    (needed.name === undefined || part.name === needed.name) &&
    (part.detail === needed.detail || part.detail === `unique ${needed.detail}`)
  );
}

function neededBy(meta: EntityMetadata, platform: Platform, pieces: SchemaSql, schema: string | undefined): Needed[] {
  const { alterations } = pieces;
  const quote = (name: string) => platform.quoteIdentifier(name);
  const qualified = (name: string) => (schema ? `${quote(schema)}.${quote(name)}` : quote(name));
  const list = (names: readonly string[]) => names.map(quote).join(', ');
  const table = qualified(meta.tableName);
  const properties: Record<string, EntityProperty> = meta.properties;
  const columnsOf = (names: readonly string[]) => names.flatMap((name) => properties[name]?.fieldNames ?? []);
  const index = (name: string | undefined, columns: readonly string[], isUnique: boolean): Needed => ({
    kind: 'index',
    name,
    detail: (isUnique ? 'unique ' : '') + columns.join(),
    statement: name
      ? `create ${isUnique ? 'unique ' : ''}index ${quote(name)} on ${table} (${list(columns)});`
      : `alter table ${table} add primary key (${list(columns)});`,
    ...(name && { drop: pieces.dropIndex({ table, name: quote(name), qualifiedName: qualified(name), isUnique }) }),
  });
  const named = (lists: readonly { name?: string; properties?: unknown }[], isUnique: boolean) =>
    lists.map(({ name, properties: of }) => index(name, columnsOf([of].flat() as string[]), isUnique));

  const needed = [...named(meta.indexes, false), ...named(meta.uniques, true)];
  if (!alterations) {
    const foreignKey: Needed = {
      kind: 'foreign key',
      name: undefined,
      detail: 'cascade',
      statement: NO_FOREIGN_KEYS_LATER,
    };
    return [...needed, ...meta.relations.map(() => foreignKey)];
  }
  needed.push(index(undefined, columnsOf(meta.primaryKeys), true));
  for (const { fieldNames, columnTypes } of meta.props) {
    fieldNames.forEach((column, i) => {
      const type = columnTypes[i] ?? '';
      const [, collation] = / collate "?(\w+)"?/.exec(type) ?? [];
      if (collation === undefined) return;
      const isNullable = meta.props.some((prop) => prop.fieldNames.includes(column) && prop.nullable === true);
      const change = alterations.column(quote(column), type, isNullable);
      needed.push({ kind: 'column', name: column, detail: collation, statement: `alter table ${table} ${change};` });
    });
  }
  for (const { foreignKeyName: name, targetMeta, fieldNames, referencedColumnNames } of meta.relations) {
    if (!targetMeta) continue;
    needed.push({
      kind: 'foreign key',
      name,
      detail: 'cascade',
      statement:
        `alter table ${table} add constraint ${quote(name ?? '')} foreign key (${list(fieldNames)}) ` +
        `references ${qualified(targetMeta.tableName)} (${list(referencedColumnNames)}) on delete cascade;`,
      ...(name && { drop: `alter table ${table} drop ${alterations.foreignKey} ${quote(name)};` }),
    });
  }
  return needed;
}
