import type { ExportRecord } from '../model/records.js';
import type { StoredTexts } from '../model/stored-texts.js';
import type { SqlRunner, Sql } from '../database/dialects/dialect.js';
import { allOf, ifGiven, placeholders } from '../database/sql/values.js';
import type { ImportRun, RecordWriter } from './record-writer.js';
import { chunksOf } from '../model/pages.js';
import { countRows } from '../database/statements/count.js';

/** An app, or one user in it. */
export interface Owner {
  appName: string;
  userId?: string | undefined;
}

/** Which rows of an owner to delete. */
export interface RowSelection extends Owner {
  /** Only those that have expired, by the database's clock. */
  areExpired?: boolean;
  /** Whether to delete those of sessions whose lease somebody holds, too. */
  includesLeased?: boolean;
}

/** The values of a row's primary key after those that name its app. */
type RowKey = readonly unknown[];

/** Rows that are deleted by their primary keys, since a range would lock the gaps between them, where others write. */
interface DeletedRows {
  /** Whether they go before the sessions, which would delete them uncounted, or to which they refer. */
  precedeSessions?: boolean;
  /** Whether they have a time at which they expire. */
  expire?: boolean;
  count(sql: Sql, selection: RowSelection): Promise<number>;
  /** @returns the keys of the next rows to delete. */
  page(sql: Sql, selection: RowSelection, limit: number): Promise<readonly RowKey[]>;
  /** Needs a transaction. @returns how many of them it has deleted. */
  erase(sql: Sql, selection: RowSelection, keys: readonly RowKey[]): Promise<number>;
}

/** What `reencode` does with a row: nothing, or count it as unreadable, or replace its text. */
export type RecodedRow = undefined | 'unreadable' | Replacement;

export interface Replacement {
  /** How large the texts are, if that matters. */
  bytes: number;
  /** Needs a transaction. @returns false if the row has changed since it was read, or another transaction has locked it. */
  replace(sql: Sql): Promise<boolean>;
}

/** How `reencode` reads, and how it decodes and encodes what it has read, without a connection. */
export interface Recoding {
  readonly read: SqlRunner;
  readonly code: <T>(work: (texts: StoredTexts) => T) => Promise<T>;
}

/** Rows with texts that codecs encode. */
export interface EncodedRows<Row = unknown> {
  /** Whether they belong to the app, and to none of its users. */
  areOfApp?: boolean;
  /** How many are in memory at a time; a page by default. */
  together?: number;
  /** @returns the rows of an owner after one, in the order of their keys. */
  page(sql: Sql, owner: Owner, after: Row | undefined, limit: number): Promise<readonly Row[]>;
  recoded(recoding: Recoding, rows: readonly Row[]): Promise<readonly RecodedRow[]>;
  /** Where the texts are, and by what their rows are ordered: `doctor` looks at the beginnings of the first and the last ones. */
  place(sql: Sql): { table: string; selected: string; order: readonly string[] };
}

/** How an export reads. */
export interface ExportReader {
  readonly run: SqlRunner;
  /** Runs statements that see the rows as of one moment. */
  readonly snapshot: SqlRunner;
  /** Runs what gets a connection by itself. */
  readonly call: <T>(work: () => Promise<T>) => Promise<T>;
}

/** Rows that exports have. */
interface OwnedRecords {
  read(reading: ExportReader, owner: Owner): AsyncIterable<ExportRecord>;
  /** Writes them for an import. Absent if imports leave them out. */
  writer?(run: ImportRun): RecordWriter;
}

/** The figures of `SessionStats` that the database adds up for each app. */
export type SumName =
  'deletedSessions' | 'users' | `${'event' | 'state' | 'artifact' | 'memory'}Bytes` | 'artifacts' | 'memories';

/** A sum over the rows of a table. */
export type Sum = readonly [what: string, table: string, condition?: string];

export const sumOfBytes = ({ dialect }: Sql, column: string) => `coalesce(sum(${dialect.sql.byteLength(column)}), 0)`;

/**
 * Rows of one kind that belong to people. `prune`, `eraseUser`, `reencode`, exports and imports do with each kind what it has here, and
 * know none by its name: a new kind is a file in its room, and a line in `OWNED_ROWS`.
 */
export interface OwnedRows {
  readonly name: string;
  /** Whether results count deleted rows, by the name. */
  readonly isCounted?: boolean;
  /**
   * @param userId limits the search to apps in which this user has rows, if a kind can find these with less reading.
   * @returns the next app by name that has some; undefined if there is none.
   */
  readonly nextApp: (sql: Sql, after: string, userId?: string) => Promise<string | undefined>;
  readonly rows?: DeletedRows;
  readonly texts?: readonly EncodedRows[];
  readonly records?: OwnedRecords;
  /** What `stats` adds up. */
  readonly sums?: (sql: Sql, owner: Partial<Owner>) => Partial<Readonly<Record<SumName, readonly Sum[]>>>;
}

/** A table whose rows name their app and their user. */
interface OwnedTable extends Pick<DeletedRows, 'precedeSessions'> {
  table: (sql: Sql) => string;
  /** The other columns of the primary key. */
  key: readonly string[];
  /** The condition for rows that have expired. */
  expired?: (sql: Sql) => string;
  /** A condition for rows `e` that are found. */
  only?: (sql: Sql, selection: RowSelection) => string | undefined;
}

/** How many lists of keys one statement names. SQLite allows 1,000 conditions in one. */
const LISTS = 200;

/** Finds and deletes rows of a table by their keys, those that differ in the last column alone as one list. */
export function ownedTable({ table, key, expired, only, precedeSessions }: OwnedTable): DeletedRows {
  // Without a user, the rows of several users are found.
  const columns = ['user_id', ...key];
  const [last = ''] = columns.slice(-1);
  const whereSelected = (sql: Sql, { appName, userId, areExpired = false }: RowSelection) =>
    allOf(
      ['app_name = ?', appName],
      ifGiven('user_id = ?', userId),
      areExpired && expired ? [expired(sql)] : undefined,
    );
  const found = (sql: Sql, selection: RowSelection) => {
    const { where, values } = whereSelected(sql, selection);
    const more = only?.(sql, selection);
    return { from: `${table(sql)} as e where ${where}${more ? ` and ${more}` : ''}`, values };
  };
  return {
    ...(precedeSessions && { precedeSessions }),
    ...(expired && { expire: true }),
    count(sql, selection) {
      const { from, values } = found(sql, selection);
      return countRows(sql, from, values);
    },
    async page(sql, selection, limit) {
      const { from, values } = found(sql, selection);
      const selected = columns.map((column, i) => `${column} as k${i}`).join(', ');
      // The index by expiry has another order.
      const order = selection.areExpired ? '' : ` order by ${columns.join(', ')}`;
      const rows = await sql.all(`select ${selected} from ${from}${order} limit ?`, [...values, limit]);
      return rows.map((row) => columns.map((_, i) => row[`k${i}`]));
    },
    async erase(sql, selection, keys) {
      const { where, values } = whereSelected(sql, selection);
      const inList = columns.slice(0, -1).map((column) => `${column} = ? and `);
      let deleted = 0;
      for (const some of chunksOf(listsOf(keys), LISTS)) {
        const any = some.map((list) => `(${inList.join('')}${last} in (${placeholders(list.length)}))`).join(' or ');
        const named = some.flatMap((list) => [...(list[0] ?? []).slice(0, -1), ...list.map((each) => each.at(-1))]);
        const text = `${sql.dialect.sql.deleteThrough(table(sql), 'primary')} where ${where} and (${any})`;
        deleted += (await sql.run(text, [...values, ...named])).affectedRows;
      }
      return deleted;
    },
  };
}

/** @returns the keys in lists of those that differ in the last value alone. */
function listsOf(keys: readonly RowKey[]): RowKey[][] {
  const lists = new Map<string, RowKey[]>();
  for (const key of keys) {
    const others = JSON.stringify(key.slice(0, -1));
    const list = lists.get(others);
    if (list) list.push(key);
    else lists.set(others, [key]);
  }
  return [...lists.values()];
}
