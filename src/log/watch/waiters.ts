interface Waiter {
  resolve(): void;
  reject(error: unknown): void;
}

/** Watchers that wait for something new. */
export class Waiters {
  readonly #waiting = new Set<Waiter>();

  get isEmpty(): boolean {
    return this.#waiting.size === 0;
  }

  /** @returns after the next `resolve`, or at once when the signal fires; rejects with the error of the next `reject`. */
  wait(signal: AbortSignal | undefined): Promise<void> {
    return new Promise((resolve, reject) => {
      if (signal?.aborted) {
        resolve();
        return;
      }
      const finish = () => {
        this.#waiting.delete(waiter);
        signal?.removeEventListener('abort', finish);
        resolve();
      };
      const waiter: Waiter = {
        resolve: finish,
        reject: (error) => {
          signal?.removeEventListener('abort', finish);
          reject(error instanceof Error ? error : new Error(String(error)));
        },
      };
      signal?.addEventListener('abort', finish);
      this.#waiting.add(waiter);
    });
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
