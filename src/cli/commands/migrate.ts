import type { EntityManager } from '@mikro-orm/core';
import { passingOf } from '../../model/failures.js';
import { migrate } from '../../../migrations/migrate.js';
import { migrationStatus } from '../../../migrations/status.js';
import { readerOf } from '../../operations/reader.js';
import type { Work } from '../run.js';

export const runMigrations: Work<[{ dryRun?: true }]> = async ({ orm, em, terminal }, { dryRun }) => {
  const { pending } = await throughOutages(em, async () => {
    const status = await migrationStatus(orm);
    if (!dryRun) await migrate(orm);
    return status;
  });
  const verb = dryRun ? 'Would run' : 'Ran';
  await terminal.result({ migrations: pending }, () =>
    pending.length === 0 ? ['The tables are up to date.'] : pending.map((name) => `${verb} ${name}`),
  );
  return undefined;
};

/** For how long a migration that an outage interrupts is tried again: as long as a call of the services. */
const OUTAGE_MS = 30_000;

/** Tries again while a server is starting or failing over. @param work may run several times. */
async function throughOutages<T>(em: EntityManager, work: () => Promise<T>): Promise<T> {
  const { database, read } = readerOf(em, 'migrate');
  const { health } = database.stores;
  let outageBegan: number | undefined;
  for (;;) {
    await read((sql) => health.now(sql));
    try {
      return await work();
    } catch (error) {
      outageBegan ??= performance.now();
      const isOutage = passingOf(database.failureOf(error)) === 'outage';
      if (!isOutage || performance.now() - outageBegan > OUTAGE_MS) throw error;
    }
  }
}
