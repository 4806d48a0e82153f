import { randomUUID } from 'node:crypto';
import { ArtifactStore, type VersionKey } from '../artifacts/artifact-store.js';
import { WaitingCalls } from '../conversation/open-calls.js';
import type { Run, Sql } from '../database/dialects/dialect.js';
import {
  creationChanges,
  encodedChange,
  recordChange,
  recordChanges,
  stateChanges,
} from '../database/stores/change-store.js';
import { encodedEvent } from '../database/stores/event-store.js';
import { openCallsOf, replaceOpenCalls } from '../database/stores/open-calls.js';
import { deleteSoftDeleted, insertSession } from '../database/stores/session-store.js';
import { encodedState } from '../database/stores/state-store.js';
import type { Stores } from '../database/stores/stores.js';
import { isEncoded, type KnownSession } from '../model/codec.js';
import { InvalidArgumentError } from '../model/errors.js';
import { callHost } from '../model/host-callbacks.js';
import { sessionIdentity, type SessionKey } from '../model/keys.js';
import type { ImportResult } from '../model/results.js';
import { byScope, prefixed, type Scope, type StateEntry } from '../model/state.js';
import { AS_STORED } from '../model/stored-texts.js';
import { ImportPlanner, type ImportPlan, type SessionBatch } from './import-plan.js';
import { refusePlain, storableRecord, type AcceptedTexts, type NumberedEvent, type StorableRecord } from './records.js';
import { importMemory, type TransferredMemory } from './stored-memories.js';
import { describeTransferred, eventHeads, lockTransferred, transferredSession } from './transferred-sessions.js';

interface ImportMode extends AcceptedTexts {
  batchSize: number;
  /** Whether nothing is written; the progress is the same. */
  isDryRun?: boolean;
  /** Whether values of apps and users that are here stay. */
  sharedState?: 'overwrite' | 'keep' | undefined;
  /** Whether the records come from a store without titles, labels and soft-deleted sessions: those that are here stay. */
  isForeign?: boolean;
}

type ImportedSession = SessionBatch['session'];
type ImportedArtifact = StorableRecord & { type: 'artifact' };
type WritePlan = ImportPlan & { kind: 'write' };

/** Writes records in their order, in transactions of at most n events. */
export class Import {
  readonly #run: Run;
  readonly #stores: Stores;
  readonly #mode: ImportMode;
  readonly #done: ImportResult = {
    ...{ sessions: 0, events: 0, artifactVersions: 0, memories: 0 },
    ...{ records: 0, refused: 0, annulled: 0 },
  };
  #session: ImportedSession | undefined;
  #events: NumberedEvent[] = [];
  /** Those that wait after the session's events so far. */
  #calls = new WaitingCalls();
  /** The number of the session's newest event that a batch has written, or would have. */
  #lastSeq: number | undefined;
  /** The version whose parts come. */
  #artifact: ImportedArtifact | undefined;
  #parts: Buffer[] = [];
  /** Those that are written together. */
  #memories: TransferredMemory[] = [];

  /** @param run runs its work in a transaction. */
  constructor(run: Run, stores: Stores, mode: ImportMode) {
    this.#run = run;
    this.#stores = stores;
    this.#mode = mode;
  }

  get result(): ImportResult {
    return { ...this.#done };
  }

  /** @throws InvalidArgumentError for what is no record of an export, or comes in another order. */
  async add(record: unknown): Promise<void> {
    const number = this.#done.records + 1;
    const storable = storableRecord(record, number, this.#mode);
    if (storable.type === 'event') {
      this.#checkOrder(storable, number);
      if (this.#events.length >= this.#mode.batchSize) await this.#write(false);
      this.#events.push(storable.event);
      if (storable.calls) this.#calls.add(storable.event, storable.calls);
    } else if (storable.type === 'part') {
      this.#addPart(storable, number);
    } else if (storable.type === 'memory') {
      if (this.#memories.length === 0 || this.#memories.length >= this.#mode.batchSize) await this.end();
      this.#memories.push(storable.memory);
    } else {
      await this.end();
      if (storable.type === 'session') this.#session = storable;
      else if (storable.type === 'artifact') this.#artifact = storable;
      else await this.#writeShared(storable);
    }
    if (this.#artifact?.parts === this.#parts.length) await this.#writeArtifact(this.#artifact);
    this.#done.records++;
  }

  #addPart({ owner, part, data }: StorableRecord & { type: 'part' }, number: number): void {
    const names = ({ appName, userId, sessionId, filename, version }: VersionKey) =>
      JSON.stringify([appName, userId, sessionId, filename, version]);
    if (!this.#artifact || names(this.#artifact.owner) !== names(owner) || part !== this.#parts.length)
      throw new InvalidArgumentError(
        `Record ${number} is a part of an artifact, and what comes before it does not come before.`,
      );
    this.#parts.push(data);
  }

  async #writeArtifact({ owner, info, createTime, upload }: ImportedArtifact): Promise<void> {
    const version = { info, createTime, upload, parts: this.#parts };
    this.drop();
    if (this.#mode.isDryRun) return;
    const artifacts = ArtifactStore.of(this.#stores);
    if (await this.#run((sql) => artifacts.import(sql, owner, version))) this.#done.artifactVersions++;
  }

  /** Adds all records, until the signal fires. */
  async addAll(
    records: AsyncIterable<unknown> | Iterable<unknown>,
    { signal, onProgress }: { signal?: AbortSignal; onProgress?: (done: ImportResult) => void },
  ): Promise<void> {
    for await (const record of records) {
      if (signal?.aborted) return;
      await this.add(record);
      callHost(onProgress, this.result);
    }
    await this.end();
  }

  #checkOrder({ owner, event: { seq, json } }: StorableRecord & { type: 'event' }, number: number): void {
    if (!this.#session || sessionIdentity(this.#session.owner) !== sessionIdentity(owner))
      throw new InvalidArgumentError(
        `Record ${number} is an event, and the record of its session does not come before.`,
      );
    const { firstSeq, lastSeq } = this.#session.session;
    if (seq < firstSeq || seq > lastSeq)
      throw new InvalidArgumentError(
        `Record ${number}: seq is ${seq}, and the session has events from ${firstSeq} to ${lastSeq}.`,
      );
    if (isEncoded(json) && !this.#session.session.bound)
      throw new InvalidArgumentError(
        `Record ${number} has an encoded text, and the record of its session does not say what it is bound to.`,
      );
    if (!isEncoded(json) && this.#session.session.bound) refusePlain(`Record ${number}`, this.#mode.required);
  }

  async #writeMemories(memories: readonly TransferredMemory[]): Promise<void> {
    if (memories.length === 0 || this.#mode.isDryRun) return;
    this.#done.memories += await this.#run(async (sql) => {
      let written = 0;
      for (const memory of memories) if (await importMemory(sql, memory)) written++;
      return written;
    });
  }

  /** Writes what is not written yet. */
  async end(): Promise<void> {
    if (this.#session) await this.#write(true);
    await this.#writeMemories(this.#memories);
    if (this.#artifact)
      throw new InvalidArgumentError(
        `Version ${this.#artifact.owner.version} of artifact ${this.#artifact.owner.filename} lacks parts after number ${this.#parts.length - 1}.`,
      );
    this.drop();
  }

  /** Forgets the session or the artifact whose records come, and what is not written. */
  drop(): void {
    this.#artifact = undefined;
    this.#parts = [];
    this.#memories = [];
    this.#session = undefined;
    this.#events = [];
    this.#calls = new WaitingCalls();
    this.#lastSeq = undefined;
  }

  async #writeShared({ type: scope, owner, state: entries }: StorableRecord & { type: 'app' | 'user' }): Promise<void> {
    if (this.#mode.isDryRun) return;
    await this.#run(async (sql) => {
      const stored = await this.#stored(sql, owner, scope, entries);
      const here = new Map(stored.map(({ key, ...value }) => [prefixed(scope, key), JSON.stringify(value)]));
      const isKept = (key: string) => this.#mode.sharedState === 'keep' && here.has(key);
      const fresh = entries.filter(({ key, ...value }) => here.get(key) !== JSON.stringify(value) && !isKept(key));
      if (fresh.length === 0) return;
      const known = { ...owner, origin: '' };
      await this.#stores.state.set(sql, owner, encodedState(sql.texts, known, byScope(fresh)));
      await recordChange(sql, { session: known, kind: 'state', seq: 0 });
    });
  }

  /** @param isLast whether these are the last events of the session. */
  async #write(isLast: boolean): Promise<void> {
    const session = this.#session;
    if (!session) return;
    const batch = { session, events: this.#events, isLast };
    this.#events = [];
    const written = await this.#run((sql) => this.#writeBatch(sql, batch));
    this.#lastSeq = written.lastSeq;
    this.#done.sessions += written.isNew ? 1 : 0;
    this.#done.events += written.events.length;
  }

  /** @returns what was done, or with a dry run would have been. */
  async #writeBatch(sql: Sql, batch: SessionBatch): Promise<WritePlan> {
    const { isDryRun, isForeign } = this.#mode;
    const { owner: key } = batch.session;
    const row = await (isDryRun ? transferredSession(sql, key) : lockTransferred(sql, key));
    // What a dry run has not written is taken for written.
    const drySeq = isDryRun ? this.#lastSeq : undefined;
    const planner = new ImportPlanner(batch, { row, drySeq }, isForeign);
    const plan = planner.plan(await eventHeads(sql, key, planner.known));
    if (plan.kind === 'refuse') throw plan.error;
    const { bound } = batch.session.session;
    const origin = plan.start === 'keep' && row ? row.origin : (bound?.origin ?? randomUUID());
    if (!isDryRun) await this.#apply(sql, { ...key, origin }, batch.session, plan);
    return plan;
  }

  async #apply(sql: Sql, key: KnownSession, session: ImportedSession, plan: WritePlan): Promise<void> {
    const { events } = this.#stores;
    if (plan.start === 'replace') await deleteSoftDeleted(sql, key);
    if (plan.start !== 'keep') await this.#create(sql, key, session);
    const encoded = sql.texts.all(() => plan.events.map((event) => encodedEvent(sql.texts, key, event)));
    await events.insert(sql, key, plan.lastSeq - plan.events.length + 1, encoded);
    if (plan.end.kind === 'leave') return;
    if (plan.end.kind === 'complete') await this.#setState(sql, key, session, { ...plan.end, isNew: plan.isNew });
    await describeTransferred(sql, plan.end.row);
    if (plan.end.kind !== 'complete') return;
    const before = plan.start === 'keep' ? await openCallsOf(sql, key) : [];
    await replaceOpenCalls(sql, key, before, session.session.openCalls ?? this.#calls.all);
    await this.#recordHistory(sql, key, session, plan.end);
  }

  /** Creates the session without its events. */
  async #create(sql: Sql, key: KnownSession, { session, state }: ImportedSession): Promise<void> {
    const { firstSeq, lastUpdateTime, created, encodedCreated } = session;
    const head = { incarnation: randomUUID(), origin: key.origin, firstSeq, lastSeq: firstSeq - 1, lastUpdateTime };
    await insertSession(sql, key, head);
    if (encodedCreated !== undefined)
      return recordChange(sql, { session: key, kind: 'created', seq: 0, data: encodedCreated });
    const given = Object.entries(created ?? {}).map(([key, value]) => ({
      key,
      json: JSON.stringify(value),
      eventId: null,
    }));
    // Another store's session; what an event has written comes with it. A text as it is stored is no value.
    const unwritten = state.filter(({ json, eventId }) => eventId === null && !isEncoded(json));
    const entries = byScope(created ? given : unwritten);
    await recordChanges(
      sql,
      sql.texts.all(() => creationChanges(sql.texts, key, entries)),
    );
  }

  async #setState(
    sql: Sql,
    key: KnownSession,
    { session, state: entries }: ImportedSession,
    { isNew, isFirst }: { isNew: boolean; isFirst: boolean },
  ): Promise<void> {
    const { state } = this.#stores;
    const stored = isNew ? [] : await this.#stored(sql, key, 'session', entries);
    // The records explain this state. A change in the log would be taken for one that was made here.
    if (isFirst && stored.length === 0) return state.set(sql, key, encodedState(sql.texts, key, byScope(entries)));
    if (JSON.stringify(stored) === JSON.stringify(entries)) return;
    const kept = new Set(entries.map((entry) => entry.key));
    const removed = stored.map((entry) => entry.key).filter((name) => !kept.has(name));
    await state.clear(sql, key);
    await state.set(sql, key, encodedState(sql.texts, key, byScope(entries)));
    const plain = entries.filter(({ json }) => !isEncoded(json));
    await recordChanges(
      sql,
      sql.texts.all(() => stateChanges(sql.texts, { session: key, seq: session.lastSeq }, byScope(plain), removed)),
    );
    if (plain.length < entries.length)
      await recordChange(sql, { session: key, kind: 'imported', seq: session.lastSeq });
  }

  /** @returns the state that is here; of values that `entries` has encoded as it is stored, to be compared with these. */
  async #stored(sql: Sql, owner: SessionKey, scope: Scope, entries: readonly StateEntry[]): Promise<StateEntry[]> {
    const { state } = this.#stores;
    const written = await state.written(sql, owner, scope);
    const plain = sql.texts.decoded(written);
    const encoded = new Set(entries.filter(({ json }) => isEncoded(json)).map(({ key }) => key));
    if (encoded.size === 0) return plain;
    const stored = AS_STORED.decoded(written);
    const known = new Map(stored.map((entry) => [entry.key, entry]));
    return plain.map((entry) => (encoded.has(prefixed(scope, entry.key)) ? (known.get(entry.key) ?? entry) : entry));
  }

  /** Records what happened to the session outside of its events. */
  async #recordHistory(
    sql: Sql,
    key: KnownSession,
    { session }: ImportedSession,
    { isFirst, wasDeleted, row: { lastSeq: seq, deletedAt } }: Extract<WritePlan['end'], { kind: 'complete' }>,
  ): Promise<void> {
    for (const change of isFirst ? (session.changes ?? []) : []) {
      const { kind, seq, set = {}, removed, encoded } = change;
      const data = encoded ?? JSON.stringify(kind === 'state' ? { set, removed } : set);
      await recordChange(
        sql,
        sql.texts.all(() => encodedChange(sql.texts, { session: key, kind, seq, data })),
      );
    }
    const isDeleted = deletedAt !== undefined;
    // Of a session in which an event was rewritten no entry explains some of the state.
    if (isFirst || (wasDeleted && !isDeleted)) await recordChange(sql, { session: key, kind: 'imported', seq });
    if (isDeleted && !wasDeleted) await recordChange(sql, { session: key, kind: 'soft-deleted', seq });
  }
}
