import { AdkMikroOrmError, DatabaseError, EventTooLargeError, SchemaError, driverCodeOf } from '../../model/errors.js';
import { FAILURES, type Failure } from '../../model/failures.js';
import { isObject } from '../../model/objects.js';
import { Aborted } from './connection.js';

/** Wraps an error thrown by the host's own code, so that it reaches the caller unchanged. */
export class FromWork extends Error {
  constructor(readonly error: unknown) {
    super();
  }
}

/** Thrown under a lock that shows what was not foreseen; see `encodedFirst`. It rolls back. */
export class Unforeseen extends Error {}

/** A mistake in the program, the caller's or ours, or an answer of ours; the database has no part in it. */
export function isOwn(error: unknown): error is Error {
  return (
    error instanceof Aborted ||
    error instanceof FromWork ||
    error instanceof Unforeseen ||
    error instanceof AdkMikroOrmError ||
    error instanceof TypeError ||
    error instanceof RangeError
  );
}

/** Errors of writes that may be stored all the same: the answer to one of the tries was lost (contract O1). */
const uncertain = new WeakSet<object>();

export function noteUncertain(error: unknown): void {
  if (isObject(error)) uncertain.add(error);
}

/**
 * The error that a caller gets for a driver's error, without the SQL and the values that its message holds (contract A12); of
 * missing tables with the command that makes them (contract F5).
 */
export function publicError(error: unknown, failure: Failure): AdkMikroOrmError {
  if (failure === 'missingTable' || failure === 'missingColumn') {
    return new SchemaError(
      "The tables of adk-mikro-orm are missing or outdated. Run 'npx adk-mikro-orm migrate', or 'await migrate(orm)', or 'npx mikro-orm migration:up' with adkMigrations(…) in your config.",
    );
  }
  const outcome = isObject(error) && uncertain.has(error) ? 'unknown' : 'none';
  if (failure === 'tooLarge' && outcome === 'none') {
    return new EventTooLargeError();
  }
  const { reason } = FAILURES[failure];
  return new DatabaseError(FAILURES[failure], reason, driverCodeOf(error), outcome);
}
