import type { LogCursor } from './log-history.js';
import type { SessionKey } from './session-key.js';
import type { MaintenanceResult } from './results.js';

/**
 * The base of every error that this package throws on purpose. Messages contain no SQL, no contents of events and state, and no
 * credentials, since ADK shows errors to the model as tool results (contract A12).
 */
export abstract class AdkMikroOrmError extends Error {
  /** A stable code, by which an error can be recognised even if another copy of this package threw it. */
  abstract readonly code: string;

  /**
   * The class's name as a text, since a minifier renames the class; for a refused argument or key, that of ADK's own error. ADK's API
   * server chooses the status of its answer by it (contract A12).
   */
  abstract override name: string;

  /**
   * What earlier transactions of the call have stored, for calls of `SessionMaintenance` and `importFrom`. Undefined if there were
   * none.
   */
  result?: MaintenanceResult;
}

/** The id of a new session is taken. ADK has an error of this name, too. */
export class AlreadyExistsError extends AdkMikroOrmError {
  readonly code = 'ADK_SESSION_EXISTS';
  override name = 'AlreadyExistsError';

  constructor(sessionId: string, advice = 'Use getOrCreateSession, or leave the id out to have one made.') {
    super(`Session with id ${sessionId} already exists. ${advice}`);
  }
}

/** With `onRewrittenEvent: 'reject'`: an event is stored under this id with other content. Nothing was written. */
export class EventConflictError extends AdkMikroOrmError {
  readonly code = 'ADK_EVENT_CONFLICT';
  override name = 'EventConflictError';

  constructor(eventId: string) {
    super(`Event ${eventId} is stored with other content. Append the new content as an event with an id of its own.`);
  }
}

/** The session was never created, or has been deleted. */
export class SessionNotFoundError extends AdkMikroOrmError {
  readonly code = 'ADK_SESSION_NOT_FOUND';
  override name = 'SessionNotFoundError';

  constructor(sessionId: string) {
    super(`Session ${sessionId} not found. It was never created for this app and user, or it has been deleted.`);
  }
}

/**
 * With `onStaleSession: 'reject'`: somebody else has appended to the session since the handle was read. A rewind or a fork also
 * throws it inside a host's transaction that does not see the newest change of the session: begin the transaction again.
 */
export class StaleSessionError extends AdkMikroOrmError {
  readonly code = 'ADK_STALE_SESSION';
  override name = 'StaleSessionError';

  constructor(sessionId: string) {
    super(`Session ${sessionId} has changed since it was read; nothing was written. Read it again with getSession.`);
  }
}

/**
 * With `onAnsweredCall: 'reject'`: an event of the user answers a call that no longer waits, or was never asked. Nothing was written.
 */
export class CallAnsweredError extends AdkMikroOrmError {
  readonly code = 'ADK_CALL_ANSWERED';
  override name = 'CallAnsweredError';

  constructor(
    sessionId: string,
    /** The id of the call. */
    readonly callId: string,
    /** Whether the call had waited for an answer; false if the session has no such call. */
    readonly wasOpen: boolean,
  ) {
    super(
      wasOpen
        ? `Session ${sessionId} has an answer to this call already. Nothing was written. Read the session again.`
        : `Session ${sessionId} has no call with the id of this answer. Nothing was written. Read the session again.`,
    );
  }
}

/** Somebody else holds the session's lease: it could not be acquired, or an append without it was refused. */
export class LeaseHeldError extends AdkMikroOrmError {
  readonly code = 'ADK_LEASE_HELD';
  override name = 'LeaseHeldError';

  /**
   * @param holder the name of the holder.
   * @param expiresAt when the lease expires if it is not renewed, in ms since 1970, by the database's clock.
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
  override name = 'LeaseLostError';

  constructor(sessionId: string) {
    super(`The lease of session ${sessionId} is lost; nothing was written. Stop, and acquire it again.`);
  }
}

/** `eraseUser` has deleted everything except the sessions that it had to skip. `result` is what it would have returned. */
export class UserNotErasedError extends AdkMikroOrmError {
  readonly code = 'ADK_USER_NOT_ERASED';
  override name = 'UserNotErasedError';

  /** @param result what was deleted, and how many sessions were not (`skipped`). */
  constructor(override readonly result: MaintenanceResult) {
    super(
      `The user is not erased: ${result.skipped} sessions are left, because somebody holds their lease, has locked their row, or created or rewound them meanwhile, or because rows of your own tables refer to them. ` +
        'Everything else was deleted. Call eraseUser again, or with includeLeased: true.',
    );
  }
}

/** A name, an id or a key of state is missing, or cannot be stored on every database (contract D7). */
export class InvalidKeyError extends AdkMikroOrmError {
  readonly code = 'ADK_INVALID_KEY';
  override name = 'InputValidationError';
}

/** An option, a filter or a request has an unknown property or an invalid value. Nothing was done. */
export class InvalidArgumentError extends AdkMikroOrmError {
  readonly code = 'ADK_INVALID_ARGUMENT';
  override name = 'InputValidationError';

  /** @param names the options and properties that the message names, for callers who call them otherwise. */
  constructor(
    message: string,
    readonly names: readonly string[] = [],
  ) {
    super(message);
  }
}

/** A value would come back from JSON as something else (contract C2). */
export class UnserializableValueError extends AdkMikroOrmError {
  readonly code = 'ADK_UNSERIALIZABLE_VALUE';
  override name = 'UnserializableValueError';

  /** @param path the place of the value, such as `actions.stateDelta.cart[3].qty`. */
  constructor(
    readonly path: string,
    what: string,
  ) {
    super(`${path} is ${what}, which JSON cannot carry; nothing was written. Store a plain value instead.`);
  }
}

/** A value is larger than the largest packet that the database server accepts. */
export class ValueTooLargeError extends AdkMikroOrmError {
  readonly code = 'ADK_VALUE_TOO_LARGE';
  override name = 'ValueTooLargeError';

  /** @param what is too large, such as `A value of state`. */
  constructor(what = 'A value') {
    super(
      `${what} is larger than the database server takes in one packet (max_allowed_packet); nothing was written. ` +
        'Keep large content in an artifact.',
    );
  }
}

/** An artifact is larger than `maxBytes`: nothing was written. Or it is too large for a Part: read it with `openArtifact`. */
export class ArtifactTooLargeError extends AdkMikroOrmError {
  readonly code = 'ADK_ARTIFACT_TOO_LARGE';
  override name = 'ArtifactTooLargeError';

  /** @param limit the limit, and what to do. */
  constructor(bytes: number | string, limit: string) {
    super(`The artifact has ${bytes} bytes, more than ${limit}.`);
  }
}

/**
 * A version of an artifact cannot be read: somebody has changed its rows, the disk has lost data, or a key is lost. Other versions
 * can be read, and new ones saved.
 */
export class DamagedArtifactError extends AdkMikroOrmError {
  readonly code = 'ADK_DAMAGED_ARTIFACT';
  override name = 'DamagedArtifactError';

  /**
   * @param filename ADK's filename, with `user:` for a file of the user.
   * @param what the problem of its rows.
   */
  constructor(
    readonly filename: string,
    readonly version: number,
    what: string,
  ) {
    super(
      `Version ${version} of artifact ${filename} is damaged: ${what}. Restore its rows in artifact_versions and artifact_parts from a backup, or save the artifact again.`,
    );
  }
}

/** A memory cannot be read: somebody has changed its row, the disk has lost data, or a key is lost. A search continues without it. */
export class DamagedMemoryError extends AdkMikroOrmError {
  readonly code = 'ADK_DAMAGED_MEMORY';
  override name = 'DamagedMemoryError';

  /** @param what the problem of its row. */
  constructor(
    readonly memoryId: string,
    readonly sessionId: string | undefined,
    what: string,
  ) {
    super(`Memory ${memoryId} is damaged: ${what}. Add it again, which replaces it, or forget it.`);
  }
}

/** A stored event cannot be read, or events have no row: somebody has changed the table, or the disk has lost data. */
export class DamagedEventError extends AdkMikroOrmError {
  readonly code = 'ADK_DAMAGED_EVENT';
  override name = 'DamagedEventError';

  /**
   * @param to the last number, if several events have no row.
   * @param encoding the codecs and keys that the text names, if it cannot be decoded.
   */
  constructor(sessionId: string, seq: number, to = seq, encoding?: string) {
    super(
      `Event ${to > seq ? `${seq}-${to}` : seq} of session ${sessionId} is missing or not readable as an event${encoding === undefined ? '' : ` (${encoding})`}. Look at the row in the events table; docs/damage.md says how to repair it.`,
    );
  }
}

/**
 * A reader's cursor does not belong to the log's history, because the database went back: by a restore, or by a failover to a
 * replica that was behind (contract O2). Entries that the reader has seen are gone, and new ones get the same positions.
 */
export class LogWentBackError extends AdkMikroOrmError {
  readonly code = 'ADK_LOG_WENT_BACK';
  override name = 'LogWentBackError';

  /** The log's current epoch; undefined in the log of one session. */
  readonly epoch: number | undefined;

  /**
   * @param position the last position that the reader's history certainly shares with the log's; in the log of one session, a
   *   `seq`. 0 if the reader passed only a number, since it is not known what it has read.
   * @param cursor continue from here. Undefined in the log of one session: continue from `position`. In the complete log it may be
   *   before `position`, if earlier entries depend on what was lost.
   */
  constructor(
    readonly position: number,
    readonly cursor?: LogCursor,
  ) {
    const from = cursor?.position ?? position;
    super(
      `The log went back to ${position}: the database was restored or failed over to an older state. ` +
        `Drop what you keep of entries after ${from}, and continue from ${cursor ? "this error's cursor" : from}.`,
    );
    this.epoch = cursor?.epoch;
  }
}

/**
 * A codec could not encode or decode: its key function failed or did not answer in time, or the call needs a text whose codec is not
 * in the `codec` option. Stored texts may be undamaged. The transaction that needed it wrote nothing.
 */
export class CodecError extends AdkMikroOrmError {
  readonly code = 'ADK_CODEC';
  override name = 'CodecError';
  readonly #reason: unknown;

  /**
   * @param reason the codec's error, only for `onError`: it may contain contents.
   * @param missing the name of the codec that is not in the `codec` option, if that is the failure.
   */
  constructor(
    message: string,
    reason?: unknown,
    readonly missing?: string,
  ) {
    super(message);
    this.#reason = reason;
  }

  /** @internal */
  get reason(): unknown {
    return this.#reason;
  }
}

/** The damaged rows of a session; none if both lists are empty. */
export interface Damage {
  /** Consecutive events of one session with the same problem. */
  events: readonly {
    /** The first number. */
    from: number;
    /** The last number. */
    to: number;
    /**
     * `missing`: there is no row with this number. `unreadable`: the row's content is not an event. `uncounted`: there is a row,
     * but its number is above the `last_seq` of the session's row. `change`: the record of state that was set outside a run after
     * this event (for 0, also of the state that the session began with) cannot be read; only forks and rewinds need it.
     */
    problem: 'missing' | 'unreadable' | 'uncounted' | 'change';
  }[];
  stateKeys: readonly string[];
  /** The codecs and keys named by texts that cannot be decoded, if there are any. */
  encodings?: readonly string[];
}

/**
 * Rows of a session are missing or cannot be read: somebody has changed the tables, a restore was incomplete, or the disk has lost
 * data (contract I1). The session exists, and events can still be appended.
 */
export class DamagedSessionError extends AdkMikroOrmError {
  readonly code = 'ADK_DAMAGED_SESSION';
  override name = 'DamagedSessionError';
  readonly appName: string;
  /** Empty if only the state of the app was read. */
  readonly userId: string;
  /** Empty if only the state of the app or of a user was read. */
  readonly sessionId: string;

  /** The damaged events, in order. */
  readonly events: Damage['events'];
  /** The keys whose values are not JSON, with their prefixes. */
  readonly stateKeys: readonly string[];

  /** The codecs and keys named by texts that cannot be decoded; empty if nothing is encoded. */
  readonly encodings: readonly string[];

  constructor(
    message: string,
    { appName, userId, sessionId }: SessionKey,
    { events, stateKeys, encodings = [] }: Damage,
  ) {
    super(message);
    this.appName = appName;
    this.userId = userId;
    this.sessionId = sessionId;
    this.events = events;
    this.stateKeys = stateKeys;
    this.encodings = encodings;
  }
}

/** Tables are missing or outdated, or the connection is not set up for them. */
export class SchemaError extends AdkMikroOrmError {
  readonly code = 'ADK_SCHEMA';
  override name = 'SchemaError';
}

/**
 * A call inside a host's transaction of the same ORM did not join it (contract E7): its rows would survive a rollback of that
 * transaction, and it could wait for a lock or a connection that the transaction holds. Also thrown by an append to a `Session`
 * object to which a transaction that is still open has appended. Nothing was read or written.
 */
export class InsideTransactionError extends AdkMikroOrmError {
  readonly code = 'ADK_INSIDE_TRANSACTION';
  override name = 'InsideTransactionError';

  constructor(
    what = 'This call is inside a transaction that it does not join, and was refused',
    advice = 'Inside em.transactional(async (tx) => …) use service.withEntityManager(tx) of the session, artifact, memory or credential service; ' +
      'call EventLog, SessionLeases, SessionMaintenance and migrate outside of the transaction.',
  ) {
    super(`${what}; nothing was read or written. ${advice}`);
  }
}

/**
 * The database refused or failed. The message says what happened, what was written, and what to do. Only `onError` gets the driver's
 * own error, since its message contains the statement and its values.
 */
export class DatabaseError extends AdkMikroOrmError {
  readonly code = 'ADK_DATABASE';
  override name = 'DatabaseError';
  readonly #kind: { what: string; advice: string };

  /**
   * @param reason MikroORM's name for the kind of failure, such as `DeadlockException`.
   * @param driverCode the driver's code, such as `40P01` or `ER_LOCK_DEADLOCK`.
   * @param outcome what is stored of the call (contract O1). `none`: nothing. `partial`: earlier transactions are stored, as `result`
   *   says, and the one that failed is not. `unknown`: the answer to a write was lost, so the transaction that failed may be
   *   stored; if there is `result`, so are earlier ones.
   */
  constructor(
    kind: { what: string; advice: string },
    readonly reason: string,
    readonly driverCode: string | undefined,
    readonly outcome: 'none' | 'partial' | 'unknown',
    result?: MaintenanceResult,
  ) {
    super(`${kind.what} (${driverCode ?? reason}). ${writtenOf(outcome, result)} ${kind.advice}`);
    this.#kind = kind;
    if (result) this.result = result;
  }

  /** @internal @returns the same error for a call whose earlier transactions have stored this. */
  after(result: MaintenanceResult): DatabaseError {
    const outcome = this.outcome === 'none' ? 'partial' : this.outcome;
    return new DatabaseError(this.#kind, this.reason, this.driverCode, outcome, result);
  }
}

/** The sentence of a message about what is stored. */
function writtenOf(outcome: DatabaseError['outcome'], result: object | undefined): string {
  switch (outcome) {
    case 'none':
      return 'Nothing was written.';
    case 'partial':
      return "Earlier transactions of the call are stored ('result' has their counts), the one that failed is not; the same call again continues.";
    case 'unknown':
      return result
        ? "Earlier transactions of the call are stored ('result' has their counts); whether the one that failed is stored is not known. The same call again continues."
        : 'Whether the call took effect is not known; read again before you repeat it.';
  }
}

/**
 * A driver's code, such as `40P01` or `SQLITE_BUSY`. Does not use `instanceof Error`: under jest it is false for errors from native
 * code and from Node.js.
 */
export function driverCodeOf(error: unknown): string | undefined {
  if (typeof error !== 'object' || error === null) return undefined;
  const { code, errno }: { code?: unknown; errno?: unknown } = error;
  // libSQL gives an empty code if it has none, and mariadb `UNKNOWN` if it has no name for the number.
  if (typeof code === 'string' && code !== '' && code !== 'UNKNOWN') return code;
  // mysql2 does not have names for all numbers of MariaDB.
  return typeof errno === 'number' && errno > 0 ? String(errno) : undefined;
}

/** Whether an `import` or a `require` has found no module. */
export const isMissingModule = (error: unknown): boolean =>
  ['ERR_MODULE_NOT_FOUND', 'MODULE_NOT_FOUND'].includes(driverCodeOf(error) ?? '');

/** An error's message, for errors without a code. It may contain SQL, so it must not reach a caller. */
export function driverMessageOf(error: unknown): string {
  return typeof error === 'object' && error !== null && 'message' in error ? String(error.message) : '';
}
