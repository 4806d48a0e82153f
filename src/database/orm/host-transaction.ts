import { AsyncLocalStorage } from 'node:async_hooks';
import { InsideTransactionError } from '../../model/errors.js';
import { processWide } from '../../model/process-wide.js';
import { Queues } from '../../model/queues.js';

/** The members that are used of what `em.getTransactionContext()` returns. */
interface HostTransaction {
  /** A method of knex. An inner transaction has also ended if the one around it has. */
  isCompleted?(): boolean;
  /** A property of knex: the transaction that this one is a savepoint of. */
  readonly parentTransaction?: object;
  readonly isCommitted?: boolean;
  readonly isRolledBack?: boolean;
}

/** The methods of kysely, which return a command to execute; a savepoint has the same methods. */
const KYSELY_COMMANDS = ['savepoint', 'releaseSavepoint', 'rollbackToSavepoint', 'commit', 'rollback'] as const;

/** The methods of knex send at once. */
type KnexTransaction = Record<'commit' | 'rollback', (...args: unknown[]) => Promise<unknown>>;

type KyselyTransaction = Record<(typeof KYSELY_COMMANDS)[number], (...args: unknown[]) => Command>;

interface Command {
  execute(): Promise<unknown>;
}

/** The transactions around kysely's savepoints, since kysely's object for a savepoint does not end with its transaction. */
const outer = processWide('outer transactions', () => new WeakMap<object, object>());

/** The transactions and savepoints of kysely whose end was sent; kysely itself notes only the answer. */
const ending = processWide('ending transactions', () => new WeakSet<object>());

/** What to do at the end of a transaction. */
interface End {
  /** Called before a commit. @throws if the commit would not store everything. */
  commit(): Promise<void>;
  /** Called before a commit or a rollback. It sends without waiting for answers, so that no other statement comes in between. */
  end?(): void;
}

const ends = processWide('ends of transactions', () => new WeakMap<object, End>());

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

/** The transactions that were noted: a connection that was wrapped twice would wait for itself. */
const known = processWide('known transactions', () => new WeakSet<object>());

const statements = new Queues<object>('statements of transactions');

/** Runs statements in a host's transaction after earlier ones have finished. */
export function statementsOf<T>(transaction: object, work: () => Promise<T>): Promise<T> {
  return statements.run(physicalOf(transaction), work);
}

/** The first `end` for a transaction counts. */
export function beforeEnd(transaction: object, end: End): void {
  const physical = physicalOf(transaction);
  // If the host began the transaction before it made its first service, its end is not noticed.
  if (known.has(physical) && !ends.has(physical)) ends.set(physical, end);
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
 * Makes the transactions of a connection end only between the pieces of work of `statementsOf`: otherwise they would commit or undo
 * a part of one. It also notes which of kysely's transactions are savepoints; otherwise work that was begun in a savepoint would
 * seem to be in an open transaction for ever.
 */
export function noteTransactions(connection: { begin(options?: { ctx?: object }): Promise<object> }): void {
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
    const transaction = await begin.call(instead ? withMembers(connection, instead) : connection, options);
    // If the connection was lost meanwhile, knex hands out a transaction that has ended, and keeps the error.
    if (hasEnded(transaction) && 'executionPromise' in transaction) await transaction.executionPromise;
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
            // MikroORM waits for the end of the transaction, not for this promise.
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

/** The same object with other members. Its own methods are called on itself, since MikroORM 7 has private fields. */
function withMembers<T extends object>(object: T, members: object): T {
  return new Proxy(object, {
    get(target, name) {
      if (name in members) return Reflect.get(members, name) as unknown;
      const member: unknown = Reflect.get(target, name);
      return typeof member === 'function' ? (member.bind(target) as unknown) : member;
    },
  });
}

const isKnex = (transaction: object): transaction is KnexTransaction => 'isCompleted' in transaction;

const isKysely = (transaction: object): transaction is KyselyTransaction => 'isCommitted' in transaction;

/** The transaction itself, for any of its savepoints. */
export function physicalOf(transaction: HostTransaction): HostTransaction {
  const around = aroundOf(transaction);
  return around ? physicalOf(around) : transaction;
}

const aroundOf = (transaction: HostTransaction) => transaction.parentTransaction ?? outer.get(transaction);

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
