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

/** The methods of knex, which send at once. */
const KNEX_ENDS = ['commit', 'rollback'] as const;

/** The methods of kysely, which give a command to send; a savepoint has those of a transaction. */
const KYSELY_COMMANDS = ['savepoint', 'releaseSavepoint', 'rollbackToSavepoint', 'commit', 'rollback'] as const;

type KnexTransaction = Record<(typeof KNEX_ENDS)[number], (...args: unknown[]) => Promise<unknown>>;

type KyselyTransaction = Record<(typeof KYSELY_COMMANDS)[number], (...args: unknown[]) => Command>;

interface Command {
  execute(): Promise<unknown>;
}

/** The transactions of kysely that savepoints are in; kysely's object for a savepoint does not end with its transaction. */
const outer = new WeakMap<object, object>();

/** The transactions and savepoints of kysely whose end was sent; kysely itself knows it when it was answered. */
const ending = new WeakSet<object>();

/** Those of connections that were noted more than once would wait for themselves. */
const known = new WeakSet<object>();

const statements = new Queues<object>();

/** Runs statements in a host's transaction after those that were begun before, so that none is sent in their midst. */
export function statementsOf<T>(transaction: object, work: () => Promise<T>): Promise<T> {
  return statements.run(physicalOf(transaction), work);
}

/**
 * Has the transactions of a connection end between the pieces of work of `statementsOf`: in the midst of one they would commit or
 * undo a part of it. Of kysely it also learns which transactions are savepoints, or work that was begun in a savepoint would be in
 * an open transaction for ever.
 */
export function noteTransactions(connection: { begin(options?: { ctx?: object }): Promise<object> }): void {
  const begin = connection.begin.bind(connection);
  connection.begin = async (options) => {
    const transaction = await begin(options);
    if (known.has(transaction)) return transaction;
    known.add(transaction);
    if (options?.ctx) outer.set(transaction, options.ctx);
    // MikroORM's own methods also call subscribers, which may join the transaction.
    if (isKnex(transaction)) {
      for (const name of KNEX_ENDS) {
        const end = transaction[name];
        transaction[name] = (...args) => statementsOf(transaction, () => end(...args));
      }
    } else if (isKysely(transaction)) {
      for (const name of KYSELY_COMMANDS) {
        const command = transaction[name].bind(transaction);
        transaction[name] = (...args) => {
          const sent = command(...args);
          const execute = () => {
            if (name !== 'savepoint') ending.add(transaction);
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
