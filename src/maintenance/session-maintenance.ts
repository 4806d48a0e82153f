import type { EntityManager } from '@mikro-orm/core';
import type { Sql } from '../database/sql/sql.js';
import { once } from '../database/calls/once.js';
import type { KeptSession, Walk } from '../database/stores/walk-store.js';
import type { Stores } from '../database/stores/stores.js';
import { Database } from '../database/calls/database.js';
import {
  aBoolean,
  aCount,
  aFunction,
  aTimeout,
  aWait,
  aWholeNumber,
  anAbortSignal,
  anything,
  object,
  oneOf,
  type Known,
} from '../model/arguments.js';
import { InvalidArgumentError, UserNotErasedError } from '../model/errors.js';
import { checkKeys, checkedSessionKey, givenKey, type SessionKey } from '../model/keys.js';
import type { LogPosition } from '../model/log-history.js';
import { checkRetry, type ErrorContext, type ReportingOptions, type RetryOptions } from '../model/options.js';
import type { EraseUserResult, ImportProgress, MaintenanceResult } from '../model/progress.js';
import { exportRecords, type ExportFilter, type Run } from '../transfer/export.js';
import { Import } from '../transfer/import.js';
import type { TransferRecord } from '../transfer/records.js';
import { BATCH_OPTIONS, Batches, MAX_BATCH_SIZE, type BatchOptions } from './batches.js';
import { Deletion, type Rule } from './deletion.js';
import { removeLeftovers } from './leftovers.js';
import { Parts } from './parts.js';
import { Repair, scanForDamage, type RepairOptions, type RepairedSession } from './repair.js';
import { statsByApp, statsOf, type AppStats, type SessionStats } from './stats.js';

export interface SessionMaintenanceOptions extends ReportingOptions {
  /** How failures of the database are retried, as for `MikroOrmSessionService`. */
  retry?: RetryOptions;
  /**
   * How long one attempt may take, in ms, as for `MikroOrmSessionService`; 30,000 by default, 0 for no limit. `stats` of
   * large tables may need more.
   */
  timeoutMs?: number;
}

/** Which sessions to delete; all conditions given must hold, and one of the times must be given. */
export interface PruneOptions extends BatchOptions {
  appName?: string;
  userId?: string;
  /** Sessions whose last update (`lastUpdateTime`) was so long ago, in ms. */
  idleFor?: number;
  /** Sessions that were created so long ago, in ms. */
  olderThan?: number;
  /** Sessions that were deleted so long ago with `deletion: 'soft'`, in ms. */
  deletedFor?: number;
}

/** Which events to drop: either those before the newest so many, or those before a time. */
export interface TrimOptions extends BatchOptions {
  appName?: string;
  userId?: string;
  /** One session; needs `appName` and `userId`. */
  sessionId?: string;
  /** How many of the newest events each session keeps. */
  keepLast?: number;
  /**
   * Drops the oldest events up to the first one that is younger than this, in ms, by the time stamps of the events. Later
   * ones stay, whatever their time stamps.
   */
  olderThan?: number;
}

export interface EraseUserOptions extends BatchOptions {
  userId: string;
  /** One app alone; every app by default. */
  appName?: string;
}

export interface StatsOptions {
  appName?: string;
  userId?: string;
}

/** `checkKeys` checks the names. */
const OWNER: Known<StatsOptions> = { appName: anything, userId: anything };

export const MAINTENANCE_OPTIONS: Known<SessionMaintenanceOptions> = {
  retry: checkRetry,
  timeoutMs: aTimeout,
  onError: aFunction,
};
const checkOptions = object<SessionMaintenanceOptions>(MAINTENANCE_OPTIONS);
const checkPrune = object<PruneOptions>({
  ...OWNER,
  ...BATCH_OPTIONS,
  idleFor: aWait,
  olderThan: aWait,
  deletedFor: aWait,
});
const checkTrim = object<TrimOptions>({
  ...OWNER,
  ...BATCH_OPTIONS,
  sessionId: anything,
  keepLast: aWholeNumber,
  olderThan: aWait,
});
const checkErase = object<EraseUserOptions>({ ...OWNER, ...BATCH_OPTIONS });
const checkStats = object<StatsOptions & { groupBy?: 'app' }>({ ...OWNER, groupBy: oneOf('app') });
const checkExport = object<ExportFilter>(OWNER);

const checkRepair = object<RepairOptions>({ dryRun: aBoolean, includeLeased: aBoolean });

export interface ImportOptions {
  /** How many events one transaction writes at most; 500 by default, and never more than 10,000. */
  batchSize?: number;
  /** Ends the import before the next record when it fires. Nothing is thrown. */
  signal?: AbortSignal;
  onProgress?: (progress: ImportProgress) => void;
}

export const IMPORT_OPTIONS: Known<ImportOptions> = { batchSize: aCount, signal: anAbortSignal, onProgress: aFunction };
const checkImport = object<ImportOptions>(IMPORT_OPTIONS);

export const DEFAULT_IMPORT_BATCH = 500;

/** All of a user's sessions. */
const EVERY_SESSION: Rule = { isWhole: true, firstKept: (_, before) => before };

/**
 * Deletes and trims sessions, counts what is stored and mends what is damaged, on tables that are in use.
 *
 * ```ts
 * const maintenance = new SessionMaintenance(orm.em);
 * const { sessions, more } = await maintenance.prune({ idleFor: 90 * 24 * 3_600_000, maxBatches: 1_000 });
 * ```
 *
 * What deletes works in short transactions of `batchSize` rows (contract K1). It waits for nobody, and nobody who writes
 * to another session waits for it; a session whose row somebody else has locked is left for the next call, and so is one that
 * was created again, rewound or used since the call has read it. Sessions with a
 * lease that somebody holds, by the database's clock, are left alone unless `includeLeased` is true. Where it was
 * interrupted, the same call goes on. `dryRun` counts and writes nothing.
 *
 * Every method may throw `InvalidArgumentError` for an option that is not known or has a value that it cannot have,
 * `InvalidKeyError` for a name that cannot be a key, `SchemaError` when the tables are missing or outdated,
 * `DatabaseError` when the database fails and trying again does not help (what earlier transactions did stays done:
 * `outcome` is `partial` then, and `done` of the error says what it is), and
 * `InsideTransactionError` inside a transaction of the same ORM.
 */
export class SessionMaintenance {
  readonly #database: Database;
  readonly #stores: Stores;

  /**
   * @param em the host's `EntityManager`, as for `MikroOrmSessionService`.
   * @throws InvalidArgumentError when an option is not known, or has a value that it cannot have.
   * @throws SchemaError when the ORM has no supported driver, or does not list `adkEntities()`.
   */
  constructor(em: EntityManager, options: SessionMaintenanceOptions = {}) {
    checkOptions(options, 'The options of SessionMaintenance');
    this.#database = new Database(em, options);
    this.#stores = this.#database.stores;
  }

  /**
   * Deletes whole sessions: rows, events, session state and leases. `app:` and `user:` state stays. A session of more
   * events than `batchSize` goes in several transactions; with the first one it is gone for everybody, and cannot be restored.
   * Whatever the conditions, what an interrupted deletion has left is deleted as well. Idle sessions are found by an index;
   * without `idleFor` every session of the app, or of `userId`, is read. What the event log still has of sessions whose rows
   * somebody has deleted without this package is removed, whatever their age; it counts as no session.
   *
   * @returns what was deleted.
   * @throws InvalidArgumentError also when neither `idleFor` nor `olderThan` nor `deletedFor` is given: that would delete
   *   every session.
   */
  async prune(options: PruneOptions): Promise<MaintenanceResult> {
    checkPrune(options, 'The options of prune');
    const { appName, userId, idleFor, olderThan, deletedFor } = options;
    if (idleFor === undefined && olderThan === undefined && deletedFor === undefined)
      throw new InvalidArgumentError(
        'prune needs idleFor, olderThan or deletedFor; without it every session would go.',
      );
    checkOwner(options);
    const call: ErrorContext = { operation: 'prune', key: givenKey(options) };
    const now = await this.#read(call, (sql) => this.#stores.health.now(sql));
    const before = (ms: number | undefined) => (ms === undefined ? undefined : now - ms);
    const [idleSince, createdUpTo, deletedUpTo] = [before(idleFor), before(olderThan), before(deletedFor)];

    const isMeant = ({ lastUpdateTime, createTime, deletedAt }: KeptSession) =>
      (idleSince === undefined || lastUpdateTime <= idleSince) &&
      (createdUpTo === undefined || createTime <= createdUpTo) &&
      (deletedUpTo === undefined || (deletedAt !== undefined && deletedAt <= deletedUpTo));
    const rule: Rule = {
      isWhole: true,
      firstKept: (session, before) => (isMeant(session) ? before : undefined),
    };

    // An index by creation or deletion would be one more for each append on PostgreSQL to write.
    const way: Omit<Walk, 'appName'> =
      userId === undefined && idleSince !== undefined ? { by: 'update', upTo: idleSince } : { by: 'key', userId };

    const batches = this.#batches(options);
    const parts = this.#parts(call);
    const deletion = this.#deletion(call, parts, batches, rule);
    const read: Run = (work) => this.#read(call, work);
    return parts.run(
      () => batches.result,
      async () => {
        for await (const app of this.#apps(call, appName, 'sessions')) await deletion.walk({ appName: app, ...way });
        for await (const app of this.#apps(call, appName, 'changes'))
          await removeLeftovers(read, parts.write, this.#stores, { appName: app, userId }, batches);
      },
    );
  }

  /**
   * Drops the oldest events of sessions, and keeps their state (contract K2). The numbers of the others stay, and the next
   * event gets the next number: cursors of readers stay valid. `Session` objects that were read before keep what they have.
   *
   * @returns how many sessions were trimmed, and how many events that took.
   * @throws InvalidArgumentError also unless exactly one of `keepLast` and `olderThan` is given, and for a `sessionId`
   *   without `appName` and `userId`.
   */
  async trim(options: TrimOptions): Promise<MaintenanceResult> {
    checkTrim(options, 'The options of trim');
    const { appName, userId, sessionId, keepLast, olderThan } = options;
    if ((keepLast === undefined) === (olderThan === undefined))
      throw new InvalidArgumentError('trim needs either keepLast or olderThan.');
    checkOwner(options);
    let one: SessionKey | undefined;
    if (sessionId !== undefined) {
      if (appName === undefined || userId === undefined)
        throw new InvalidArgumentError('A sessionId needs appName and userId.');
      one = { appName, userId, sessionId };
    }
    const call: ErrorContext = { operation: 'trim', key: givenKey(options) };
    const now = await this.#read(call, (sql) => this.#stores.health.now(sql));

    const rule: Rule = {
      isWhole: false,
      firstKept: async (session, before, run) => {
        if (keepLast !== undefined) return Math.min(before, session.lastSeq - keepLast + 1);
        const time = now - (olderThan ?? 0);
        const later = await run((sql) => this.#stores.deletion.firstLater(sql, session, before, time));
        return later ?? before;
      },
    };
    const batches = this.#batches(options);
    const parts = this.#parts(call);
    const deletion = this.#deletion(call, parts, batches, rule);
    return parts.run(
      () => batches.result,
      async () => {
        if (one) {
          const key = one;
          const session = await this.#read(call, (sql) => this.#stores.walk.find(sql, key));
          if (session) await deletion.work([session]);
          return;
        }
        for await (const app of this.#apps(call, appName, 'sessions'))
          await deletion.walk({ appName: app, userId, by: 'key' });
      },
    );
  }

  /**
   * Removes a person: sessions with their events, soft-deleted ones included, and the `user:` state, in
   * every app or in one. The event log has nothing of them any more, and its readers see no gap. What the user
   * writes meanwhile stays: call it again until `sessions` and `stateKeys` are 0.
   *
   * @returns what was deleted.
   * @throws UserNotErasedError after everything else was deleted, when sessions had to be skipped; `done` of it is the result.
   *   Not with `dryRun`, and not when `maxBatches` or the signal has ended the work.
   */
  async eraseUser(options: EraseUserOptions): Promise<EraseUserResult> {
    checkErase(options, 'The options of eraseUser');
    const { userId, appName } = options;
    // Without a user everybody would be erased.
    checkKeys({ userId });
    checkOwner(options);
    const call: ErrorContext = { operation: 'eraseUser', key: givenKey(options) };
    const batches = this.#batches(options);
    let stateKeys = 0;
    const parts = this.#parts(call);
    const deletion = this.#deletion(call, parts, batches, EVERY_SESSION);
    const result = await parts.run(
      () => ({ ...batches.result, stateKeys }),
      async () => {
        for await (const app of this.#apps(call, appName, 'sessions'))
          await deletion.walk({ appName: app, userId, by: 'key' });
        for await (const app of this.#apps(call, appName, 'userStates')) {
          await this.#eraseUserState(call, parts, app, userId, batches, (count) => (stateKeys += count));
        }
        for await (const app of this.#apps(call, appName, 'changes')) {
          await this.#eraseChanges(parts, app, userId, batches);
        }
      },
    );
    // With more to do the next call reads them again.
    if (result.skipped > 0 && !result.more && !batches.isDryRun) throw new UserNotErasedError(result);
    return result;
  }

  /** @param onErased called with the number of keys of each transaction. */
  async #eraseUserState(
    call: ErrorContext,
    { write }: Parts,
    appName: string,
    userId: string,
    batches: Batches,
    onErased: (count: number) => void,
  ): Promise<void> {
    const store = this.#stores.deletion;
    if (batches.isDryRun) {
      onErased(await this.#read(call, (sql) => store.countUserState(sql, appName, userId)));
      return;
    }
    for (;;) {
      const keys = await this.#read(call, (sql) => store.userStateKeys(sql, appName, userId, batches.size));
      if (keys.length === 0 || !(await batches.mayBegin())) return;
      await write((sql) => store.deleteUserState(sql, appName, userId, keys));
      onErased(keys.length);
      batches.add({ sessions: 0, events: 0, skipped: 0 });
    }
  }

  /** Erases what the log has of the user. What the user wrote to the app's state is emitted as the app's from now on. */
  async #eraseChanges({ write }: Parts, appName: string, userId: string, batches: Batches): Promise<void> {
    const store = this.#stores.changes;
    for (let erased = 0; !batches.isDryRun && (await batches.mayBegin());) {
      const isFirst = erased === 0;
      const forgotten = await write(async (sql) => {
        const count = await store.forgetUser(sql, appName, userId, batches.size);
        if (count > 0 && isFirst)
          await store.recordState(sql, { session: { appName, userId: '', sessionId: '' }, seq: 0 });
        return count;
      });
      if (forgotten === 0) return;
      erased += forgotten;
      batches.add({ sessions: 0, events: 0, skipped: 0 });
    }
  }

  /**
   * Mends a damaged session (contract I5), so that `getSession` reads it: what cannot be read is taken out and returned, byte
   * for byte. An empty event replaces it, and one that is missing, so that the others keep their numbers;
   * what is damaged before the first event that can be read is as if it were trimmed. A state value that cannot be read is
   * removed, also one of the user or the app. Store what `dryRun` returns before you call it without.
   *
   * A gap of more than 10,000 numbers is not filled: at the end the session ends before it, elsewhere the session begins
   * behind it, and the events before it are taken out, too.
   *
   * @returns what was damaged, and what was taken out; on a session that is not damaged, nothing.
   * @throws SessionNotFoundError when there is no such session.
   * @throws LeaseHeldError while somebody holds its lease, unless `includeLeased` is true.
   */
  async repair(session: SessionKey, options: RepairOptions = {}): Promise<RepairedSession> {
    const key = checkedSessionKey(session);
    checkRepair(options, 'The options of repair');
    const call: ErrorContext = { operation: 'repair', key };
    const found = await this.#read(call, (sql) => scanForDamage(sql, this.#stores, key));
    const mend = (sql: Sql) => new Repair(sql, this.#stores, key, options).mend(found);
    if (options.dryRun) return this.#database.call(call, () => this.#database.transaction(mend));
    return this.#write(call, mend);
  }

  /**
   * Reads what is stored as records that `importSessions` writes elsewhere (contract L1): state of apps and users, sessions
   * with their state, titles and labels, and their events. Each as a line of JSON makes a file that is the same from every
   * database. Leases, positions and contents that were rewritten are not part of it. Beside writers, each session is whole and
   * as of one moment; one that is deleted before it is read is left out.
   *
   * @throws DamagedSessionError from the loop, at a session that cannot be read whole; `repair` mends it.
   */
  exportSessions(filter: ExportFilter = {}): AsyncIterable<TransferRecord> {
    checkExport(filter, 'The filter');
    checkOwner(filter);
    const call: ErrorContext = { operation: 'exportSessions', key: givenKey(filter) };
    const run = <T>(work: (sql: Sql) => Promise<T>) => this.#read(call, work);
    const snapshot = <T>(work: (sql: Sql) => Promise<T>) =>
      this.#database.call(call, () => this.#database.snapshot(work));
    return exportRecords({ run, snapshot }, this.#stores, filter);
  }

  /**
   * Writes records of an export (contract L1), in transactions of `batchSize` events. A session that is there already gets what
   * is new, so an import that was interrupted is made whole by the same import again; nobody sees a session before all of
   * its events are there. State of apps, users and sessions is overwritten, except of sessions that have more events here. A
   * session that is soft-deleted here, and not in the records, is brought back.
   *
   * @param records what `exportSessions` gives, or its lines, each parsed.
   * @param options.onProgress called after each record with what has been written in all.
   * @returns what was written; what was there already does not count.
   * @throws InvalidArgumentError with the number of the record, for what is no record, has values or names that cannot be
   *   stored, or comes in another order. What came before it is written.
   * @throws SessionExistsError when another session has the id of one of the records.
   */
  async importSessions(
    records: AsyncIterable<unknown> | Iterable<unknown>,
    options: ImportOptions = {},
  ): Promise<ImportProgress> {
    checkImport(options, 'The options of importSessions');
    const { batchSize = DEFAULT_IMPORT_BATCH, signal, onProgress } = options;
    const call: ErrorContext = { operation: 'importSessions', key: {} };
    const parts = this.#parts(call);
    const target = new Import(parts.write, this.#stores, { batchSize: Math.min(batchSize, MAX_BATCH_SIZE) });
    return parts.run(
      () => target.progress,
      async () => {
        for await (const record of records) {
          if (signal?.aborted) return;
          await target.add(record);
          onProgress?.(target.progress);
        }
        await target.end();
      },
    );
  }

  /**
   * Counts what is stored, in a few statements that the server answers with sums: no event's content is read into the
   * process. On the server it reads all rows that are meant.
   *
   * @param options.groupBy `'app'` for a list of all apps, by name.
   */
  stats(options: StatsOptions & { groupBy: 'app' }): Promise<AppStats[]>;
  stats(options?: StatsOptions): Promise<SessionStats>;
  async stats(options: StatsOptions & { groupBy?: 'app' } = {}): Promise<SessionStats | AppStats[]> {
    checkStats(options, 'The options of stats');
    checkOwner(options);
    const owner = givenKey(options);
    const call: ErrorContext = { operation: 'stats', key: owner };
    const counts = await this.#read(call, (sql) => this.#stores.stats.count(sql, owner));
    return options.groupBy === 'app' ? statsByApp(counts) : statsOf(counts);
  }

  /**
   * Records that the database went back: after a restore, or a failover to a server that was behind. Readers of the log that
   * keep the `cursor` of entries find out by themselves. Those that keep a position and an epoch, without a history, get
   * `LogWentBackError` by this alone, also after the log has passed their position again; call it before the first append.
   *
   * @returns the position at which the new epoch begins, and its number; readers go on from there at most.
   */
  beginLogEpoch(): Promise<Pick<LogPosition, 'position' | 'epoch'>> {
    return this.#write({ operation: 'beginLogEpoch', key: {} }, (sql) => this.#stores.log.beginEpoch(sql));
  }

  #batches(options: BatchOptions): Batches {
    return new Batches(options, this.#database.dialect.sql.turnMs);
  }

  #parts(call: ErrorContext): Parts {
    return new Parts(this.#database, call);
  }

  #deletion(call: ErrorContext, { write }: Parts, batches: Batches, rule: Rule): Deletion {
    return new Deletion((work) => this.#read(call, work), write, this.#stores, batches, rule);
  }

  /** The app that was asked for, or all that there are. */
  async *#apps(
    call: ErrorContext,
    appName: string | undefined,
    table: 'sessions' | 'userStates' | 'changes',
  ): AsyncGenerator<string> {
    if (appName !== undefined) {
      yield appName;
      return;
    }
    const next = (after: string) => this.#read(call, (sql) => this.#stores.walk.nextApp(sql, after, table));
    for (let app = await next(''); app !== undefined; app = await next(app)) yield app;
  }

  #read<T>(call: ErrorContext, work: (sql: Sql) => Promise<T>): Promise<T> {
    return this.#database.call(call, () => this.#database.run(work));
  }

  /** Runs one transaction, once (contract O1). */
  #write<T>(call: ErrorContext, work: (sql: Sql) => Promise<T>): Promise<T> {
    const options = { locksRowsOnly: true };
    return this.#database.call(call, () => once(this.#database, call, work, options));
  }
}

type Owner = Partial<SessionKey>;

function checkOwner(owner: Owner): void {
  checkKeys(givenKey(owner));
}
