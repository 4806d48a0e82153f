import type { DialectName } from '../../../../entities/dialect-name.js';
import type { Dialect } from '../../../../src/internal.js';
import { SETTINGS } from '../../../../src/model/setting-words.js';

/**
 * A setting of the server or its connections on which the guarantees or the speed depend; docs/durability.md and
 * docs/high-availability.md say why.
 */
export interface ServerSetting {
  name: string;
  /** Selects it as `value`. */
  select: string;
  /** Whether nothing works with a wrong value; otherwise a wrong value costs safety or speed. */
  isRequired: boolean;
  /** @returns what the value costs and what to do; undefined if it is right. */
  advice(value: string, used: Used): string | undefined;
}

/** What uses the server. */
interface Used {
  dialect: Dialect;
  /** The most connections of the host's pool. */
  poolMax: number;
}

/** @param select an expression that needs no table. */
const setting = (name: string, select: string, advice: ServerSetting['advice']): ServerSetting => ({
  name,
  select: `select ${select} as value`,
  isRequired: false,
  advice,
});

const required = (name: string, select: string, advice: ServerSetting['advice']): ServerSetting => ({
  ...setting(name, select, advice),
  isRequired: true,
});

/** @returns an `advice` for every value except these. */
const unless =
  (...expected: readonly string[]) =>
  (advice: string) =>
  (value: string): string | undefined =>
    expected.includes(value.toLowerCase()) ? undefined : advice;

/** For the server's limit of connections. */
const roomForPool = (value: string, { poolMax }: Used): string | undefined =>
  Number(value) <= poolMax
    ? `The pool may open ${poolMax} connections, and the server takes ${value} of all processes. Lower ${SETTINGS.pool}.`
    : undefined;

const SHORT_MS = 10_000;

/** For the server's time limit for statements, in ms; 0 for none. */
const longEnough = (value: string): string | undefined =>
  Number(value) > 0 && Number(value) < SHORT_MS
    ? `Statements end after ${value} ms: those of maintenance and of large sessions may fail. Allow ${SHORT_MS} ms or more.`
    : undefined;

const MIN_PACKET = 16_000_000;

/** For MySQL and MariaDB. */
const ON_BOTH: readonly ServerSetting[] = [
  required('version', 'version()', (version, { dialect }) => dialect.connections.wrongServer?.(version)),
  required(
    'read_only',
    '@@global.read_only',
    unless('0', 'off')('This server takes no writes. Connect to the primary.'),
  ),
  setting(
    'innodb_flush_log_at_trx_commit',
    '@@innodb_flush_log_at_trx_commit',
    unless('1')('A power cut may lose the last second of what was acknowledged. Set it to 1.'),
  ),
  setting(
    'sync_binlog, where there is a binary log',
    'if(@@log_bin = 0, 1, @@sync_binlog)',
    unless('1')('After a power cut a replica may lack what was acknowledged. Set it to 1.'),
  ),
  setting(
    'binlog_format, where there is a binary log',
    "if(@@log_bin = 0, 'ROW', @@global.binlog_format)",
    unless('row', 'mixed')('The server refuses positions, prune, trim, erase-user and fork with it. Set it to ROW.'),
  ),
  setting('max_allowed_packet', '@@max_allowed_packet', (value) =>
    Number(value) < MIN_PACKET
      ? `State values of more than ${value} bytes are refused. Set it to 64M on the server.`
      : undefined,
  ),
  setting('max_connections', '@@max_connections', roomForPool),
];

/** Whether any connection to this database has this as its last statement. A listener sends only one statement. */
const lastSent = (pattern: string) =>
  `exists (select 1 from pg_stat_activity where datname = current_database() and query like '${pattern}')`;

const UNHEARD = 'sent, and nobody listens';

/** What `doctor` checks of each database. The first one is the server's version. */
export const SERVER_SETTINGS: Readonly<Record<DialectName, readonly ServerSetting[]>> = {
  sqlite: [
    setting('version', 'sqlite_version()', () => undefined),
    setting(
      'synchronous',
      '(select synchronous from pragma_synchronous)',
      unless('2', '3')('A power cut may lose what was acknowledged. Leave the pragma synchronous at full.'),
    ),
    setting(
      'journal_mode',
      '(select journal_mode from pragma_journal_mode)',
      unless('wal', 'memory')('Readers and writers wait for each other. Run: pragma journal_mode = wal'),
    ),
  ],
  postgresql: [
    setting('version', "current_setting('server_version')", () => undefined),
    required(
      'standby',
      'pg_is_in_recovery()::text',
      unless('false')('This server takes no writes. Connect to the primary.'),
    ),
    setting(
      'fsync',
      "current_setting('fsync')",
      unless('on')('A power cut may lose what was acknowledged, or all of the database. Set it to on.'),
    ),
    setting(
      'full_page_writes',
      "current_setting('full_page_writes')",
      unless('on')('A power cut may damage pages that were being written. Set it to on.'),
    ),
    setting(
      'synchronous_commit',
      "current_setting('synchronous_commit')",
      unless(
        'on',
        'local',
        'remote_write',
        'remote_apply',
      )('A crash of the server may lose the last second of what was acknowledged. Set it to on.'),
    ),
    setting(
      'synchronous_standby_names, where there are standbys',
      `coalesce(nullif(current_setting('synchronous_standby_names'), ''),
          case when exists (select 1 from pg_stat_replication) then 'none' else 'no standby' end)`,
      (value) =>
        value === 'none'
          ? 'A failover may lose the last appends. Name the standbys that a commit waits for.'
          : undefined,
    ),
    setting('max_connections', "current_setting('max_connections')", roomForPool),
    setting(
      'notifications',
      `case when not ${lastSent('select pg_notify($1%')} then 'none was sent lately'
          when ${lastSent('listen adk%')} then 'sent and received' else '${UNHEARD}' end`,
      (value) =>
        value === UNHEARD
          ? 'A service has notify, and no EventLog has listen, so watchers in other processes poll all the same. Set both or none.'
          : undefined,
    ),
    setting('statement_timeout', "(select setting from pg_settings where name = 'statement_timeout')", longEnough),
  ],
  mysql: [
    ...ON_BOTH,
    setting('max_execution_time', '@@max_execution_time', longEnough),
    setting(
      'group_replication_consistency, where several servers take writes',
      // A server without group replication has no such variables.
      `(select coalesce(max(if(s.variable_value = 'OFF', c.variable_value, null)), 'one primary')
          from performance_schema.global_variables as c
          join performance_schema.global_variables as s on s.variable_name = 'group_replication_single_primary_mode'
          where c.variable_name = 'group_replication_consistency')`,
      unless(
        'before',
        'after',
        'before_and_after',
        'one primary',
      )('A call through another server may not see what the call before it has written. Set it to BEFORE.'),
    ),
  ],
  mariadb: [
    ...ON_BOTH,
    setting('max_statement_time', 'round(1000 * @@max_statement_time)', longEnough),
    setting(
      'wsrep_sync_wait, on Galera',
      `(select if(max(if(variable_name = 'WSREP_ON', variable_value, '')) = 'ON',
            max(if(variable_name = 'WSREP_SYNC_WAIT', variable_value, '')), 'no Galera')
          from information_schema.session_variables where variable_name in ('WSREP_ON', 'WSREP_SYNC_WAIT'))`,
      unless(
        '7',
        'no galera',
      )('Statements of your own may not see what another node has committed; those of this package wait. Set it to 7.'),
    ),
  ],
};
