import type { Connection, Platform, Transaction } from '@mikro-orm/core';

/** A column of a foreign key, with the statement that created its table. */
interface KeyColumn {
  readonly id: number;
  readonly seq: number;
  readonly from: string;
  readonly table: string;
  readonly to: string;
  readonly on_update: string;
  readonly on_delete: string;
  readonly sql: string;
}

/** A foreign key, as MikroORM keeps it. */
interface ForeignKey {
  readonly constraintName: string;
  readonly localTableName: string;
  readonly columnNames: string[];
  readonly referencedTableName: string;
  readonly referencedColumnNames: string[];
  readonly updateRule: string;
  readonly deleteRule: string;
  readonly deferMode: string | undefined;
}

/** The part of MikroORM's schema helper that is changed here; its package is not a dependency of ours. */
interface SchemaHelper {
  getForeignKeys(
    connection: Connection,
    table: string,
    schema?: string,
    context?: Transaction,
  ): Promise<Record<string, ForeignKey>>;
  /** Only in MikroORM 6: the statements that rebuild a table. */
  getAlterTable?(...args: unknown[]): Promise<string>;
}

/** What `pragma foreign_key_list` leaves out: the name of a foreign key, and when it is checked. */
const CONSTRAINT =
  /constraint\s+(\S+)\s+foreign\s+key\s*\(([^)]*)\)\s*references\s+([^\s(,]+)\s*(?:\([^)]*\))?([^,)]*)/gi;

const unquoted = (names: string) => names.replace(/[`"[\]\s]/g, '');

/** By the columns and the table that a foreign key refers to. */
function constraintsOf(sql: string) {
  return new Map(
    [...sql.matchAll(CONSTRAINT)].map(([, name = '', columns = '', table = '', rules = '']) => [
      `${unquoted(columns)}>${unquoted(table)}`,
      { name: unquoted(name), deferMode: /initially\s+(\w+)/i.exec(rules)?.[1]?.toLowerCase() },
    ]),
  );
}

async function foreignKeysOf(
  platform: Platform,
  ...[connection, localTable, schema, context]: Parameters<SchemaHelper['getForeignKeys']>
): Promise<Record<string, ForeignKey>> {
  const tables = `${schema ? `${platform.quoteIdentifier(schema)}.` : ''}sqlite_master`;
  const rows = (await connection.execute(
    `select f.*, t.sql from pragma_foreign_key_list(?, ?) f join ${tables} t on t.type = 'table' and t.name = ?
      order by f.id, f.seq`,
    [localTable, schema ?? null, localTable],
    'all',
    context,
  )) as KeyColumn[];
  const constraints = constraintsOf(rows[0]?.sql ?? '');
  const keys = rows
    .filter(({ seq }) => seq === 0)
    .map(({ id, table, on_update, on_delete }): ForeignKey => {
      const columns = rows.filter((row) => row.id === id);
      const columnNames = columns.map(({ from }) => from);
      const { name, deferMode } = constraints.get(`${columnNames.join()}>${table}`) ?? {};
      return {
        constraintName: name ?? platform.getIndexName(localTable, columnNames, 'foreign'),
        localTableName: schema ? `${schema}.${localTable}` : localTable,
        columnNames,
        referencedTableName: table,
        referencedColumnNames: columns.map(({ to }) => to),
        updateRule: on_update.toLowerCase(),
        deleteRule: on_delete.toLowerCase(),
        deferMode,
      };
    });
  return Object.fromEntries(keys.map((key) => [key.constraintName, key]));
}

/**
 * Corrects two faults of MikroORM on SQLite, by which hosts lost rows:
 *
 * - It reads a foreign key of several columns as one key for each column, without names. So every table that refers to a session or
 *   an event seems to differ from its entity, and is rebuilt each time.
 * - MikroORM 6 turns foreign keys on after one table and off before the next in one line, but only the first statement of a line runs.
 *   So the next table is rebuilt with foreign keys on, and `drop table` deletes the rows that refer to it with `on delete cascade`.
 */
export function correctSchemaHelper(platform: Platform): void {
  const helper = platform.getSchemaHelper() as SchemaHelper;
  if (Object.hasOwn(helper, 'getForeignKeys')) return;
  helper.getForeignKeys = (...args) => foreignKeysOf(platform, ...args);
  const alterTable = helper.getAlterTable?.bind(helper);
  if (alterTable) helper.getAlterTable = async (...args) => `${await alterTable(...args)}\n`;
}
