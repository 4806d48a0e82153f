import { SchemaError } from '../../model/errors.js';
import type { Dialect, Sql } from '../dialects/dialect.js';
import type { Driver } from '../drivers/driver.js';
import { SETTINGS } from '../../model/setting-words.js';

/**
 * Refuses a driver that a setting of the host makes report wrong numbers, before anything is written (contract O7).
 *
 * @throws SchemaError if it reports how many rows a statement has changed, not how many it found.
 */
export function refuseDriver(driver: Driver): void {
  if (!driver.reportsChangedRows) return;
  throw new SchemaError(
    'The driver reports how many rows a statement has changed, but must report how many it matched. ' +
      `Leave 'foundRows' and '-FOUND_ROWS' in 'flags' out of ${SETTINGS.driverOptions}.`,
  );
}

/**
 * Refuses a server that only speaks the protocol of a supported one, before anything is written.
 *
 * @throws SchemaError that names it.
 */
export async function refuseServer(sql: Sql, { connections }: Dialect): Promise<void> {
  if (!connections.wrongServer) return;
  const [row] = await sql.all<{ version: unknown }>('select version() as version');
  // After `set names binary` this is a Buffer; the check of the settings then reports it.
  const wrong = connections.wrongServer(String(row?.version));
  if (wrong !== undefined) throw new SchemaError(wrong);
}
