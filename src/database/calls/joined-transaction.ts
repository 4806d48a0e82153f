import type { Sql } from '../dialects/dialect.js';
import type { EntityManager } from '@mikro-orm/core';
import { AsyncLocalStorage } from 'node:async_hooks';
import { InvalidArgumentError, SchemaError } from '../../model/errors.js';
import { passingOf } from '../../model/failures.js';
import { processWide } from '../../model/process-wide.js';
import { Queues } from '../../model/queues.js';
import type { Driver } from '../drivers/driver.js';
import { beforeEnd, hasEnded, keepingTo, physicalOf, statementsOf } from '../orm/host-transaction.js';
import type { Connections } from './connections.js';
import { COMMAND, command, rolledBack, type StatementBuffer } from './sql.js';

/** The queues of calls, one for each physical transaction. */
const calls = new Queues<object>('calls of transactions');

/** For each physical transaction: see `Sql`. */
const behind = processWide('behind', () => new WeakMap<object, NonNullable<Sql['behind']>>());

/** The turn of a call, which calls inside it share. */
interface Turn {
  readonly physical: object;
  isOver: boolean;
}

const turns = processWide('turns', () => new AsyncLocalStorage<Turn>());

/** The connection, while no other call sends statements on it. */
interface JoinedConnection {
  readonly transaction: object;
  readonly driver: Driver;
  /**
   * Called before each statement: after the end of the transaction it would be committed by itself, or in somebody else's
   * transaction.
   */
  readonly refuseEnded: () => void;
}

/**
 * A host's transaction that the calls of a service join (contract E5). They always run one after the other: if two overlapped on
 * one connection, their savepoints would undo each other's statements.
 */
export class JoinedTransaction {
  readonly #em: EntityManager;
  readonly #connections: Connections;
  #wasIn: boolean;

  /** @param em is in the transaction when the calls are made. */
  constructor(em: EntityManager, connections: Connections) {
    this.#em = em;
    this.#connections = connections;
    this.#wasIn = this.current !== undefined;
  }

  /** MikroORM's object for it; for a nested transaction that of the savepoint. */
  get current(): object | undefined {
    return this.#em.getTransactionContext<object>();
  }

  /**
   * @throws InvalidArgumentError if the transaction has been committed or rolled back.
   * @throws SchemaError if there is none, as with `disableTransactions`.
   */
  refuseEnded(): object {
    const { current } = this;
    if (current ? hasEnded(current) : this.#wasIn) throw ended();
    if (!current) {
      const lead = 'withEntityManager joins a transaction: pass the EntityManager that em.transactional hands out. ';
      throw transactionsAreDisabled(lead);
    }
    this.#wasIn = true;
    return current;
  }

  /** Runs a call after those that joined the transaction before it. A call inside another one runs at once. */
  inTurn<T>(work: () => Promise<T>): Promise<T> {
    const { current } = this;
    if (!current) return work();
    const physical = physicalOf(current);
    const around = turns.getStore();
    if (around?.physical === physical && !around.isOver) return work();
    const turn: Turn = { physical, isOver: false };
    return calls.run(physical, () =>
      turns.run(turn, work).finally(() => {
        turn.isOver = true;
      }),
    );
  }

  /** Runs statements. `work` only waits for them, so it cannot wait for itself. */
  run<T>(work: (sql: Sql) => Promise<T>): Promise<T> {
    return this.#run(async (connection) => (await this.#buffer(connection)).run(work));
  }

  #buffer({ transaction, driver, refuseEnded: refuse }: JoinedConnection): Promise<StatementBuffer> {
    const { dialect } = this.#connections;
    const physical = physicalOf(transaction);
    const known = dialect.sql.underLock === '' ? undefined : (behind.get(physical) ?? new Map<string, boolean>());
    if (known) behind.set(physical, known);
    return this.#connections.checkedBuffer(driver, { refuse, behind: known });
  }

  async #run<T>(work: (connection: JoinedConnection) => Promise<T>): Promise<T> {
    const transaction = this.refuseEnded();
    const refuseEnded = () => {
      if (hasEnded(transaction)) throw ended();
    };
    return statementsOf(transaction, async () => {
      refuseEnded();
      const driver = await this.#connections.orm.ofTransaction(transaction);
      return work({ transaction, driver, refuseEnded });
    });
  }

  /**
   * Runs the host's work so that it is stored together with the earlier writes of the transaction, or not at all, even if the work
   * catches an error with which the server has rolled back.
   *
   * @throws InsideTransactionError if the work begins another transaction.
   */
  async runHostWork<T>(work: () => Promise<T>): Promise<T> {
    const { explicitCommit } = this.#connections.dialect.sql;
    const transaction = await this.#run(async ({ transaction, driver }) => {
      await this.#send(driver, 'savepoint adk_whole');
      const commit = () => this.#refuseRolledBack(driver, 'release savepoint adk_whole');
      if (explicitCommit) {
        beforeEnd(transaction, {
          commit: async () => {
            await commit();
            await this.#send(driver, 'commit');
          },
          end: () => {
            for (const text of ['rollback', explicitCommit.off]) this.#send(driver, text).catch(() => undefined);
          },
        });
        await this.#send(driver, explicitCommit.on);
      } else beforeEnd(transaction, { commit });
      return transaction;
    });
    return keepingTo(transaction, work);
  }

  /** @param check a statement that fails if the server has rolled back the transaction, or whose answer shows it. */
  async #refuseRolledBack(driver: Driver, check: string): Promise<void> {
    try {
      await this.#send(driver, check);
    } catch (error) {
      throw passingOf(this.#connections.failureOf(error)) ? error : rolledBack();
    }
    if (driver.isInTransaction === false) throw rolledBack();
  }

  #send(driver: Driver, text: string) {
    return this.#connections.statements.send(driver, command(text), COMMAND);
  }

  /** Runs statements in a savepoint, so that a failure does not end the host's transaction. Some errors end the whole one. */
  savepoint<T>(work: (sql: Sql) => Promise<T>): Promise<T> {
    return this.#run(async (connection) => {
      const { transaction, driver } = connection;
      const { checkOpen } = this.#connections.dialect.sql;
      if (checkOpen !== undefined) beforeEnd(transaction, { commit: () => this.#refuseRolledBack(driver, checkOpen) });
      const buffer = await this.#buffer(connection);
      return buffer.savepoint(() => work(buffer.sql), this.#connections.rollbackFailed);
    });
  }
}

function ended(): InvalidArgumentError {
  return new InvalidArgumentError(
    'The transaction of the EntityManager that withEntityManager was given has ended; nothing was read or written. ' +
      'Inside em.transactional(async (tx) => …) await each call of service.withEntityManager(tx).',
  );
}

/** @param lead comes first in the message. */
export function transactionsAreDisabled(lead = ''): SchemaError {
  return new SchemaError(
    `${lead}With 'disableTransactions' MikroORM begins no transactions, so that what belongs together would be written in parts; ` +
      "nothing was written. Take 'disableTransactions' out of the config of MikroORM and out of em.fork().",
  );
}
