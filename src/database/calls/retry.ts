import { now } from '../../model/clock.js';
import { isKeyNeeded, type KeyNeeded } from '../../model/codec.js';
import { CodecError } from '../../model/errors.js';
import { isUncertain, type Failure } from '../../model/failures.js';
import type { CommonOptions } from '../../model/options.js';
import { inTime, onAbort, pause } from '../../model/signals.js';
import type { Telemetry } from '../../telemetry/telemetry.js';
import { Aborted } from './connection.js';
import type { Connections } from './connections.js';
import { isOwn, noteUncertain } from './public-error.js';

/** See `retry.forMs` of the options. */
const DEFAULT_RETRY_MS = 30_000;

/** How long to wait for a lock of SQLite if the driver does not wait; if it does, it waits for `BUSY_TIMEOUT_MS`. */
const LOCK_TIMEOUT_MS = 10_000;

/** The longest pause between two checks whether the lock is free; each is of random length. */
const LOCK_PAUSE_MS = 10;

/** The default number of attempts after deadlocks and lock time-outs. */
const ATTEMPTS = 10;

/** How often a call waits for keys at most: otherwise a codec that never has its key would keep it for ever. */
const KEY_WAITS = 100;

/** What is known about the writes of one call (contract O1). */
export interface Outcome {
  /** The error that came instead of the answer to a write: the write may be stored all the same. */
  lostAnswer?: unknown;
}

export interface AttemptOptions {
  /** Shared by the writes of one call. */
  outcome?: Outcome;
  /** Whether to retry a failure that may pass; by default all are retried. */
  retries?: (failure: Failure) => boolean;
  /** Ends the attempt within a second, if necessary by closing the connection. The call throws Aborted. */
  signal?: AbortSignal | undefined;
}

export interface Attempt {
  /** Whether the statement that makes its writes durable has been sent. */
  isSent: boolean;
  /** Ends a measured wait for a lock, if there is telemetry. */
  readonly waited: (() => void) | undefined;
}

/** The service whose calls are retried. */
interface RetriedService {
  readonly connections: Connections;
  readonly telemetry: Telemetry | undefined;
  /** Whether the work is in a host's transaction, which only the host can retry as a whole. */
  readonly isJoined: boolean;
  readonly retry: CommonOptions['retry'];
}

/** The tries of one piece of work, again after failures that may pass (contract E4, O4). */
export class Tries {
  readonly #service: RetriedService;
  readonly #options: AttemptOptions;
  readonly #outcome: Outcome;
  #count = 1;
  #keyWaits = 0;
  #conflicts = 0;
  #outageBegan: number | undefined;
  #lockBegan: number | undefined;

  constructor(service: RetriedService, options: AttemptOptions) {
    this.#service = service;
    this.#options = options;
    this.#outcome = options.outcome ?? {};
  }

  /** Waits until the next attempt is due. @throws the error if there is none. */
  async failed(error: unknown, { isSent, waited }: Attempt): Promise<void> {
    if (isKeyNeeded(error)) return this.#waitForKeys(error);
    if (isOwn(error)) throw error;
    const { connections, telemetry, isJoined, retry } = this.#service;
    const { retries, signal } = this.#options;
    const outcome = this.#outcome;
    const failure = connections.failureOf(error);
    if (failure === 'lockTimeout' && !isJoined) {
      // If the driver waited for a lock of SQLite it would block the process, so the attempt is repeated until the lock is free.
      this.#lockBegan ??= now();
      const isWaitedFor = connections.orm.mustWaitForLocks && now() - this.#lockBegan < LOCK_TIMEOUT_MS;
      if (isWaitedFor) await pause(Math.random() * LOCK_PAUSE_MS);
      waited?.();
      if (isWaitedFor) return;
    }
    this.#lockBegan = undefined;
    if (isSent && isUncertain(failure)) outcome.lostAnswer ??= error;
    if (outcome.lostAnswer !== undefined) noteUncertain(error);
    const passing = connections.passing(failure);
    if (passing === 'outage') this.#outageBegan ??= now();
    else {
      this.#outageBegan = undefined;
      this.#conflicts++;
    }
    const isRetried = !isJoined && passing !== undefined && (retries?.(failure) ?? true) && !this.#isGivenUp();
    telemetry?.failed(connections.system, telemetry.current, failure, {
      isConflict: passing === 'conflict',
      isRetried,
    });
    if (!isRetried) throw error;
    const { baseDelayMs = 10, maxDelayMs = 1_000 } = retry ?? {};
    const longest = Math.min(maxDelayMs, baseDelayMs * 2 ** (this.#count - 1));
    this.#count++;
    // The pause is random, or transactions that collided once would collide again.
    await pause(Math.random() * longest, signal);
    if (signal?.aborted) throw new Aborted();
  }

  /** The attempt has given its connection back, and so its locks. @throws CodecError. @throws Aborted. */
  async #waitForKeys({ ready }: KeyNeeded): Promise<void> {
    const { signal } = this.#options;
    const late = (ms: number) => new CodecError(`A codec had no key within ${ms} ms. Nothing was written.`);
    let stop = () => {};
    const isAborted = new Promise<void>((resolve) => {
      stop = onAbort(signal, resolve);
    });
    try {
      if (++this.#keyWaits > KEY_WAITS)
        throw new CodecError(`A codec still lacks a key after ${KEY_WAITS} waits. Nothing was written.`);
      await inTime(Promise.race([ready, isAborted]), this.#service.connections.timeoutMs, late);
    } catch (error) {
      // An earlier attempt may be stored all the same.
      throw this.#outcome.lostAnswer ?? error;
    } finally {
      stop();
    }
    if (signal?.aborted) throw new Aborted();
  }

  #isGivenUp(): boolean {
    const { attempts, forMs = DEFAULT_RETRY_MS } = this.#service.retry ?? {};
    if (attempts !== undefined && this.#count >= attempts) return true;
    // Attempts spent on an outage do not count as conflicts.
    if (this.#outageBegan === undefined) return this.#conflicts >= (attempts ?? ATTEMPTS);
    return now() - this.#outageBegan >= forMs;
  }
}
