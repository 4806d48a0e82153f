import { wrongServer } from '../../src/database/dialects/server-version.js';

/** As `select version()` returns them. */
const REFUSED: readonly [string, 'postgresql' | 'mysql', string][] = [
  ['8.0.11-TiDB-v8.5.6', 'mysql', 'TiDB'],
  ['8.0.30-Vitess', 'mysql', 'Vitess'],
  ['5.7.9-vitess-10.0.0', 'mysql', 'Vitess'],
  ['5.7.25-OceanBase-v4.2.1.0', 'mysql', 'OceanBase'],
  ['CockroachDB CCL v23.2.3 (x86_64-pc-linux-gnu, built 2024/03/20)', 'postgresql', 'CockroachDB'],
  ['PostgreSQL 11.2-YB-2.18.1.0-b0 on x86_64-pc-linux-gnu', 'postgresql', 'YugabyteDB'],
  ['PostgreSQL 8.0.2 on i686-pc-linux-gnu, compiled by GCC, Redshift 1.0.12103', 'postgresql', 'Amazon Redshift'],
  ['PostgreSQL 9.4.26 (Greenplum Database 6.25.3 build commit:3) on x86_64', 'postgresql', 'Greenplum'],
  ['PostgreSQL 9.5.0 on x86_64-unknown-linux-gnu (Materialize v0.130.4)', 'postgresql', 'Materialize'],
  ['PostgreSQL 9.6 on x86_64-unknown-linux-gnu (materialized 0.9.1)', 'postgresql', 'Materialize'],
];

const TAKEN: readonly [string, 'postgresql' | 'mysql' | 'mariadb'][] = [
  ['8.4.3', 'mysql'],
  ['8.0.36-28.1', 'mysql'],
  ['10.11.19-MariaDB-0+deb12u1', 'mariadb'],
  ['PostgreSQL 15.10 (Debian 15.10-0+deb12u1) on x86_64-pc-linux-gnu', 'postgresql'],
  ['PostgreSQL 17.4 on aarch64-unknown-linux-gnu', 'postgresql'],
];

test.each(REFUSED)('F5 %s is refused by name', (version, driver, name) => {
  expect(wrongServer(version, driver)).toContain(`This server is ${name}`);
});

test.each(TAKEN)('F5 %s is taken', (version, driver) => {
  expect(wrongServer(version, driver)).toBeUndefined();
});

test('F5 MySQL and MariaDB have a driver each', () => {
  expect(wrongServer('10.11.19-MariaDB', 'mysql')).toContain('use @mikro-orm/mariadb');
  expect(wrongServer('8.4.3', 'mariadb')).toContain('use @mikro-orm/mysql');
});
