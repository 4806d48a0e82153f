/** A time that is over at some moment, unless it is stopped before. */
interface Running {
  at: number;
  readonly end: () => void;
}

/**
 * The times of attempts that take equally long at most. One timer runs for all, since an attempt's time is over next to never,
 * and a timer of its own costs as much as many another step of an append.
 */
class AttemptTimer {
  readonly #ms: number;
  /** Those that end first come first. */
  readonly #running = new Set<Running>();
  #timer: NodeJS.Timeout | undefined;

  constructor(ms: number) {
    this.#ms = ms;
  }

  start(end: () => void): Running {
    const running = { at: performance.now() + this.#ms, end };
    this.#running.add(running);
    if (this.#timer) this.#timer.ref();
    else this.#waitFor(this.#ms);
    return running;
  }

  restart(running: Running): void {
    if (!this.#running.delete(running)) return;
    running.at = performance.now() + this.#ms;
    this.#running.add(running);
  }

  stop(running: Running): void {
    this.#running.delete(running);
    // It may stay for the next attempt, but must not keep the process alive.
    if (this.#running.size === 0) this.#timer?.unref();
  }

  #waitFor(ms: number): void {
    this.#timer = setTimeout(() => this.#endThoseOver(), ms);
  }

  #endThoseOver(): void {
    this.#timer = undefined;
    const now = performance.now();
    for (const running of this.#running) {
      // A timer of Node.js may fire some part of a ms early.
      if (running.at > now + 1) {
        this.#waitFor(running.at - now);
        return;
      }
      this.#running.delete(running);
      running.end();
    }
  }
}

const timers = new Map<number, AttemptTimer>();

/** @param ms how long an attempt may take. Options of the host's have few values. */
export function attemptTimer(ms: number): AttemptTimer {
  let timer = timers.get(ms);
  if (!timer) timers.set(ms, (timer = new AttemptTimer(ms)));
  return timer;
}
