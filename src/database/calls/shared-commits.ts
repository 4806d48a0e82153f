import type { Driver } from '../drivers/driver.js';
import type { OrmConnection } from '../orm/orm-connection.js';
import type { AttemptConnection, TransactionHooks } from './connection.js';

/** A transaction that waits for the connection. */
interface Member {
  readonly work: (driver: Driver) => Promise<void>;
  readonly hooks: TransactionHooks;
  /** Ends when another one has done its work, too. */
  ended?: Promise<void>;
  /** Why its writes were undone. */
  failed?: { error: unknown };
}

/** So many transactions share a commit at most: none of them is acknowledged before it. */
const MAX_MEMBERS = 64;

/**
 * Lets transactions that wait for the only connection of a database share a commit. It waits for the disk, and they would
 * wait for it one after the other. One that fails leaves the others whole.
 */
export class SharedCommits {
  static readonly #all = new WeakMap<OrmConnection, SharedCommits>();

  readonly #waiting = new Set<Member>();

  static of(orm: OrmConnection): SharedCommits {
    const shared = SharedCommits.#all.get(orm) ?? new SharedCommits();
    SharedCommits.#all.set(orm, shared);
    return shared;
  }

  /**
   * @param work the statements of a transaction; it may be done again.
   * @param failsAll whether the other transactions would fail with this error as well.
   * @param onConnection waits for the connection.
   * @throws what `work`, the commit or the wait throws; nothing is written then.
   */
  async run<T>(
    work: (driver: Driver) => Promise<T>,
    hooks: TransactionHooks,
    failsAll: (error: unknown) => boolean,
    onConnection: (attempt: (connection: AttemptConnection) => Promise<void>) => Promise<void>,
  ): Promise<T> {
    let done: { result: T } | undefined;
    const member: Member = {
      hooks,
      work: async (driver) => {
        done = { result: await work(driver) };
      },
    };
    this.#waiting.add(member);
    try {
      await onConnection((connection) => member.ended ?? this.#lead(connection, member, failsAll));
    } catch (error) {
      // The time to wait for the connection was over while another one had it, and did this work.
      if (!member.ended) throw error;
    } finally {
      this.#waiting.delete(member);
    }
    await member.ended;
    if (member.failed) throw member.failed.error;
    if (!done) throw new TypeError('A transaction was committed without its work');
    return done.result;
  }

  /** Does the work of all that wait in one transaction. */
  #lead(connection: AttemptConnection, first: Member, failsAll: (error: unknown) => boolean): Promise<void> {
    this.#waiting.delete(first);
    const members = [first, ...[...this.#waiting].slice(0, MAX_MEMBERS - 1)];
    for (const member of members) this.#waiting.delete(member);
    const ended = this.#commit(connection, members, failsAll).catch((error: unknown) => {
      for (const member of members) member.failed = { error };
    });
    for (const member of members) member.ended = ended;
    return ended;
  }

  async #commit(
    connection: AttemptConnection,
    members: readonly Member[],
    failsAll: (error: unknown) => boolean,
  ): Promise<void> {
    const { driver } = connection;
    try {
      await this.#inTransaction(connection, members, ({ work }) => work(driver));
    } catch (error) {
      if (members.length === 1 || failsAll(error)) throw error;
      // Nothing is written. Each gets a savepoint now, so that only the one that fails is undone; two statements for each are too
      // much for the first try, which next to never fails.
      await this.#inTransaction(connection, members, (member) =>
        connection.savepoint(
          () => member.work(driver),
          (failed) => {
            member.failed = { error: failed };
          },
        ),
      );
    }
  }

  #inTransaction(
    connection: AttemptConnection,
    members: readonly Member[],
    write: (member: Member) => Promise<void>,
  ): Promise<void> {
    return connection.transaction(
      async () => {
        for (const member of members) await write(member);
      },
      {
        beforeCommit: () => {
          for (const { hooks } of members) hooks.beforeCommit?.();
        },
        rollbackFailed: (error) => members[0]?.hooks.rollbackFailed?.(error),
      },
    );
  }
}
