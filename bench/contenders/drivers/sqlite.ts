import Database from 'better-sqlite3';
import type { BareDriver, Outcome, Row, Statement, Steps } from './bare-driver.js';

/** `better-sqlite3`, with the settings of the connection that it is compared with. */
export function openSqlite(file: string): BareDriver {
  const db = new Database(file);
  db.pragma('journal_mode = wal');
  db.pragma('foreign_keys = on');
  db.pragma('synchronous = full');
  const statements = new Map<string, Database.Statement<unknown[], Row>>();

  const execute = ({ text, values }: Statement): Outcome => {
    let statement = statements.get(text);
    if (!statement) statements.set(text, (statement = db.prepare<unknown[], Row>(text)));
    if (statement.reader) return { rows: statement.all(...values), insertId: 0 };
    statement.run(...values);
    return { rows: [], insertId: 0 };
  };
  const run = <T>(steps: Steps<T>): T => {
    for (let step = steps.next(); ; step = steps.next(execute(step.value))) {
      if (step.done) return step.value;
    }
  };

  return {
    transaction: async <T>(steps: Steps<T>) => db.transaction(() => run(steps)).immediate(),
    run: async (steps) => run(steps),
    upsert: (keys) =>
      `on conflict (${keys.join(', ')}) do update set value = excluded.value, event_id = excluded.event_id`,
    insertMissing: { start: 'insert or ignore into', end: '' },
    hasReturning: true,
    jsonText: (column) => column,
    date: (ms) => ms,
    analyze: async () => void db.exec('analyze'),
    close: async () => void db.close(),
  };
}
