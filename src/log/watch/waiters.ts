import { onAbort } from '../../model/signals.js';

interface Waiter {
  resolve(): void;
  reject(error: unknown): void;
}

export class Waiters {
  readonly #waiting = new Set<Waiter>();

  get isEmpty(): boolean {
    return this.#waiting.size === 0;
  }

  /** Resolves with the next `resolve` or when the signal fires; rejects with the next `reject`. */
  wait(signal: AbortSignal | undefined): Promise<void> {
    let stop = () => {};
    return new Promise<void>((resolve, reject) => {
      const waiter: Waiter = {
        resolve,
        reject: (error) => reject(error instanceof Error ? error : new Error(String(error))),
      };
      this.#waiting.add(waiter);
      stop = onAbort(signal, () => {
        this.#waiting.delete(waiter);
        resolve();
      });
    }).finally(() => stop());
  }

  resolve(): void {
    for (const waiter of this.#waiting) waiter.resolve();
    this.#waiting.clear();
  }

  reject(error: unknown): void {
    for (const waiter of this.#waiting) waiter.reject(error);
    this.#waiting.clear();
  }
}
