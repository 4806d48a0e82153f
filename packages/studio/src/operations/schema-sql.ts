import type { DialectName } from '../../../../entities/dialect-name.js';
import { placeholders } from '../../../../src/database/sql/values.js';

/** How a database shows the parts of tables, and how they are restored. All names are quoted. */
export interface SchemaSql {
  /**
   * Selects the parts of tables as `kind`, `table_name`, `name` and `detail`: a `column` with its collation, an `index` with its
   * columns, after `unique ` if it is, and a `foreign key` with its action on deletion. Its values are the schema, or null for that
   * of the connection, and the names of the tables, three times.
   *
   * @param tables the number of names.
   */
  catalog(tables: number): string;
  dropIndex(index: IndexName): string;
  /** Left out if an existing table cannot get keys, and columns have no collation of their own. */
  readonly alterations?: {
    /** What follows `alter table …` to restore a column; `type` includes its collation. */
    column(name: string, type: string, isNullable: boolean): string;
    /** What follows `drop` before the name of a foreign key. */
    readonly foreignKey: 'constraint' | 'foreign key';
  };
}

interface IndexName {
  table: string;
  name: string;
  /** With the name of its schema, if it has one. */
  qualifiedName: string;
  isUnique: boolean;
}

const mysql: SchemaSql = {
  catalog(tables) {
    const ours = (prefix: string) =>
      `${prefix}_schema = coalesce(?, database()) and table_name in (${placeholders(tables)})`;
    return `select 'column' as kind, table_name as table_name, column_name as name, coalesce(collation_name, '') as detail
          from information_schema.columns where ${ours('table')}
        union all select 'index', table_name, index_name,
            concat(if(non_unique = 0, 'unique ', ''), group_concat(column_name order by seq_in_index))
          from information_schema.statistics where ${ours('table')} group by table_name, index_name, non_unique
        union all select 'foreign key', table_name, constraint_name, lower(delete_rule)
          from information_schema.referential_constraints where ${ours('constraint')}`;
  },
  dropIndex: ({ table, name }) => `drop index ${name} on ${table};`,
  alterations: {
    column: (name, type, isNullable) => `modify ${name} ${type} ${isNullable ? 'null' : 'not null'}`,
    foreignKey: 'foreign key',
  },
};

export const SCHEMA_SQL: Readonly<Record<DialectName, SchemaSql>> = {
  sqlite: {
    catalog(tables) {
      // There is no schema, so this value is null.
      const ours = `? is null and t.type = 'table' and t.name in (${placeholders(tables)})`;
      return `select 'column' as kind, t.name as table_name, c.name as name, '' as detail
          from sqlite_master as t join pragma_table_info(t.name) as c where ${ours}
        union all select 'index', t.name, i.name, case when i."unique" then 'unique ' else '' end || (
            select group_concat(name) from (select name from pragma_index_info(i.name) order by seqno))
          from sqlite_master as t join pragma_index_list(t.name) as i where ${ours}
        union all select distinct 'foreign key', t.name, '', lower(f.on_delete)
          from sqlite_master as t join pragma_foreign_key_list(t.name) as f where ${ours}`;
    },
    dropIndex: ({ qualifiedName }) => `drop index ${qualifiedName};`,
  },
  postgresql: {
    catalog(tables) {
      const ours = `c.relkind = 'r' and n.nspname = coalesce(?, current_schema()) and c.relname in (${placeholders(tables)})`;
      const classes = 'pg_class as c join pg_namespace as n on n.oid = c.relnamespace';
      return `select 'column' as kind, c.relname::text as table_name, a.attname::text as name,
          coalesce(co.collname::text, '') as detail
          from ${classes} join pg_attribute as a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
          left join pg_collation as co on co.oid = a.attcollation where ${ours}
        union all select 'index', c.relname::text, i.relname::text, case when x.indisunique then 'unique ' else '' end || (
            select string_agg(a.attname::text, ',' order by k.n) from unnest(x.indkey::int[]) with ordinality as k (attnum, n)
            join pg_attribute as a on a.attrelid = c.oid and a.attnum = k.attnum)
          from ${classes} join pg_index as x on x.indrelid = c.oid and x.indisvalid join pg_class as i on i.oid = x.indexrelid
          where ${ours}
        union all select 'foreign key', c.relname::text, f.conname::text,
            case f.confdeltype when 'c' then 'cascade' else 'other' end
          from ${classes} join pg_constraint as f on f.conrelid = c.oid and f.contype = 'f' where ${ours}`;
    },
    dropIndex: ({ table, name, qualifiedName, isUnique }) =>
      isUnique ? `alter table ${table} drop constraint ${name};` : `drop index ${qualifiedName};`,
    alterations: { column: (name, type) => `alter column ${name} type ${type}`, foreignKey: 'constraint' },
  },
  mysql,
  mariadb: mysql,
};
