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
  /** How deadlocks, lock time-outs, a busy SQLite file and lost connections are retried (contract E4). */
  retry?: RetryOptions;
  /** The most bytes of UTF-8 the JSON of an event may have; a larger one is refused with `EventTooLargeError`. No limit by default. */
  maxEventBytes?: number;
}
