import type { CheckExpressions } from '../sql/sql.js';
import { SchemaError, driverCodeOf, driverMessageOf } from '../../model/errors.js';

/** A setting of a connection that changes what the statements of this package read or write. */
export interface Setting {
  name: string;
  /** What would happen with it; a part of the error's message. */
  because: string;
  /** What to run or to change; a part of the error's message. */
  advice: string;
  /** An SQL condition that is true where the setting is wrong. */
  isWrong: string;
}

/**
 * Refuses connections whose settings would change what is read or written (contract O7). Settings may change at any time
 * and differ from connection to connection, so each statement checks them: one of its values is in an expression
 * that fails where a setting is wrong. That costs no round trip.
 */
export interface SettingsCheck extends CheckExpressions {
  /** What to throw instead of an error of the check; undefined for any other error. */
  refusal(error: unknown): SchemaError | undefined;
}

/**
 * @param around see `CheckExpressions`; it fails where a setting is wrong.
 * @param code the driver's code for that failure.
 * @param settingOf finds the setting in the message of the driver's error.
 */
export function settingsCheck(
  around: string,
  code: string,
  settingOf: (message: string) => Setting | undefined,
): SettingsCheck {
  return {
    around,
    refusal(error) {
      if (driverCodeOf(error) !== code) return undefined;
      const setting = settingOf(driverMessageOf(error));
      return setting && refused(setting);
    },
  };
}

export function refused({ name, because, advice }: Omit<Setting, 'isWrong'>): SchemaError {
  return new SchemaError(
    `This connection to the database has a setting that is refused, and nothing was written: ${name}, with which ${because}. ${advice}`,
  );
}
