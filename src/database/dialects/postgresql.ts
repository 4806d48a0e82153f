import { createHash } from 'node:crypto';
import { driverCodeOf, driverMessageOf } from '../../model/errors.js';
import type { Failure } from '../../model/failures.js';
import { placeholders } from '../sql/values.js';
import { HAS_CITUS, hasLostNode, onCitus } from './citus.js';
import { lockBySelect } from './session-rows.js';
import type { Dialect } from './dialect.js';
import { postgresqlAppends } from './postgresql-append.js';
import { returningOperations, returningSql } from './returning.js';
import { wrongServer } from './server-version.js';
import { failuresByCode } from './failures-by-code.js';
import type { Setting } from './settings.js';
import { isObject } from '../../model/json.js';

const FAILURES_BY_CODE = failuresByCode({
  // PgBouncer sends 08P01 if the server is gone or does not answer. With the second line, the server closes the connection: it
  // shuts down, has crashed, or a session or transaction was idle or too long.
  lostConnection: `08000 08003 08006 08P01
    57P01 57P02 57P05 25P03 25P04`,
  // With 57P03 the server is starting, shutting down or recovering.
  unreachable: '57P03 08001 08004',
  tooManyConnections: '53300',
  authentication: '28000 28P01',
  unknownDatabase: '3D000',
  notAllowed: '42501',
  // A replica, or a read-only transaction.
  readOnly: '25006',
  diskFull: '53100',
  changedSinceSnapshot: '40001',
  // With 26000 and 42P05, a statement that another connection behind the pooler has prepared has ended the transaction.
  deadlock: '40P01 26000 42P05',
  rolledBack: '25P02',
  lockTimeout: '55P03',
  statementTimeout: '57014',
  // From PostgreSQL 18 on, of a key with `on delete restrict`. MikroORM has no class for it.
  foreignKey: '23001',
  inputOutput: '58030',
  damagedFile: 'XX001 XX002',
  // It is not known whether the statement completed.
  unknown: '40003',
});

const SETTINGS: readonly Setting[] = [
  {
    name: 'client_encoding',
    because: 'text would come back changed unless it were UTF8',
    advice: "Run: set client_encoding = 'UTF8'",
    isWrong: "current_setting('client_encoding') <> 'UTF8'",
  },
  {
    name: 'server_encoding',
    because: 'there is text that the database cannot store unless it is UTF8',
    advice: "Use another database: create database … encoding 'UTF8' template template0",
    isWrong: "current_setting('server_encoding') <> 'UTF8'",
  },
  {
    name: 'session_replication_role',
    because: 'a deleted session would leave its events behind',
    advice: 'Run: set session_replication_role = origin',
    isWrong: "current_setting('session_replication_role') = 'replica'",
  },
  {
    name: 'standard_conforming_strings',
    because: 'Citus would double the backslashes in texts that it passes on',
    advice: 'Run: set standard_conforming_strings = on',
    isWrong: `${HAS_CITUS} and current_setting('standard_conforming_strings') = 'off'`,
  },
  {
    name: 'extra_float_digits',
    because: 'times would come back rounded',
    advice: 'Run: set extra_float_digits = 1',
    isWrong: "current_setting('extra_float_digits')::int < 1",
  },
];

const onOneServer: Dialect = {
  connections: {
    wrongServer: (version) => wrongServer(version, 'postgresql'),

    settings: SETTINGS,
  },

  errors: {
    failureOf(error) {
      const failure = FAILURES_BY_CODE[driverCodeOf(error) ?? ''];
      if (failure === 'notAllowed' && isByPolicy(error)) return 'refusedByPolicy';
      return isCrash(error, failure) || hasLostNode(error) ? 'lostConnection' : failure;
    },

    // A SQLSTATE has a digit; the codes of Node.js have none.
    isAnswer: (error) => /^(?=.*\d)[\dA-Z]{5}$/.test(driverCodeOf(error) ?? ''),
  },

  sql: {
    ...returningSql,

    checkOpen: 'select 1',

    set: (count) => `select ${new Array(count).fill('set_config(?, ?, true)').join(', ')}`,

    snapshot: { begin: 'begin isolation level repeatable read' },

    // `now()` would be the time at which the transaction began.
    now: '(extract(epoch from clock_timestamp()) * 1000)::float8',

    hostKeys: (tables) =>
      `select nullif(n.nspname, tn.nspname)::text as schema_name, r.relname::text as table_name, f.oid::text as key_id,
          f.conname::text as name, f.confdeltype::text as rule, t.relname::text as target, a.attname::text as column_name,
          ta.attname::text as target_column, case when exists (select 1 from pg_index as x
            where x.indrelid = f.conrelid and x.indisvalid and x.indpred is null
              and (string_to_array(x.indkey::text, ' ')::int2[])[1:cardinality(f.conkey)] @> f.conkey) then 1 else 0 end as indexed
        from pg_constraint as f join pg_class as r on r.oid = f.conrelid join pg_namespace as n on n.oid = r.relnamespace
        join pg_class as t on t.oid = f.confrelid join pg_namespace as tn on tn.oid = t.relnamespace
        cross join lateral unnest(f.conkey, f.confkey) with ordinality as k (attnum, target, place)
        join pg_attribute as a on a.attrelid = r.oid and a.attnum = k.attnum
        join pg_attribute as ta on ta.attrelid = t.oid and ta.attnum = k.target
        where f.contype = 'f' and f.conparentid = 0 and tn.nspname = coalesce(?, current_schema())
          and t.relname in (${placeholders(tables)}) order by schema_name, table_name, name, f.oid, k.place`,

    skipLocked: ' for update skip locked',

    lockName: (isShared) => `select pg_advisory_xact_lock${isShared ? '_shared' : ''}(hashtextextended(?, 0))`,

    // The order makes the planner use the primary key, see `isFromNumber`.
    joinByNumber: (table, alias, on) =>
      `cross join lateral (select * from ${table} as ${alias} where ${on} order by ${alias}.seq) as ${alias}`,

    asText: (column) => `${column}::text`,

    contains: (column, value) => `strpos(${column}::text, ${value}) > 0`,

    hex: (column) => `encode(convert_to(${column}::text, 'UTF8'), 'hex')`,

    byteLength: (column) => `octet_length(${column}::text)`,
  },

  operations: {
    ...returningOperations,

    // A `select … for update` would also wait for transactions that insert rows which refer to the session's.
    lockSession: (sql, session, lock) =>
      lock.skipsLocked ? lockBySelect(sql, session, lock) : returningOperations.lockSession(sql, session, lock),

    appends: (tables) => postgresqlAppends(tables, onOneServer.sql),
  },

  push: {
    channel: ({ events }) => `adk_${hashOf(events)}`,
    notify: "select pg_notify(?, '')",
  },
};

export const postgresql: Dialect = { ...onOneServer, distributed: onCitus(onOneServer) };

/**
 * Whether the server crashes with this error. If it comes from a commit, the commit may be on the disk already: a server that has
 * no space for the next file of its log has written all of the last one. The server may report severities in another language.
 */
function isCrash(error: unknown, failure: Failure | undefined): boolean {
  const severity = isObject(error) && 'severity' in error ? error.severity : undefined;
  return severity === 'PANIC' || (failure === 'diskFull' && severity !== 'ERROR');
}

/**
 * The functions of the server that check policies of row-level security. The message may be in any language, so it is read only for
 * Citus, which leaves the name of the function out.
 */
const OF_POLICIES = new Set<unknown>(['ExecWithCheckOptions', 'check_enable_rls']);

const isByPolicy = (error: unknown) =>
  (isObject(error) && 'routine' in error && OF_POLICIES.has(error.routine)) ||
  driverMessageOf(error).includes('row-level security');

/** Short, since names in PostgreSQL have at most 63 bytes. */
function hashOf(text: string): string {
  return createHash('sha256').update(text).digest('hex').slice(0, 16);
}
