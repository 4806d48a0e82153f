import { isChosen, serverUrl } from '../run.js';
import type { DriverSetting, ServerDatabase } from './database.js';
import { CITUS_SCHEMA, createOnCitus, distributeTables } from './citus.js';
import { citusLayout, createOn, unreachableServer } from './on-server.js';
import { TABLE_LIST } from './tables.js';

/** The numbers of PostgreSQL's types. */
export const TYPES = { bool: 16, int8: 20, int4: 23, text: 25, json: 114, float8: 701, varchar: 1043, numeric: 1700 };

const same = (text: string) => text;
const asBytes = (text: string) => Buffer.from(text);

/** Parses JSON in text columns, as some hosts do. */
function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

const HARMLESS: readonly DriverSetting[] = [
  { name: 'int4 as bigint', parsers: { [TYPES.int4]: BigInt } },
  { name: 'int4 as text', parsers: { [TYPES.int4]: same } },
  { name: 'int8 as bigint', parsers: { [TYPES.int8]: BigInt } },
  { name: 'int8 as number', parsers: { [TYPES.int8]: Number } },
  { name: 'float8 and numeric as text', parsers: { [TYPES.float8]: same, [TYPES.numeric]: same } },
  { name: 'numeric as number', parsers: { [TYPES.numeric]: Number } },
  { name: 'booleans as text', parsers: { [TYPES.bool]: same } },
  { name: 'booleans as numbers', parsers: { [TYPES.bool]: (text) => (text === 't' ? 1 : 0) } },
  { name: 'json as text', parsers: { [TYPES.json]: same } },
  {
    name: 'texts as bytes',
    parsers: { [TYPES.text]: asBytes, [TYPES.varchar]: asBytes },
    spoilsMigrator: true,
  },
  { name: 'types that parse nothing', connection: { types: { getTypeParser: () => same } } },
  { name: 'parseInputDatesAsUTC', connection: { parseInputDatesAsUTC: true } },
  { name: "rowMode: 'array'", connection: { rowMode: 'array' } },
  { name: 'binary', connection: { binary: true } },
  { name: 'float8 as objects', parsers: { [TYPES.float8]: (text) => ({ text }) } },
  { name: 'int4 as true', parsers: { [TYPES.int4]: () => true } },
  { name: 'booleans as words', parsers: { [TYPES.bool]: (text) => (text === 't' ? 'yes' : 'no') } },
  { name: 'texts as JSON', parsers: { [TYPES.text]: parsed }, spoilsMigrator: true },
];

const SCHEMA = [
  `select table_name, column_name, ordinal_position, data_type, collation_name, column_default, is_nullable,
    character_maximum_length from information_schema.columns where table_schema = 'public' order by 1, 3`,
  `select indexdef from pg_indexes where schemaname = 'public' order by indexname`,
  `select conrelid::regclass::text as name, conname, pg_get_constraintdef(oid) as definition from pg_constraint
    where connamespace = 'public'::regnamespace order by 1, 2`,
];

function messageOf(type: string, content: string): Buffer {
  const length = Buffer.alloc(4);
  length.writeInt32BE(content.length + 4);
  return Buffer.concat([Buffer.from(type), length, Buffer.from(content)]);
}

const ownSchema = citusLayout('postgresql') === 'schema' ? CITUS_SCHEMA : 'public';

export const postgresql: ServerDatabase = {
  name: 'postgresql',
  kind: 'server',
  dialect: 'postgresql',
  title: 'PostgreSQL',
  packageName: '@mikro-orm/postgresql',
  driver: async () => (await import('@mikro-orm/postgresql')).PostgreSqlDriver,
  isOfUrl: true,
  isAvailable: () => Boolean(serverUrl('postgresql')) && isChosen('postgresql'),
  // The default strategy, which copies through the log, takes longer than `file_copy`.
  create: (template) =>
    citusLayout('postgresql') === undefined
      ? createOn(postgresql, () => (template === undefined ? '' : ` template ${template} strategy file_copy`))
      : createOnCitus(postgresql, template),
  async template(orm) {
    if (citusLayout('postgresql') !== undefined) await distributeTables(orm);
    return String(orm.config.get('dbName'));
  },
  unreachable: unreachableServer('postgresql'),
  columns: {
    // The driver parses JSON, which makes "5" and 5 alike.
    json: (column) => `${column}::text`,
    refuseOtherThanJson: true,
    takeAnyText: (table, column) => `alter table ${table} alter column ${column} type text`,
    double: (column) => column,
    autoIncrement: 'serial',
    bytes: 'bytea',
    keepLargeEventsInParts: false,
    now: 'extract(epoch from now()) * 1000',
  },
  connection: {
    harmless: {
      'an isolation level': ["set default_transaction_isolation = 'repeatable read'"],
      'standard_conforming_strings = off': ['set standard_conforming_strings = off', 'set escape_string_warning = off'],
      parameters: [
        "set time zone '+05:30'",
        "set datestyle = 'German'",
        'set array_nulls = off',
        'set backslash_quote = off',
      ],
    },
    refused: [
      ...['LATIN1', 'SJIS', 'BIG5', 'GBK', 'SQL_ASCII'].map((encoding) => ({
        set: `set client_encoding = '${encoding}'`,
        named: /client_encoding/,
        advice: /set client_encoding = 'UTF8'/,
      })),
      {
        set: 'set session_replication_role = replica',
        named: /session_replication_role/,
        advice: /set session_replication_role = origin/,
      },
      {
        set: 'set extra_float_digits = 0',
        named: /extra_float_digits/,
        advice: /set extra_float_digits = 1/,
      },
    ],
    readOnly: ['set default_transaction_read_only = on', 'set default_transaction_read_only = off', '25006'],
    impatience: "set lock_timeout = '50ms'",
    hasPatientPool: true,
  },
  schema: {
    everything: `select n.nspname as type, c.relname as name from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where n.nspname not in ('pg_catalog', 'information_schema', 'pg_toast')`,
    tables: `select table_schema as type, table_name as name from information_schema.tables`,
    describe: (query) => Promise.all(SCHEMA.map((sql) => query(sql))),
    checksForeignKeys: true,
    dropSchema: (name) => `drop schema if exists ${name} cascade`,
    readsOtherSchemas: true,
    migrationLock: 'transaction',
    migrationUnlock: /^commit$/,
    dropIndex: (index) => `drop index ${index}`,
    damageKeys: [
      'alter table adk_session_states drop constraint adk_session_states_session',
      'alter table adk_app_states drop constraint adk_app_states_pkey',
      // A collation other than ours.
      'alter table adk_user_states alter column user_id type varchar(191) collate "POSIX"',
    ],
  },
  plan: {
    analyze: `analyze ${TABLE_LIST}`,
    async scans(explain) {
      const rows = (await explain('explain')) as { 'QUERY PLAN': string }[];
      return rows
        .map((row) => row['QUERY PLAN'])
        .filter((line) => /Seq Scan on adk_(?!counters|retry_tokens)/.test(line));
    },
    // The next line of the plan shows the index condition.
    async wholeSessions(explain) {
      const rows = (await explain('explain')) as { 'QUERY PLAN': string }[];
      const lines = rows.map((row) => row['QUERY PLAN']);
      return lines.filter((line, i) => / adk_events_event_id /.test(line) && !lines[i + 1]?.includes('event_id'));
    },
  },
  statements: {
    // One statement does everything.
    append: () => ['with'],
    poll: { text: 'adk_counters', hasTables: true },
    lock: 'update sessions',
    lockEverything: false,
  },
  durability: {
    async defaultOf(query, setting) {
      const [row] = await query<Record<'setting' | 'boot_val' | 'reset_val', string>>(
        'select setting, boot_val, reset_val from pg_settings where name = ?',
        [setting],
      );
      return { value: row?.boot_val, isKept: row?.setting === row?.reset_val };
    },
  },
  driverOptions: { harmless: HARMLESS, refused: [] },
  otherStores: {
    keepOrderOfRows: false,
    // An empty text is not JSON.
    takeEmptyText: false,
    quote: '"',
    goTypes: ['text', 'text', 'JSONB', 'bytea', 'boolean', 'timestamptz(6)'],
    goTime: (seconds) => `2020-09-13 12:26:${seconds}+00`,
    pythonTypes: ['JSONB', 'TIMESTAMP WITHOUT TIME ZONE'],
    pythonTime: 1600000000123.456,
  },
  server: {
    adminDatabase: 'postgres',
    databases: 'select datname as name from pg_database',
    drop: (database) => `drop database if exists ${database} with (force)`,
    connectTimeout: (ms) => ({ connectionTimeoutMillis: ms }),
    leavesErrorsUnhandled: false,
    // With Citus, on the nodes, too.
    waiting: `select 1 from ${citusLayout('postgresql') === undefined ? 'pg' : 'citus'}_stat_activity
      where datname = current_database() and wait_event_type = 'Lock'`,
    connections: {
      own: 'select pg_backend_pid() as id',
      ids: `select pid as id from pg_stat_activity where backend_type = 'client backend' and datname = ?`,
      list: `select pid as id, xact_start is not null as "inTransaction",
        coalesce(wait_event_type = 'Lock', false) as "waitsForLock"
      from pg_stat_activity where backend_type = 'client backend' and datname = ?`,
      waitingForTable: (id) => `select pid from pg_stat_activity where pid = ${id} and wait_event_type = 'Lock'`,
      end: (id) => `select pg_terminate_backend(${id})`,
      prepared: 'select count(*)::int as n from pg_prepared_statements',
      mostPrepared: 100,
    },
    refusals: [/^28000$/, '3D000', '42501'],
    slow: ['set statement_timeout = 50', "case when pg_sleep(5) is null then '' else '' end", '57014'],
    account: ({ name, password, table = `all tables in schema ${ownSchema}`, rights = 'select' }) => ({
      create: [
        `create role ${name} login password '${password}'`,
        `grant usage on schema ${ownSchema} to ${name}`,
        `grant ${rights} on ${table} to ${name}`,
      ],
      drop: [`drop owned by ${name}`, `drop role ${name}`],
    }),
    messages: {
      // Inside an array of texts, if there are several.
      append: /"author\\?"/,
      refusal: () => Buffer.concat([messageOf('E', 'SERROR\0C58000\0Mrefused\0\0'), messageOf('Z', 'T')]),
      deadlock: () => Buffer.concat([messageOf('E', 'SERROR\0C40P01\0Mdeadlock\0\0'), messageOf('Z', 'I')]),
      crash: () => messageOf('E', 'SPANIC\0C53100\0Mno space\0\0'),
    },
  },
};
