import type { TextPlace } from '../model/codec.js';
import { Undecodable, encodingOf, mapTexts } from '../model/stored-texts.js';
import type { Sql } from '../database/dialects/dialect.js';
import { ownedAfter } from '../database/sql/keyset.js';
import { numberOf, optionalTextOf, textOf } from '../database/sql/values.js';
import type { EncodedRows } from './owned-rows.js';

type Row = Readonly<Record<string, unknown>>;

/** A row with a text. */
export interface TextRow {
  /** Its primary key. */
  key: readonly (string | number)[];
  /** Undefined if the row has lost a part of it, or was not written by us. */
  text: string | undefined;
  context: TextPlace;
}

/** A table of which one column has texts. */
interface TextTable {
  table: string;
  /** The primary key, by which pages are ordered. */
  columns: readonly string[];
  /** Another order, in which the last rows are the newest ones. */
  newestLast?: readonly string[];
  content: string;
  /** The expression that selects it. */
  selected: string;
  /** A further condition for a row `t`. */
  where?: string;
  /** Further columns for the context. */
  more?: string;
}

interface TextRows extends Pick<EncodedRows, 'areOfApp'> {
  of: (sql: Sql) => TextTable;
  contextOf: (row: Row) => TextPlace;
  /** Whether a text may be stored; any by default. */
  isStorable?: (text: string) => boolean;
  /** Reads a text that is not in its row. */
  rest?: (sql: Sql, key: TextRow['key']) => Promise<string | null>;
  /** Writes what does not fit into the row. @returns what does. */
  replaceRest?: (sql: Sql, key: TextRow['key'], text: string) => string | null;
}

const keyValue = (column: string, value: unknown) =>
  column === 'seq' || column === 'change_id' ? numberOf(value) : textOf(value);

/** Encodes the texts of a table anew. */
export function encodedTable({
  of,
  contextOf,
  isStorable = () => true,
  rest,
  replaceRest,
  ...more
}: TextRows): EncodedRows<TextRow> {
  const textIn = async (sql: Sql, key: TextRow['key'], content: unknown): Promise<string | undefined> => {
    const text = optionalTextOf(content) ?? (await rest?.(sql, key)) ?? undefined;
    return text !== undefined && isStorable(text) ? text : undefined;
  };
  const replace = async (sql: Sql, { key, text: read }: TextRow, text: string): Promise<boolean> => {
    const { table, columns, content, selected } = of(sql);
    const where = columns.map((column) => `${column} = ?`).join(' and ');
    const lock = `select ${selected} as content from ${table} where ${where}${sql.dialect.sql.skipLocked ?? ''}`;
    const [row] = await sql.all(lock, key);
    if (!row || (await textIn(sql, key, row['content'])) !== read) return false;
    const data = replaceRest ? replaceRest(sql, key, text) : text;
    await sql.run(`update ${table} set ${content} = ? where ${where}`, [data, ...key]);
    return true;
  };
  return {
    ...more,
    place(sql) {
      const { table, selected, columns, newestLast = columns } = of(sql);
      return { table, selected, order: newestLast };
    },
    page: async (sql, owner, after, limit) => {
      const { table, columns, selected, where, more = '' } = of(sql);
      const page = ownedAfter(owner, columns.slice(1), after?.key.slice(1));
      const rows = await sql.all(
        `select ${columns.join(', ')}, ${selected} as content${more} from ${table} as t
          where ${page.where}${where ? ` and ${where}` : ''} order by ${columns.join(', ')} limit ?`,
        [...page.values, limit],
      );
      const texts: TextRow[] = [];
      for (const row of rows) {
        const key = columns.map((column) => keyValue(column, row[column]));
        texts.push({ key, text: await textIn(sql, key, row['content']), context: contextOf(row) });
      }
      return texts;
    },
    recoded: ({ code }, rows) =>
      code((texts) =>
        mapTexts(rows, (row) => {
          const { text, context } = row;
          if (text === undefined) return 'unreadable';
          const json = texts.decode(text, () => context);
          if (json instanceof Undecodable) return 'unreadable';
          const coded = texts.encode(json, () => context);
          const isSame = encodingOf(coded) === encodingOf(text) || !isStorable(coded);
          return isSame ? undefined : { bytes: 0, replace: (sql: Sql) => replace(sql, row, coded) };
        }),
      ),
  };
}

/** What a row's context has of the session that it belongs to. */
export const ownerIn = (row: Row) => ({
  appName: textOf(row['app_name']),
  userId: textOf(row['user_id'] ?? ''),
  sessionId: textOf(row['session_id'] ?? ''),
  origin: optionalTextOf(row['origin'] ?? null) ?? '',
});
