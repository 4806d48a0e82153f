import { ForeignKeyConstraintViolationException } from '@mikro-orm/core';
import { CallInParts } from '../database/calls/call-in-parts.js';
import type { Database } from '../database/calls/database.js';
import type { Sql } from '../database/dialects/dialect.js';
import { hostKeys, referringTo, type HostKey } from '../database/statements/host-keys.js';
import type { RowSelection, OwnedRows } from '../database/statements/owned-rows.js';
import { lockStoredSession, storedSession, type StoredSession } from '../database/statements/stored-session.js';
import { nextApp, walkedSessions, type Walk } from '../database/statements/walk.js';
import { DatabaseError } from '../model/errors.js';
import { partialKey, sessionIdentity, type SessionKey } from '../model/keys.js';
import { batchSizeOf, namesOf, pagesOf } from '../model/pages.js';
import type { Counts, DeleteRule } from '../model/results.js';
import { Batches } from './batches.js';
import type { BatchOptions } from './options.js';

/** What to do to a session. */
export interface Task {
  session: StoredSession;
  /** How many events to delete, by the numbers in the session's row. */
  events: number;
  /** How many rows to delete. */
  rows: number;
  /** The sessions that are deleted: this one, and those of its tools. Left out if it stays. */
  sessions?: readonly SessionKey[];
}

/** What a batch did. */
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

/** The app, the user or the session to which a call may be restricted. */
type Owner = { readonly [K in keyof SessionKey]?: string | undefined };

/** The rules with which a row that refers to another one keeps it. */
const KEEPING = new Set<DeleteRule>(['restrict', 'no action']);

/** How many sessions one query reads. */
const PAGE = 500;

/** A call that deletes from app to app and from session to session, in transactions of limited size. */
export class DeletionRun<Kind extends string = never> extends CallInParts {
  /** The foreign keys of the host that refer to sessions, once they are needed. */
  #keys: readonly HostKey[] | undefined;
  /** The rows that refer to sessions whose deletion they do not prevent, by the session's identity. */
  readonly #referring = new Map<string, { key: HostKey; rows: number }[]>();
  readonly batches: Batches<'sessions' | 'events' | Kind>;
  readonly isOfAllApps: boolean;

  /**
   * @param kinds what else its result always counts.
   * @param toolApps the apps of tools, whose sessions are deleted together with those of their callers.
   */
  constructor(
    database: Database,
    operation: string,
    options: BatchOptions & Owner,
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

  /** The requested app, or all apps. */
  #apps({ appName, userId }: Pick<Owner, 'appName' | 'userId'>, next: OwnedRows['nextApp']): AsyncGenerator<string> {
    return namesOf(appName, (after) => this.read((sql) => next(sql, after, userId)));
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
    { appName, ...owner }: Omit<RowSelection, 'appName'> & Pick<Owner, 'appName'>,
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
  async walk(deletion: Deletion, { appName, ...way }: Omit<Walk, 'appName'> & Pick<Owner, 'appName'>): Promise<void> {
    for await (const app of this.#apps({ appName }, (sql, after) => nextApp(sql, after, 'sessions'))) {
      const walk = { appName: app, ...way };
      const read = (after?: StoredSession) => this.read((sql) => walkedSessions(sql, walk, after, PAGE));
      for await (const page of pagesOf(PAGE, read)) {
        if (!(await this.batches.mayBegin())) break;
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
      const tasks = await this.#withoutKept(batch);
      if (tasks.length > 0) await this.#unlessKept(tasks, (some) => this.#deleteBatch(deletion, some));
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
        // Before its first event is deleted: the key would refuse only the last transaction.
        const tasks = await this.#withoutKept([task]);
        const { sessions } = batches.result.done;
        if (tasks.length > 0) await this.#unlessKept(tasks, () => deletion.deleteLarge(task));
        if (batches.result.done.sessions > sessions) this.#countReferring(task);
        continue;
      }
      batch.push(task);
      rows += task.rows;
    }
    if (batch.length > 0 && (await batches.mayBegin())) await end();
  }

  /**
   * Finds the rows of the host that refer to the sessions of tasks.
   *
   * @returns the tasks that no key refuses. The others are skipped, and named with their key.
   */
  async #withoutKept(tasks: readonly Task[]): Promise<readonly Task[]> {
    const sessions = tasks.flatMap((task) => task.sessions ?? []);
    if (sessions.length === 0) return tasks;
    this.#keys ??= await this.read(hostKeys);
    const refused = new Map<string, HostKey>();
    for (const key of this.#keys)
      for (const { session, rows } of await this.read((sql) => referringTo(sql, key, sessions))) {
        const id = sessionIdentity(session);
        if (KEEPING.has(key.rule)) {
          refused.set(id, key);
          this.batches.refer(key, rows);
        } else this.#referring.set(id, [...(this.#referring.get(id) ?? []), { key, rows }]);
      }
    return tasks.filter(({ session, sessions = [] }) => {
      const key = sessions.flatMap((each) => refused.get(sessionIdentity(each)) ?? [])[0];
      if (key) this.batches.keep(session.key, key);
      return !key;
    });
  }

  /** Counts the rows that the database has deleted, or changed, with the sessions of a task. */
  #countReferring({ sessions = [] }: Task): void {
    for (const id of sessions.map(sessionIdentity)) {
      for (const { key, rows } of this.#referring.get(id) ?? []) this.batches.refer(key, rows);
      this.#referring.delete(id);
    }
  }

  /**
   * Skips the sessions that a foreign key of the host keeps: a row may have come since `#withoutKept`, or refer to a part of a session
   * otherwise. If there is one in a batch, its transaction was rolled back, and the sessions are deleted one by one. `onError` gets the
   * driver's error, which names table and constraint if the database does.
   */
  async #unlessKept(tasks: readonly Task[], remove: (tasks: readonly Task[]) => Promise<void>): Promise<void> {
    try {
      await remove(tasks);
    } catch (error) {
      if (!(error instanceof DatabaseError) || error.reason !== ForeignKeyConstraintViolationException.name)
        throw error;
      if (tasks.length === 1) {
        // Rows that refer to a host's row that goes along are not looked for, so this may name none.
        if ((await this.#withoutKept(tasks)).length > 0) this.batches.count({ skipped: 1 });
      } else for (const task of tasks) if (await this.batches.mayBegin()) await this.#unlessKept([task], remove);
    }
  }

  async #deleteBatch(deletion: Deletion, tasks: readonly Task[]): Promise<void> {
    if (this.batches.isDryRun) {
      const sum = (of: (task: Task) => number) => tasks.reduce((total, task) => total + of(task), 0);
      const sessions = sum(({ sessions }) => sessions?.length ?? 1);
      this.batches.add({ done: { sessions, events: sum(({ events }) => events) } });
      for (const task of tasks) this.#countReferring(task);
      return;
    }
    let deleted: Task[] = [];
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
}
