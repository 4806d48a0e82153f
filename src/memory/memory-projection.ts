import type { EntityManager } from '@mikro-orm/core';
import type { Database } from '../database/calls/database.js';
import { isOwn } from '../database/calls/public-error.js';
import type { Sql } from '../database/dialects/dialect.js';
import { IN_SESSION } from '../database/sql/columns.js';
import { allOf, bound, ifGiven, keyed } from '../database/sql/values.js';
import { forksAmong } from './forks.js';
import { countRows } from '../database/statements/count.js';
import { among } from '../database/statements/sessions.js';
import type { CompleteLogEntry } from '../log/entries.js';
import type { SessionProjectionOptions } from '../log/session-projection.js';
import { aWait, anything, condition, keyConditions, object, oneOf } from '../model/arguments.js';
import { partialKey, isKey, sessionIdentity, type SessionKey } from '../model/keys.js';
import type { ErrorContext } from '../model/options.js';
import { memoryOfEvent, saidByEvent, saidByHost, type NewMemory, type TextOfEvent } from './memory-content.js';
import { addMemories, dropForgotten, lockOwners, rememberedElsewhere, withoutForgotten } from './memory-store.js';
import { passOn } from './stored-memories.js';

export interface MemoryProjectionOptions {
  /** The name of its stored cursor; `memory` by default. */
  name?: string;
  /** The sessions to remember; all by default. */
  filter?: Partial<SessionKey>;
  /**
   * How long after a session's last event its memories can be found, in ms; 600,000 (10 minutes) by default. It may take a tenth
   * longer. Until then the agent has them in the session's own history.
   */
  settleMs?: number;
  /** What happens to memories of a deleted session: `forget` (default) deletes them; a soft deletion hides them. */
  whenDeleted?: 'forget' | 'keep';
}

const checkOptions = object<MemoryProjectionOptions>({
  name: anything,
  filter: condition(object<Partial<SessionKey>>(keyConditions)),
  settleMs: aWait,
  whenDeleted: oneOf('forget', 'keep'),
});

/** The time at which memories of a soft-deleted session can be found. */
const NEVER = 1e300;

/** Adds vectors to memories, and encodes them. */
type PrepareMemories = (memories: readonly NewMemory[], context: ErrorContext) => Promise<NewMemory[]>;

/** Keeps memories in step with the log (contract Q11). */
export function memoryProjection<Em extends EntityManager>(
  database: Database,
  given: MemoryProjectionOptions,
  { text, ttlMs, prepared }: { text?: TextOfEvent | undefined; ttlMs?: number | undefined; prepared: PrepareMemories },
) {
  const {
    name = 'memory',
    filter = {},
    settleMs = 600_000,
    whenDeleted = 'forget',
  } = checkOptions(given, 'The options of projection');
  const memories = new WeakMap<CompleteLogEntry, NewMemory>();

  /** Makes the memories of entries before the transaction, which would otherwise wait for `text`, `embed` and the codec. */
  const prepare = async (entries: readonly CompleteLogEntry[]): Promise<void> => {
    const context = { operation: 'catchUp', key: partialKey(filter) };
    const adding: CompleteLogEntry[] = [];
    const added: NewMemory[] = [];
    const elsewhere = await database.unobserved(context, () => database.run((sql) => leftOut(sql, entries)));
    for (const entry of entries) {
      const { appName, userId, sessionId } = entry;
      const event = 'event' in entry ? entry.event : undefined;
      // An event of another program may have any id.
      if (!event || elsewhere.has(entry) || !isKey('memoryId', event.id)) continue;
      const seq = entry.change === 'replaced' ? entry.eventSeq : entry.seq;
      const rest = { appName, userId, sessionId, ...(seq !== undefined && { seq }), ttlMs };
      const said = text ? await saidByHost(database, event, text) : saidByEvent(event);
      const memory = memoryOfEvent(event, said, rest);
      if (!memory) continue;
      adding.push(entry);
      added.push(memory);
    }
    const stored = await database.unobserved(context, () => prepared(added, context));
    for (const [i, entry] of adding.entries()) if (stored[i]) memories.set(entry, stored[i]);
  };

  /** Runs statements in the transaction of the projection, whose errors reach the caller. */
  const write = async (operation: string, tx: Em, work: (sql: Sql) => Promise<unknown>): Promise<void> => {
    const joined = database.join(tx);
    try {
      await joined.transaction(work);
    } catch (error) {
      // Throws the driver's own error if it may pass, so that the projection retries.
      if (isOwn(error) || database.connections.isPassing(error)) throw error;
      database.report(error, { operation, key: partialKey(filter) });
      throw joined.errorOf(error);
    }
  };

  const options: Pick<SessionProjectionOptions<Em>, 'name' | 'filter' | 'apply' | 'clear'> = {
    name,
    filter,
    async apply(entries, tx) {
      await write('catchUp', tx, async (sql) => {
        // Before it locks rows, for which `forget` would wait.
        lockOwners(sql, entries);
        const pending = new PendingMemories(sql, settleMs);
        for (const entry of entries) {
          if (entry.change) {
            await pending.writeBefore(entry);
            await change(sql, entry, { keepsDeleted: whenDeleted === 'keep', settleMs });
          }
          if ('event' in entry) pending.add(entry, memories.get(entry));
        }
        await pending.write();
      });
    },
    async clear(tx) {
      const { where, values } = addedBy(filter);
      await write('rebuild', tx, (sql) => sql.run(`delete from ${sql.tables.memories} where ${where}`, values));
    },
  };
  return { options, prepare };
}

/** @returns the events that are remembered with another session than the fork that has copied them. */
async function leftOut(sql: Sql, entries: readonly CompleteLogEntry[]): Promise<ReadonlySet<CompleteLogEntry>> {
  const left = new Set(entries.filter((entry) => !entry.change && entry.copied === true));
  const bySession = new Map<string, Map<string, CompleteLogEntry>>();
  const sessions: SessionKey[] = [];
  for (const entry of entries) {
    if (entry.change || !entry.event || left.has(entry)) continue;
    const identity = sessionIdentity(entry);
    if (!bySession.has(identity)) sessions.push(entry);
    bySession.set(
      identity,
      (bySession.get(identity) ?? new Map<string, CompleteLogEntry>()).set(entry.event.id, entry),
    );
  }
  for (const fork of await forksAmong(sql, sessions)) {
    const events = bySession.get(sessionIdentity(fork)) ?? new Map<string, CompleteLogEntry>();
    for (const id of await rememberedElsewhere(sql, fork, [...events.keys()])) {
      const entry = events.get(id);
      if (entry) left.add(entry);
    }
  }
  return left;
}

/** @returns the condition for memories that a projection has added. */
const addedBy = ({ appName, userId, sessionId }: NonNullable<MemoryProjectionOptions['filter']>) =>
  allOf(
    ['seq is not null'],
    ifGiven('app_name = ?', appName),
    ifGiven('user_id = ?', userId),
    ifGiven('session_id = ?', sessionId),
  );

/** @returns how many memories a projection with this filter has added, which `rebuild` would delete. */
export function countProjected(sql: Sql, { filter = {} }: MemoryProjectionOptions): Promise<number> {
  const { where, values } = addedBy(filter);
  return countRows(sql, `${sql.tables.memories} where ${where}`, values);
}

/**
 * How much later than asked for memories can be found at most. So the events of a session write its earlier memories again once in a
 * tenth of that time, and not each time.
 */
const LATER = 1.1;

/** Memories that are written together. */
class PendingMemories {
  readonly #sql: Sql;
  readonly #settleMs: number;
  readonly #sessions = new Map<string, SessionKey>();
  #memories: NewMemory[] = [];

  constructor(sql: Sql, settleMs: number) {
    this.#sql = sql;
    this.#settleMs = settleMs;
  }

  /** @param memory of an event of this session, if there is something to remember. */
  add(session: SessionKey, memory: NewMemory | undefined): void {
    if (memory) this.#memories.push(memory);
    this.#sessions.set(sessionIdentity(session), session);
  }

  /** Writes the memories of a session before a change of it is applied. */
  async writeBefore(session: SessionKey): Promise<void> {
    if (this.#sessions.has(sessionIdentity(session))) await this.write();
  }

  async write(): Promise<void> {
    await this.#postpone();
    const { wanted } = await withoutForgotten(this.#sql, this.#memories);
    await addMemories(this.#sql, wanted, this.#settleMs * LATER);
    dropForgotten(this.#sql, wanted);
    this.#memories = [];
    this.#sessions.clear();
  }

  /** Postpones the time at which earlier memories of the sessions can be found, if they have not settled. */
  async #postpone(): Promise<void> {
    if (this.#settleMs === 0) return;
    const { dialect, tables } = this.#sql;
    const { now } = dialect.sql;
    for (const { where, values } of among(this.#sql, [...this.#sessions.values()]))
      await this.#sql.run(
        `update ${tables.memories} set settles = ${now} + ? where settles > ${now} and settles < ${now} + ? and (${where})`,
        [this.#settleMs * LATER, this.#settleMs, ...values],
      );
  }
}

/** Applies a change of a session to the memories that a projection has added. */
async function change(
  sql: Sql,
  entry: CompleteLogEntry,
  { keepsDeleted, settleMs }: { keepsDeleted: boolean; settleMs: number },
): Promise<void> {
  const { memories } = sql.tables;
  const run = (text: string, values: Readonly<Record<string, unknown>> = {}) =>
    sql.run(...bound(text, { ...keyed(entry), ...values }));
  const forget = (condition: string, values?: { seq: number }) =>
    run(`delete from ${memories} where ${IN_SESSION} and ${condition}`, values);
  switch (entry.change) {
    case 'created':
      if (!keepsDeleted) await forget('seq is not null');
      return;
    case 'deleted':
      if (keepsDeleted) return;
      await passOn(sql, entry, 'seq is not null');
      if (!entry.soft) await forget('seq is not null');
      else
        await run(`update ${memories} set settles = :never where ${IN_SESSION} and seq is not null`, { never: NEVER });
      return;
    case 'replaced':
      // Memories of trimmed events stay: that is what memory is for.
      await passOn(sql, entry, 'seq > :seq', { seq: entry.seq });
      await forget('seq > :seq', { seq: entry.seq });
      if (entry.eventSeq !== undefined) await forget('seq = :seq', { seq: entry.eventSeq });
      // A restored session may have had its last event a moment ago.
      await run(
        `update ${memories} set settles = ${sql.dialect.sql.now} + :later where ${IN_SESSION} and settles = :never`,
        { later: settleMs * LATER || null, never: NEVER },
      );
  }
}
