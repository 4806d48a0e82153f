import type { MikroORM } from '@mikro-orm/core';
import type { AbstractSqlConnection } from '@mikro-orm/postgresql';
import { isMikroOrm7 } from '../mikro-orm.js';
import { isChosen, serverUrl } from '../run.js';
import type { DriverSetting, Query, RefusedSetting, ServerDatabase } from './database.js';
import { createOn, unreachableServer } from './on-server.js';
import { TABLE_LIST } from './tables.js';

/** A column as mysql2 and mariadb pass it to a `typeCast`. */
interface Field {
  type: string;
  string(): string | null;
  buffer(): Buffer | null;
}

const typeCast = (of: (field: Field, next: () => unknown) => unknown) => ({ typeCast: of });

const bigIntOf = (text: string | null) => (text === null ? null : BigInt(text));

/** Settings of mysql2 and mariadb under which everything works. */
const HARMLESS: readonly DriverSetting[] = [
  { name: 'bigNumberStrings', connection: { supportBigNumbers: true, bigNumberStrings: true } },
  { name: 'supportBigNumbers: false', connection: { supportBigNumbers: false } },
  { name: 'decimalNumbers', connection: { decimalNumbers: true } },
  { name: 'dateStrings', connection: { dateStrings: true } },
  { name: 'dateStrings: false', connection: { dateStrings: false } },
  { name: 'jsonStrings', connection: { jsonStrings: true } },
  { name: 'timezone', connection: { timezone: '+05:00' } },
  { name: 'a typeCast that gives texts', connection: typeCast((field) => field.string()) },
  { name: 'a typeCast that gives bytes', connection: typeCast((field) => field.buffer()), spoilsMigrator: true },
  {
    name: 'a typeCast that gives the bytes of long texts',
    connection: typeCast((field, next) => (field.type === 'BLOB' ? field.buffer() : next())),
  },
  {
    name: 'a typeCast that gives bigints',
    connection: typeCast((field, next) =>
      ['LONG', 'LONGLONG', 'INT', 'BIGINT'].includes(field.type) ? bigIntOf(field.string()) : next(),
    ),
  },
  { name: 'typeCast: false', connection: { typeCast: false }, spoilsMigrator: true },
];

/** Settings that change the shape of rows, or their texts. */
const SHAPES: readonly DriverSetting[] = [
  { name: 'rowsAsArray', connection: { rowsAsArray: true } },
  { name: 'nestTables', connection: { nestTables: true } },
  { name: "nestTables: '_'", connection: { nestTables: '_' } },
  { name: 'a typeCast that gives objects', connection: typeCast((field) => ({ value: field.string() })) },
  { name: 'a typeCast that gives numbers for texts', connection: typeCast((field) => Number(field.string())) },
  { name: 'a typeCast that trims texts', connection: typeCast((field) => field.string()?.trim()) },
].map((setting) => ({ ...setting, spoilsMigrator: true }));

const charset = (set: string, named = /character_set_results/): RefusedSetting => ({ set, named, advice: /utf8mb4/ });

const variable = (set: string, named: RegExp, advice: RegExp): RefusedSetting => ({ set, named, advice });

async function createStatements(query: Query): Promise<unknown[]> {
  const tables = await query<{ name: string }>(
    'select table_name as name from information_schema.tables where table_schema = database() order by 1',
  );
  return Promise.all(tables.map(async ({ name }) => query(`show create table ${name}`)));
}

/** The statements that copy the tables of a database, with their rows, into another one. */
async function statementsOf(orm: MikroORM): Promise<string> {
  const database = orm.config.get('dbName');
  const connection = orm.em.getDriver().getConnection() as AbstractSqlConnection;
  const statements = ['set foreign_key_checks = 0'];
  for (const { name } of await connection.execute<{ name: string }[]>(
    'select table_name as name from information_schema.tables where table_schema = database()',
  )) {
    const [row] = await connection.execute<{ 'Create Table': string }[]>(`show create table ${name}`);
    statements.push(row!['Create Table']);
    const [{ count } = { count: 0 }] = await connection.execute<{ count: number }[]>(
      `select count(*) as count from ${name}`,
    );
    if (count > 0) statements.push(`insert into ${name} select * from ${database}.${name}`);
  }
  return statements.join(';\n');
}

/** The statements after `create database x` that make it a copy. */
export const copyOf = (template: string | undefined) => (database: string) =>
  template === undefined ? '' : `; use ${database}; ${template}`;

export function mysqlError(error: string): Buffer {
  const text = Buffer.from(`\xff${error}`, 'latin1');
  return Buffer.concat([Buffer.from([text.length, 0, 0, 1]), text]);
}

const PATIENT = { connectTimeout: 60_000 };

export const mysql: ServerDatabase = {
  name: 'mysql',
  kind: 'server',
  dialect: 'mysql',
  title: 'MySQL',
  packageName: '@mikro-orm/mysql',
  driver: async () => (await import('@mikro-orm/mysql')).MySqlDriver,
  // By default the drivers give up after ten seconds and after one. Many processes on a busy machine take longer.
  processOptions: { driverOptions: isMikroOrm7 ? PATIENT : { connection: PATIENT } },
  isOfUrl: true,
  isAvailable: () => Boolean(serverUrl('mysql')) && isChosen('mysql'),
  create: (template) => createOn(mysql, copyOf(template)),
  template: statementsOf,
  unreachable: unreachableServer('mysql'),
  columns: {
    json: (column) => column,
    refuseOtherThanJson: false,
    double: (column) => `cast(${column} as char)`,
    autoIncrement: 'integer auto_increment',
    bytes: 'blob',
    keepLargeEventsInParts: true,
    now: 'unix_timestamp(now(6)) * 1000',
  },
  connection: {
    harmless: {
      NO_BACKSLASH_ESCAPES: ["set sql_mode = 'NO_BACKSLASH_ESCAPES'"],
      ANSI_QUOTES: ["set sql_mode = 'ANSI_QUOTES'"],
      'ANSI and NO_BACKSLASH_ESCAPES': ["set sql_mode = 'ANSI,NO_BACKSLASH_ESCAPES'"],
      TRADITIONAL: ["set sql_mode = 'TRADITIONAL'"],
      'no mode at all': ["set sql_mode = ''"],
      'other modes': [
        "set sql_mode = 'PAD_CHAR_TO_FULL_LENGTH,PIPES_AS_CONCAT,HIGH_NOT_PRECEDENCE,IGNORE_SPACE,NO_UNSIGNED_SUBTRACTION'",
      ],
      variables: [
        "set time_zone = '+05:30'",
        'set sql_auto_is_null = 1',
        'set group_concat_max_len = 4',
        'set div_precision_increment = 0',
      ],
      'an isolation level': ['set session transaction isolation level read committed'],
      sql_require_primary_key: ['set sql_require_primary_key = 1'],
      sql_generate_invisible_primary_key: ['set sql_generate_invisible_primary_key = 1'],
    },
    refused: [
      variable('set autocommit = 0', /autocommit = 0/, /set autocommit = 1/),
      variable('set completion_type = 1', /completion_type/, /set completion_type = 'NO_CHAIN'/),
      variable('set completion_type = 2', /completion_type/, /set completion_type = 'NO_CHAIN'/),
      variable('set sql_select_limit = 20', /sql_select_limit/, /set sql_select_limit = default/),
      variable('set foreign_key_checks = 0', /foreign_key_checks = 0/, /set foreign_key_checks = 1/),
      variable('set unique_checks = 0', /unique_checks = 0/, /set unique_checks = 1/),
      variable('set sql_safe_updates = 1', /sql_safe_updates = 1/, /set sql_safe_updates = 0/),
      variable('set session transaction isolation level read uncommitted', /READ UNCOMMITTED/, /read committed/),
      charset('set names latin1'),
      charset('set names gbk'),
      charset('set names big5'),
      charset('set names sjis'),
      charset('set names utf8mb3'),
      charset('set names binary'),
      charset('set character_set_results = null'),
      charset('set character_set_client = gbk', /character_set_client/),
      charset("set collation_connection = 'binary'", /character_set_connection/),
      charset('set character_set_connection = latin1', /character_set_connection/),
    ],
    readOnly: [
      'set session transaction read only',
      'set session transaction read write',
      'ER_CANT_EXECUTE_IN_READ_ONLY_TRANSACTION',
    ],
    impatience: 'set innodb_lock_wait_timeout = 1',
    // On MikroORM 7 calls wait for a connection as long as it takes.
    hasPatientPool: !isMikroOrm7,
  },
  schema: {
    everything: `select table_schema as type, table_name as name from information_schema.tables where table_schema = database()`,
    tables: `select table_schema as type, table_name as name from information_schema.tables where table_schema = database()`,
    describe: createStatements,
    checksForeignKeys: true,
    dropSchema: (name) => `drop schema if exists ${name}`,
    // A schema is another database, which MikroORM does not read.
    readsOtherSchemas: false,
    migrationLock: 'row',
    migrationUnlock: /^delete from .adk_counters/,
    dropIndex: (index, table) => `drop index ${index} on ${table}`,
    damageKeys: [
      'alter table adk_session_states drop foreign key adk_session_states_session',
      'alter table adk_app_states drop primary key',
      // Makes alice equal Alice.
      'alter table adk_user_states modify user_id varchar(191) collate utf8mb4_general_ci not null',
    ],
    restartChanges: 'alter table adk_changes auto_increment = 1',
  },
  plan: {
    analyze: `analyze table ${TABLE_LIST}`,
    async scans(explain) {
      // By default MySQL 9 answers with a tree, in another column.
      const rows = (await explain('explain format=traditional')) as Record<'table' | 'type' | 'Extra', string | null>[];
      // A recursion reads the rows that it has found.
      const isScan = ({ type, Extra }: (typeof rows)[number]) =>
        (type === 'ALL' || type === 'index') && !Extra?.includes('Recursive');
      const scanned = rows.filter(isScan);
      return scanned.flatMap(({ table }) => (table === null || table.startsWith('<') ? [] : [table]));
    },
    async sorts(explain) {
      const rows = (await explain('explain format=traditional')) as { table: string | null; Extra: string | null }[];
      return rows.flatMap(({ table, Extra }) => (table !== null && Extra?.includes('filesort') ? [table] : []));
    },
    async wholeSessions(explain) {
      const rows = (await explain('explain format=traditional')) as Record<'table' | 'key' | 'ref', string | null>[];
      const isWhole = ({ table, key, ref }: (typeof rows)[number]) =>
        key === 'adk_events_event_id' || (table === 'e' && key === 'PRIMARY' && ref === 'const,const,const');
      return rows.filter(isWhole).map(({ key, ref }) => `${key} by ${ref}`);
    },
  },
  statements: {
    append: (scopes) => [
      'begin',
      'update sessions',
      'insert events',
      ...scopes.map((scope) => `insert ${scope}_states`),
      'commit',
    ],
    poll: { text: 'adk_counters', hasTables: true },
    lock: 'select sessions',
    lockEverything: false,
  },
  durability: {
    async defaultOf(query, setting) {
      const current = async () => (await query<{ value: number }>(`select @@global.${setting} as value`))[0]?.value;
      // MySQL offers no other way to read the default of a setting that is configured, as on the servers of tests.
      const configured = await current();
      await query(`set global ${setting} = default`);
      try {
        return { value: String(await current()), isKept: true };
      } finally {
        await query(`set global ${setting} = ${configured}`);
      }
    },
  },
  driverOptions: {
    harmless: [...HARMLESS, ...SHAPES],
    refused: [
      // An update that changes nothing would look like one that found no row.
      { name: '-FOUND_ROWS', connection: { flags: ['-FOUND_ROWS'] }, named: /'-FOUND_ROWS'/ },
    ],
  },
  otherStores: {
    keepOrderOfRows: false,
    takeEmptyText: true,
    quote: '`',
    goTypes: ['varchar(191)', 'longtext', 'LONGTEXT', 'longblob', 'boolean', 'datetime(6) NULL'],
    goTime: (seconds) => `2020-09-13 12:26:${seconds}`,
    pythonTypes: ['LONGTEXT', 'DATETIME(6)'],
    pythonTime: 1600000000123.456,
  },
  server: {
    adminDatabase: 'information_schema',
    databases: 'select schema_name as name from schemata',
    drop: (database) => `drop database if exists ${database}`,
    connectTimeout: (ms) => ({ connectTimeout: ms }),
    leavesErrorsUnhandled: false,
    // Here and below not from information_schema, whose tables fail while any running statement contains an emoji.
    waiting: `select 1 from performance_schema.data_lock_waits where requesting_thread_id in
      (select thread_id from performance_schema.threads where processlist_db = database())`,
    connections: {
      own: 'select connection_id() as id',
      ids: 'select processlist_id as id from performance_schema.threads where processlist_db = ?',
      list: `select processlist_id as id,
        exists (select 1 from performance_schema.events_transactions_current as transactions
          where transactions.thread_id = threads.thread_id and state = 'ACTIVE') as inTransaction,
        exists (select 1 from performance_schema.data_lock_waits
          where requesting_thread_id = threads.thread_id) as waitsForLock
      from performance_schema.threads as threads where processlist_db = ?`,
      waitingForTable: (id) =>
        `select 1 from performance_schema.threads
        where processlist_id = ${id} and processlist_state = 'Waiting for table metadata lock'`,
      end: (id) => `kill ${id}`,
      prepared: `select count(*) as n from performance_schema.prepared_statements_instances
      where owner_thread_id = ps_current_thread_id()`,
      mostPrepared: 100,
      maxPacket: 'select @@max_allowed_packet as bytes',
    },
    refusals: [/^ER_ACCESS_DENIED_ERROR$/, 'ER_BAD_DB_ERROR', 'ER_TABLEACCESS_DENIED_ERROR'],
    slow: ['set session max_execution_time = 50', "if(sleep(5) = 0, '', '')", 'ER_QUERY_TIMEOUT'],
    account: ({ name, password, database, table = '*', rights = 'select' }) => ({
      create: [
        `create user ${name}@'%' identified by '${password}'`,
        `grant ${rights} on ${database}.${table} to ${name}@'%'`,
      ],
      drop: [`drop user ${name}@'%'`],
    }),
    messages: {
      // Only the end of a message, since the checks of settings contain the word, too.
      append: /commit\0?$/,
      // The answer of a Galera node that has lost its cluster.
      refusal: () => mysqlError('\x17\x04#08S01WSREP has not yet prepared node for application use'),
      deadlock: () => mysqlError('\xbd\x04#40001Deadlock'),
      // Its answer to commits that are under way when it loses the cluster.
      commitFailed: () =>
        mysqlError('\x9c\x04#HY000Error while appending (provider status: Not connected to Primary Component)'),
    },
  },
};
