import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { isMikroOrm7 } from '../../support/mikro-orm.js';
import { availableServers, createDatabase } from '../../support/servers.js';

const printed = async (name: string, ...args: string[]) =>
  (await promisify(execFile)('node', [`test/hosts/seam/reports/${name}.mjs`, ...args])).stdout;

// Each example is a report for MikroORM. If one fails, MikroORM is right by now, and what works around it can go.
test('composite-key.mjs: on SQLite a foreign key of two columns is read as two', async () => {
  expect(await printed('composite-key')).toContain('drop table `note`');
});

const onPostgresql = isMikroOrm7 && availableServers().includes('postgresql') ? test : test.skip;
onPostgresql('lost-connection.mjs: a transaction whose connection is lost keeps its place in the pool', async () => {
  const database = await createDatabase('postgresql');
  try {
    expect(await printed('lost-connection', database.url ?? '')).toBe('select 1 hangs\n');
  } finally {
    await database.drop();
  }
});
