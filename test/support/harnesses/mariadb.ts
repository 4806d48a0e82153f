import { isMikroOrm7 } from '../mikro-orm.js';
import { isChosen, serverUrl } from '../run.js';
import type { DriverSetting, RefusedDriverSetting, ServerDatabase } from './database.js';
import { copyOf, mysql } from './mysql.js';
import { createOn, unreachableServer } from './on-server.js';

/** Settings of MariaDB's own driver, which MikroORM 6 uses. MikroORM 7 uses mysql2. */
const HARMLESS: readonly DriverSetting[] = [
  { name: 'bigIntAsNumber: false', connection: { bigIntAsNumber: false, insertIdAsNumber: false } },
  { name: 'insertIdAsNumber', connection: { insertIdAsNumber: true, checkNumberRange: true } },
  { name: 'decimalAsNumber', connection: { decimalAsNumber: true, bigIntAsNumber: true, checkNumberRange: true } },
  { name: 'metaAsArray', connection: { metaAsArray: true } },
  { name: 'bitOneIsBoolean: false', connection: { bitOneIsBoolean: false, autoJsonMap: false } },
];

/** Refused, since an update that changes nothing would look like one that found no row. */
const CHANGED_ROWS: RefusedDriverSetting = {
  name: 'foundRows: false',
  connection: { foundRows: false },
  named: /'foundRows'/,
};

const {
  sql_require_primary_key: _required,
  sql_generate_invisible_primary_key: _invisible,
  ...harmless
} = mysql.connection.harmless;

export const mariadb: ServerDatabase = {
  ...mysql,
  name: 'mariadb',
  dialect: 'mariadb',
  title: 'MariaDB',
  packageName: '@mikro-orm/mariadb',
  driver: async () => (await import('@mikro-orm/mariadb')).MariaDbDriver,
  isAvailable: () => Boolean(serverUrl('mariadb')) && isChosen('mariadb'),
  create: (template) => createOn(mariadb, copyOf(template)),
  unreachable: unreachableServer('mariadb'),
  columns: { ...mysql.columns, double: isMikroOrm7 ? mysql.columns.double : (column) => column },
  connection: {
    ...mysql.connection,
    harmless,
    refused: [
      ...mysql.connection.refused,
      {
        set: "set sql_mode = 'ORACLE'",
        named: /sql_mode = ORACLE/,
        advice: /set sql_mode = default/,
        hasNoTransactions: true,
      },
      {
        set: "set sql_mode = 'EMPTY_STRING_IS_NULL'",
        named: /sql_mode = EMPTY_STRING_IS_NULL/,
        advice: /set sql_mode = default/,
      },
    ],
  },
  // One statement does everything.
  statements: { ...mysql.statements, append: () => ['begin not atomic'] },
  durability: {
    async defaultOf(query, setting) {
      const [row] = await query<{ value: string }>(
        // `log_bin` has no default there.
        `select if(global_value_origin = 'COMPILE-TIME', global_value, default_value) as value
       from information_schema.system_variables where variable_name = ?`,
        [setting],
      );
      return { value: row?.value, isKept: true };
    },
  },
  driverOptions: isMikroOrm7
    ? mysql.driverOptions
    : {
        harmless: [
          ...mysql.driverOptions.harmless.map((setting) =>
            // With this option mysql2 returns bytes, but MariaDB's driver does not.
            setting.name === 'typeCast: false' ? { ...setting, spoilsMigrator: false } : setting,
          ),
          ...HARMLESS,
        ],
        refused: [CHANGED_ROWS],
      },
  otherStores: {
    ...mysql.otherStores,
    pythonTypes: ['TEXT', 'DATETIME'],
    // Whole seconds.
    pythonTime: 1600000000000,
  },
  server: {
    ...mysql.server,
    // The driver of MikroORM 6 does.
    leavesErrorsUnhandled: !isMikroOrm7,
    waiting: `select 1 from information_schema.innodb_trx where trx_state = 'LOCK WAIT'
  and trx_mysql_thread_id in (select id from information_schema.processlist where db = database())`,
    connections: {
      ...mysql.server.connections,
      ids: 'select id as id from information_schema.processlist where db = ?',
      list: `select p.id as id, t.trx_id is not null as inTransaction, coalesce(t.trx_state = 'LOCK WAIT', 0) as waitsForLock
      from information_schema.processlist p left join information_schema.innodb_trx t on t.trx_mysql_thread_id = p.id
      where p.db = ?`,
      waitingForTable: (id) =>
        `select id from information_schema.processlist where id = ${id} and state = 'Waiting for table metadata lock'`,
      prepared: `select cast(sum(if(variable_name = 'COM_STMT_PREPARE', variable_value, -variable_value)) as signed) as n
      from information_schema.session_status where variable_name in ('COM_STMT_PREPARE', 'COM_STMT_CLOSE')`,
      // The driver of MikroORM 6 keeps this many, whatever is configured.
      mostPrepared: isMikroOrm7 ? 100 : 256,
    },
    refusals: [/^ER_ACCESS_DENIED/, 'ER_BAD_DB_ERROR', 'ER_TABLEACCESS_DENIED_ERROR'],
    slow: [
      'set session max_statement_time = 0.05',
      "if(sleep(5) = 0, '', '')",
      isMikroOrm7 ? '1969' : 'ER_STATEMENT_TIMEOUT',
    ],
    messages: {
      ...mysql.server.messages,
      // Recognised by its values: the statement is prepared, so its text is sent only once.
      append: /"author"/,
    },
  },
};
