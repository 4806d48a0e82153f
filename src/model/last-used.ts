/** A cache that keeps the values that were used last, and makes missing ones. */
export class LastUsed<Value> {
  readonly #most: number;
  readonly #dropped: ((value: Value, key: string) => void) | undefined;
  readonly #values = new Map<string, Value>();

  /**
   * @param most how many values it keeps.
   * @param dropped gets each value that is removed to make room.
   */
  constructor(most: number, dropped?: (value: Value, key: string) => void) {
    this.#most = most;
    this.#dropped = dropped;
  }

  get(key: string, make: (key: string) => Value): Value {
    const known = this.#values.get(key);
    // The order counts once there is no room.
    if (known !== undefined && this.#values.size < this.#most) return known;
    if (known !== undefined) this.#values.delete(key);
    const value = known ?? make(key);
    // Moves the value to the end: a Map keeps the order of insertion.
    this.#values.set(key, value);
    if (this.#values.size > this.#most) this.#dropOldest();
    return value;
  }

  delete(key: string): void {
    this.#values.delete(key);
  }

  #dropOldest(): void {
    const [oldest] = this.#values;
    if (!oldest) return;
    const [key, value] = oldest;
    this.#values.delete(key);
    this.#dropped?.(value, key);
  }
}
