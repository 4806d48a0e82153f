/** Runs what belongs to one object one after the other, in the order of the calls. */
export class Queues<Owner extends object> {
  readonly #last = new WeakMap<Owner, Promise<unknown>>();

  run<T>(owner: Owner, work: () => Promise<T>): Promise<T> {
    const turn = (this.#last.get(owner) ?? Promise.resolve()).then(work);
    // The next one runs also when this one fails; the error goes to this caller only.
    this.#last.set(
      owner,
      turn.catch(() => undefined),
    );
    return turn;
  }
}
