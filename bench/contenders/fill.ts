import type { BareDriver, Steps } from './drivers/bare-driver.js';

/** SQLite binds at most 32,766 values to a statement. */
const VALUES_PER_STATEMENT = 5_000;

export interface Rows {
  table: string;
  columns: readonly string[];
  rows: Iterable<readonly unknown[]>;
  /** Skips existing rows. */
  missingOnly?: boolean;
}

/** Inserts rows in large statements and one transaction. */
export async function insertRows(driver: BareDriver, inserts: readonly Rows[]): Promise<void> {
  await driver.transaction(insertSteps(driver, inserts));
}

function* insertSteps(driver: BareDriver, inserts: readonly Rows[]): Steps<void> {
  for (const { table, columns, rows, missingOnly } of inserts) {
    const { start, end } = missingOnly ? driver.insertMissing : { start: 'insert into', end: '' };
    const row = `(${columns.map(() => '?').join(', ')})`;
    const statement = (values: unknown[]) => ({
      text: `${start} ${table} (${columns.join(', ')}) values ${Array(values.length / columns.length)
        .fill(row)
        .join(', ')} ${end}`,
      values,
    });
    let values: unknown[] = [];
    for (const next of rows) {
      values.push(...next);
      if (values.length + columns.length > VALUES_PER_STATEMENT) {
        yield statement(values);
        values = [];
      }
    }
    if (values.length > 0) yield statement(values);
  }
}
