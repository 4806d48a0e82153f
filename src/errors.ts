/**
 * The base of every error this package throws on purpose. Messages hold no SQL, no stored data and no credentials,
 * since ADK shows errors to the model as tool results (contract A12).
 */
export abstract class AdkMikroOrmError extends Error {
  /** Stable, and the way to recognise an error that another copy of this package threw. */
  abstract readonly code: string;

  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** A session was to be created under an id that exists. */
export class SessionExistsError extends AdkMikroOrmError {
  readonly code = 'ADK_SESSION_EXISTS';

  constructor(sessionId: string) {
    super(`Session with id ${sessionId} already exists. Use getOrCreateSession, or leave the id out to have one made.`);
  }
}

/** The session was never created, or has been deleted. */
export class SessionNotFoundError extends AdkMikroOrmError {
  readonly code = 'ADK_SESSION_NOT_FOUND';

  constructor(sessionId: string) {
    super(`Session ${sessionId} not found. It was never created for this app and user, or it has been deleted.`);
  }
}

/** With `onStaleSession: 'reject'`: somebody else has appended to the session since the handle was read. */
export class StaleSessionError extends AdkMikroOrmError {
  readonly code = 'ADK_STALE_SESSION';

  constructor(sessionId: string) {
    super(`Session ${sessionId} has changed since it was read; nothing was written. Read it again with getSession.`);
  }
}

/** Somebody else holds the session's lease: it could not be acquired, or an append without it was refused. */
export class LeaseHeldError extends AdkMikroOrmError {
  readonly code = 'ADK_LEASE_HELD';

  /**
   * @param holder who holds it.
   * @param expiresAt when it expires unless it is renewed, in ms since 1970 by the database's clock.
   */
  constructor(
    sessionId: string,
    readonly holder: string,
    readonly expiresAt: number,
  ) {
    super(
      `The lease of session ${sessionId} is held by ${holder} until ${new Date(expiresAt).toISOString()}, or longer if it is renewed. Try again later.`,
    );
  }
}

/** The lease was taken over, released, or could not be renewed in time; nothing was written. */
export class LeaseLostError extends AdkMikroOrmError {
  readonly code = 'ADK_LEASE_LOST';

  constructor(sessionId: string) {
    super(`The lease of session ${sessionId} is lost; nothing was written. Stop, and acquire it again.`);
  }
}

/** A name, an id or a state key cannot be a key on every database (contract D7), or a number such as paging or a cursor is not one. */
export class InvalidKeyError extends AdkMikroOrmError {
  readonly code = 'ADK_INVALID_KEY';
}

/** A value would come back from JSON as something else (contract C2). */
export class UnserializableValueError extends AdkMikroOrmError {
  readonly code = 'ADK_UNSERIALIZABLE_VALUE';

  /** @param path where the value is, as in `actions.stateDelta.cart[3].qty`. */
  constructor(
    readonly path: string,
    what: string,
  ) {
    super(`${path} is ${what}, which JSON cannot carry; nothing was written. Store a plain value instead.`);
  }
}

/** An event is larger than `maxEventBytes`, or a value is larger than one packet to the database server. */
export class EventTooLargeError extends AdkMikroOrmError {
  readonly code = 'ADK_EVENT_TOO_LARGE';
}

/** A stored event cannot be read: somebody has changed its row, or the disk has. */
export class DamagedEventError extends AdkMikroOrmError {
  readonly code = 'ADK_DAMAGED_EVENT';

  constructor(sessionId: string, seq: number) {
    super(
      `Event ${seq} of session ${sessionId} is not readable as an event. Mend or delete its row in the events table.`,
    );
  }
}

/** Tables are missing or outdated, or the connection is not set up for them. */
export class SchemaError extends AdkMikroOrmError {
  readonly code = 'ADK_SCHEMA';
}

/**
 * The database refused or failed. The driver's own error is left out, because its message carries the statement and
 * its values; what is safe of it is in `reason` and `driverCode`.
 */
export class DatabaseError extends AdkMikroOrmError {
  readonly code = 'ADK_DATABASE';

  /**
   * @param reason MikroORM's name for the failure, such as `DeadlockException`.
   * @param driverCode the driver's code, such as `40P01` or `ER_LOCK_DEADLOCK`.
   */
  constructor(
    readonly reason: string,
    readonly driverCode: string | undefined,
  ) {
    super(`The database failed: ${reason}${driverCode ? ` (${driverCode})` : ''}.`);
  }
}

/**
 * A driver's code, such as `40P01` or `SQLITE_BUSY`. Not by `instanceof Error`, which errors that native code and Node.js
 * make are not under jest.
 */
export function driverCodeOf(error: unknown): string | undefined {
  const code: unknown = typeof error === 'object' && error !== null && 'code' in error ? error.code : undefined;
  return typeof code === 'string' ? code : undefined;
}

/** An error's message, for what drivers give no code for; it may hold SQL and stays inside. */
export function driverMessageOf(error: unknown): string {
  return typeof error === 'object' && error !== null && 'message' in error ? String(error.message) : '';
}
