import { SessionProjection, type CompleteLogEntry } from '../../../src/index.js';
import type { EntityManager } from '@mikro-orm/core';
import { openOrm, type Database } from './open-orm.js';

// A process that runs a projection. If told to hang, it stops for good in the middle of a transaction.

export interface Job {
  database: Database;
  hangs: boolean;
}

/** `hangs` in the middle of a transaction whose rows are written; `done`; or an error. */
export type Report = 'hangs' | 'done' | { error: string };

async function work({ database, hangs }: Job): Promise<void> {
  const orm = await openOrm(database);
  const apply = async (entries: readonly CompleteLogEntry[], tx: EntityManager) => {
    for (const { seq } of entries)
      await tx.getConnection().execute('insert into ledger (seq) values (?)', [seq], 'run', tx.getTransactionContext());
    if (!hangs) return;
    report('hangs');
    await new Promise(() => undefined);
  };
  const clear = () => Promise.reject(new Error('Nothing went back'));
  await new SessionProjection(orm.em, { name: 'ledger', apply, clear }).catchUp();
  await orm.close(true);
  report('done');
}

function report(message: Report): void {
  process.send?.(message);
}

process.on('message', (job: Job) => {
  work(job).catch((error: unknown) => report({ error: String(error) }));
});
process.on('disconnect', () => process.exit());
