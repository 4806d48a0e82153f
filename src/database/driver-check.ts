import { SchemaError } from '../model/errors.js';
import type { Dialect, Sql } from './dialects/dialect.js';
import { reportsChangedRows } from './mikro-orm.js';
import { booleanOf, changedValues, numberOf, textOf } from './row-values.js';

/** What a type parser that parses JSON, or trims, would change. */
const TEXT = ' "A7" ';

/**
 * Refuses a driver whose settings change what statements return, before anything is written (contract O7). A reader that
 * finds out later may come after the commit of an append.
 *
 * @throws SchemaError when the host's settings of the driver do not allow to read what is stored.
 */
export async function refuseDriver(sql: Sql, { sql: { now } }: Dialect): Promise<void> {
  const [row] = await sql.all<Record<'text' | 'whole' | 'large' | 'truth' | 'time', unknown>>(
    `select '${TEXT}' as text, 1 as whole, count(*) as large, 1 = 1 as truth, ${now} as time`,
  );
  if (textOf(row?.text) !== TEXT) throw changedValues('the text that was written', row?.text);
  numberOf(row?.whole);
  numberOf(row?.large);
  booleanOf(row?.truth);
  numberOf(row?.time);
  if (reportsChangedRows(sql.connection)) {
    throw new SchemaError(
      'The driver reports how many rows a statement has changed, where it must report how many it matched. ' +
        "Leave 'foundRows' and '-FOUND_ROWS' in 'flags' out of 'driverOptions' in the config of MikroORM.",
    );
  }
}
