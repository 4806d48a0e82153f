import { raw } from '@mikro-orm/core';
import { SchemaError, driverCodeOf, driverMessageOf } from '../../model/errors.js';

/** A setting of a connection under which our statements would do something else than they say. */
export interface Setting {
  name: string;
  /** What it does to us. */
  because: string;
  /** The line that mends it. */
  mend: string;
  /** An SQL condition that is true where the setting is wrong. */
  isWrong: string;
}

/**
 * Refuses connections that are set in a way that would change what is read or written (contract O7). Settings may change
 * at any time and differ from connection to connection, so the statements themselves look: a value in them becomes an
 * expression that fails where a setting is wrong, which costs no round trip.
 */
export interface SettingsCheck {
  /** The value with the check around it. The database takes it for a constant: indexes are used as before. */
  around(value: unknown): unknown;
  /** What to tell of an error of the check; undefined for any other error. */
  refusal(error: unknown): SchemaError | undefined;
}

/**
 * @param around the expression: the value for `?`, an error where a setting is wrong.
 * @param code the driver's code of that error.
 * @param settingOf finds the setting in the error's message.
 */
export function settingsCheck(
  around: string,
  code: string,
  settingOf: (message: string) => Setting | undefined,
): SettingsCheck {
  return {
    around: (value) => raw(around, [value]),
    refusal(error) {
      if (driverCodeOf(error) !== code) return undefined;
      const setting = settingOf(driverMessageOf(error));
      return setting && refused(setting);
    },
  };
}

export function refused({ name, because, mend }: Omit<Setting, 'isWrong'>): SchemaError {
  return new SchemaError(
    `This connection to the database has a setting that is refused, and nothing was written: ${name}, with which ${because}. ${mend}`,
  );
}
