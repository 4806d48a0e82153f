import type { Sql } from '../database/dialects/dialect.js';
import { readParts, replaceParts } from '../database/dialects/event-parts.js';
import { ownedAfter } from '../database/sql/keyset.js';
import {
  STATE_KEYS,
  originOf,
  stateTable,
  numberOf,
  optionalNumberOf,
  optionalTextOf,
  textOf,
} from '../database/sql/tables.js';
import { HAS_CONTENT } from '../database/statements/changes.js';
import { ofChange, ofCredential, ofEvent, ofState, type TextPlace } from '../model/codec.js';
import { namesKey } from '../model/stored-texts.js';
import type { SessionKey } from '../model/keys.js';
import type { Scope } from '../model/state.js';

/** The tables with contents. Those of state are named by their scope. */
export type RecodedTable = 'events' | 'changes' | 'credentials' | Scope;

export const RECODED_TABLES: readonly RecodedTable[] = ['events', 'session', 'user', 'app', 'changes', 'credentials'];

/** The app or the user whose rows are rewritten. */
interface RecodedOwner {
  appName: string;
  userId?: string | undefined;
}

/** The stored content of a row. */
export interface StoredText {
  table: RecodedTable;
  /** Its primary key. */
  key: readonly (string | number)[];
  /** Undefined if the row has lost a part of it. */
  text: string | undefined;
  context: TextPlace;
}

interface Source {
  table: string;
  /** The primary key, by which pages are ordered. */
  columns: readonly string[];
  content: string;
  /** The expression that selects it. */
  selected: string;
  /** A further condition. */
  where?: string;
  /** Further columns for the context. */
  more?: string;
}

/** @param after the last row of the previous page. */
export async function recodedPage(
  sql: Sql,
  table: RecodedTable,
  owner: RecodedOwner,
  after: StoredText | undefined,
  limit: number,
): Promise<StoredText[]> {
  const { table: name, columns, selected, where, more = '' } = sourcesOf(sql)[table];
  const page = ownedAfter(owner, columns.slice(1), after?.key.slice(1));
  const text = `select ${columns.join(', ')}, ${selected} as content${more} from ${name} as t
    where ${page.where}${where ? ` and ${where}` : ''} order by ${columns.join(', ')} limit ?`;
  const rows = await sql.all(text, [...page.values, limit]);
  const texts: StoredText[] = [];
  for (const row of rows) {
    const key = columns.map((column) => keyValue(column, row[column]));
    const text = await contentOf(sql, table, key, row['content']);
    texts.push({ table, key, text, context: contextOf(table, row) });
  }
  return texts;
}

/**
 * Replaces a text. Needs a transaction.
 *
 * @returns false if it has changed since it was read, or another transaction has locked its row.
 */
export async function recode(sql: Sql, { table, key, text: read }: StoredText, text: string): Promise<boolean> {
  const { table: name, columns, content, selected } = sourcesOf(sql)[table];
  const values = [key[0] ?? '', ...key.slice(1)];
  const where = columns.map((column) => `${column} = ?`).join(' and ');
  const [row] = await sql.all(
    `select ${selected} as content from ${name} where ${where}${sql.dialect.sql.skipLocked ?? ''}`,
    values,
  );
  if (!row || (await contentOf(sql, table, key, row['content'])) !== read) return false;
  const data = table === 'events' ? await replaceParts(sql, ...eventOf(key), text) : text;
  await sql.run(`update ${name} set ${content} = ? where ${where}`, [data, ...values]);
  return true;
}

async function contentOf(
  sql: Sql,
  table: RecodedTable,
  key: StoredText['key'],
  content: unknown,
): Promise<string | undefined> {
  const text = optionalTextOf(content);
  // A credential that is not encrypted was not written by us.
  if (table === 'credentials' && !(text && namesKey(text))) return undefined;
  if (text !== null || table !== 'events') return text ?? undefined;
  return (await readParts(sql, ...eventOf(key), { isLocked: sql.isInTransaction })) ?? undefined;
}

function eventOf([appName, userId, sessionId, seq]: StoredText['key']): [SessionKey, number] {
  return [{ appName: String(appName), userId: String(userId), sessionId: String(sessionId) }, Number(seq)];
}

type Row = Readonly<Record<string, unknown>>;

const keyValue = (column: string, value: unknown) =>
  column === 'seq' || column === 'change_id' ? numberOf(value) : textOf(value);

function contextOf(table: RecodedTable, row: Row): TextPlace {
  const session = {
    appName: textOf(row['app_name']),
    userId: textOf(row['user_id'] ?? ''),
    sessionId: textOf(row['session_id'] ?? ''),
    origin: optionalTextOf(row['origin'] ?? null) ?? '',
  };
  if (table === 'events') return ofEvent(session, textOf(row['event_id']));
  if (table === 'credentials') return ofCredential(session, textOf(row['credential_key']));
  if (table !== 'changes') return ofState(session, table, textOf(row['state_key']));
  const eventSeq = optionalNumberOf(row['event_seq'] ?? null);
  return ofChange(session, { kind: textOf(row['kind']), seq: numberOf(row['seq']), eventSeq });
}

function sourcesOf({ tables }: Sql): Record<RecodedTable, Source> {
  const { events, changes, credentials, select } = tables;
  const origin = `, ${originOf(tables, 't')} as origin`;
  const key = STATE_KEYS.session.slice(0, -1);
  const state = (scope: Scope): Source => ({
    table: stateTable(tables, scope),
    columns: STATE_KEYS[scope],
    content: 'value',
    selected: select.value,
    ...(scope === 'session' && { more: origin }),
  });
  const data = { content: 'data', selected: select.data };
  return {
    events: { ...data, table: events, columns: [...key, 'seq'], more: `, event_id${origin}` },
    session: state('session'),
    user: state('user'),
    app: state('app'),
    changes: {
      ...data,
      table: changes,
      columns: [...key, 'change_id'],
      where: `data is not null and ${HAS_CONTENT}`,
      more: `, kind, seq, event_seq${origin}`,
    },
    credentials: { ...data, table: credentials, columns: ['app_name', 'user_id', 'credential_key'] },
  };
}
