import { deleteArtifact } from '../artifacts/artifact-store.js';
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

/** The rows that a user has in a table are erased one batch at a time. */
interface ErasedRows {
  table: 'artifacts' | 'userStates' | 'credentials';
  /** What their keys have after app and user. */
  columns: readonly string[];
  counted: 'artifacts' | 'stateKeys' | 'credentials';
  /** By default all of them in one statement, by the only column. */
  delete?(sql: Sql, keys: readonly string[][]): Promise<void>;
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
    const owner = { appName, userId: this.#userId };
    await this.#erase(appName, {
      ...{ table: 'artifacts', columns: ['session_id', 'filename'], counted: 'artifacts' },
      async delete(sql, keys) {
        for (const [sessionId = '', filename = ''] of keys)
          await deleteArtifact(sql, { ...owner, sessionId, filename });
      },
    });
  }

  async eraseState(appName: string): Promise<void> {
    await this.#erase(appName, { table: 'userStates', columns: ['state_key'], counted: 'stateKeys' });
  }

  async eraseCredentials(appName: string): Promise<void> {
    await this.#erase(appName, { table: 'credentials', columns: ['credential_key'], counted: 'credentials' });
  }

  async #erase(appName: string, { table, columns, counted, ...rows }: ErasedRows): Promise<void> {
    const { read, write, batches } = this.#run;
    const owner = [appName, this.#userId];
    const of = ({ tables }: Sql) => `from ${tables[table]} where ${ownerWhere('user')}`;
    if (batches.isDryRun) {
      const text = (sql: Sql) => `select count(*) as total ${of(sql)}`;
      const [row] = await read((sql) => sql.all<{ total: number | string }>(text(sql), owner));
      batches.count({ [counted]: numberOf(row?.total) });
      return;
    }
    const names = columns.join(', ');
    const deleteAll = async (sql: Sql, keys: readonly string[][]) => {
      await sql.run(`delete ${of(sql)} and ${names} in (${placeholders(keys.length)})`, [...owner, ...keys.flat()]);
    };
    for (;;) {
      const keys = await read(async (sql) => {
        const text = `select ${names} ${of(sql)} order by ${names} limit ?`;
        const found = await sql.all<Record<string, unknown>>(text, [...owner, batches.size]);
        return found.map((row) => columns.map((column) => textOf(row[column])));
      });
      if (keys.length === 0 || !(await batches.mayBegin())) return;
      await write((sql) => (rows.delete ?? deleteAll)(sql, keys));
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
