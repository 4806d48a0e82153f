import type { EntityManager } from '@mikro-orm/core';
import { AsyncLocalStorage } from 'node:async_hooks';
import { InvalidArgumentError, SchemaError } from '../../model/errors.js';
import { Queues } from '../../model/queues.js';
import type { Driver } from '../drivers/driver.js';
import { hasEnded, physicalOf, statementsOf } from '../orm/host-transaction.js';
import { COMMAND, type ConnectionSource } from './connection.js';

/** The calls that join one physical transaction. */
const calls = new Queues<object>();

/** The turn of a call, for what runs inside of it. */
interface Turn {
  readonly physical: object;
  isOver: boolean;
}

const turns = new AsyncLocalStorage<Turn>();

/** One connection while nothing else of ours is sent on it. */
export interface JoinedConnection {
  readonly driver: Driver;
  /** Comes before each statement: after the transaction it would be committed alone, or in what somebody else has begun. */
  readonly refuseEnded: () => void;
}

/**
 * The transaction of a host's that the calls of a service join (contract E5). However the host starts them, they run one after the
 * other: two that overlap on one connection would undo each other's statements with their savepoints.
 */
export class JoinedTransaction {
  readonly #em: EntityManager;
  readonly #source: ConnectionSource;
  #wasIn: boolean;

  /** @param em is in the transaction when the calls are made. */
  constructor(em: EntityManager, source: ConnectionSource) {
    this.#em = em;
    this.#source = source;
    this.#wasIn = this.current !== undefined;
  }

  /** As MikroORM knows it; of a nested transaction the savepoint. */
  get current(): object | undefined {
    return this.#em.getTransactionContext<object>();
  }

  /**
   * @throws InvalidArgumentError when the transaction has been committed or rolled back.
   * @throws SchemaError when there is none, as with `disableTransactions`.
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

  /** Runs a call after those that joined the transaction before it. A call that is made inside of another one runs at once. */
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

  /** Runs statements. Their work waits for nothing else, so that it never waits for itself. */
  async run<T>(work: (connection: JoinedConnection) => Promise<T>): Promise<T> {
    const transaction = this.refuseEnded();
    const refuseEnded = () => {
      if (hasEnded(transaction)) throw ended();
    };
    return statementsOf(transaction, async () => {
      refuseEnded();
      return work({ driver: await this.#source.orm.ofTransaction(transaction), refuseEnded });
    });
  }

  /**
   * Runs statements in a savepoint, so that their failure leaves the host's transaction whole.
   *
   * @param rollbackFailed is called with the error of the rollback: some errors end the whole transaction.
   */
  savepoint<T>(
    work: (connection: JoinedConnection) => Promise<T>,
    rollbackFailed: (error: unknown) => void,
  ): Promise<T> {
    return this.run(async (connection) => {
      const command = (text: string) => {
        connection.refuseEnded();
        return this.#source.statements.send(connection.driver, text, [], COMMAND);
      };
      await command('savepoint adk');
      try {
        const result = await work(connection);
        await command('release savepoint adk');
        return result;
      } catch (error) {
        try {
          await command('rollback to savepoint adk');
          await command('release savepoint adk');
        } catch (failed) {
          rollbackFailed(failed);
        }
        throw error;
      }
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
