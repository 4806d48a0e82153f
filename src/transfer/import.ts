import { randomUUID } from 'node:crypto';
import type { Sql } from '../database/sql/sql.js';
import { hasDeletionBegun } from '../database/stores/stored-session.js';
import type { Stores } from '../database/stores/stores.js';
import type { TransferredSession } from '../database/stores/transfer-store.js';
import { InvalidArgumentError, SessionExistsError } from '../model/errors.js';
import { sessionIdentity } from '../model/keys.js';
import type { ImportProgress } from '../model/progress.js';
import { byScope, prefixed } from '../model/state.js';
import type { Run } from './export.js';
import { storableRecord, type NumberedEvent, type StorableRecord } from './records.js';

export interface ImportMode {
  batchSize: number;
  /** Whether nothing is written; the progress is the same. */
  isDryRun?: boolean;
  /** Whether the records come from a store without titles, labels and soft-deleted sessions: those that are here stay. */
  isForeign?: boolean;
}

type ImportedSession = StorableRecord & { type: 'session' };

/** Writes records in their order, in transactions of at most so many events. */
export class Import {
  readonly #run: Run;
  readonly #stores: Stores;
  readonly #mode: ImportMode;
  readonly #progress: ImportProgress = { sessions: 0, events: 0, records: 0 };
  #session: ImportedSession | undefined;
  #events: NumberedEvent[] = [];
  /** The number of the session's newest event that a batch has written, or would have. */
  #lastSeq: number | undefined;

  /** @param run runs its work in a transaction. */
  constructor(run: Run, stores: Stores, mode: ImportMode) {
    this.#run = run;
    this.#stores = stores;
    this.#mode = mode;
  }

  get progress(): ImportProgress {
    return { ...this.#progress };
  }

  /** @throws InvalidArgumentError for what is no record of an export, or comes in another order. */
  async add(record: unknown): Promise<void> {
    const number = this.#progress.records + 1;
    const storable = storableRecord(record, number);
    if (storable.type === 'event') {
      this.#checkOrder(storable, number);
      if (this.#events.length >= this.#mode.batchSize) await this.#write(false);
      this.#events.push(storable.event);
    } else {
      await this.end();
      if (storable.type === 'session') this.#session = storable;
      else await this.#writeShared(storable);
    }
    this.#progress.records++;
  }

  /** Adds all records, until the signal fires. */
  async addAll(
    records: AsyncIterable<unknown> | Iterable<unknown>,
    { signal, onProgress }: { signal?: AbortSignal; onProgress?: (progress: ImportProgress) => void },
  ): Promise<void> {
    for await (const record of records) {
      if (signal?.aborted) return;
      await this.add(record);
      onProgress?.(this.progress);
    }
    await this.end();
  }

  #checkOrder({ owner, event: { seq } }: StorableRecord & { type: 'event' }, number: number): void {
    if (!this.#session || sessionIdentity(this.#session.owner) !== sessionIdentity(owner))
      throw new InvalidArgumentError(
        `Record ${number} is an event, and the record of its session does not come before.`,
      );
    const { firstSeq, lastSeq } = this.#session.session;
    if (seq < firstSeq || seq > lastSeq)
      throw new InvalidArgumentError(
        `Record ${number}: seq is ${seq}, and the session has events from ${firstSeq} to ${lastSeq}.`,
      );
  }

  /** Writes what is not written yet. */
  async end(): Promise<void> {
    if (this.#session) await this.#write(true);
    this.drop();
  }

  /** Forgets the session whose records come, and what is not written of it. */
  drop(): void {
    this.#session = undefined;
    this.#events = [];
    this.#lastSeq = undefined;
  }

  async #writeShared({ type: scope, owner, state: entries }: StorableRecord & { type: 'app' | 'user' }): Promise<void> {
    if (this.#mode.isDryRun) return;
    await this.#run(async (sql) => {
      const stored = await this.#stores.state.written(sql, owner, scope);
      const known = new Map(stored.map(({ key, ...value }) => [prefixed(scope, key), JSON.stringify(value)]));
      const fresh = entries.filter(({ key, ...value }) => known.get(key) !== JSON.stringify(value));
      if (fresh.length === 0) return;
      await this.#stores.state.set(sql, owner, byScope(fresh));
      await this.#stores.changes.recordState(sql, { session: owner, seq: 0 });
    });
  }

  /** @param isLast whether these are the last events of the session. */
  async #write(isLast: boolean): Promise<void> {
    const session = this.#session;
    const events = this.#events;
    if (!session) return;
    this.#events = [];
    const written = await this.#run((sql) => this.#writeSession(sql, session, events, isLast));
    this.#lastSeq = written.lastSeq;
    this.#progress.sessions += written.isNew ? 1 : 0;
    this.#progress.events += written.events;
  }

  async #writeSession(
    sql: Sql,
    session: ImportedSession,
    events: readonly NumberedEvent[],
    isLast: boolean,
  ): Promise<{ isNew: boolean; events: number; lastSeq: number }> {
    const { sessions, transfer, events: store, changes } = this.#stores;
    const { owner: key, session: record } = session;
    const { createTime, lastUpdateTime, firstSeq } = record;
    let existing = await (this.#mode.isDryRun ? transfer.session(sql, key) : transfer.lock(sql, key));
    // It lacks events: what is left of it goes, and the session is written anew.
    if (existing && hasDeletionBegun(existing)) {
      if (!this.#mode.isDryRun) await sessions.deleteSoftDeleted(sql, key);
      existing = undefined;
    }
    // What a dry run has not written is taken for written.
    const seen = this.#mode.isDryRun ? this.#lastSeq : undefined;
    const isNew = !existing && seen === undefined;
    if (!existing) {
      const head = { incarnation: randomUUID(), firstSeq, lastSeq: firstSeq - 1, lastUpdateTime };
      if (!this.#mode.isDryRun) {
        await sessions.create(sql, key, head);
        const data = record.created ? JSON.stringify(record.created) : null;
        await changes.record(sql, { session: key, kind: 'created', seq: 0, data });
      }
      existing = { key, ...head, createTime, deletedAt: undefined, title: null, labels: null };
    }
    if (existing.createTime !== createTime)
      throw new SessionExistsError(key.sessionId, 'It was created at another time.');

    // An import that was interrupted goes on where it was, and a later one brings what is new.
    const knownSeq = Math.max(existing.lastSeq, seen ?? 0);
    const known = events.filter(({ seq }) => seq <= knownSeq);
    const ids = await transfer.eventIds(
      sql,
      key,
      known.map(({ seq }) => seq),
    );
    for (const { seq, id } of known) {
      if (ids.has(seq) && ids.get(seq) !== id)
        throw new SessionExistsError(
          key.sessionId,
          `Its event ${seq} has another id than the one that was to be written.`,
        );
    }
    const fresh = events.filter(({ seq }) => seq > knownSeq);
    for (const [i, { seq }] of fresh.entries()) {
      if (seq !== knownSeq + 1 + i)
        throw new InvalidArgumentError(`Session ${key.sessionId} lacks the events between ${knownSeq + i} and ${seq}.`);
    }
    const lastSeq = knownSeq + fresh.length;
    if (isLast && lastSeq < record.lastSeq)
      throw new InvalidArgumentError(`Session ${key.sessionId} lacks its events after number ${lastSeq}.`);
    const written = { isNew, events: fresh.length, lastSeq };
    if (this.#mode.isDryRun) return written;
    await store.insert(sql, key, knownSeq + 1, fresh);
    if (!isLast) {
      // Nobody sees a part of it: it is soft-deleted until the rest is there.
      const isSoftDeleted = isNew || existing.deletedAt !== undefined;
      await transfer.describe(sql, {
        ...existing,
        createTime,
        lastSeq,
        ...(isSoftDeleted && { deletedAt: createTime }),
      });
    } else if (lastSeq === record.lastSeq) {
      await this.#finish(sql, session, existing, isNew);
    }
    // Otherwise the session has gone on here since it was exported, and keeps its state.
    return written;
  }

  /** Gives a session whose events are all there its state, and what people call it. */
  async #finish(
    sql: Sql,
    { owner: key, session: record, state: entries }: ImportedSession,
    existing: TransferredSession,
    isNew: boolean,
  ): Promise<void> {
    const { state, transfer, changes } = this.#stores;
    const { createTime, lastUpdateTime, lastSeq } = record;
    // `first_seq` is not the record's: a session that was trimmed here since the export does not have its first events any more.
    const { firstSeq } = existing;
    // A session that is not whole yet is soft-deleted with the time of its creation.
    const keptDeletedAt = existing.deletedAt === createTime ? undefined : existing.deletedAt;
    const { title, labels, deletedAt } = this.#mode.isForeign
      ? { ...existing, deletedAt: keptDeletedAt }
      : { ...record, title: record.title ?? null, labels: record.labels ? JSON.stringify(record.labels) : null };
    if (isNew) {
      await state.set(sql, key, byScope(entries));
    } else {
      const stored = await state.written(sql, key, 'session');
      if (JSON.stringify(stored) !== JSON.stringify(entries)) {
        const kept = new Set(entries.map((entry) => entry.key));
        const removed = stored.map((entry) => entry.key).filter((name) => !kept.has(name));
        await state.clear(sql, key);
        await state.set(sql, key, byScope(entries));
        await changes.recordState(sql, { session: key, seq: lastSeq, removed });
      }
    }
    const described = { firstSeq, lastSeq, createTime, lastUpdateTime, deletedAt, title };
    await transfer.describe(sql, { key, ...described, labels });
    // It was whole before, so what was recorded of it is there.
    if (!isNew && existing.deletedAt === deletedAt) return;
    for (const change of record.changes ?? []) {
      const { kind, seq } = change;
      const data = kind === 'rewound' ? change.state : { set: change.set, removed: change.removed };
      await changes.record(sql, { session: key, kind, seq, data: data ? JSON.stringify(data) : null });
    }
    if (deletedAt !== undefined) await changes.record(sql, { session: key, kind: 'hidden', seq: lastSeq, data: null });
  }
}
