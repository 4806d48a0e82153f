import { quotedName } from '../../../entities/dialect-name.js';
import type { SessionKey } from '../../model/keys.js';
import type { DeleteRule } from '../../model/results.js';
import { chunksOf } from '../../model/pages.js';
import type { Sql } from '../dialects/dialect.js';
import { inSession, sessionColumnsOf } from '../sql/columns.js';
import { tableNames } from '../sql/tables.js';
import { anyOf, bound, keyed, numberOf, sessionKeyOf, textOf, type SessionKeyRow } from '../sql/values.js';

/** A foreign key of a host's table that refers to a table of ours, or to rows of the host's that a cascade deletes with rows of ours. */
export interface HostKey {
  /** The host's table, with its schema if it is another one than ours. */
  table: string;
  /** The constraint; on SQLite, which keeps no names, its columns. */
  constraint: string;
  rule: DeleteRule;
  /** The table to which it refers. */
  target: string;
  /**
   * The statement that makes an index which begins with its columns; undefined if there is one. Without it, the database reads the
   * whole table for each row that is deleted.
   */
  missingIndex: string | undefined;
  /** The ways to its rows. None if they refer to what does not go with a session. */
  paths: Path[];
}

/** A way from a table of ours to rows of the host's. */
interface Path {
  /** Joins the tables, with the aliases t0, t1 and so on. */
  from: string;
  /** Whether our table has events, which a trim deletes, too. */
  isOfEvents: boolean;
  /** The host's tables on the way, quoted. */
  tables: readonly string[];
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

/** Our tables whose rows go with their session. */
const OF_SESSIONS = [
  ...(['sessions', 'events', 'eventParts', 'openCalls', 'sessionStates', 'changes'] as const),
  ...(['artifacts', 'artifactVersions', 'artifactParts'] as const),
];

/** The parts of a quoted name. */
const partsOf = (quoted: string): string[] =>
  [...quoted.matchAll(/(["`])((?:\1\1|(?!\1).)*)\1/gs)].map(([, quote = '', name = '']) =>
    name.replaceAll(quote + quote, quote),
  );

/** @returns the foreign keys of other tables that refer to ours, each before those of the tables that refer to its own. */
export async function hostKeys(sql: Sql): Promise<HostKey[]> {
  const { tables, dialect } = sql;
  const [quote = '"'] = tables.sessions;
  const quoted = (...names: readonly (string | undefined)[]) => quotedName(quote, ...names);
  const ourSchema = partsOf(tables.sessions).at(-2);
  const ours = new Map<string, Path[]>(tableNames(tables).map((table) => [partsOf(table).at(-1) ?? '', []]));
  for (const table of OF_SESSIONS.map((each) => tables[each])) {
    const isOfEvents = table === tables.events || table === tables.eventParts;
    ours.get(partsOf(table).at(-1) ?? '')?.push({ from: `${table} as t0`, isOfEvents, tables: [] });
  }
  const keys = new Map<string, HostKey>();

  async function follow(targets: ReadonlyMap<string, readonly Path[]>, schema?: string): Promise<void> {
    const columns = new Map<string, KeyColumn[]>();
    const values = [schema ?? null, ...targets.keys()];
    for (const row of await sql.all<KeyColumn>(dialect.sql.hostKeys(targets.size), values)) {
      const id = JSON.stringify([row.schema_name ?? schema, row.table_name, row.key_id]);
      columns.set(id, [...(columns.get(id) ?? []), row]);
    }
    for (const [id, rows] of columns) {
      const [row] = rows;
      if (!row) continue;
      const [table, rule, target] = [textOf(row.table_name), textOf(row.rule), textOf(row.target)];
      const own = row.schema_name === null ? schema : textOf(row.schema_name);
      if (own === ourSchema && ours.has(table)) continue;
      const quotedTable = quoted(own, table);
      const names = rows.map((each) => textOf(each.column_name));
      const targetNames = rows.map((each) => textOf(each.target_column));
      const paths = (targets.get(target) ?? []).map((path): Path => {
        const [to, from] = [path.tables.length, path.tables.length + 1];
        const on = names.map((name, i) => `t${from}.${quoted(name)} = t${to}.${quoted(targetNames[i] ?? '')}`);
        const joined = `${path.from} join ${quotedTable} as t${from} on ${on.join(' and ')}`;
        return { ...path, from: joined, tables: [...path.tables, quotedTable] };
      });
      const index = quoted([own === ourSchema ? [] : own, table, targetNames].flat(2).join('_').slice(0, MOST_OF_NAME));
      const key: HostKey = keys.get(id) ?? {
        table: own === undefined || own === ourSchema ? table : `${own}.${table}`,
        constraint: textOf(row.name) || `(${names.join(', ')})`,
        rule: RULES[rule] ?? 'no action',
        target,
        missingIndex:
          numberOf(row.indexed) === 1
            ? undefined
            : `create index ${index} on ${quotedTable} (${names.map((name) => quoted(name)).join(', ')});`,
        paths: [],
      };
      keys.set(id, key);
      key.paths.push(...paths);
      // Not in a circle: how far it goes depends on the rows.
      const onwards = paths.filter((path) => path.tables.indexOf(quotedTable) === path.tables.length - 1);
      if (key.rule === 'cascade' && onwards.length > 0) await follow(new Map([[table, onwards]]), own);
    }
  }
  await follow(ours, ourSchema);
  return [...keys.values()];
}

/** PostgreSQL cuts longer names. */
const MOST_OF_NAME = 60;

/** How many sessions one statement names: SQLite limits the depth of a condition. */
const AT_ONCE = 100;

/** A session that is deleted, or its events before a number. */
export interface DeletedPart {
  key: SessionKey;
  before?: number | undefined;
}

/** Rows of a host's table that refer to a session. */
interface ReferringRows {
  session: SessionKey;
  rows: number;
  /** Whether to rows of ours, rather than to rows of the host's. */
  isDirect: boolean;
}

/**
 * Counts the rows that refer by a foreign key to what is deleted.
 *
 * @returns the sessions to which any does. A row counts for each way to it: no column names a row of any table of a host's.
 */
export async function referringTo(
  sql: Sql,
  { paths }: HostKey,
  parts: readonly DeletedPart[],
): Promise<ReferringRows[]> {
  const found: ReferringRows[] = [];
  for (const { from, isOfEvents, tables } of paths)
    for (const chunk of chunksOf(
      parts.filter(({ before }) => isOfEvents || before === undefined),
      AT_ONCE,
    )) {
      const [any, values] = anyOf(
        chunk.map(({ key, before }) =>
          bound(`${inSession('t0')}${before === undefined ? '' : ' and t0.seq < :before'}`, { ...keyed(key), before }),
        ),
      );
      const rows = await sql.all<SessionKeyRow & { total: number | string }>(
        `select ${sessionColumnsOf('t0')}, count(*) as total from ${from} where ${any} group by ${sessionColumnsOf('t0')}`,
        values,
      );
      const isDirect = tables.length === 1;
      found.push(...rows.map((row) => ({ session: sessionKeyOf(row), rows: numberOf(row.total), isDirect })));
    }
  return found;
}
