import { ForeignKeyConstraintViolationException } from '@mikro-orm/core';
import { CallInParts } from '../database/calls/call-in-parts.js';
import type { Database } from '../database/calls/database.js';
import type { Sql } from '../database/dialects/dialect.js';
import { hostKeys, referringTo, type DeletedPart, type HostKey } from '../database/statements/host-keys.js';
import type { RowSelection, OwnedRows } from '../owned/owned-rows.js';
import { lockStoredSession, storedSession, type StoredSession } from '../database/statements/stored-session.js';
import { nextApp, walkedSessions, type Walk } from '../database/statements/walk.js';
import { DatabaseError } from '../model/errors.js';
import { FAILURES } from '../model/failures.js';
import { partialKey, sessionIdentity, type PartialKey } from '../model/keys.js';
import { batchSizeOf, eachName, pagesOf } from '../model/pages.js';
import type { Counts, DeleteRule } from '../model/results.js';
import { Batches } from './batches.js';
import type { BatchOptions } from './options.js';

export interface Task {
  session: StoredSession;
  /** How many events to delete, by the numbers in the session's row. */
  events: number;
  /** How many rows to delete. */
  rows: number;
  /** What is deleted: this session and those of its tools, or its first events. */
  parts: readonly DeletedPart[];
}

/** A task, and the rows of the host that refer to what it deletes. */
interface ReferredTask extends Task {
  referring: readonly { key: HostKey; rows: number; isDirect: boolean }[];
}

export interface BatchCounts {
  done: { sessions: number; events: number };
  skipped: number;
}

/** A batch that has deleted nothing. */
export const onlySkipped = (skipped: number): BatchCounts => ({ done: { sessions: 0, events: 0 }, skipped });

/**
 * What a call deletes. Others may do anything to a session between two transactions, so each transaction locks the session and
 * checks it again. It leaves a session that was created again under the id, and one that no longer meets the conditions.
 */
export interface Deletion {
  /** @returns undefined if there is nothing to do to the session. */
  plan(session: StoredSession): Promise<Task | undefined> | Task | undefined;
  /** Does a task that fits into one transaction. */
  delete(sql: Sql, task: Task): Promise<BatchCounts>;
  /** Does a task that does not fit in transactions of its own. */
  deleteLarge(task: Task): Promise<void>;
}

/** The rules with which a row that refers to another one keeps it. */
const KEEPING = new Set<DeleteRule>(['restrict', 'no action']);

const isKeeping = ({ key }: { key: HostKey }): boolean => KEEPING.has(key.rule);

/** How many sessions one query reads. */
const PAGE = 500;

/** A call that deletes from app to app and from session to session, in transactions of limited size. */
export class DeletionRun<Kind extends string = never> extends CallInParts {
  /** The foreign keys of the host that refer to sessions, once they are needed. */
  #keys: readonly HostKey[] | undefined;
  /** Those of tables that the account may not read. */
  readonly #unreadable = new Set<HostKey>();
  readonly batches: Batches<'sessions' | 'events' | Kind>;
  readonly isOfAllApps: boolean;

  /**
   * @param kinds what else its result always counts.
   * @param toolApps the apps of tools, whose sessions are deleted together with those of their callers.
   */
  constructor(
    database: Database,
    operation: string,
    options: BatchOptions & PartialKey,
    kinds: readonly Kind[],
    readonly toolApps?: readonly string[],
  ) {
    super(database, { operation, key: partialKey(options) });
    this.isOfAllApps = options.appName === undefined;
    this.batches = new Batches(
      options,
      ['sessions', 'events', ...kinds],
      batchSizeOf(options, 1_000),
      database.dialect.sql.turnMs,
    );
  }

  /** The requested app, or all apps, until the call must end. */
  #apps(
    { appName, userId }: Pick<PartialKey, 'appName' | 'userId'>,
    next: OwnedRows['nextApp'],
  ): AsyncGenerator<string> {
    return eachName(appName, async (after) =>
      this.batches.isOver() ? undefined : this.read((sql) => next(sql, after, userId)),
    );
  }

  /**
   * Deletes rows page by page, each page in its own transaction, until no row is left or the limits of the call are reached.
   *
   * @param page returns what to delete next.
   * @param remove returns what it has done.
   */
  async drain<Row>(
    page: () => readonly Row[] | Promise<readonly Row[]>,
    remove: (sql: Sql, rows: readonly Row[]) => Promise<Counts>,
  ): Promise<void> {
    for (;;) {
      const rows = await page();
      if (rows.length === 0 || !(await this.batches.mayBegin())) return;
      this.batches.add(await this.write((sql) => remove(sql, rows)));
    }
  }

  /** Deletes the rows of one kind that an owner has, or counts them. */
  async deleteRows(
    { name, rows, isCounted = false, nextApp }: OwnedRows,
    { appName, ...owner }: Omit<RowSelection, 'appName'> & Pick<PartialKey, 'appName'>,
  ): Promise<void> {
    const { batches } = this;
    if (!rows || (batches.isDryRun && !isCounted)) return;
    const count = (deleted: number): Counts => (isCounted ? { done: { [name]: deleted } } : {});
    for await (const app of this.#apps({ appName, userId: owner.userId }, nextApp)) {
      const selection = { ...owner, appName: app, includesLeased: batches.includesLeased };
      if (batches.isDryRun) batches.count(count(await this.read((sql) => rows.count(sql, selection))));
      else
        await this.drain(
          () => this.read((sql) => rows.page(sql, selection, batches.size)),
          async (sql, keys) => count(await rows.erase(sql, selection, keys)),
        );
    }
  }

  /** Applies a deletion to the sessions of a walk, in one app or in all. */
  async walk(
    deletion: Deletion,
    { appName, ...way }: Omit<Walk, 'appName'> & Pick<PartialKey, 'appName'>,
  ): Promise<void> {
    for await (const app of this.#apps({ appName }, (sql, after) => nextApp(sql, after, 'sessions'))) {
      const walk = { appName: app, ...way };
      const read = (after?: StoredSession) => this.read((sql) => walkedSessions(sql, walk, after, PAGE));
      for await (const page of pagesOf(PAGE, read)) {
        if (!(await this.batches.mayBegin())) return;
        await this.deleteOf(deletion, page);
      }
    }
  }

  /** Applies a deletion to sessions, as many in one transaction as fit. */
  async deleteOf(deletion: Deletion, sessions: readonly StoredSession[]): Promise<void> {
    const { batches } = this;
    let batch: Task[] = [];
    let rows = 0;
    const end = async () => {
      await this.#unlessKept(batch, (tasks) => this.#deleteBatch(deletion, tasks));
      batch = [];
      rows = 0;
    };
    for (const session of sessions) {
      const task = await deletion.plan(session);
      if (!task) continue;
      if (session.isLeased && !batches.includesLeased) {
        batches.count({ skipped: 1 });
        continue;
      }
      if (rows + task.rows > batches.size) await end();
      if (!(await batches.mayBegin())) return;
      if (task.rows > batches.size && !batches.isDryRun) {
        await this.#unlessKept([task], (tasks) => this.#deleteLarge(deletion, tasks), true);
        continue;
      }
      batch.push(task);
      rows += task.rows;
    }
    if (batch.length > 0 && (await batches.mayBegin())) await end();
  }

  /**
   * Does tasks, except for those that a foreign key of the host refuses, of which nothing is done. If rows refer to a session itself,
   * it is not tried. Rows that refer to other rows of the host may go along in another way, so the database decides.
   *
   * @param remove does all of the tasks, or none.
   * @param isLarge whether it takes several transactions, of which a key may refuse only the last.
   */
  async #unlessKept(
    tasks: readonly Task[],
    remove: (tasks: readonly ReferredTask[]) => Promise<void>,
    isLarge = false,
  ): Promise<void> {
    const isUntried = isLarge || this.batches.isDryRun;
    const free: ReferredTask[] = [];
    const tried: ReferredTask[] = [];
    for (const task of await this.#withReferring(tasks)) {
      const keeping = task.referring.filter(isKeeping);
      if (keeping.some(({ isDirect }) => isDirect || isUntried) || (isLarge && this.#unreadKeeping.length > 0))
        this.#keep(task);
      else (keeping.length === 0 ? free : tried).push(task);
    }
    for (const each of [free, ...tried.map((task) => [task])])
      if (each.length > 0 && (await this.batches.mayBegin())) await this.#try(each, remove);
  }

  /** If a key refuses one of several, their transaction was rolled back, and they are done one by one. */
  async #try(tasks: readonly ReferredTask[], remove: (tasks: readonly ReferredTask[]) => Promise<void>): Promise<void> {
    try {
      await remove(tasks);
    } catch (error) {
      if (!(error instanceof DatabaseError) || error.reason !== ForeignKeyConstraintViolationException.name)
        throw error;
      // A row may have come since it was counted.
      if (tasks.length === 1) (await this.#withReferring(tasks)).forEach((task) => this.#keep(task));
      else for (const task of tasks) if (await this.batches.mayBegin()) await this.#try([task], remove);
    }
  }

  /** Skips what a key keeps; without a name if it is not known which key. */
  #keep({ session, referring }: ReferredTask): void {
    const keeping = referring.filter(isKeeping);
    for (const { key, rows } of keeping) this.batches.refer(key, rows);
    const [unread, another] = this.#unreadKeeping;
    this.batches.keep(session.key, keeping[0]?.key ?? (another ? undefined : unread));
  }

  /** The keys that may keep sessions, of tables that the account may not read. */
  get #unreadKeeping(): HostKey[] {
    return [...this.#unreadable].filter((key) => isKeeping({ key }));
  }

  /** Finds the rows of the host that refer to what tasks delete. */
  async #withReferring(tasks: readonly Task[]): Promise<readonly ReferredTask[]> {
    this.#keys ??= await this.read(hostKeys);
    const parts = tasks.flatMap((task) => task.parts);
    const found = new Map<string, ReferredTask['referring'][number][]>();
    for (const key of this.#keys)
      for (const { session, ...rows } of await this.#rowsOf(key, parts)) {
        const id = sessionIdentity(session);
        found.set(id, [...(found.get(id) ?? []), { key, ...rows }]);
      }
    return tasks.map((task) => ({
      ...task,
      referring: task.parts.flatMap(({ key }) => found.get(sessionIdentity(key)) ?? []),
    }));
  }

  async #rowsOf(key: HostKey, parts: readonly DeletedPart[]): ReturnType<typeof referringTo> {
    if (this.#unreadable.has(key)) return [];
    try {
      return await this.read((sql) => referringTo(sql, key, parts));
    } catch (error) {
      if (!(error instanceof DatabaseError) || error.reason !== FAILURES.notAllowed.reason) throw error;
      this.#unreadable.add(key);
      this.batches.refer(key);
      return [];
    }
  }

  /** Counts the rows that the database has deleted, or changed, with a task. */
  #countReferring({ referring }: ReferredTask): void {
    for (const each of referring) if (!isKeeping(each)) this.batches.refer(each.key, each.rows);
  }

  async #deleteLarge(deletion: Deletion, tasks: readonly ReferredTask[]): Promise<void> {
    const { batches } = this;
    for (const task of tasks) {
      const { sessions } = batches.result.done;
      await deletion.deleteLarge(task);
      if (batches.result.done.sessions > sessions) this.#countReferring(task);
    }
  }

  async #deleteBatch(deletion: Deletion, tasks: readonly ReferredTask[]): Promise<void> {
    if (this.batches.isDryRun) {
      const sum = (of: (task: Task) => number) => tasks.reduce((total, task) => total + of(task), 0);
      const sessions = sum(({ parts }) => parts.length);
      this.batches.add({ done: { sessions, events: sum(({ events }) => events) } });
      for (const task of tasks) this.#countReferring(task);
      return;
    }
    let deleted: ReferredTask[] = [];
    const counts = await this.write(async (sql) => {
      const all = onlySkipped(0);
      // It may run again.
      deleted = [];
      for (const task of tasks) {
        const { done, skipped } = await deletion.delete(sql, task);
        if (done.sessions > 0) deleted.push(task);
        all.done.sessions += done.sessions;
        all.done.events += done.events;
        all.skipped += skipped;
      }
      return all;
    });
    for (const task of deleted) this.#countReferring(task);
    this.batches.add(counts);
  }

  /**
   * Locks a session. If somebody else has locked it or holds its lease, it is skipped.
   *
   * @returns no session if it was skipped, or is gone.
   */
  async lock(sql: Sql, { key }: Pick<StoredSession, 'key'>): Promise<{ locked?: StoredSession; skipped: number }> {
    const locked = await lockStoredSession(sql, key, { skipsLocked: true });
    if (locked && (!locked.isLeased || this.batches.includesLeased)) return { locked, skipped: 0 };
    return { skipped: (locked ?? (await storedSession(sql, key))) ? 1 : 0 };
  }

  /**
   * As `lock`, but also skips another session with the same id.
   *
   * @param by which of its names must be the same: a rewind changes the incarnation and keeps the origin.
   */
  async lockSame(
    sql: Sql,
    session: StoredSession,
    by: 'origin' | 'incarnation',
  ): Promise<{ locked?: StoredSession; skipped: number }> {
    const found = await this.lock(sql, session);
    return found.locked && found.locked[by] !== session[by] ? { skipped: 1 } : found;
  }
}
