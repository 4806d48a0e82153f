import { existsSync } from 'node:fs';
import path from 'node:path';
import type { EntityManager, MikroORM } from '@mikro-orm/core';
import { Database, databaseTime, migrationStatus } from '../../../../src/internal.js';
import { now } from '../../../../src/model/clock.js';
import { passingOf } from '../../../../src/model/failures.js';
import { supportedDialect } from '../../../../entities/dialect-name.js';
import { migrate } from '../../../../src/index.js';
import { printableLines } from '../../../studio/src/operations/words.js';
import type { Work } from '../run.js';

export const runMigrations: Work<[{ dryRun?: true }]> = async ({ orm, em, terminal }, { dryRun: isDryRun = false }) => {
  if (isDryRun) makeNoFile(orm);
  const { pending, statements } = await throughOutages(em, isDryRun, async () => {
    const status = await migrationStatus(orm);
    const { pending } = status;
    if (isDryRun) return { pending, statements: await status.statements() };
    await migrate(orm);
    return { pending };
  });
  await terminal.result({ migrations: pending, ...(statements && { statements }) }, () => {
    if (pending.length === 0) return [`${statements ? '-- ' : ''}The tables are up to date.`];
    if (!statements) return pending.map((name) => `Ran ${name}`);
    // The output is a script that a database can run.
    return [...pending.map((name) => `-- ${name}`), ...statements.flatMap((sql) => printableLines(`${sql};`))];
  });
};

/** Opening a missing SQLite file would create it, so an empty database in memory replaces it. */
function makeNoFile({ config, em }: MikroORM): void {
  const file = config.get('dbName')?.replace(/^file:(\/\/)?/, '');
  const isFile = supportedDialect(em.getPlatform()) === 'sqlite' && file !== undefined && !/^[a-z]{2,}:/i.test(file);
  if (isFile && !existsSync(path.resolve(config.get('baseDir'), file))) config.set('dbName', ':memory:');
}

/** How long to retry a migration that an outage interrupts: as long as a call of the services. */
const OUTAGE_MS = 30_000;

/**
 * Retries while a server is starting or failing over.
 *
 * @param isReadOnly whether the database stays as it is, its settings included.
 * @param work may run several times.
 */
async function throughOutages<T>(em: EntityManager, isReadOnly: boolean, work: () => Promise<T>): Promise<T> {
  const database = new Database(em, { isForeign: isReadOnly });
  const read = database.reader('migrate');
  let outageBegan: number | undefined;
  for (;;) {
    await read(databaseTime);
    try {
      return await work();
    } catch (error) {
      outageBegan ??= now();
      const isOutage = passingOf(database.failureOf(error)) === 'outage';
      if (!isOutage || now() - outageBegan > OUTAGE_MS) throw error;
    }
  }
}
