/**
 * Other servers that speak the protocol of PostgreSQL or MySQL. None of them is tested; see docs/scale.md.
 */
const OTHER_ENGINES: readonly { name: string; version: RegExp; because: string }[] = [
  { name: 'TiDB', version: /-TiDB-/, because: 'its "for update skip locked" locks nothing' },
  { name: 'CockroachDB', version: /^CockroachDB/, because: 'its "json" is "jsonb", which loses the order of keys' },
  { name: 'YugabyteDB', version: /-YB-/, because: 'it has no "ctid", which appends use' },
  { name: 'Vitess', version: /-vitess/i, because: 'no test runs on it' },
  { name: 'OceanBase', version: /-OceanBase/, because: 'no test runs on it' },
  { name: 'Amazon Redshift', version: / Redshift /, because: 'it does not enforce primary keys' },
  { name: 'Materialize', version: /\(materialized? /i, because: 'no test runs on it' },
  { name: 'Greenplum', version: /Greenplum Database/, because: 'no test runs on it' },
];

let acceptsOthers = false;

/** For a process that finds out what holds on another engine. */
export const acceptOtherEngines = () => (acceptsOthers = true);

/**
 * @param version the result of `version()`.
 * @returns why the server is refused, and what to use; undefined if it is the one that the driver is for.
 */
export function wrongServer(version: string, driver: 'postgresql' | 'mysql' | 'mariadb'): string | undefined {
  const engine = OTHER_ENGINES.find((other) => other.version.test(version));
  if (engine && !acceptsOthers)
    return (
      `This server is ${engine.name}, on which sessions are not safe: ${engine.because}. ` +
      'Use PostgreSQL, MySQL, MariaDB or SQLite; docs/scale.md says what is known of other engines.'
    );
  if (driver === 'postgresql') return undefined;
  const server = /mariadb/i.test(version) ? 'mariadb' : 'mysql';
  if (server === driver) return undefined;
  return (
    `This server is ${server === 'mysql' ? 'MySQL' : 'MariaDB'}: use @mikro-orm/${server} and its driver ` +
    `instead of @mikro-orm/${driver}.`
  );
}
