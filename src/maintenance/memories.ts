import type { Sql } from '../database/dialects/dialect.js';
import { allOf, ifGiven, placeholders, textOf } from '../database/sql/tables.js';
import { countRows } from '../database/statements/count.js';
import type { DeletionRun } from './deletion-run.js';

/** Which memories of an app to delete. */
interface MeantMemories {
  userId?: string | undefined;
  /** Only those that have expired, by the database's clock. */
  areExpired?: boolean;
}

export async function deleteMemories(run: DeletionRun, appName: string, meant: MeantMemories): Promise<void> {
  const { read, write, batches } = run;
  if (batches.isDryRun) {
    batches.count({ memories: await read((sql) => count(sql, appName, meant)) });
    return;
  }
  for (;;) {
    const rows = await read((sql) => page(sql, appName, meant, batches.size));
    if (rows.length === 0 || !(await batches.mayBegin())) return;
    const memories = await write(async (sql) => {
      let deleted = 0;
      for (const ofSession of bySession(rows)) deleted += await remove(sql, appName, meant, ofSession);
      return deleted;
    });
    batches.add({ memories });
  }
}

function bySession(rows: readonly KeyRow[]): Iterable<KeyRow[]> {
  const sessions = new Map<string, KeyRow[]>();
  for (const row of rows) {
    const session = `${row.user_id}\0${row.session_id}`;
    const found = sessions.get(session);
    if (found) found.push(row);
    else sessions.set(session, [row]);
  }
  return sessions.values();
}

interface KeyRow {
  user_id: string;
  session_id: string;
  memory_id: string;
}

const whereMeant = ({ dialect }: Sql, appName: string, { userId, areExpired }: MeantMemories) =>
  allOf(
    ['app_name = ?', appName],
    ifGiven('user_id = ?', userId),
    areExpired ? [`expires <= ${dialect.sql.now}`] : undefined,
  );

function count(sql: Sql, appName: string, meant: MeantMemories): Promise<number> {
  const { where, values } = whereMeant(sql, appName, meant);
  return countRows(sql, `${sql.tables.memories} where ${where}`, values);
}

function page(sql: Sql, appName: string, meant: MeantMemories, limit: number): Promise<KeyRow[]> {
  const { where, values } = whereMeant(sql, appName, meant);
  const text = `select user_id, session_id, memory_id from ${sql.tables.memories} where ${where} limit ?`;
  return sql.all<KeyRow>(text, [...values, limit]);
}

/** Deletes memories of one session. Expired ones only if they still are: one that was added again has a new expiry. */
async function remove(sql: Sql, appName: string, meant: MeantMemories, rows: readonly KeyRow[]): Promise<number> {
  const [first] = rows;
  if (!first) return 0;
  const expired = meant.areExpired ? ` and expires <= ${sql.dialect.sql.now}` : '';
  const { affectedRows } = await sql.run(
    `${sql.dialect.sql.deleteThrough(sql.tables.memories, 'primary')} where app_name = ? and user_id = ? and session_id = ?
      and memory_id in (${placeholders(rows.length)})${expired}`,
    [appName, textOf(first.user_id), textOf(first.session_id), ...rows.map((row) => textOf(row.memory_id))],
  );
  return affectedRows;
}
