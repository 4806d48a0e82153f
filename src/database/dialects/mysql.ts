import { ValueTooLargeError, driverCodeOf, driverMessageOf } from '../../model/errors.js';
import { driverNumberOf } from '../drivers/mysql-driver.js';
import { ARTIFACT_NAMES, insertIntoArtifacts, isSameSession } from '../sql/columns.js';
import { bound, placeholders, numberOf } from '../sql/values.js';
import type { Dialect } from './dialect.js';
import { appendsByInsertId, lockBySelect } from './session-rows.js';
import { wrongServer } from './server-version.js';
import { failuresByCode } from './failures-by-code.js';
import type { Setting } from './settings.js';

/** By the codes that the drivers mysql2 and mariadb give to the errors of both servers. */
const FAILURES_BY_CODE = failuresByCode({
  // A server of group replication that is not a member any more has the error ER_SERVER_OFFLINE_MODE; with a reason or a user it is
  // 6400 or 6401, for which mysql2 has no names.
  lostConnection: `PROTOCOL_CONNECTION_LOST PROTOCOL_SEQUENCE_TIMEOUT ER_SERVER_SHUTDOWN ER_CONNECTION_KILLED
    ER_CLIENT_INTERACTION_TIMEOUT ER_SOCKET_UNEXPECTED_CLOSE ER_SOCKET_TIMEOUT ER_CMD_CONNECTION_CLOSED
    ER_SERVER_OFFLINE_MODE 6400 6401`,
  // The mariadb driver reports the second line if a connection ends during its set-up with options, and also if the options are
  // wrong. With the third, a node of Galera is not ready, or not part of its cluster. With the others, a server of group
  // replication has not caught up with the others yet.
  unreachable: `ER_CONNECTION_TIMEOUT
    ER_WRONG_IANA_TIMEZONE ER_SETTING_SESSION_ERROR ER_INITIAL_SQL_ERROR
    ER_UNKNOWN_COM_ERROR
    ER_GRP_TRX_CONSISTENCY_NOT_ALLOWED ER_GRP_TRX_CONSISTENCY_BEFORE ER_GRP_TRX_CONSISTENCY_AFTER_ON_TRX_BEGIN
    ER_GRP_TRX_CONSISTENCY_BEGIN_NOT_ALLOWED`,
  tooManyConnections: 'ER_CON_COUNT_ERROR ER_TOO_MANY_USER_CONNECTIONS ER_USER_LIMIT_REACHED',
  authentication: `ER_ACCESS_DENIED_ERROR ER_ACCESS_DENIED_NO_PASSWORD_ERROR ER_NOT_SUPPORTED_AUTH_MODE
    ER_HOST_NOT_PRIVILEGED ER_ACCOUNT_HAS_BEEN_LOCKED`,
  unknownDatabase: 'ER_BAD_DB_ERROR ER_NO_DB_ERROR',
  notAllowed: `ER_DBACCESS_DENIED_ERROR ER_TABLEACCESS_DENIED_ERROR ER_COLUMNACCESS_DENIED_ERROR
    ER_SPECIFIC_ACCESS_DENIED_ERROR`,
  // A replica, a server with `read_only`, a read-only transaction.
  readOnly: `ER_OPTION_PREVENTS_STATEMENT ER_READ_ONLY_MODE ER_OPEN_AS_READONLY ER_INNODB_READ_ONLY
    ER_CANT_EXECUTE_IN_READ_ONLY_TRANSACTION`,
  // While a group changes its primary by `group_replication_set_as_primary`, the old one refuses to write to tables with cascading
  // foreign keys. If all servers may take writes, one can refuse such writes for good with the same error
  // (docs/high-availability.md).
  refusedByGroup: 'ER_BEFORE_DML_VALIDATION_ERROR',
  diskFull: 'ER_DISK_FULL ER_RECORD_FILE_FULL',
  deadlock: 'ER_LOCK_DEADLOCK',
  // MariaDB, with innodb_snapshot_isolation.
  changedSinceSnapshot: 'ER_CHECKREAD',
  // Group replication finds some conflicts at the commit, which is then rolled back. A commit that waits while the server leaves
  // its group is also rolled back, but the other servers may have it.
  commitRolledBack: 'ER_TRANSACTION_ROLLBACK_DURING_COMMIT',
  lockTimeout: 'ER_LOCK_WAIT_TIMEOUT ER_LOCK_NOWAIT',
  statementTimeout: 'ER_QUERY_INTERRUPTED ER_QUERY_TIMEOUT ER_STATEMENT_TIMEOUT',
  tooLarge: 'ER_NET_PACKET_TOO_LARGE',
  damagedFile: 'ER_CRASHED_ON_USAGE ER_NOT_KEYFILE',
  inputOutput: 'ER_ERROR_ON_READ ER_ERROR_ON_WRITE',
  // Not always a rollback: a node of Galera reports the first if it loses its cluster while it waits for its write set, which the
  // others may have. Of 96 commits of a node that was cut off, 22 were stored (wsrep-lib: e_error_during_commit after
  // error_connection_failed). Without a cluster it is reported if one engine has failed and another may have committed. Group
  // replication reports the second if the server leaves its group.
  commitFailed: 'ER_ERROR_DURING_COMMIT ER_RUN_HOOK_ERROR',
});

/**
 * In UTF-16 code units. Each has at most three bytes of UTF-8, and each byte two hexadecimal digits: at most 3 MB. The smallest
 * default of `max_allowed_packet` since MySQL 5.7 is 4 MB.
 */
export const MAX_TEXT_LENGTH = 500_000;

const UTF8MB4 =
  "Leave 'charset' out of 'driverOptions.connection', or set it to utf8mb4, and leave 'set names' out of hooks and init_connect.";

const readUncommitted = (variable: string): Setting => ({
  name: 'transaction isolation level READ UNCOMMITTED',
  because: 'events would be read that are never committed',
  advice: 'Run: set session transaction isolation level read committed',
  isWrong: `@@${variable} = 'READ-UNCOMMITTED'`,
});

/** The settings that are refused on both servers. */
const SETTINGS: readonly Setting[] = [
  {
    name: 'autocommit = 0',
    because: 'writes would not be committed and reads would show an old state',
    advice: 'Run: set autocommit = 1',
    isWrong: '@@autocommit = 0',
  },
  {
    name: 'completion_type',
    because: 'a commit would begin the next transaction or end the connection',
    advice: "Run: set completion_type = 'NO_CHAIN'",
    isWrong: "@@completion_type <> 'NO_CHAIN'",
  },
  {
    name: 'sql_select_limit',
    because: 'rows would be missing from what is read',
    advice: 'Run: set sql_select_limit = default',
    isWrong: '@@sql_select_limit < 18446744073709551615',
  },
  {
    name: 'foreign_key_checks = 0',
    because: 'a deleted session would leave its events behind',
    advice: 'Run: set foreign_key_checks = 1',
    isWrong: '@@foreign_key_checks = 0',
  },
  {
    name: 'unique_checks = 0',
    because: 'an event could be stored twice',
    advice: 'Run: set unique_checks = 1',
    isWrong: '@@unique_checks = 0',
  },
  {
    name: 'sql_safe_updates = 1',
    because: 'the event log could not give out positions',
    advice: 'Run: set sql_safe_updates = 0',
    isWrong: '@@sql_safe_updates = 1',
  },
  {
    name: 'character_set_results',
    because: 'text would come back changed unless it were utf8mb4',
    advice: UTF8MB4,
    isWrong: "not (@@character_set_results <=> 'utf8mb4')",
  },
  {
    // The mariadb driver decodes results by this setting.
    name: 'character_set_client',
    because: 'text would come back changed unless it were utf8mb4',
    advice: UTF8MB4,
    isWrong: "@@character_set_client <> 'utf8mb4'",
  },
  {
    // Values are converted to it.
    name: 'character_set_connection',
    because: 'text would be stored changed unless it were utf8mb4',
    advice: UTF8MB4,
    isWrong: "@@character_set_connection <> 'utf8mb4'",
  },
];

/** @param isolationLevel the name of the variable, which differs between the servers. */
export const mysqlSettings = (isolationLevel: string): Setting[] => [...SETTINGS, readUncommitted(isolationLevel)];

/**
 * With group replication and several primaries, a server aborts a transaction that conflicts with another server's, even while it
 * prepares to commit: "Got error 149 - 'Lock deadlock; Retry transaction' during COMMIT".
 */
const isBrokenOffAtCommit = (error: unknown) =>
  driverCodeOf(error) === 'ER_ERROR_DURING_COMMIT' && /Got error 149\b.* during COMMIT$/.test(driverMessageOf(error));

/** MySQL; the dialect of MariaDB is made from this one. */
export const mysql: Dialect = {
  connections: {
    wrongServer: (version) => wrongServer(version, 'mysql'),

    settings: mysqlSettings('transaction_isolation'),
  },

  errors: {
    failureOf: (error) => (isBrokenOffAtCommit(error) ? 'deadlock' : FAILURES_BY_CODE[driverCodeOf(error) ?? '']),

    // Servers have these numbers; those of the drivers are 2,000 to 2,999, and 45,000 and higher.
    isAnswer(error) {
      const number = driverNumberOf(error);
      return (number >= 1_000 && number < 2_000) || (number >= 3_000 && number < 45_000);
    },
  },

  sql: {
    // In UTC, since an hour of local time occurs twice when summer time ends. It is the time at which the statement began, so after
    // a wait for a lock a lease may be shorter than requested, but never longer.
    now: "(timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)) / 1000e0)",

    underLock: ' for update',

    skipLocked: ' for update skip locked',

    lockRowsOnly: 'set transaction isolation level read committed',

    checkOpen: 'do 0',

    explicitCommit: { on: 'set autocommit = 0', off: 'set autocommit = 1' },

    // The server's default, but the host may have set another one.
    snapshot: { setting: 'set transaction isolation level repeatable read' },

    // InnoDB makes an index for each foreign key.
    hostKeys: (tables) =>
      `select nullif(k.table_schema, k.referenced_table_schema) as schema_name, k.table_name as table_name,
          k.constraint_name as key_id, k.constraint_name as name, lower(r.delete_rule) as rule,
          k.referenced_table_name as target, k.column_name as column_name, k.referenced_column_name as target_column, 1 as indexed
        from information_schema.key_column_usage as k join information_schema.referential_constraints as r
          on r.constraint_schema = k.constraint_schema and r.constraint_name = k.constraint_name and r.table_name = k.table_name
        where k.referenced_table_schema = coalesce(?, database()) and k.referenced_table_name in (${placeholders(tables)})
        order by k.table_schema, k.table_name, k.constraint_name, k.ordinal_position`,

    asText: (column) => `cast(${column} as char)`,

    contains: (column, value) => `instr(cast(${column} as binary), cast(${value} as binary)) > 0`,

    skipsToNextName: true,

    inOrderOfKey: (table) => `${table} use index (primary)`,

    hex: (column) => `hex(convert(${column} using utf8mb4))`,

    byteLength: (column) => `length(${column})`,

    onConflict: (_table, _keyColumns, { ownOnly } = {}) =>
      ownOnly
        ? // Don't set `event_id` as well: the row keeps the event that wrote it.
          'on duplicate key update value = if(event_id = values(event_id), values(value), value)'
        : 'on duplicate key update value = values(value), event_id = values(event_id)',

    onSameKey: (_key, columns) =>
      `on duplicate key update ${columns.map((column) => `${column} = values(${column})`).join(', ')}`,

    // `straight_join` and `force index`: otherwise a server scans a small table, and locks all rows and the gaps into which appends
    // insert. `union all`: the servers have no common syntax for lists of values.
    setPlaces: (table, numberedBy, set, count) =>
      `update (
         select ? as app_name, ? as user_id, ? as session_id, ${[numberedBy, ...set].map((column) => `? as ${column}`).join(', ')}
         ${`union all select ?, ?, ?, ?${', ?'.repeat(set.length)} `.repeat(count - 1)}) as given
       straight_join ${table} as e force index (primary)
         on ${isSameSession('e', 'given')} and e.${numberedBy} = given.${numberedBy} and e.position is null
       set ${set.map((column) => `e.${column} = given.${column}`).join(', ')}`,

    fromIndex: (index) => `force index (${index})`,

    // Only this form of `delete` has hints.
    deleteThrough: (table, index) => `delete d from ${table} as d force index (${index})`,

    deleteSome: (table, _key, where) => `delete from ${table} where ${where} limit ?`,
  },

  operations: {
    // Appends share no transaction: the servers group the commits of several connections by themselves, and the statements of a
    // shared transaction would come one after the other.
    appends: (tables) => appendsByInsertId(mysql, tables),

    lockSession: lockBySelect,

    async increment(sql, name, by) {
      const { insertId } = await sql.run(
        `insert into ${sql.tables.counters} (name, value) values (?, last_insert_id(?))
         on duplicate key update value = last_insert_id(value + ?)`,
        [name, by, by],
      );
      return insertId;
    },

    async nextVersion(sql, artifact) {
      const { insertId } = await sql.run(
        ...bound(
          `${insertIntoArtifacts(sql.tables.artifacts)} values (${ARTIFACT_NAMES}, last_insert_id(0), ${sql.dialect.sql.now})
           on duplicate key update last_version = last_insert_id(last_version + 1), update_time = values(update_time)`,
          artifact,
        ),
      );
      return insertId;
    },
  },

  limits: {
    maxTextLength: MAX_TEXT_LENGTH,

    async refuseTooLarge(sql, what, ...values) {
      if (values.reduce((sum, value) => sum + (value?.length ?? 0), 0) <= MAX_TEXT_LENGTH) return;
      const bytes = values.reduce((sum, value) => sum + Buffer.byteLength(value ?? ''), 0);
      const [server] = await sql.all<{ bytes: number | string }>('select @@max_allowed_packet as bytes');
      // `literal` writes two hexadecimal digits for each byte.
      if (2 * bytes > numberOf(server?.bytes)) throw new ValueTooLargeError(what);
    },
  },
};
