import type { EntityManager } from '@mikro-orm/core';
import { Database } from '../database/calls/database.js';
import { once } from '../database/calls/once.js';
import type { Run, Sql } from '../database/dialects/dialect.js';
import type { Stores } from '../database/stores/stores.js';
import { beginEpoch } from '../log/log-head.js';
import { checkedSessionKey, givenKey, type SessionKey } from '../model/keys.js';
import { EventLog } from '../log/event-log.js';
import type { LogCursor } from '../model/log-history.js';
import type { CommonOptions, ErrorContext } from '../model/options.js';
import type { ImportResult, MaintenanceResult } from '../model/results.js';
import { exportRecords, type ExportOptions } from '../transfer/export.js';
import { Import } from '../transfer/import.js';
import type { TransferRecord } from '../transfer/records.js';
import { CallInParts } from './call-in-parts.js';
import { countAll } from './counts.js';
import { DeletionRun } from './deletion-run.js';
import { eraseUser } from './erase-user.js';
import {
  checkErase,
  checkExport,
  checkImport,
  checkOptions,
  checkPrune,
  checkReencode,
  checkRepair,
  checkStats,
  checkTrim,
  checkUsage,
  importBatchSize,
  type EraseUserOptions,
  type ImportOptions,
  type PruneOptions,
  type ReencodeOptions,
  type StatsOptions,
  type TrimOptions,
  type UsageOptions,
} from './options.js';
import { prune } from './prune.js';
import { reencode } from './reencode.js';
import { Repair, scanForDamage, type RepairOptions, type RepairedSession } from './repair.js';
import { statsByApp, statsOf, type AppStats, type SessionStats } from './stats.js';
import { trim } from './trim.js';
import { usageIn, type Usage } from './usage.js';

/**
 * Deletes and trims sessions, counts what is stored and repairs what is damaged, on tables that are in use.
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
 * interrupted, the same call continues. `dryRun` counts and writes nothing.
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
  readonly #log: () => EventLog;

  /**
   * @param em the host's `EntityManager`, as for `MikroOrmSessionService`.
   * @throws InvalidArgumentError when an option is not known, or has a value that it cannot have.
   * @throws SchemaError when the ORM has no supported driver, or does not list `adkEntities()`.
   */
  constructor(em: EntityManager, options: CommonOptions = {}) {
    this.#database = new Database(em, checkOptions(options, 'The options of SessionMaintenance'));
    this.#stores = this.#database.stores;
    this.#log = () => new EventLog(em, options);
  }

  /**
   * Deletes whole sessions: rows, events, session state and leases. `app:` and `user:` state stays. A session of more
   * events than `batchSize` goes in several transactions; with the first one it is gone for everybody, and cannot be restored.
   * Whatever the conditions, what an interrupted deletion has left is deleted as well. Idle sessions are found by an index;
   * without `idleFor` every session of the app, or of `userId`, is read. What the event log still has of sessions whose rows
   * somebody has deleted without this package is removed, whatever their age; it counts as no session. Memories that have expired are deleted, too,
   * and so is what is left of saves from streams that got nothing for a day.
   *
   * @returns what was deleted.
   * @throws InvalidArgumentError also when neither `idleFor` nor `olderThan` nor `deletedFor` is given: that would delete
   *   every session.
   */
  async prune(options: PruneOptions): Promise<MaintenanceResult> {
    const checked = checkPrune(options);
    return prune(new DeletionRun(this.#database, 'prune', checked), checked);
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
    const checked = checkTrim(options);
    return trim(new DeletionRun(this.#database, 'trim', checked), checked);
  }

  /**
   * Removes a person: sessions with their events, soft-deleted ones included, artifacts, memories, and the
   * `user:` state, in every app or in one. The event log has nothing of them any more, and its readers see no gap. What the user
   * writes meanwhile stays: call it again until `sessions`, `stateKeys`, `artifacts` and `memories` are 0.
   *
   * @returns what was deleted.
   * @throws UserNotErasedError after everything else was deleted, when sessions had to be skipped; `done` of it is the result.
   *   Not with `dryRun`, and not when `maxBatches` or the signal has ended the work.
   */
  async eraseUser(options: EraseUserOptions): Promise<MaintenanceResult> {
    const checked = checkErase(options);
    return eraseUser(new DeletionRun(this.#database, 'eraseUser', checked), checked);
  }

  /**
   * Repairs a damaged session (contract I5), so that `getSession` reads it: what cannot be read is taken out and returned, byte
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
    const checked = checkRepair(options, 'The options of repair');
    const call: ErrorContext = { operation: 'repair', key };
    return this.#database.observe(call, async () => {
      const found = await this.#database.call(call, () => scanForDamage(this.#database, key));
      const repair = (sql: Sql) => new Repair(sql, this.#stores, key, checked).apply(found);
      if (checked.dryRun) return this.#database.call(call, () => this.#database.transaction(repair));
      return this.#write(call, repair);
    });
  }

  /**
   * Reads what is stored as records that `importSessions` writes elsewhere (contract L1): state of apps and users, sessions
   * with their state, titles and labels, their events, and artifacts. Each as a line of JSON makes a file that is the same from every
   * database. Leases, positions and contents that were rewritten are not part of it. While others write, each session is whole and
   * as of one moment; one that is deleted before it is read is left out.
   *
   * With `texts: 'asStored'` what a codec has encoded stays encoded (contract M4): no key is needed, and a lost key is not damage.
   *
   * @throws DamagedSessionError from the loop, at a session that cannot be read whole; `repair` makes it readable.
   * @throws DamagedArtifactError at a version of an artifact that cannot be read.
   */
  exportSessions(options: ExportOptions = {}): AsyncIterable<TransferRecord> {
    const checked = checkExport(options);
    const call: ErrorContext = { operation: 'exportSessions', key: givenKey(checked) };
    const run: Run = (work) => this.#read(call, work);
    const snapshot: Run = (work) => this.#database.call(call, () => this.#database.snapshot(work));
    return exportRecords({ run, snapshot }, this.#stores, checked);
  }

  /**
   * Writes records of an export (contract L1), in transactions of `batchSize` events. A session that is there already gets what
   * is new, so an import that was interrupted is made whole by the same import again; nobody sees a session before all of
   * its events are there. State of a session is overwritten unless it has more events here, and that of apps and users unless
   * `sharedState` is `keep`. A session that is soft-deleted here, and not in the records, is brought back.
   *
   * @param records what `exportSessions` gives, or its lines, each parsed.
   * @param options.onProgress called after each record with what has been written in all.
   * @param options.texts `'asStored'` to take records of an export of texts as they are stored, too.
   * @returns what was written; what was there already does not count.
   * @throws InvalidArgumentError with the number of the record, for what is no record, has values or names that cannot be
   *   stored, or comes in another order; also for texts as they are stored without `texts: 'asStored'`, or under other names than
   *   they were stored under. What came before it is written.
   * @throws SessionExistsError when another session has the id of one of the records.
   */
  async importSessions(
    records: AsyncIterable<unknown> | Iterable<unknown>,
    options: ImportOptions = {},
  ): Promise<ImportResult> {
    const checked = checkImport(options, 'The options of importSessions');
    const call = new CallInParts(this.#database, { operation: 'importSessions', key: {} });
    const { required } = this.#database.codec;
    const { texts, sharedState } = checked;
    const mode = { batchSize: importBatchSize(checked), texts, sharedState, required };
    const target = new Import(call.write, this.#stores, mode);
    return call.run(
      () => target.result,
      () => target.addAll(records, checked),
    );
  }

  /**
   * Rewrites what is not stored as the `codec` stores it now (contract M3), artifacts included: after a codec was added, or its current key has changed.
   * The old codecs and keys must still be there to read. Without a codec nothing is done. Contents, numbers and times stay, and
   * `Session` objects and cursors stay valid. What cannot be read is counted and left, and so is a text that lacks a required
   * codec, unless `adoptPlain` is true. If it was interrupted, the same call continues: what is
   * rewritten already is read, and not written again. Leases don't matter to it.
   *
   * @returns what was done. An old key is needed no more when a call has found `rewritten`, `skipped` and `unreadable` to be 0.
   * @throws CodecError when the codec fails.
   */
  async reencode(options: ReencodeOptions = {}): Promise<MaintenanceResult> {
    return reencode(this.#database, checkReencode(options));
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
    const { groupBy, ...owner } = checkStats(options);
    const counts = await this.#read({ operation: 'stats', key: owner }, (sql) => countAll(sql, owner));
    return groupBy === 'app' ? statsByApp(counts) : statsOf(counts);
  }

  /**
   * Sums up what models have used: tokens, by the `usageMetadata` of the events, and calls of functions. It reads the event log in
   * pages, which is the same on every database and with every codec: the contents of all events of these days pass through the
   * process, a page at a time. What was deleted, trimmed or soft-deleted is not counted. An event is of the day of its `timestamp`.
   *
   * ```ts
   * const { rows } = await maintenance.usage({ appName: 'support', from: '2026-11-01', to: '2026-11-30', by: 'model' });
   * ```
   *
   * @returns a row for each app and day, user, model (`modelVersion`) or agent (`author`) that has events.
   * @throws InvalidArgumentError also if a day is none, or the last one is before the first.
   */
  async usage(options: UsageOptions): Promise<Usage> {
    const { from, to, by, ...owner } = checkUsage(options);
    const filter = { ...owner, afterTimestamp: Date.parse(from) - 1 };
    return usageIn(this.#log().since(0, filter), { from, to, by });
  }

  /**
   * Records that the database went back: after a restore, or a failover to a server that was behind. Readers of the log that
   * keep the `cursor` of entries find out by themselves. Those that keep a position and an epoch, without a history, get
   * `LogWentBackError` by this alone, also after the log has passed their position again; call it before the first append.
   *
   * @returns the position at which the new epoch begins, and its number; readers go on from there at most.
   */
  beginLogEpoch(): Promise<Pick<LogCursor, 'position' | 'epoch'>> {
    return this.#write({ operation: 'beginLogEpoch', key: {} }, beginEpoch);
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
