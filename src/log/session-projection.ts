import type { EntityManager } from '@mikro-orm/core';
import { Aborted } from '../database/calls/connection.js';
import { Database } from '../database/calls/database.js';
import { FromWork, asThrown } from '../database/calls/public-error.js';
import { advanceProjection, createProjection, readProjections, type StoredProjection } from './stored-projections.js';
import { aFunction, anything, condition, object } from '../model/arguments.js';
import { LogWentBackError } from '../model/errors.js';
import { checkKeys, partialKey } from '../model/keys.js';
import type { LogCursor } from '../model/log-history.js';
import type { ErrorContext } from '../model/options.js';
import { completePages } from './complete-log.js';
import { readerCursorOf } from './cursors.js';
import type { CompleteLogEntry } from './entries.js';
import { EventLog, LOG_OPTIONS, checkWatchOptions, headsOf, type EventLogOptions } from './event-log.js';
import { checkConditionsOf, type LogFilter } from './filters.js';
import { readLog, type ReadMethod } from './log-reader.js';
import { ReaderCall } from './reader-call.js';
import type { Heads } from './watch/heads.js';

export interface SessionProjectionOptions<Em extends EntityManager = EntityManager> extends EventLogOptions {
  /** The name of its stored cursor, up to 191 characters. Projections with the same name are one projection, in all processes. */
  name: string;
  /** All entries by default. If you change the filter, change the name or call `rebuild`. */
  filter?: Omit<LogFilter, 'limit'>;
  /**
   * Writes your own rows for these entries. Write only with `tx`: after a rollback it is called again with the same entries.
   *
   * @param entries 1 to 400 entries, in the order of the log.
   * @param tx the transaction, as `em.transactional` hands it out.
   */
  apply(this: void, entries: readonly CompleteLogEntry[], tx: Em): Promise<void>;
  /** Deletes everything that `apply` has written, with `tx`. Then the entries come again, from the first one. */
  clear(this: void, tx: Em): Promise<void>;
}

type Prepare = (entries: readonly CompleteLogEntry[]) => Promise<void>;

const checkOptions = object<SessionProjectionOptions>(
  { ...LOG_OPTIONS, name: anything, filter: condition(anything), apply: aFunction, clear: aFunction },
  'apply',
  'clear',
);

/**
 * Keeps your own tables in step with the complete log, for example a search index or statistics. The rows that `apply` writes
 * are committed together with the projection's cursor, so each entry is applied exactly once, even if several processes run
 * the projection, one is killed, or the answer to a commit is lost (contract J5). If the database went back, `clear` is called,
 * and the log is read from its beginning.
 *
 * ```ts
 * const search = new SessionProjection(orm.em, { name: 'search', apply, clear });
 * await search.watch({ signal });
 * ```
 *
 * If `apply`, `clear` or the work of `transactional` throws, its transaction is rolled back and the error reaches the caller
 * unchanged. If it catches an error that made the server roll back, the call fails with `DatabaseError`. If it begins another
 * transaction, that fails with `InsideTransactionError`.
 */
export class SessionProjection<Em extends EntityManager = EntityManager> {
  readonly #em: Em;
  readonly #options: SessionProjectionOptions<Em>;
  readonly #filter: Omit<LogFilter, 'limit'>;
  readonly #database: Database;
  readonly #heads: Heads;
  readonly #prepare: Prepare | undefined;

  /**
   * @param em the host's `EntityManager`, as for `MikroOrmSessionService`; your tables are in the same database.
   * @throws InvalidArgumentError if an option is unknown or missing, or its value is invalid.
   * @throws InvalidKeyError if the name, or a name or an id of the filter, cannot be a key.
   * @throws SchemaError as `EventLog`.
   */
  constructor(em: Em, options: SessionProjectionOptions<Em>);
  /** @internal @param prepare gets the entries before the transaction, for slow work that must not keep a connection. */
  // eslint-disable-next-line @typescript-eslint/unified-signatures -- left out of the package's declarations
  constructor(em: Em, options: SessionProjectionOptions<Em>, prepare: Prepare);
  constructor(em: Em, options: SessionProjectionOptions<Em>, prepare?: Prepare) {
    this.#options = checkOptions(options, 'The options of SessionProjection');
    const { name, filter = {} } = this.#options;
    checkKeys({ projectionName: name });
    this.#em = em;
    this.#filter = checkConditionsOf(filter);
    this.#database = new Database(em, this.#options);
    this.#heads = headsOf(this.#database, this.#options);
    this.#prepare = prepare;
  }

  /**
   * @param options as for `EventLog`.
   * @returns all projections of the database by name, with how far they are behind.
   * @throws InvalidArgumentError, DatabaseError, SchemaError as `EventLog` and its `head`.
   */
  static async list(
    em: EntityManager,
    options: EventLogOptions = {},
  ): Promise<
    {
      name: string;
      /** Where it continues; undefined before its first entry, and after `rebuild`. */
      cursor: LogCursor | undefined;
      /** The number of entries after its cursor, including those that its filter leaves out. */
      behind: number;
      /** When it last wrote, in ms since 1970, by the database's clock. */
      updateTime: number;
    }[]
  > {
    const head = await new EventLog(em, options).complete().head();
    const database = new Database(em, options);
    const stored = await database.call({ operation: 'list', key: {} }, () => database.run(readProjections));
    return stored.map(({ name, cursor: text, updateTime }) => {
      const cursor = cursorOf(text);
      const { position, change = 0 } = readerCursorOf(cursor);
      const behind = Math.max(0, head.position - position) + Math.max(0, (head.change ?? 0) - change);
      return { name, cursor: cursor === 0 ? undefined : cursor, behind, updateTime };
    });
  }

  /**
   * Applies all entries that are committed now, or waits until other processes have applied them.
   *
   * @param options its signal ends the call between two transactions; the next call continues.
   * @throws InvalidArgumentError if an option is unknown.
   * @throws InsideTransactionError inside a transaction of the same ORM.
   * @throws DatabaseError if the database is still unavailable after all retries; the next call continues.
   */
  async catchUp(options: { signal?: AbortSignal } = {}): Promise<void> {
    await this.#follow('catchUp', 'since', options);
  }

  /**
   * Applies all entries that are committed, and then new ones.
   *
   * @returns after the signal has fired and the last transaction has ended.
   * @throws InvalidArgumentError if an option is unknown.
   * @throws InsideTransactionError, DatabaseError as `catchUp`.
   */
  async watch(options: { signal?: AbortSignal } = {}): Promise<void> {
    await this.#follow('watch', 'watch', options);
  }

  /** Calls `clear`, so that the next `catchUp` or `watch` reads from the beginning. @throws as `transactional`. */
  async rebuild(): Promise<void> {
    await this.#exclusively(
      'rebuild',
      () => BEGINNING,
      (tx) => this.#options.clear(tx),
    );
  }

  /**
   * Runs your own work in a transaction while no entries are applied. Entries that were read before are read again, so none that
   * has been deleted since is applied afterwards. Use it after `eraseUser`, to delete the person's rows.
   *
   * @param work may be called again, even after its transaction was committed, if the answer to the commit was lost.
   * @throws InsideTransactionError, DatabaseError as `catchUp`; and what `work` throws.
   */
  async transactional(work: (tx: Em) => Promise<void>): Promise<void> {
    await this.#exclusively('transactional', ({ cursor }) => cursor, work);
  }

  async #follow(operation: string, method: ReadMethod, options: { signal?: AbortSignal }): Promise<void> {
    const { signal } = checkWatchOptions(options, `The options of ${operation}`);
    const context = { operation, key: partialKey(this.#filter) };
    for (;;) {
      let stored = await this.#stored(context);
      const call = new ReaderCall(this.#database, context, signal);
      const from = readerCursorOf(cursorOf(stored.cursor));
      const pages = completePages({ call, heads: this.#heads, cursor: from, filter: this.#filter });
      try {
        for await (const { entries, cursor } of call.yielded(readLog(method, pages))) {
          if (entries.length > 0 && this.#prepare) await call.orAborted(this.#prepare(entries));
          stored = await this.#write(context, stored, JSON.stringify(cursor), async (tx) => {
            if (entries.length > 0) await this.#options.apply(entries, tx);
          });
        }
        return;
      } catch (error) {
        if (error instanceof Aborted) return;
        if (error instanceof LogWentBackError) {
          await this.#write(context, stored, BEGINNING, (tx) => this.#options.clear(tx)).catch(unlessOvertaken);
        } else unlessOvertaken(error);
      }
    }
  }

  async #exclusively(
    operation: string,
    cursorAfter: (stored: StoredProjection) => string,
    work: (tx: Em) => Promise<void>,
  ): Promise<void> {
    const context = { operation, key: {} };
    for (;;) {
      const stored = await this.#stored(context);
      try {
        await this.#write(context, stored, cursorAfter(stored), work);
        return;
      } catch (error) {
        unlessOvertaken(error);
      }
    }
  }

  /** Reads the row of the projection; creates it if there is none. */
  async #stored(context: ErrorContext): Promise<StoredProjection> {
    const { name } = this.#options;
    return this.#database.call(context, async () => {
      for (;;) {
        const [found] = await this.#database.run((sql) => readProjections(sql, name));
        if (found) return found;
        await this.#database.statement((sql) => createProjection(sql, name, BEGINNING));
      }
    });
  }

  /**
   * Sets the cursor and runs the host's work in one transaction.
   *
   * @param stored the row when the entries were read.
   * @returns the new row.
   * @throws Overtaken if the row has changed. This call itself may have changed it and lost the answer to its commit.
   */
  async #write(
    context: ErrorContext,
    stored: StoredProjection,
    cursor: string,
    work: (tx: Em) => Promise<void>,
  ): Promise<StoredProjection> {
    const database = this.#database;
    await database
      .call(context, () =>
        database.transactional(this.#em, async (tx) => {
          const joined = database.join(tx);
          const isFirst = await joined.run((sql) => advanceProjection(sql, stored, cursor));
          if (!isFirst) throw new FromWork(new Overtaken());
          await joined.runHostWork(tx, () => work(tx));
        }),
      )
      .catch(asThrown);
    return { ...stored, version: stored.version + 1, cursor };
  }
}

/** JSON of the cursor of the log's beginning. */
const BEGINNING = '0';

const cursorOf = (text: string) => JSON.parse(text) as LogCursor | 0;

/** Another transaction of the projection came first. */
class Overtaken extends Error {}

function unlessOvertaken(error: unknown): void {
  if (!(error instanceof Overtaken)) throw error;
}
