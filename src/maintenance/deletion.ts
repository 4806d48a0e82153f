import type { Sql } from '../database/sql/sql.js';
import type { KeptSession, Walk } from '../database/stores/walk-store.js';
import { hasDeletionBegun, isSameIncarnation } from '../database/stores/stored-session.js';
import type { Stores } from '../database/stores/stores.js';
import { decodeEvent } from '../model/event-codec.js';
import { pastState } from '../model/past-state.js';
import { stateJson } from '../model/state.js';
import type { Run } from '../transfer/export.js';
import type { Batches } from './batches.js';

/** What a call deletes. It goes by a session's row, before the row's lock is taken and again under it. */
export interface Rule {
  /** Whether sessions go with all of their events. */
  isWhole: boolean;
  /**
   * @param before the number before which events may go; those from there on need not be read.
   * @param run runs statements.
   * @returns the number of the first event that stays, `before` at most; undefined for a session that is not meant.
   */
  firstKept(session: KeptSession, before: number, run: Run): Promise<number> | number | undefined;
}

/** What is to be done to a session. */
interface Task {
  session: KeptSession;
  /** The number before which its events go. */
  firstKept: number;
}

/** What a transaction has done. */
interface Done {
  sessions: number;
  events: number;
  skipped: number;
  /** Whether nothing is left to do to the session that it was about. */
  isOver: boolean;
}

/** How many sessions one query reads. */
const PAGE = 500;

/**
 * Deletes sessions, or their oldest events, in transactions of a number of rows. Between two of them others may do anything
 * to a session. So each transaction takes the session's lock and goes by what it finds then: a session that was created again
 * under the id, or that the rule does not mean any more, stays as it is.
 */
export class Deletion {
  readonly #read: Run;
  readonly #write: Run;
  readonly #stores: Stores;
  readonly #batches: Batches;
  readonly #rule: Rule;

  /**
   * @param read runs statements that only read.
   * @param write runs its work in a transaction.
   */
  constructor(read: Run, write: Run, stores: Stores, batches: Batches, rule: Rule) {
    this.#read = read;
    this.#write = write;
    this.#stores = stores;
    this.#batches = batches;
    this.#rule = rule;
  }

  async walk(walk: Walk): Promise<void> {
    let after: KeptSession | undefined;
    for (;;) {
      const page = await this.#read((sql) => this.#stores.walk.page(sql, walk, after, PAGE));
      if (page.length === 0 || !(await this.#batches.mayBegin())) return;
      await this.work(page);
      if (page.length < PAGE) return;
      after = page.at(-1);
    }
  }

  /** Does what is to be done to some sessions, as many as fit into a transaction at a time. */
  async work(sessions: readonly KeptSession[]): Promise<void> {
    const batches = this.#batches;
    let batch: Task[] = [];
    let rows = 0;
    const end = async () => {
      if (batch.length > 0) await this.#batch(batch);
      batch = [];
      rows = 0;
    };
    for (const session of sessions) {
      const task = await this.#plan(session, session.lastSeq + 1, this.#read);
      if (!task) continue;
      if (session.isLeased && !batches.includesLeased) {
        batches.skip();
        continue;
      }
      if (rows + this.#rowsOf(task) > batches.size) await end();
      if (!(await batches.mayBegin())) return;
      if (this.#rowsOf(task) > batches.size && !batches.isDryRun) {
        await (this.#rule.isWhole ? this.#deleteLarge(task) : this.#trimLarge(task));
        continue;
      }
      batch.push(task);
      rows += this.#rowsOf(task);
    }
    if (batch.length > 0 && (await batches.mayBegin())) await end();
  }

  #rowsOf({ session, firstKept }: Task): number {
    return Math.max(0, firstKept - session.firstSeq) + (this.#rule.isWhole ? 1 : 0);
  }

  /** @returns undefined when the rule does not mean the session. */
  async #plan(session: KeptSession, before: number, run: Run): Promise<Task | undefined> {
    if (this.#rule.isWhole) {
      // What is left of a deletion that was interrupted goes whatever the rule: nobody else would finish it.
      const firstKept = hasDeletionBegun(session) ? before : await this.#rule.firstKept(session, before, run);
      return firstKept === undefined ? undefined : { session, firstKept };
    }
    if (session.deletedAt !== undefined) return undefined;
    const firstKept = (await this.#rule.firstKept(session, before, run)) ?? 0;
    return firstKept > session.firstSeq ? { session, firstKept } : undefined;
  }

  /** Does several tasks in one transaction. */
  async #batch(tasks: readonly Task[]): Promise<void> {
    if (this.#batches.isDryRun) {
      const events = tasks.reduce((sum, { session, firstKept }) => sum + Math.max(0, firstKept - session.firstSeq), 0);
      this.#batches.add({ sessions: tasks.length, events, skipped: 0 });
      return;
    }
    const done = await this.#write(async (sql) => {
      const all = { sessions: 0, events: 0, skipped: 0 };
      for (const task of tasks) {
        const { sessions, events, skipped } = await (this.#rule.isWhole
          ? this.#delete(sql, task)
          : this.#trim(sql, task));
        all.sessions += sessions;
        all.events += events;
        all.skipped += skipped;
      }
      return all;
    });
    this.#batches.add(done);
  }

  /** Deletes a session in one transaction. */
  async #delete(sql: Sql, { session }: Task): Promise<Done> {
    const done = nothingDone();
    const locked = await this.#lockDue(sql, session, done);
    if (!locked) return done;
    await this.#stores.sessions.delete(sql, locked.key, locked.incarnation);
    return { ...done, sessions: 1, events: locked.lastSeq - locked.firstSeq + 1 };
  }

  /** Deletes a session of more rows than a transaction deletes. */
  async #deleteLarge({ session }: Task): Promise<void> {
    for (let isOver = false; !isOver && (await this.#batches.mayBegin());) {
      const done = await this.#write(async (sql): Promise<Done> => {
        const done = nothingDone();
        const locked = await this.#lockDue(sql, session, done);
        if (!locked) return done;
        if (hasDeletionBegun(locked)) return this.#deleteSome(sql, locked);
        // This comes before the first event goes: nobody may see the session without it, also when this call is interrupted.
        await this.#stores.sessions.beginDeletion(sql, locked);
        return { ...done, isOver: false };
      });
      this.#batches.add(done);
      isOver = done.isOver;
    }
  }

  /** Deletes the first events of a session whose deletion has begun, and the session with its last ones. */
  async #deleteSome(sql: Sql, { key, incarnation, lastSeq }: KeptSession): Promise<Done> {
    const { deletion, sessions } = this.#stores;
    const numbers = await deletion.numbersBefore(sql, key, lastSeq + 1, this.#batches.size);
    const last = numbers.at(-1);
    const isOver = last === undefined || numbers.length < this.#batches.size;
    if (isOver) await sessions.delete(sql, key, incarnation);
    else await deletion.trim(sql, key, last + 1, numbers);
    return { ...nothingDone(), sessions: isOver ? 1 : 0, events: numbers.length, isOver };
  }

  /** @returns the session under its lock, where it is still the same one and the rule still means it. */
  async #lockDue(sql: Sql, session: KeptSession, done: Done): Promise<KeptSession | undefined> {
    const locked = await this.#lock(sql, session, done);
    if (!locked || !(await this.#plan(locked, locked.lastSeq + 1, (work) => work(sql)))) return undefined;
    if (isSameIncarnation(locked, session)) return locked;
    done.skipped++;
    return undefined;
  }

  /** @returns the session under its lock; undefined where somebody else has locked it or holds its lease, or it is gone. */
  async #lock(sql: Sql, { key }: KeptSession, done: Done): Promise<KeptSession | undefined> {
    const { walk } = this.#stores;
    const locked = await walk.lock(sql, key);
    if (locked && (!locked.isLeased || this.#batches.includesLeased)) return locked;
    if (locked ?? (await walk.find(sql, key))) done.skipped++;
    return undefined;
  }

  /** Drops more events of a session than a transaction deletes. */
  async #trimLarge({ session, firstKept }: Task): Promise<void> {
    /** The session as the last transaction has left it, and as the next one must find it. */
    let left = session;
    let dropped = 0;
    for (let isOver = false; !isOver && (await this.#batches.mayBegin());) {
      const task = { session: left, firstKept };
      const done = await this.#write((sql) => this.#trim(sql, task));
      dropped += done.events;
      left = { ...left, firstSeq: done.firstSeq };
      isOver = done.isOver;
      this.#batches.add({ ...done, sessions: isOver && done.skipped === 0 && dropped > 0 ? 1 : 0 });
    }
  }

  /** Drops a session's first events, as many as fit into a transaction. */
  async #trim(sql: Sql, { session, firstKept }: Task): Promise<Done & { firstSeq: number }> {
    const done = { ...nothingDone(), firstSeq: session.firstSeq };
    const locked = await this.#lock(sql, session, done);
    // Another session has another time of creation. One that was imported again has its first events again.
    if (locked?.createTime !== session.createTime || locked.firstSeq < session.firstSeq) return done;

    const { deletion, changes } = this.#stores;
    const { key, lastSeq } = locked;
    // A session that was rewound has fewer events than it had.
    const most = Math.min(firstKept, lastSeq + 1);
    const numbers = await deletion.numbersBefore(sql, key, most, this.#batches.size);
    const before = numbers.length < this.#batches.size ? most : (numbers.at(-1) ?? 0) + 1;
    const task = await this.#plan(locked, before, (work) => work(sql));
    if (!task) return done;
    const firstSeq = task.firstKept;
    const gone = numbers.filter((seq) => seq < firstSeq);
    const state = await this.#stateBefore(sql, locked, firstSeq);
    await changes.recordTrim(sql, key, { firstSeq, lastSeq, state });
    await deletion.trim(sql, key, firstSeq, gone);
    return { ...done, sessions: 1, events: gone.length, firstSeq, isOver: firstSeq < before || before === most };
  }

  /** The JSON of what a session has written to the state before an event; null where that is not known exactly. */
  async #stateBefore(sql: Sql, { key, incarnation, firstSeq }: KeptSession, seq: number): Promise<string | null> {
    const { created, changes, isComplete } = await this.#stores.changes.history(sql, key);
    if (!created || !isComplete) return null;
    const range = { incarnation, after: firstSeq - 1, upTo: seq - 1, limit: seq };
    const events = (await this.#stores.log.sessionEvents(sql, key, range)).flatMap(({ seq, json }) => {
      const event = decodeEvent(json ?? undefined);
      return event ? [{ seq, id: event.id, delta: event.actions?.stateDelta ?? {} }] : [];
    });
    const before = changes.filter((change) => change.seq < seq);
    const state = pastState(created, before, events);
    return stateJson(Array.from(state, ([name, { json }]) => [name, json] as const));
  }
}

const nothingDone = (): Done => ({ sessions: 0, events: 0, skipped: 0, isOver: true });
