import { InvalidKeyError } from './errors.js';

export interface RetryOptions {
  /** How often a transaction is tried in all; 10 by default. */
  attempts?: number;
  /** The longest wait before the second try, in ms; it doubles with each try. 10 by default. */
  baseDelayMs?: number;
  /** The longest wait before any try, in ms; 1,000 by default. */
  maxDelayMs?: number;
}

export interface MikroOrmSessionServiceOptions {
  /**
   * What an append does when somebody else has appended since the handle was read (contract E2): `rebase` (default)
   * appends and adds what was missed to the handle; `reject` throws `StaleSessionError` and writes nothing.
   */
  onStaleSession?: 'rebase' | 'reject';
  /**
   * What an append does while somebody holds the session's lease, unless it is made with that lease (contract H2):
   * `allow` (default), as for a user's message; `reject` throws `LeaseHeldError` and writes nothing.
   */
  onUnleasedAppend?: 'allow' | 'reject';
  /**
   * PostgreSQL only, without effect elsewhere: tells watchers of the event log in other processes of each append, if they
   * `listen` (see `EventLogOptions`). False by default: without it they look at intervals.
   */
  notify?: boolean;
  /** How deadlocks, lock time-outs, a busy SQLite file and lost connections are retried (contract E4). */
  retry?: RetryOptions;
  /** The most bytes of UTF-8 the JSON of an event may have; a larger one is refused with `EventTooLargeError`. No limit by default. */
  maxEventBytes?: number;
}

/** What a timer takes: 24 days; a longer one fires at once. */
const MAX_TIMER_MS = 2 ** 31 - 1;

/** @throws InvalidKeyError when a timer cannot run so long. */
export function checkDuration(name: string, ms: number): void {
  if (!(ms > 0 && ms <= MAX_TIMER_MS)) {
    throw new InvalidKeyError(`${name} must be a number of ms above 0, and ${MAX_TIMER_MS} at most.`);
  }
}
