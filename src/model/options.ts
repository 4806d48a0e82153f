import { aBoolean, aCount, aFunction, aWait, aWholeNumber, object, oneOf, type Known } from './arguments.js';
import type { DamagedSessionError } from './errors.js';
import type { SessionKey } from './keys.js';

export interface RetryOptions {
  /** The number of attempts, the first included; 10 by default. */
  attempts?: number;
  /** The longest wait before the second try, in ms; it doubles with each try. 10 by default. */
  baseDelayMs?: number;
  /** The longest wait before any try, in ms; 1,000 by default. */
  maxDelayMs?: number;
}

/** What `onError` gets besides the error. */
export interface ErrorContext {
  /**
   * The method that was called, such as `appendEvent`; or what went on beside the calls: `catchUp`, `notify`, `rollback`,
   * `renew` (a lease), `poll`, `listen` and `assignPositions` (the event log).
   */
  operation: string;
  /** The session that was meant, or as much of its key as the call was given. */
  key: Partial<SessionKey>;
}

export interface ReportingOptions {
  /**
   * Called with the driver's own error, which holds SQL and stored values, for the host's log: what is thrown holds none
   * of it. Called once for each failure of the database that a caller is told of, and for those that no caller is told
   * of; not for attempts that are tried again, nor for errors that are not the database's, which say all there is. What
   * it throws, and what it returns, is ignored.
   */
  onError?: (error: unknown, context: ErrorContext) => void;
}

export interface MikroOrmSessionServiceOptions extends ReportingOptions {
  /**
   * What an append does when somebody else has appended since the handle was read (contract E2): `rebase` (default)
   * appends and adds what was missed to the handle; `reject` throws `StaleSessionError` and writes nothing.
   */
  onStaleSession?: 'rebase' | 'reject';
  /**
   * What an append, a change of the session's state and its deletion do while somebody holds the session's lease, unless
   * they are made with that lease (contract H2): `allow` (default), as for a user's message; `reject` throws
   * `LeaseHeldError` and writes nothing.
   */
  onUnleasedAppend?: 'allow' | 'reject';
  /**
   * PostgreSQL only, without effect elsewhere: tells watchers of the event log in other processes of each append, if they
   * `listen` (see `EventLogOptions`). False by default: without it they look at intervals.
   */
  notify?: boolean;
  /** How deadlocks, lock time-outs, a busy SQLite file and lost connections are retried (contract E4). */
  retry?: RetryOptions;
  /**
   * What `getSession` does with a session of which rows are missing or cannot be read (contract I3): `throw` (default)
   * throws `DamagedSessionError`; `skip` gives the session without them, and tells `onDamage`.
   */
  onDamagedEvent?: 'throw' | 'skip';
  /**
   * Called with damage that a call found and did not throw: `getSession` with `onDamagedEvent: 'skip'`, `createSession`,
   * `listSessions`, and appends. What it throws is ignored. By default the process emits a warning, once for each session.
   */
  onDamage?: (error: DamagedSessionError) => void;
  /**
   * The most bytes of UTF-8 the JSON of an event may have; a larger one is refused with `EventTooLargeError`. No limit
   * by default.
   */
  maxEventBytes?: number;
}

const RETRY: Known<RetryOptions> = {
  attempts: aCount,
  baseDelayMs: aWait,
  maxDelayMs: aWait,
};

export const checkRetry = object(RETRY);

export const SERVICE_OPTIONS: Known<MikroOrmSessionServiceOptions> = {
  onStaleSession: oneOf('rebase', 'reject'),
  onUnleasedAppend: oneOf('allow', 'reject'),
  notify: aBoolean,
  retry: checkRetry,
  maxEventBytes: aWholeNumber,
  onDamagedEvent: oneOf('throw', 'skip'),
  onDamage: aFunction,
  onError: aFunction,
};

export const checkServiceOptions = object(SERVICE_OPTIONS);
