import type { SessionKey } from '../../model/keys.js';
import type { DeleteRule } from '../../model/results.js';
import { chunksOf } from '../../model/pages.js';
import type { Sql } from '../dialects/dialect.js';
import {
  SESSION_KEY,
  namesOf,
  numberOf,
  sessionKeyOf,
  sessionValues,
  textOf,
  type SessionKeyRow,
} from '../sql/tables.js';

/** A foreign key of a host's table that refers to a table of ours. */
export interface HostKey {
  /** The host's table, with its schema if it is another one than ours. */
  table: string;
  /** The constraint; on SQLite, which keeps no names, its columns. */
  constraint: string;
  rule: DeleteRule;
  /** Our table. */
  target: string;
  columns: readonly string[];
  targetColumns: readonly string[];
  /**
   * The statement that makes an index which begins with its columns; undefined if there is one. Without it, the database reads the
   * whole table for each row that is deleted.
   */
  missingIndex: string | undefined;
  /** The host's table, quoted. */
  quotedTable: string;
}

/** How the row of a foreign key's column is selected; see `DialectSql.hostKeys`. */
interface KeyColumn {
  schema_name: string | null;
  table_name: string;
  key_id: string | number;
  name: string;
  rule: string;
  target: string;
  column_name: string;
  target_column: string;
  indexed: unknown;
}

const RULES: Readonly<Record<string, DeleteRule>> = {
  ...{ c: 'cascade', n: 'set null', d: 'set default', r: 'restrict', a: 'no action' },
  ...{ cascade: 'cascade', 'set null': 'set null', 'set default': 'set default', restrict: 'restrict' },
};

/** The parts of a quoted name. */
const partsOf = (quoted: string): string[] =>
  [...quoted.matchAll(/(["`])((?:\1\1|(?!\1).)*)\1/gs)].map(([, quote = '', name = '']) =>
    name.replaceAll(quote + quote, quote),
  );

/** @returns the foreign keys of other tables that refer to ours, by table and constraint. */
export async function hostKeys(sql: Sql): Promise<HostKey[]> {
  const { tables, dialect } = sql;
  const ours = namesOf(tables).map(partsOf);
  const names = ours.map((parts) => parts.at(-1) ?? '');
  const schema = ours[0]?.length === 2 ? ours[0][0] : null;
  const [quote = '"'] = tables.sessions;
  const quoted = (name: string) => `${quote}${name.replaceAll(quote, quote + quote)}${quote}`;
  const rows = await sql.all<KeyColumn>(dialect.sql.hostKeys(names.length), [schema ?? null, ...names]);
  const keys = new Map<string, HostKey & { columns: string[]; targetColumns: string[] }>();
  for (const row of rows) {
    const [table, name, column] = [textOf(row.table_name), textOf(row.name), textOf(row.column_name)];
    const other = row.schema_name === null ? undefined : textOf(row.schema_name);
    if (other === undefined && names.includes(table)) continue;
    const id = JSON.stringify([other, table, row.key_id]);
    const rule = textOf(row.rule);
    const key = keys.get(id) ?? {
      table: other === undefined ? table : `${other}.${table}`,
      constraint: name,
      rule: RULES[rule] ?? 'no action',
      target: textOf(row.target),
      columns: [],
      targetColumns: [],
      missingIndex: numberOf(row.indexed) === 1 ? undefined : '',
      quotedTable:
        other === undefined ? unqualified(tables.sessions, quoted(table)) : `${quoted(other)}.${quoted(table)}`,
    };
    keys.set(id, key);
    key.columns.push(column);
    key.targetColumns.push(textOf(row.target_column));
  }
  return [...keys.values()].map(({ constraint, missingIndex, ...key }) => ({
    ...key,
    constraint: constraint || `(${key.columns.join(', ')})`,
    missingIndex:
      missingIndex === undefined
        ? undefined
        : `create index ${quoted(`${key.table.replace('.', '_')}_${key.targetColumns.join('_')}`.slice(0, MOST_OF_NAME))}` +
          ` on ${key.quotedTable} (${key.columns.map(quoted).join(', ')});`,
  }));
}

/** PostgreSQL cuts longer names. */
const MOST_OF_NAME = 60;

/** A table in the schema of ours. */
const unqualified = (ours: string, table: string): string => ours.slice(0, ours.lastIndexOf('.') + 1) + table;

/** How many sessions one statement names: SQLite limits the depth of a condition. */
const AT_ONCE = 100;

/** Rows of a host's table that refer to a session. */
interface Referring {
  session: SessionKey;
  rows: number;
}

/**
 * Counts the rows that refer to sessions, or to what belongs to them, by a foreign key.
 *
 * @returns the sessions to which any does; none if the key does not name a session.
 */
export async function referringTo(sql: Sql, key: HostKey, sessions: readonly SessionKey[]): Promise<Referring[]> {
  const [quote = '"'] = sql.tables.sessions;
  const columns = SESSION_KEY.map((name) => key.columns[key.targetColumns.indexOf(name)]);
  if (columns.includes(undefined)) return [];
  const names = columns.map((name = '') => `${quote}${name.replaceAll(quote, quote + quote)}${quote}`);
  const one = `(${names.map((name) => `${name} = ?`).join(' and ')})`;
  const found: Referring[] = [];
  for (const chunk of chunksOf(sessions, AT_ONCE)) {
    const rows = await sql.all<SessionKeyRow & { total: number | string }>(
      `select ${names.map((name, i) => `${name} as ${SESSION_KEY[i]}`).join(', ')}, count(*) as total
        from ${key.quotedTable} where ${chunk.map(() => one).join(' or ')} group by ${names.join(', ')}`,
      chunk.flatMap(sessionValues),
    );
    found.push(...rows.map((row) => ({ session: sessionKeyOf(row), rows: numberOf(row.total) })));
  }
  return found;
}
