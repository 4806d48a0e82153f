import { processWide } from './process-wide.js';

/** Runs the tasks of one object one after the other, in the order of the calls. */
export class Queues<Owner extends object> {
  readonly #last: WeakMap<Owner, Promise<unknown>>;

  /** @param name queues of the same name are the same, in all copies of this package. */
  constructor(name: string) {
    this.#last = processWide(name, () => new WeakMap());
  }

  run<T>(owner: Owner, work: () => Promise<T>): Promise<T> {
    const turn = (this.#last.get(owner) ?? Promise.resolve()).then(work);
    // The next task runs even if this one fails, and only this caller gets the error.
    const settled = turn.catch(() => undefined);
    this.#last.set(owner, settled);
    return turn;
  }
}
