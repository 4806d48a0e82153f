import { AsyncLocalStorage } from 'node:async_hooks';
import { InsideTransactionError } from '../../model/errors.js';
import { processWide } from '../../model/process-wide.js';
import { Queues } from '../../model/queues.js';
import { standIn } from './stand-in.js';

/** The members that are used of what `em.getTransactionContext()` returns. */
interface HostTransaction {
  /** A method of knex. An inner transaction has also ended if the one around it has. */
  isCompleted?(): boolean;
  /** A property of knex: the transaction that this one is a savepoint of. */
  readonly parentTransaction?: object;
  readonly isCommitted?: boolean;
  readonly isRolledBack?: boolean;
}

/** The methods of knex, which send at once. */
type KnexTransaction = Record<'commit' | 'rollback', (...args: unknown[]) => Promise<unknown>>;

/** The methods of kysely, which return a command to execute; a savepoint has the same methods. */
const KYSELY_COMMANDS = ['savepoint', 'releaseSavepoint', 'rollbackToSavepoint', 'commit', 'rollback'] as const;

type KyselyTransaction = Record<(typeof KYSELY_COMMANDS)[number], (...args: unknown[]) => Command>;

interface Command {
  execute(): Promise<unknown>;
}

/** The transactions around savepoints, since kysely's object for a savepoint does not end with its transaction. */
const outer = processWide('outer transactions', () => new WeakMap<object, object>());

/** The transactions and savepoints of kysely whose end was sent; kysely itself notes only the answer. */
const ending = processWide('ending transactions', () => new WeakSet<object>());

/** What to do at the end of a transaction. */
interface EndHooks {
  /** Called before a commit. @throws if the commit would not store everything. */
  commit(): Promise<void>;
  /** Called before a commit or a rollback. It sends without waiting for answers, so that no other statement comes in between. */
  end?(): void;
}

const ends = processWide('ends of transactions', () => new WeakMap<object, EndHooks>());

/** The only transaction that the host's work may use. */
const only = processWide('only transaction', () => new AsyncLocalStorage<object>());

/** What a transaction begins with instead of members of MikroORM's connection. */
interface Beginning {
  instead?: object | undefined;
}

const beginnings = processWide('beginnings', () => new AsyncLocalStorage<Beginning>());

/** @param instead members of MikroORM's connection with which the first transaction of the work begins. */
export function beginningWith<T>(instead: object, work: () => Promise<T>): Promise<T> {
  return beginnings.run({ instead }, work);
}

/** The stand-ins of transactions, by themselves and by the transaction: the end of others is not noticed. */
const known = processWide('stand-ins of transactions', () => new WeakMap<object, HostTransaction>());

const statements = new Queues<object>('statements of transactions');

/** Runs statements in a host's transaction after earlier ones have finished. */
export function statementsOf<T>(transaction: object, work: () => Promise<T>): Promise<T> {
  return statements.run(physicalOf(transaction), work);
}

/** The first `end` for a transaction counts. */
export function beforeEnd(transaction: object, hooks: EndHooks): void {
  const physical = physicalOf(transaction);
  // If the host began the transaction before it made its first service, its end is not noticed.
  if (known.has(physical) && !ends.has(physical)) ends.set(physical, hooks);
}

/** Only once: after the first attempt to end the transaction, somebody else may have the connection. */
function endOnce(transaction: object): void {
  ends.get(transaction)?.end?.();
  ends.delete(transaction);
}

/** Runs the host's work, which must not begin another transaction on the same connections: on SQLite it would wait for its own. */
export function keepingTo<T>(transaction: object, work: () => Promise<T>): Promise<T> {
  return only.run(physicalOf(transaction), work);
}

/**
 * Replaces `begin` of a host's connection, so that it returns a stand-in of the transaction. That ends only between the pieces of
 * work of `statementsOf`: otherwise it would commit or undo a part of one. MikroORM's own `commit` and `rollback` also call
 * subscribers, which may join the transaction.
 *
 * @param noted runs MikroORM's `begin` for a transaction that is no savepoint.
 */
export function noteTransactions(
  connection: { begin(options?: { ctx?: object }): Promise<object> },
  noted: (begin: () => Promise<object>) => Promise<object>,
): void {
  // eslint-disable-next-line @typescript-eslint/unbound-method -- called with `this`
  const { begin } = connection;
  const begun = new WeakSet<object>();
  connection.begin = async (options) => {
    const around = options?.ctx ? undefined : only.getStore();
    if (around && begun.has(around) && isOpen(around)) {
      throw new InsideTransactionError(
        'A projection’s work has begun a transaction beside its own, which was refused',
        'Write with the tx that apply, clear and the work of transactional() are called with, or in tx.transactional(…).',
      );
    }
    const beginning = options?.ctx ? undefined : beginnings.getStore();
    const { instead } = beginning ?? {};
    // For one transaction only.
    if (beginning) beginning.instead = undefined;
    const send = () => begin.call(instead ? standIn(connection, instead) : connection, options);
    const transaction = await (options?.ctx ? send() : noted(send));
    // If the connection was lost meanwhile, knex hands out a transaction that has ended, and keeps the error.
    if (hasEnded(transaction) && 'executionPromise' in transaction) await transaction.executionPromise;
    const own: object = standIn(
      transaction,
      endsOf(transaction, () => own),
    );
    begun.add(own);
    for (const either of [transaction, own]) known.set(either, own);
    if (options?.ctx) outer.set(own, options.ctx);
    return own;
  };
}

/** @returns the members that end a transaction, or a savepoint. @param own returns its stand-in. */
function endsOf(transaction: object, own: () => object): object {
  if (isKnex(transaction)) {
    const end = (send: () => Promise<unknown>) => {
      endOnce(own());
      return send();
    };
    const rollback = (...args: unknown[]) => end(() => transaction.rollback(...args));
    const commit = async (...args: unknown[]) => {
      try {
        await ends.get(own())?.commit();
      } catch (error) {
        // MikroORM waits for the end of the transaction, not for this promise.
        return rollback(error);
      }
      return end(() => transaction.commit(...args));
    };
    return {
      commit: (...args: unknown[]) => statementsOf(own(), () => commit(...args)),
      rollback: (...args: unknown[]) => statementsOf(own(), () => rollback(...args)),
    };
  }
  if (!isKysely(transaction)) return {};
  const command =
    (name: (typeof KYSELY_COMMANDS)[number]) =>
    (...args: unknown[]) => {
      const sent = transaction[name](...args);
      const execute = async () => {
        if (name === 'commit') await ends.get(own())?.commit();
        if (name !== 'savepoint') {
          ending.add(own());
          endOnce(own());
        }
        return sent.execute();
      };
      return { execute: () => statementsOf(own(), execute) };
    };
  return Object.fromEntries(KYSELY_COMMANDS.map((name) => [name, command(name)]));
}

const isKnex = (transaction: object): transaction is KnexTransaction => 'isCompleted' in transaction;

const isKysely = (transaction: object): transaction is KyselyTransaction => 'isCommitted' in transaction;

/** The transaction itself, for any of its savepoints. */
export function physicalOf(transaction: HostTransaction): HostTransaction {
  const around = aroundOf(transaction);
  return around ? physicalOf(around) : (known.get(transaction) ?? transaction);
}

const aroundOf = (transaction: HostTransaction) => outer.get(transaction) ?? transaction.parentTransaction;

/**
 * Whether the result of `em.getTransactionContext()`, or a transaction around it, has ended, so that no statement can run in it.
 */
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

/** Whether the transaction, or the one around the savepoint, has been neither committed nor rolled back. */
export function isOpen(transaction: HostTransaction): boolean {
  return !hasEnded(physicalOf(transaction));
}
