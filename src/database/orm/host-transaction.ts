import { AsyncLocalStorage } from 'node:async_hooks';
import { InsideTransactionError } from '../../model/errors.js';
import { Queues } from '../../model/queues.js';

/** What `em.getTransactionContext()` gives, as far as it is used. */
interface HostTransaction {
  /** A method of knex, where an inner transaction has ended also when the one around it has. */
  isCompleted?(): boolean;
  /** A property of knex: the transaction that this one is a savepoint of. */
  readonly parentTransaction?: object;
  readonly isCommitted?: boolean;
  readonly isRolledBack?: boolean;
}

/** The methods of kysely, which give a command to send; a savepoint has those of a transaction. */
const KYSELY_COMMANDS = ['savepoint', 'releaseSavepoint', 'rollbackToSavepoint', 'commit', 'rollback'] as const;

/** The methods of knex send at once. */
type KnexTransaction = Record<'commit' | 'rollback', (...args: unknown[]) => Promise<unknown>>;

type KyselyTransaction = Record<(typeof KYSELY_COMMANDS)[number], (...args: unknown[]) => Command>;

interface Command {
  execute(): Promise<unknown>;
}

/** The transactions of kysely that savepoints are in; kysely's object for a savepoint does not end with its transaction. */
const outer = new WeakMap<object, object>();

/** The transactions and savepoints of kysely whose end was sent; kysely itself knows it when it was answered. */
const ending = new WeakSet<object>();

/** What is done at the end of a transaction. */
interface End {
  /** Comes before a commit. @throws where the commit would not store everything. */
  commit(): Promise<void>;
  /** Comes before a commit or a rollback, and sends without waiting for answers: nobody else's statement may come between. */
  end?(): void;
}

const ends = new WeakMap<object, End>();

/** The transaction that a host's work has to keep to. */
const only = new AsyncLocalStorage<object>();

/** Those of connections that were noted more than once would wait for themselves. */
const known = new WeakSet<object>();

const statements = new Queues<object>();

/** Runs statements in a host's transaction after those that were begun before, so that none is sent in their midst. */
export function statementsOf<T>(transaction: object, work: () => Promise<T>): Promise<T> {
  return statements.run(physicalOf(transaction), work);
}

/** The first one that is given for a transaction counts. */
export function beforeEnd(transaction: object, end: End): void {
  const physical = physicalOf(transaction);
  // The end of one that the host began before it made its first service is not seen.
  if (known.has(physical) && !ends.has(physical)) ends.set(physical, end);
}

/** Once: after the first attempt to end the transaction the connection may be somebody else's. */
function endOnce(transaction: object): void {
  ends.get(transaction)?.end?.();
  ends.delete(transaction);
}

/** Runs a host's work that may begin no other transaction on the same connections: on SQLite it would wait for its own. */
export function keepingTo<T>(transaction: object, work: () => Promise<T>): Promise<T> {
  return only.run(physicalOf(transaction), work);
}

/**
 * Has the transactions of a connection end between the pieces of work of `statementsOf`: in the midst of one they would commit or
 * undo a part of it. Of kysely it also learns which transactions are savepoints, or work that was begun in a savepoint would be in
 * an open transaction for ever.
 */
export function noteTransactions(connection: { begin(options?: { ctx?: object }): Promise<object> }): void {
  const begin = connection.begin.bind(connection);
  const begun = new WeakSet<object>();
  connection.begin = async (options) => {
    const around = options?.ctx ? undefined : only.getStore();
    if (around && begun.has(around) && isOpen(around)) {
      throw new InsideTransactionError(
        'A projection’s work has begun a transaction beside its own, which was refused',
        'Write with the tx that apply, clear and the work of transactional() are called with, or in tx.transactional(…).',
      );
    }
    const transaction = await begin(options);
    begun.add(transaction);
    if (known.has(transaction)) return transaction;
    known.add(transaction);
    if (options?.ctx) outer.set(transaction, options.ctx);
    // MikroORM's own methods also call subscribers, which may join the transaction.
    if (isKnex(transaction)) {
      const { commit, rollback } = transaction;
      const end = (send: () => Promise<unknown>) => {
        endOnce(transaction);
        return send();
      };
      transaction.commit = (...args) =>
        statementsOf(transaction, async () => {
          try {
            await ends.get(transaction)?.commit();
          } catch (error) {
            // MikroORM waits for the end of the transaction, and not for this promise.
            return end(() => rollback(error));
          }
          return end(() => commit(...args));
        });
      transaction.rollback = (...args) => statementsOf(transaction, () => end(() => rollback(...args)));
    } else if (isKysely(transaction)) {
      for (const name of KYSELY_COMMANDS) {
        const command = transaction[name].bind(transaction);
        transaction[name] = (...args) => {
          const sent = command(...args);
          const execute = async () => {
            if (name === 'commit') await ends.get(transaction)?.commit();
            if (name !== 'savepoint') {
              ending.add(transaction);
              endOnce(transaction);
            }
            return sent.execute();
          };
          return { execute: () => statementsOf(transaction, execute) };
        };
      }
    }
    return transaction;
  };
}

const isKnex = (transaction: object): transaction is KnexTransaction => 'isCompleted' in transaction;

const isKysely = (transaction: object): transaction is KyselyTransaction => 'isCommitted' in transaction;

/** The transaction itself, whichever of its savepoints is given. */
export function physicalOf(transaction: HostTransaction): HostTransaction {
  const around = aroundOf(transaction);
  return around ? physicalOf(around) : transaction;
}

const aroundOf = (transaction: HostTransaction) => transaction.parentTransaction ?? outer.get(transaction);

/** Whether what `em.getTransactionContext()` gives, or a transaction around it, has ended, so that no statement can be run in it. */
export function hasEnded(transaction: HostTransaction): boolean {
  if (transaction.isCompleted) return transaction.isCompleted();
  const { isCommitted, isRolledBack } = transaction;
  const around = aroundOf(transaction);
  return (
    ending.has(transaction) ||
    isCommitted === true ||
    isRolledBack === true ||
    (around !== undefined && hasEnded(around))
  );
}

/** Whether the transaction, or the one that the savepoint is in, has neither been committed nor rolled back. */
export function isOpen(transaction: HostTransaction): boolean {
  return !hasEnded(physicalOf(transaction));
}
