import { deleteArtifact } from '../artifacts/artifact-store.js';
import type { ArtifactKey } from '../artifacts/stored-version.js';
import type { Sql } from '../database/dialects/dialect.js';
import { leaseIsFree } from '../database/dialects/session-rows.js';
import { isSameSession, ownerWhere, placeholders, textOf } from '../database/sql/tables.js';
import { forgetChangesOfUser, recordChange } from '../database/statements/changes.js';
import { countRows } from '../database/statements/count.js';
import { dropUnwrittenPages } from '../log/stored-projections.js';
import { UserNotErasedError } from '../model/errors.js';
import type { MaintenanceResult } from '../model/results.js';
import type { DeletionRun } from './deletion-run.js';
import { deleteMemories } from './memories.js';
import type { EraseUserOptions } from './options.js';
import { WholeSessions } from './whole-sessions.js';

/** See `SessionMaintenance.eraseUser`. */
export async function eraseUser(run: DeletionRun, { appName, userId }: EraseUserOptions): Promise<MaintenanceResult> {
  const result = await run.run(
    () => run.batches.result,
    async () => {
      const erase = (rows: ErasedRows) => eraseRows(run, appName, userId, rows);
      // Artifacts first, in transactions of their own: the deletion of a session would delete its artifacts without counting them.
      await erase({
        table: 'artifacts',
        columns: ['session_id', 'filename'],
        counted: 'artifacts',
        deleteOne: deleteArtifact,
        // The session stays, and whoever has its lease reads them.
        only: ({ tables, dialect }) =>
          run.batches.includesLeased
            ? ''
            : ` and not exists (select 1 from ${tables.sessions} as s where ${isSameSession('s', 'e')}
                and not ${leaseIsFree(dialect.sql)})`,
      });
      await run.walk(new WholeSessions(run, () => true), { appName, userId, by: 'key' });
      // Memories last: a projection may add some while sessions exist, and those of sessions that it has read before.
      if (!run.batches.isDryRun && (await run.batches.mayBegin())) await run.write(dropUnwrittenPages);
      for await (const app of run.apps(appName, 'memories')) await deleteMemories(run, app, { userId });
      await erase({ table: 'userStates', columns: ['state_key'], counted: 'stateKeys' });
      for await (const app of run.apps(appName, 'forgottenMemories')) await eraseMarks(run, app, userId);
      await erase({ table: 'credentials', columns: ['credential_key'], counted: 'credentials' });
      for await (const app of run.apps(appName, 'changes')) await eraseChanges(run, app, userId);
    },
  );
  // If there is more to do, the next call finds the skipped sessions again.
  if (result.skipped > 0 && !result.more && !run.batches.isDryRun) throw new UserNotErasedError(result);
  return result;
}

/** A table of which the user's rows are deleted in batches. */
interface ErasedRows {
  table: 'artifacts' | 'userStates' | 'credentials';
  /** The columns of the key after app and user. */
  columns: readonly string[];
  counted: 'artifacts' | 'stateKeys' | 'credentials';
  /** Deletes one row. By default a batch is deleted in one statement, by the only column. */
  deleteOne?: (sql: Sql, key: ArtifactKey) => Promise<void>;
  /** A further condition for a row `e`. */
  only?: (sql: Sql) => string;
}

async function eraseRows(
  run: DeletionRun,
  onlyApp: string | undefined,
  userId: string,
  { table, columns, counted, deleteOne, only = () => '' }: ErasedRows,
): Promise<void> {
  const { read, write, batches } = run;
  const of = (sql: Sql) => `${sql.tables[table]} as e where ${ownerWhere('user')}${only(sql)}`;
  const names = columns.join(', ');
  for await (const appName of run.apps(onlyApp, table)) {
    const owner = [appName, userId];
    if (batches.isDryRun) batches.count({ [counted]: await read((sql) => countRows(sql, of(sql), owner)) });
    while (!batches.isDryRun) {
      const keys = await read(async (sql) => {
        const text = `select ${names} from ${of(sql)} order by ${names} limit ?`;
        const found = await sql.all(text, [...owner, batches.size]);
        return found.map((row) => columns.map((column) => textOf(row[column])));
      });
      if (keys.length === 0 || !(await batches.mayBegin())) break;
      await write(async (sql) => {
        for (const [sessionId = '', filename = ''] of deleteOne ? keys : [])
          await deleteOne?.(sql, { appName, userId, sessionId, filename });
        if (deleteOne) return;
        await sql.run(
          `delete from ${sql.tables[table]} where ${ownerWhere('user')} and ${names} in (${placeholders(keys.length)})`,
          [...owner, ...keys.flat()],
        );
      });
      batches.add({ [counted]: keys.length });
    }
  }
}

/** Deletes the marks of memories that the user's agents had to forget. */
async function eraseMarks({ read, write, batches }: DeletionRun, appName: string, userId: string): Promise<void> {
  const rows = (sql: Sql) => `${sql.tables.forgottenMemories} where ${ownerWhere('user')}`;
  const owner = [appName, userId];
  if (batches.isDryRun || (await read((sql) => countRows(sql, rows(sql), owner))) === 0) return;
  if (!(await batches.mayBegin())) return;
  await write((sql) => sql.run(`delete from ${rows(sql)}`, owner));
  batches.add();
}

/** Deletes the user's entries of the log. State of the app that the user wrote becomes an entry of the app. */
async function eraseChanges({ write, batches }: DeletionRun, appName: string, userId: string): Promise<void> {
  const app = { appName, userId: '', sessionId: '', origin: '' };
  for (let isFirst = true; !batches.isDryRun && (await batches.mayBegin()); isFirst = false) {
    const forgotten = await write(async (sql) => {
      const count = await forgetChangesOfUser(sql, appName, userId, batches.size);
      if (count > 0 && isFirst) await recordChange(sql, { session: app, kind: 'state', seq: 0 });
      return count;
    });
    if (forgotten === 0) return;
    batches.add();
  }
}
