import { isUncertain, type Failure } from '../../model/failures.js';
import type { RetryOptions } from '../../model/options.js';
import { pause } from '../../model/signals.js';
import type { Telemetry } from '../../telemetry/telemetry.js';
import { Aborted } from './connection.js';
import type { Connections } from './connections.js';
import { isOwn, noteUncertain } from './public-error.js';

/** See `retry.forMs` of the options. */
const DEFAULT_RETRY_MS = 30_000;

/** How long a try waits for a lock of SQLite where the driver does not wait; where it does, see `BUSY_TIMEOUT_MS`. */
const LOCK_TIMEOUT_MS = 10_000;

/** The longest pause between two checks whether the lock is free; each is of random length. */
const LOCK_PAUSE_MS = 10;

/** How many tries deadlocks and lock time-outs get where the host's options have no number. */
const ATTEMPTS = 10;

/** What is known of the writes of one call (contract O1). */
export interface Outcome {
  /** The error in whose place the answer to a write should have come: the write may be stored all the same. */
  lostAnswer?: unknown;
}

/** What a call needs of its attempts. */
export interface AttemptOptions {
  /** Shared by the writes of one call. */
  outcome?: Outcome;
  /** Whether a failure that may pass is tried again; all of them by default. */
  retries?: (failure: Failure) => boolean;
  /** Ends what is under way within a second, with the connection if need be. @throws Aborted from the call. */
  signal?: AbortSignal | undefined;
}

/** What is known of an attempt while it runs. */
export interface Attempt {
  /** Whether the statement has been sent that makes its writes last. */
  isSent: boolean;
}

/** Runs work again after failures that may pass (contract E4, O4). */
export class Retry {
  readonly #connections: Connections;
  readonly #options: { attempts: number | undefined; forMs: number; baseDelayMs: number; maxDelayMs: number };
  readonly #telemetry: Telemetry | undefined;
  readonly #isJoined: boolean;

  /** @param isJoined whether the work is in a host's transaction, which the host tries again as a whole. */
  constructor(
    connections: Connections,
    options: RetryOptions = {},
    telemetry: Telemetry | undefined,
    isJoined: boolean,
  ) {
    this.#isJoined = isJoined;
    const { attempts, forMs = DEFAULT_RETRY_MS, baseDelayMs = 10, maxDelayMs = 1_000 } = options;
    this.#connections = connections;
    this.#options = { attempts, forMs, baseDelayMs, maxDelayMs };
    this.#telemetry = telemetry;
  }

  async run<T>(
    work: (attempt: Attempt, signal: AbortSignal | undefined) => Promise<T>,
    { outcome = {}, retries = () => true, signal }: AttemptOptions = {},
  ): Promise<T> {
    const { orm, system } = this.#connections;
    const observed = this.#telemetry?.current;
    let outageBegan: number | undefined;
    let conflicts = 0;
    let lockBegan: number | undefined;
    for (let tries = 1; ; tries++) {
      const attempt = { isSent: false };
      const waited = observed?.waiting('lock');
      try {
        return await work(attempt, signal);
      } catch (error) {
        if (isOwn(error)) throw error;
        const failure = this.#connections.failureOf(error);
        if (failure === 'lockTimeout' && !this.#isJoined) {
          // A driver that waited for a lock of SQLite would stop the process, so the attempt is made again until the lock is free.
          lockBegan ??= performance.now();
          const isWaitedFor = orm.mustWaitForLocks && performance.now() - lockBegan < LOCK_TIMEOUT_MS;
          if (isWaitedFor) await pause(Math.random() * LOCK_PAUSE_MS);
          waited?.();
          if (isWaitedFor) {
            tries--;
            continue;
          }
        }
        lockBegan = undefined;
        if (attempt.isSent && isUncertain(failure)) outcome.lostAnswer ??= error;
        if (outcome.lostAnswer !== undefined) noteUncertain(error);
        const passing = this.#connections.passing(failure);
        if (passing === 'outage') outageBegan ??= performance.now();
        else {
          outageBegan = undefined;
          conflicts++;
        }
        const isRetried =
          !this.#isJoined &&
          passing !== undefined &&
          retries(failure) &&
          !this.#isGivenUp(tries, conflicts, outageBegan);
        this.#telemetry?.failed(system, observed, failure, { isConflict: passing === 'conflict', isRetried });
        if (!isRetried) throw error;
      }
      const { baseDelayMs, maxDelayMs } = this.#options;
      const longest = Math.min(maxDelayMs, baseDelayMs * 2 ** (tries - 1));
      // The pause is random, or transactions that met once meet again.
      await pause(Math.random() * longest, signal);
      if (signal?.aborted) throw new Aborted();
    }
  }

  /** @param outageBegan when the present outage was noticed; undefined for what others' transactions cause. */
  #isGivenUp(tries: number, conflicts: number, outageBegan: number | undefined): boolean {
    const { attempts, forMs } = this.#options;
    if (attempts !== undefined && tries >= attempts) return true;
    // Attempts spent on an outage do not count as conflicts.
    return outageBegan === undefined ? conflicts >= (attempts ?? ATTEMPTS) : performance.now() - outageBegan >= forMs;
  }
}
