import { SchemaError } from '../../model/errors.js';
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
