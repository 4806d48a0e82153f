import { ArtifactStore } from '../artifacts/artifact-store.js';
import type { Sql } from '../database/dialects/dialect.js';
import { numberOf, textOf } from '../database/sql/row-values.js';
import { ownerWhere, placeholders } from '../database/sql/tables.js';
import { forgetChangesOfUser, recordChange } from '../database/statements/changes.js';
import { UserNotErasedError } from '../model/errors.js';
import type { MaintenanceResult } from '../model/results.js';
import type { DeletionRun } from './deletion-run.js';
import { deleteMemories } from './memories.js';
import type { EraseUserOptions } from './options.js';
import { WholeSessions } from './whole-sessions.js';

/** See `SessionMaintenance.eraseUser`. */
export async function eraseUser(run: DeletionRun, { appName, userId }: EraseUserOptions): Promise<MaintenanceResult> {
  const erasure = new Erasure(run, userId);
  const result = await run.run(
    () => run.batches.result,
    async () => {
      // First, so that each is counted, and in transactions of their own: a session is deleted in one with its artifacts.
      for await (const app of run.apps(appName, 'artifacts')) await erasure.eraseArtifacts(app);
      await run.walk(new WholeSessions(run, () => true), { appName, userId, by: 'key' });
      // After the sessions, of which a projection may add some.
      for await (const app of run.apps(appName, 'memories')) await deleteMemories(run, app, { userId });
      for await (const app of run.apps(appName, 'userStates')) await erasure.eraseState(app);
      for await (const app of run.apps(appName, 'credentials')) await erasure.eraseCredentials(app);
      for await (const app of run.apps(appName, 'changes')) await erasure.eraseChanges(app);
    },
  );
  // With more to do the next call reads them again.
  if (result.skipped > 0 && !result.more && !run.batches.isDryRun) throw new UserNotErasedError(result);
  return result;
}

/** The rows of a user that are erased one batch at a time. */
interface ErasedRows<Key> {
  count(sql: Sql): Promise<number>;
  some(sql: Sql, limit: number): Promise<readonly Key[]>;
  delete(sql: Sql, keys: readonly Key[]): Promise<void>;
}

/** Erases what a user has besides sessions. */
class Erasure {
  readonly #run: DeletionRun;
  readonly #userId: string;

  constructor(run: DeletionRun, userId: string) {
    this.#run = run;
    this.#userId = userId;
  }

  async eraseArtifacts(appName: string): Promise<void> {
    const store = ArtifactStore.of(this.#run.database);
    await this.#erase('artifacts', {
      count: (sql) => store.countOfUser(sql, appName, this.#userId),
      some: (sql, limit) => store.ofUser(sql, appName, this.#userId, limit),
      delete: async (sql, keys) => {
        for (const key of keys) await store.delete(sql, key);
      },
    });
  }

  async eraseState(appName: string): Promise<void> {
    await this.#erase('stateKeys', this.#keys(appName, 'userStates', 'state_key'));
  }

  async eraseCredentials(appName: string): Promise<void> {
    await this.#erase('credentials', this.#keys(appName, 'credentials', 'credential_key'));
  }

  /** The rows of a table that has one for each key of the user. */
  #keys(appName: string, table: 'userStates' | 'credentials', column: string): ErasedRows<string> {
    const owner = [appName, this.#userId];
    const of = ({ tables }: Sql) => `from ${tables[table]} where ${ownerWhere('user')}`;
    return {
      async count(sql) {
        const [row] = await sql.all<{ total: number | string }>(`select count(*) as total ${of(sql)}`, owner);
        return numberOf(row?.total);
      },
      async some(sql, limit) {
        const text = `select ${column} as name ${of(sql)} order by ${column} limit ?`;
        const rows = await sql.all<{ name: string }>(text, [...owner, limit]);
        return rows.map((row) => textOf(row.name));
      },
      async delete(sql, keys) {
        await sql.run(`delete ${of(sql)} and ${column} in (${placeholders(keys.length)})`, [...owner, ...keys]);
      },
    };
  }

  async #erase<Key>(counted: 'artifacts' | 'stateKeys' | 'credentials', rows: ErasedRows<Key>): Promise<void> {
    const { read, write, batches } = this.#run;
    if (batches.isDryRun) {
      batches.count({ [counted]: await read((sql) => rows.count(sql)) });
      return;
    }
    for (;;) {
      const keys = await read((sql) => rows.some(sql, batches.size));
      if (keys.length === 0 || !(await batches.mayBegin())) return;
      await write((sql) => rows.delete(sql, keys));
      batches.add({ [counted]: keys.length });
    }
  }

  /** Erases the user's entries of the log. What the user wrote to the app's state is emitted as the app's from now on. */
  async eraseChanges(appName: string): Promise<void> {
    const { write, batches } = this.#run;
    for (let erased = 0; !batches.isDryRun && (await batches.mayBegin());) {
      const isFirst = erased === 0;
      const forgotten = await write(async (sql) => {
        const count = await forgetChangesOfUser(sql, appName, this.#userId, batches.size);
        if (count > 0 && isFirst)
          await recordChange(sql, {
            session: { appName, userId: '', sessionId: '', origin: '' },
            kind: 'state',
            seq: 0,
          });
        return count;
      });
      if (forgotten === 0) return;
      erased += forgotten;
      batches.add();
    }
  }
}
