import type { DialectName } from '../../../entities/dialect-name.js';
import type { Dialect, Sql } from '../../../src/internal.js';
import { SESSION_WHERE } from '../../../src/database/sql/columns.js';
import { placeholders, sessionValues } from '../../../src/database/sql/values.js';
import type { SessionKey } from '../../../src/index.js';

/** A row of another program, as the driver returns it, with JSON as text. */
export type ForeignRow = Readonly<Record<string, unknown>>;

interface ForeignColumn {
  table: string;
  column: string;
  /** As the database declares it, with its length. */
  type: string;
}

/** Where a page of events ends, in the order in which events are read. */
export type EventCursor = SessionKey & { id: string };

const TABLES = ['adk_internal_metadata', 'sessions', 'events', 'app_states', 'user_states'];
const LIST = `('${TABLES.join("', '")}')`;

const COLUMNS_ON_MYSQL = `select table_name as table_name, column_name as column_name, column_type as type
       from information_schema.columns where table_schema = database() and table_name in ${LIST}`;

/** Select `table_name`, `column_name` and `type` of the columns of tables that a connection finds without a schema. */
const COLUMNS: Readonly<Record<DialectName, string>> = {
  sqlite: `select t.name as table_name, c.name as column_name, c.type as type
       from sqlite_master as t join pragma_table_info(t.name) as c where t.type = 'table' and t.name in ${LIST}`,
  postgresql: `select table_name, column_name, data_type || coalesce('(' || character_maximum_length || ')', '') as type
       from information_schema.columns where table_schema = any(current_schemas(false)) and table_name in ${LIST}`,
  mysql: COLUMNS_ON_MYSQL,
  mariadb: COLUMNS_ON_MYSQL,
};

/** Selected as text: a driver that parses JSON, or reads a number of SQLite, would change long integers. */
const JSON_COLUMNS = new Set([
  ...['state', 'event_data'],
  ...['content', 'grounding_metadata', 'custom_metadata', 'usage_metadata', 'citation_metadata'],
  ...['long_running_tool_ids_json', 'routes_json', 'output_json', 'node_info_json', 'requested_input_json'],
]);

const SESSION = ['app_name', 'user_id', 'id'];
const EVENT = ['id', 'app_name', 'user_id', 'session_id'];

/** The statements on the tables of ADK's own session stores. They read, and lock nothing. */
export class ForeignStore {
  readonly #system: DialectName;
  readonly #dialect: Dialect;
  readonly #quote: (name: string) => string;
  #columns: readonly ForeignColumn[] = [];

  constructor({ system, dialect }: { system: DialectName; dialect: Dialect }, quote: (name: string) => string) {
    this.#system = system;
    this.#dialect = dialect;
    this.#quote = quote;
  }

  /** @returns the columns of the tables that exist. Call it before the other methods. */
  async columns(sql: Sql): Promise<ForeignColumn[]> {
    const rows = await sql.all<{ table_name: string; column_name: string; type: string }>(COLUMNS[this.#system]);
    this.#columns = rows.map((row) => ({ table: row.table_name, column: row.column_name, type: row.type }));
    return [...this.#columns];
  }

  #select(table: string, ...others: string[]): string {
    const columns = this.#columns
      .filter((each) => each.table === table)
      .map(({ column }) => {
        const name = this.#quote(column);
        return JSON_COLUMNS.has(column) ? `${this.#dialect.sql.asText(name)} as ${name}` : name;
      });
    return `select ${[...columns, ...others].join(', ')} from ${table}`;
  }

  #selectEvents(): string {
    // SQLite alone has an order of insertion.
    return this.#select('events', ...(this.#system === 'sqlite' ? ['rowid as insertion_order'] : []));
  }

  metadata(sql: Sql): Promise<ForeignRow[]> {
    return sql.all('select * from adk_internal_metadata');
  }

  /** @returns the actions of some event; undefined if no event has any. */
  async someActions(sql: Sql): Promise<unknown> {
    const [row] = await sql.all<ForeignRow>('select actions from events where actions is not null limit 1');
    return row?.['actions'];
  }

  sessions(sql: Sql, after: SessionKey | undefined, limit: number): Promise<ForeignRow[]> {
    const values = after && sessionValues(after);
    return sql.all(`${this.#select('sessions')} ${page(SESSION, values)} limit ${limit}`, values);
  }

  /** Reads the events of some sessions in an order that has an index in most stores, not in the order of their times. */
  events(
    sql: Sql,
    sessions: readonly SessionKey[],
    after: EventCursor | undefined,
    limit: number,
  ): Promise<ForeignRow[]> {
    const isOfSessions = `(${isOneOf(sessions)})`;
    const ids = sessions.flatMap(sessionValues);
    if (!after) return sql.all(`${this.#selectEvents()} ${page(EVENT, undefined, isOfSessions)} limit ${limit}`, ids);
    const cursor = [after.id, after.appName, after.userId, after.sessionId];
    // MySQL uses only the first condition to find the start of the page.
    const text = `${this.#selectEvents()} ${page(EVENT, cursor, `id >= ? and ${isOfSessions}`)} limit ${limit}`;
    return sql.all(text, [after.id, ...ids, ...cursor]);
  }

  /** Reads events of one session by their ids. */
  eventsById(sql: Sql, session: SessionKey, ids: readonly string[]): Promise<ForeignRow[]> {
    return sql.all(`${this.#selectEvents()} where ${isOneOf([session])} and id in (${placeholders(ids.length)})`, [
      ...sessionValues(session),
      ...ids,
    ]);
  }

  /** @param owner the app's name, and the user's id. */
  async sharedState(sql: Sql, scope: 'app' | 'user', owner: readonly string[]): Promise<ForeignRow | undefined> {
    const { table, key } = SHARED[scope];
    const [row] = await sql.all<ForeignRow>(
      `${this.#select(table)} where ${key.map((name) => `${name} = ?`).join(' and ')}`,
      owner,
    );
    return row;
  }

  /** Reads state of apps or users that have no session. */
  stateAlone(
    sql: Sql,
    scope: 'app' | 'user',
    after: readonly string[] | undefined,
    limit: number,
  ): Promise<ForeignRow[]> {
    const { table, key } = SHARED[scope];
    const isSame = key.map((name) => `sessions.${name} = ${table}.${name}`).join(' and ');
    const isAlone = `not exists (select 1 from sessions where ${isSame})`;
    return sql.all(`${this.#select(table)} ${page(key, after, isAlone)} limit ${limit}`, after);
  }
}

const SHARED = {
  app: { table: 'app_states', key: ['app_name'] },
  user: { table: 'user_states', key: ['app_name', 'user_id'] },
} as const;

const isOneOf = (sessions: readonly SessionKey[]) => sessions.map(() => `(${SESSION_WHERE})`).join(' or ');

function page(key: readonly string[], after: readonly unknown[] | undefined, condition?: string): string {
  const columns = key.join(', ');
  const conditions = [
    ...(condition ? [condition] : []),
    ...(after ? [`(${columns}) > (${placeholders(after.length)})`] : []),
  ];
  return `${conditions.length > 0 ? `where ${conditions.join(' and ')} ` : ''}order by ${columns}`;
}
