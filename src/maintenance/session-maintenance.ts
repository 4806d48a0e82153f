import type { EntityManager } from '@mikro-orm/core';
import { CallInParts } from '../database/calls/call-in-parts.js';
import { Database } from '../database/calls/database.js';
import { onceOnRows } from '../database/calls/once.js';
import type { SqlRunner } from '../database/dialects/dialect.js';
import type { OwnedRows } from '../owned/owned-rows.js';
import { beginEpoch } from '../log/log-head.js';
import type { ImportOptions } from '../model/import-options.js';
import { checkedSessionKey, partialKey, type SessionKey } from '../model/keys.js';
import type { LogCursor } from '../model/log-history.js';
import type { ErrorContext } from '../model/options.js';
import type { MaintenanceResult } from '../model/results.js';
import { exportRecords } from '../transfer/export.js';
import { hostRows } from './host-rows.js';
import { OWNED_ROWS } from '../transfer/owned-kinds.js';
import { Import } from '../transfer/import.js';
import type { TransferRecord } from '../model/records.js';
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
  checkStateOwner,
  checkStats,
  checkTrim,
  type EraseUserOptions,
  type MaintenanceOptions,
  type PruneOptions,
  type ReencodeOptions,
  type BatchOptions,
  type OwnerOptions,
  type TrimOptions,
} from './options.js';
import { prune } from './prune.js';
import { reencode } from './reencode.js';
import { repair, repairState, type RepairedSession } from './repair.js';
import { countAll, statsByApp, statsOf, type SessionStats } from './stats.js';
import { trim } from './trim.js';

/**
 * Deletes and trims sessions, counts what is stored and repairs what is damaged, on tables that are in use.
 *
 * ```ts
 * const maintenance = new SessionMaintenance(orm.em);
 * const { done, more } = await maintenance.prune({ idleFor: 90 * 24 * 3_600_000, maxBatches: 1_000 });
 * ```
 *
 * Deletions work in short transactions of `batchSize` rows (contract K1). They never wait for the lock of a session, and do not
 * block writers of other sessions. A session that somebody else has locked is left for the next call, and so is one that was created
 * again, rewound or used since it was read. What belongs to a user, such as `user:` state, credentials and artifacts, is deleted by
 * plain statements, which do wait. A session whose lease somebody holds, by the database's clock, is skipped unless
 * `includeLeased` is true. After an interruption, call again to continue. `dryRun` only counts.
 *
 * Every method may throw `InvalidArgumentError` if an option is unknown or its value is invalid, `InvalidKeyError` for a name that
 * cannot be a key, `SchemaError` if the tables are missing or outdated, `DatabaseError` if the database fails and retries do not
 * help (if earlier transactions of the call were committed, its `outcome` is `partial` and its `result` says what they did),
 * `CodecError` if contents are read or written and the codec fails, and `InsideTransactionError` inside a transaction of the same ORM.
 */
export class SessionMaintenance {
  readonly #database: Database;
  readonly #toolApps: MaintenanceOptions['toolApps'];
  readonly #kinds: readonly OwnedRows[];

  /**
   * @param em the host's `EntityManager`, as for `MikroOrmSessionService`.
   * @throws InvalidArgumentError if an option is unknown or its value is invalid.
   * @throws SchemaError if the ORM has no supported driver, or does not list `adkEntities()` and the entities in `owned`.
   */
  constructor(em: EntityManager, options: MaintenanceOptions = {}) {
    const { toolApps, owned, ...common } = checkOptions(options, 'The options of SessionMaintenance');
    this.#database = new Database(em, common);
    this.#toolApps = toolApps;
    this.#kinds = [...hostRows(em, owned), ...OWNED_ROWS];
  }

  /**
   * Deletes whole sessions: rows, events, session state and leases. `app:` and `user:` state stays. A session with more
   * events than `batchSize` takes several transactions; after the first one nobody sees it, and it cannot be restored. Idle
   * sessions are found by an index; without `idleFor` every session of the app, or of `userId`, is read.
   *
   * It always deletes the rest of interrupted deletions and imports, too, and expired memories.
   *
   * @returns what was deleted.
   * @throws InvalidArgumentError also without any of `idleFor`, `sessionsOlderThan` and `deletedFor`: that would delete every session.
   */
  async prune(options: PruneOptions): Promise<MaintenanceResult<'sessions' | 'events' | 'memories'>> {
    const checked = checkPrune(options);
    return prune(new DeletionRun(this.#database, 'prune', checked, ['memories'], this.#toolApps), checked, this.#kinds);
  }

  /**
   * Deletes the oldest events of sessions, and keeps their state (contract K2). The other events keep their numbers, so cursors of
   * readers stay valid. `Session` objects that were read before lose theirs with their next append.
   *
   * @returns how many sessions were trimmed, and how many events they lost.
   * @throws InvalidArgumentError also unless exactly one of `keepLast` and `eventsOlderThan` is given, and for a `sessionId`
   *   without `appName` and `userId`.
   */
  async trim(options: TrimOptions): Promise<MaintenanceResult<'sessions' | 'events'>> {
    const checked = checkTrim(options);
    return trim(new DeletionRun(this.#database, 'trim', checked, []), checked);
  }

  /**
   * Removes a person, in every app or in one: sessions with their events, including soft-deleted ones, artifacts, memories,
   * credentials, `user:` state, all their entries in the event log, whose readers see no gap, and their rows in the tables of
   * `owned`. What the user writes meanwhile stays: call it again until all numbers in `done` are 0.
   *
   * @returns what was deleted.
   * @throws UserNotErasedError after everything else was deleted, if sessions had to be skipped; its `result` is this one. Not
   *   with `dryRun`, and not if `maxBatches` or the signal has ended the work.
   */
  async eraseUser(
    options: EraseUserOptions,
  ): Promise<MaintenanceResult<'sessions' | 'events' | 'stateKeys' | 'artifacts' | 'memories' | 'credentials'>> {
    const checked = checkErase(options);
    const names: string[] = this.#kinds.flatMap(({ name, isCounted }) => (isCounted ? [name] : []));
    const run = new DeletionRun(this.#database, 'eraseUser', checked, names, this.#toolApps);
    return eraseUser(run, checked, this.#kinds);
  }

  /**
   * Repairs a damaged session, so that `getSession` can read it (contract I5). What cannot be read is removed and returned, byte
   * for byte. An empty event replaces each such event, and each missing one, so that the others keep their numbers; damage before
   * the first readable event is trimmed. A state value that cannot be read is removed, even if it is the user's or the app's.
   * Call it with `dryRun` first, and keep the result. Without a `sessionId` it removes such values of the user alone, and without a
   * `userId` those of the app: no session need be left.
   *
   * A gap of more than 10,000 numbers is not filled. If it is at the end, the session ends before it; otherwise the session begins
   * after it, and the events before it are removed, too.
   *
   * @returns what was damaged and what was removed; both are empty for a session that is not damaged.
   * @throws SessionNotFoundError if there is no such session.
   * @throws LeaseHeldError while somebody holds its lease, unless `includeLeased` is true.
   */
  async repair(
    session: SessionKey | { appName: string; userId?: string },
    options: Pick<BatchOptions, 'dryRun' | 'includeLeased'> = {},
  ): Promise<RepairedSession> {
    const key = isSession(session) ? checkedSessionKey(session) : checkStateOwner(session);
    const checked = checkRepair(options, 'The options of repair');
    const call: ErrorContext = { operation: 'repair', key };
    const database = this.#database;
    const write: SqlRunner = (work) => (checked.dryRun ? database.transaction(work) : onceOnRows(this.#database, work));
    return database.call(call, () => (isSession(key) ? repair(key, checked, write) : repairState(key, checked, write)));
  }

  /**
   * Reads what is stored as records, which `importSessions` writes elsewhere (contract L1): state of apps and users, sessions
   * with their state, titles, labels and events, artifacts and memories; with `userId` also the person's rows in the tables of
   * `owned`, as MikroORM serializes them. As lines of JSON, they are the same file from every database. Leases,
   * positions and earlier contents of rewritten events are left out. While others write, each session is consistent; a session that
   * is deleted before it is read is left out.
   *
   * @throws DamagedSessionError from the loop, if a part of a session cannot be read; `repair` makes it readable.
   * @throws DamagedArtifactError, DamagedMemoryError from the loop, if a version of an artifact or a memory cannot be read.
   */
  exportSessions(options: OwnerOptions = {}): AsyncIterable<TransferRecord> {
    const checked = checkExport(options);
    const call: ErrorContext = { operation: 'exportSessions', key: partialKey(checked) };
    return exportRecords(this.#database, call, checked, this.#kinds);
  }

  /**
   * Writes records of an export (contract L1), in transactions of `batchSize` events. A session comes in whole or not at all:
   * nobody sees it before its last event is there, and if the import is interrupted, the same import begins it again. `onExisting`
   * says what happens to a session that is here, even if it is soft-deleted. One of more than `batchSize` events that is replaced
   * is hidden until its last batch. State of apps and users is overwritten unless `sharedState` is `keep`.
   *
   * @param records from `exportSessions`, or parsed from its lines.
   * @returns what was written, and how many sessions were left as they are.
   * @throws InvalidArgumentError with the number of a record that is not one, has values or names that cannot be stored, or comes
   *   in the wrong order. The sessions before it are written.
   * @throws AlreadyExistsError with `onExisting: 'error'` if a session is here; also if others delete or import a session while it
   *   is imported in several batches. The sessions before it are written.
   */
  async importSessions(
    records: AsyncIterable<unknown> | Iterable<unknown>,
    options: ImportOptions = {},
  ): Promise<
    MaintenanceResult<'sessions' | 'events' | 'artifactVersions' | 'memories' | 'records' | 'refused' | 'annulled'>
  > {
    const checked = checkImport(options, 'The options of importSessions');
    const call = new CallInParts(this.#database, { operation: 'importSessions', key: {} });
    const target = new Import(call, { ...checked, isOfOtherStore: false });
    return call.run(
      () => target.result,
      () => target.addAll(records, checked),
    );
  }

  /**
   * Encodes everything again that the `codec` would now store differently (contract M3), for example after a codec was added or its
   * current key has changed. It needs the old codecs and keys, too. Without a codec it does nothing. Contents, numbers and times do
   * not change; `Session` objects and cursors stay valid. Texts that cannot be read are counted and left as they are, and so are
   * texts that lack a required codec. After an interruption, call again to continue. Leases do not matter.
   *
   * @returns what was done. Once a call returns 0 for `done.texts`, `done.unreadable` and `skipped`, an old key is no longer needed.
   */
  async reencode(options: ReencodeOptions = {}): Promise<MaintenanceResult<'texts' | 'unreadable'>> {
    return reencode(this.#database, checkReencode(options), this.#kinds);
  }

  /**
   * Counts what is stored, in a few statements that return sums. The server reads all rows of the app and the user; no content
   * reaches the process.
   *
   * @param options.groupBy `'app'` for a list of all apps, by name.
   */
  stats(options: OwnerOptions & { groupBy: 'app' }): Promise<(SessionStats & { appName: string })[]>;
  stats(options?: OwnerOptions): Promise<SessionStats>;
  async stats(
    options: OwnerOptions & { groupBy?: 'app' } = {},
  ): Promise<SessionStats | (SessionStats & { appName: string })[]> {
    const { groupBy, ...owner } = checkStats(options);
    const call = { operation: 'stats', key: owner };
    const counts = await this.#database.call(call, () =>
      this.#database.run((sql) => countAll(sql, owner, this.#kinds)),
    );
    return groupBy === 'app' ? statsByApp(counts) : statsOf(counts);
  }

  /**
   * Records that the database went back, after a restore or a failover to a server that was behind. Call it before the first
   * append. Readers of the log that keep the whole `cursor` notice without it. Readers that keep only a position and an epoch get
   * `LogWentBackError` because of this call, even if the log has passed their position again.
   *
   * @returns the position after which the new epoch begins, and its number.
   */
  beginLogEpoch(): Promise<Pick<LogCursor, 'position' | 'epoch'>> {
    const call = { operation: 'beginLogEpoch', key: {} };
    return this.#database.call(call, () => onceOnRows(this.#database, beginEpoch));
  }
}

/** An id that is undefined was forgotten: it does not mean the state of the user. */
const isSession = (of: SessionKey | { appName: string }): of is SessionKey => 'sessionId' in of;
