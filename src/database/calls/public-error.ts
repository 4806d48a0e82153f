import { AdkMikroOrmError, DatabaseError, ValueTooLargeError, SchemaError, driverCodeOf } from '../../model/errors.js';
import { FAILURES, type Failure } from '../../model/failures.js';
import { isObject } from '../../model/json.js';
import { isKeyNeeded } from '../../model/codec.js';
import { Aborted } from './connection.js';
import { SETTINGS } from '../../model/setting-words.js';

/** Wraps an error thrown by the host's own code, so that it reaches the caller unchanged. */
export class FromWork extends Error {
  constructor(readonly error: unknown) {
    super();
  }
}

/** For `catch` around a call: the error of the host's work as it was thrown. */
export function asThrown(error: unknown): never {
  throw error instanceof FromWork ? error.error : error;
}

/** Whether an error is a mistake in the caller's or our code, or one of our own errors, and not one of the database. */
export function isOwn(error: unknown): error is Error {
  return (
    error instanceof Aborted ||
    error instanceof FromWork ||
    isKeyNeeded(error) ||
    error instanceof AdkMikroOrmError ||
    error instanceof TypeError ||
    error instanceof RangeError
  );
}

/**
 * Errors of writes that may be stored all the same, since the answer to an attempt was lost (contract O1). No other copy of this
 * package sees them: the call that notes one also wraps it.
 */
const uncertain = new WeakSet<object>();

export function noteUncertain(error: unknown): void {
  if (isObject(error)) uncertain.add(error);
}

/**
 * Makes the error that a caller gets from a driver's error, without the SQL and the values in its message (contract A12). If tables
 * are missing, it names the command that creates them (contract F5).
 */
export function publicError(error: unknown, failure: Failure): AdkMikroOrmError {
  if (failure === 'missingTable' || failure === 'missingColumn') {
    return new SchemaError(`The tables of adk-mikro-orm are missing or outdated. Run ${SETTINGS.migrate}.`);
  }
  const outcome = isObject(error) && uncertain.has(error) ? 'unknown' : 'none';
  if (failure === 'tooLarge' && outcome === 'none') {
    return new ValueTooLargeError();
  }
  const { reason } = FAILURES[failure];
  return new DatabaseError(FAILURES[failure], reason, driverCodeOf(error), outcome);
}
