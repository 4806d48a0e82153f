import type { LogHead } from '../database/stores/log-store.js';
import type { Stores } from '../database/stores/stores.js';
import type { Transactions } from '../database/transaction.js';
import { isRefusedWrite } from '../model/failures.js';

/** Tells the host of a failure that no caller is told of. */
export type Report = (error: unknown, operation: string) => void;

/** How long an account that may not write is not asked to again. */
const READ_ONLY_MS = 60_000;

/** Gives positions to committed events, on behalf of those who read the log (contract G1). */
export class Positions {
  readonly #stores: Stores;
  readonly #transactions: Transactions;
  /** When this account was last told that it may not write, by `performance.now()`. */
  #readOnlySince = -Infinity;

  constructor(stores: Stores, transactions: Transactions) {
    this.#stores = stores;
    this.#transactions = transactions;
  }

  /**
   * Gives positions to all events that are committed now, where this account may write.
   *
   * @param report is told, once, that the account may not write: then other readers give the positions.
   * @param onPosition is called with the last position before the first transaction and after each.
   * @returns the last position.
   */
  async assign(report: Report, onPosition: (position: number) => void = () => undefined): Promise<number> {
    let head = await this.#transactions.run((sql) => this.#stores.log.head(sql));
    onPosition(head.position);
    while (head.isPending && this.#mayWrite()) {
      head = await this.#assignSome(head, report);
      onPosition(head.position);
    }
    return head.position;
  }

  /** Tried again now and then: a server that is read-only during a failover is not for ever. */
  #mayWrite(): boolean {
    return performance.now() - this.#readOnlySince > READ_ONLY_MS;
  }

  async #assignSome(head: LogHead, report: Report): Promise<LogHead> {
    try {
      const assigned = await this.#transactions.transaction((sql) => this.#stores.log.assignPositions(sql));
      this.#readOnlySince = -Infinity;
      return assigned;
    } catch (error) {
      if (!isRefusedWrite(this.#transactions.failureOf(error))) throw error;
      // Once is enough: an account may be meant to read alone.
      if (this.#readOnlySince === -Infinity) report(error, 'assignPositions');
      this.#readOnlySince = performance.now();
      return head;
    }
  }
}
