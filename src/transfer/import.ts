import { randomUUID } from 'node:crypto';
import { insertEvents, setState } from '../database/dialects/session-rows.js';
import type { VersionKey } from '../artifacts/stored-version.js';
import { Calls } from '../conversation/calls.js';
import type { Sql, StoredEvent } from '../database/dialects/dialect.js';
import type { UnderLock } from '../database/dialects/event-parts.js';
import {
  creationChanges,
  recordChange,
  recordChanges,
  recordedChanges,
  stateChanges,
  type NewChange,
  type RecordedChange,
} from '../database/statements/changes.js';
import { encodedEvent, keysIn } from '../database/statements/events.js';
import { openCallsOf, setOpenCalls } from '../database/statements/open-calls.js';
import { deleteSoftDeleted, insertSession } from '../database/statements/sessions.js';
import { isUnfinished } from '../database/statements/stored-session.js';
import { clearState, encodedState, writtenState } from '../database/statements/state.js';
import type { CallInParts } from '../database/calls/call-in-parts.js';
import { ofState, type KnownSession } from '../model/codec.js';
import { AS_STORED, isEncoded, type StoredTexts } from '../model/stored-texts.js';
import { InvalidArgumentError } from '../model/errors.js';
import { decodeEvent } from '../model/json.js';
import { callHost } from '../model/host-callbacks.js';
import { sessionIdentity, type SessionKey } from '../model/keys.js';
import { pastState } from '../model/past-state.js';
import type { ImportResult } from '../model/results.js';
import { byScope, prefixed, type Scope, type StateEntries, type StateEntry } from '../model/state.js';
import { ImportPlanner, type ImportPlan, type SessionBatch } from './import-plan.js';
import { changeData, freshChanges, isExplained } from './fresh-changes.js';
import {
  refusePlain,
  storableRecord,
  type AcceptedTexts,
  type NumberedEvent,
  type SessionRecord,
  type StorableRecord,
} from './records.js';
import { encodedImport, importVersion, nameOf } from './stored-artifacts.js';
import { encodedMemory, importMemory, type TransferredMemory } from './stored-memories.js';
import {
  describeTransferred,
  eventHeads,
  lockTransferred,
  transferredSession,
  type TransferredSession,
} from './transferred-sessions.js';

interface ImportMode extends AcceptedTexts {
  batchSize: number;
  /** Whether to write nothing; the progress is the same. */
  isDryRun?: boolean;
  /** Whether existing values of apps and users stay. */
  sharedState?: 'overwrite' | 'keep' | undefined;
  /** Whether the records come from a store without titles, labels and soft deletions: then those of existing sessions stay. */
  isForeign?: boolean;
}

type ImportedSession = SessionBatch['session'];
type ImportedArtifact = StorableRecord & { type: 'artifact' };

/** What is stored of a batch's session: the basis of the plan, and what texts are encoded for. */
interface Here {
  row: TransferredSession | undefined;
  /** The numbers and ids of the batch's events that are stored. */
  events: readonly (readonly [seq: number, id: string])[];
  /** The session's own state as it is stored, and what is recorded of it; empty if the import does not set it. */
  state: readonly StateEntry[];
  changes: readonly RecordedChange[];
}

/** What an import writes of a batch, as it is stored. */
interface BatchTexts {
  key: KnownSession;
  events: readonly StoredEvent[];
  created: readonly NewChange[];
  state: StateWrite | undefined;
  changes: readonly NewChange[];
}

interface StateWrite {
  set: StateEntries;
  /** Whether this replaces stored state; then it is recorded. */
  replaces: boolean;
  recorded: readonly NewChange[];
}

/** Writes records in their order, in transactions of at most n events. */
export class Import {
  readonly #call: CallInParts;
  readonly #mode: ImportMode;
  readonly #done: ImportResult = {
    ...{ sessions: 0, events: 0, artifactVersions: 0, memories: 0 },
    ...{ records: 0, refused: 0, annulled: 0 },
  };
  #session: ImportedSession | undefined;
  #events: NumberedEvent[] = [];
  /** The calls that wait after the session's events so far. */
  #calls = new Calls();
  /** The number of the session's newest event that a batch has written, or would have. */
  #lastSeq: number | undefined;
  /** The version whose parts follow. */
  #artifact: ImportedArtifact | undefined;
  #parts: Buffer[] = [];
  /** The memories that will be written together. */
  #memories: TransferredMemory[] = [];

  constructor(call: CallInParts, mode: ImportMode) {
    this.#call = call;
    this.#mode = mode;
  }

  get result(): ImportResult {
    return { ...this.#done };
  }

  /** @throws InvalidArgumentError for something that is not a record of an export, or is out of order. */
  async add(record: unknown): Promise<void> {
    const number = this.#done.records + 1;
    const storable = storableRecord(record, number, this.#mode);
    if (storable.type === 'event') {
      this.#checkOrder(storable, number);
      if (this.#events.length >= this.#mode.batchSize) await this.#write(false);
      this.#events.push(storable.event);
      addCalls(this.#calls, storable.event);
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
        `Record ${number} is a part of an artifact, but the artifact's record or an earlier part is missing.`,
      );
    this.#parts.push(data);
  }

  async #writeArtifact({ owner, info, createTime, upload }: ImportedArtifact): Promise<void> {
    const version = { info, createTime, upload, parts: this.#parts };
    this.drop();
    if (this.#mode.isDryRun) return;
    const { database, write } = this.#call;
    const encode = (texts: StoredTexts) => encodedImport(texts, owner, version);
    const encoded = await this.#call.encoding(() => database.code(encode));
    if (await write((sql) => importVersion(sql, owner, createTime, encoded))) this.#done.artifactVersions++;
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
        `Record ${number} is an event, but the record of its session does not come before it.`,
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
    const { database, write } = this.#call;
    const encode = (texts: StoredTexts) =>
      memories.map((memory) => ({ ...memory, ...encodedMemory(texts, memory.key, memory) }));
    const encoded = await this.#call.encoding(() => database.code(encode));
    this.#done.memories += await write(async (sql) => {
      let written = 0;
      for (const memory of encoded) if (await importMemory(sql, memory)) written++;
      return written;
    });
  }

  /** Writes what is not written yet. */
  async end(): Promise<void> {
    if (this.#session) await this.#write(true);
    await this.#writeMemories(this.#memories);
    if (this.#artifact) {
      const { owner, parts } = this.#artifact;
      throw new InvalidArgumentError(`${nameOf(owner)} has only ${this.#parts.length} of its ${parts} parts.`);
    }
    this.drop();
  }

  /** Forgets the session or the artifact whose records are coming, and everything that is not written yet. */
  drop(): void {
    this.#artifact = undefined;
    this.#parts = [];
    this.#memories = [];
    this.#session = undefined;
    this.#events = [];
    this.#calls = new Calls();
    this.#lastSeq = undefined;
  }

  async #writeShared({ type: scope, owner, state: entries }: StorableRecord & { type: 'app' | 'user' }): Promise<void> {
    if (this.#mode.isDryRun) return;
    const known = { ...owner, origin: '' };
    const read = async (sql: Sql) => ({ stored: await this.#stored(sql, owner, scope) });
    const encode = (texts: StoredTexts, { stored }: { stored: readonly StateEntry[] }) => {
      const comparable = comparableState(texts, known, scope, stored, entries);
      const here = new Map(comparable.map(({ key, ...value }) => [prefixed(scope, key), JSON.stringify(value)]));
      const isKept = (key: string) => this.#mode.sharedState === 'keep' && here.has(key);
      const fresh = entries.filter(({ key, ...value }) => here.get(key) !== JSON.stringify(value) && !isKept(key));
      return fresh.length > 0 && encodedState(texts, known, byScope(fresh));
    };
    await this.#call.write(async (sql) => {
      const state = encode(sql.texts, await read(sql));
      if (!state) return;
      await setState(sql, owner, state);
      await recordChange(sql, { session: known, kind: 'state', seq: 0 });
    });
  }

  /** @param isLast whether these are the last events of the session. */
  async #write(isLast: boolean): Promise<void> {
    const session = this.#session;
    if (!session) return;
    const batch = { session, events: this.#events, isLast };
    this.#events = [];
    const written = await this.#writeBatch(batch);
    this.#lastSeq = written.lastSeq;
    this.#done.sessions += written.isNew ? 1 : 0;
    this.#done.events += written.events.length;
  }

  /** @returns what was done, or what a dry run would have done. */
  async #writeBatch(batch: SessionBatch): Promise<ImportPlan> {
    if (this.#mode.isDryRun) return this.#planOf(batch, await this.#call.read((sql) => this.#here(sql, batch)));
    const origin = batch.session.session.bound?.origin ?? randomUUID();
    return this.#call.write(async (sql) => {
      const here = await this.#here(sql, batch, { isLocked: true });
      const plan = this.#planOf(batch, here);
      await this.#apply(sql, batch.session, plan, this.#encoded(sql.texts, batch, here, origin));
      return plan;
    });
  }

  /** Reads what is stored of the session, with or without its lock. */
  async #here(sql: Sql, batch: SessionBatch, { isLocked = false }: UnderLock = {}): Promise<Here> {
    const { owner: key } = batch.session;
    const row = await (isLocked ? lockTransferred(sql, key) : transferredSession(sql, key));
    const heads = await eventHeads(sql, key, this.#planner(batch, row).known);
    const events = [...heads].map(([seq, { id }]) => [seq, id] as const);
    const plan = this.#planner(batch, row).plan(heads);
    const setsState = plan.end.kind === 'complete' && !plan.isNew;
    return {
      row,
      events,
      state: setsState ? await this.#stored(sql, key, 'session') : [],
      changes: setsState ? await recordedChanges({ ...sql, texts: AS_STORED }, key) : [],
    };
  }

  #planner(batch: SessionBatch, row: TransferredSession | undefined): ImportPlanner {
    const { isDryRun, isForeign } = this.#mode;
    // A dry run counts as written what it would have written.
    return new ImportPlanner(batch, { row, drySeq: isDryRun ? this.#lastSeq : undefined }, isForeign);
  }

  #planOf(batch: SessionBatch, { row, events }: Here): ImportPlan {
    return this.#planner(batch, row).plan(new Map(events.map(([seq, id]) => [seq, { id }])));
  }

  #encoded(texts: StoredTexts, batch: SessionBatch, here: Here, newOrigin: string): BatchTexts {
    const { session: imported } = batch;
    const { session } = imported;
    const plan = this.#planOf(batch, here);
    const { end } = plan;
    const key = { ...imported.owner, origin: plan.start === 'keep' && here.row ? here.row.origin : newOrigin };
    const { firstSeq } = here.row ?? session;
    const { fresh, hasOwn } =
      end.kind === 'complete'
        ? freshChanges(texts, session, { key, firstSeq, changes: here.changes })
        : { fresh: [], hasOwn: false };
    const changes = end.kind === 'complete' && end.isFirst ? (session.changes ?? []) : fresh;
    const events = new Set(plan.events.map(({ id }) => id));
    return {
      key,
      events: plan.events.map((event) => encodedEvent(texts, key, event)),
      created: plan.start === 'keep' ? [] : encodedCreation(texts, key, imported),
      state:
        end.kind === 'complete'
          ? encodedOwnState(texts, key, imported, { ...end, stored: here.state, hasOwn, events })
          : end.kind === 'hide' && end.row.deletedAt === undefined
            ? { set: encodedState(texts, key, byScope(stateOf(plan))), replaces: false, recorded: [] }
            : undefined,
      changes: changes.map((change) => {
        const { kind, seq } = change;
        return { session: key, kind, seq, data: changeData(change) };
      }),
    };
  }

  async #apply(sql: Sql, { session }: ImportedSession, plan: ImportPlan, texts: BatchTexts): Promise<void> {
    const { key } = texts;
    const { start, end, lastSeq } = plan;
    if (start === 'replace') await deleteSoftDeleted(sql, key);
    if (start !== 'keep') {
      const { firstSeq, lastUpdateTime, forkedFrom } = session;
      const head = { incarnation: randomUUID(), origin: key.origin, firstSeq, lastSeq: firstSeq - 1, lastUpdateTime };
      await insertSession(sql, key, { ...head, forkedFrom });
    }
    await recordChanges(sql, texts.created);
    await insertEvents(sql, key, lastSeq - plan.events.length + 1, texts.events);
    if (end.kind === 'leave') return;
    await recordChanges(sql, texts.changes);
    if (texts.state) {
      if (texts.state.replaces) await clearState(sql, key);
      await setState(sql, key, texts.state.set);
      await recordChanges(sql, texts.state.recorded);
    }
    await describeTransferred(sql, end.row);
    await this.#applyCalls(sql, session, plan, key);
    const change = { session: key, seq: lastSeq };
    if (end.kind === 'hide') {
      // The row is soft-deleted until the last batch. Readers of the log must not see a part of the session either.
      if (start !== 'keep') await recordChange(sql, { ...change, kind: 'soft-deleted' });
      return;
    }
    const { isFirst, wasDeleted, row } = end;
    const isDeleted = row.deletedAt !== undefined;
    // If an event of the session was rewritten, no other entry explains some of the state.
    if (isFirst || (wasDeleted && !isDeleted)) await recordChange(sql, { ...change, kind: 'imported' });
    if (isDeleted && !wasDeleted) await recordChange(sql, { ...change, kind: 'soft-deleted' });
  }

  /** In a session that was complete only new events change the calls: others may have been rewritten since, there or here. */
  async #applyCalls(
    sql: Sql,
    session: SessionRecord,
    { start, end, events }: ImportPlan,
    key: SessionKey,
  ): Promise<void> {
    if (end.kind === 'leave' || isUnfinished(end.row)) return;
    const isFirst = end.kind === 'complete' && end.isFirst;
    // Of encoded events the calls are known at the end.
    const areOfFile = isFirst || session.bound;
    const mayChange = areOfFile ? end.kind === 'complete' && (isFirst || events.length > 0) : events.length > 0;
    if (!mayChange) return;
    const before = start === 'keep' ? await openCallsOf(sql, key) : [];
    const calls = new Calls(areOfFile ? (session.openCalls ?? this.#calls.rows) : before);
    if (!areOfFile) for (const event of events) addCalls(calls, event);
    // Events that were trimmed here since the export are gone, and their calls are, too.
    const kept = new Calls(calls.rows.filter(({ seq }) => seq >= end.row.firstSeq));
    await setOpenCalls(sql, key, kept, before);
  }

  /** @returns the stored state, with encoded texts. */
  async #stored(sql: Sql, owner: SessionKey, scope: Scope): Promise<StateEntry[]> {
    return writtenState({ ...sql, texts: AS_STORED }, owner, scope);
  }
}

function addCalls(to: Calls, { seq, json }: NumberedEvent): void {
  const event = isEncoded(json) ? undefined : decodeEvent(json);
  if (event) to.add(seq, event);
}

/** @returns the changes that record the session's creation. */
function encodedCreation(texts: StoredTexts, key: KnownSession, { session, state }: ImportedSession): NewChange[] {
  const { created, encodedCreated } = session;
  if (encodedCreated !== undefined) return [{ session: key, kind: 'created', seq: 0, data: encodedCreated }];
  // Records that no JSON was read from may have what JSON drops.
  const given = Object.entries(created ?? {}).flatMap(([key, value]) =>
    value === undefined ? [] : [{ key, json: JSON.stringify(value), eventId: null }],
  );
  // A session of another store: its events have the values that they wrote. An encoded text is not a value.
  const unwritten = state.filter(({ json, eventId }) => eventId === null && !isEncoded(json));
  return creationChanges(texts, key, byScope(created ? given : unwritten));
}

/** What the events of a batch leave of the session's own state. Others see the session before the last batch, which sets all of it. */
function stateOf({ events, lastSeq }: ImportPlan): StateEntry[] {
  const plain = events.flatMap(({ seq, json, superseded }) => {
    const event = isEncoded(json) ? undefined : decodeEvent(json);
    return event ? [{ seq, event, superseded: superseded === undefined ? undefined : keysIn(superseded) }] : [];
  });
  return pastState([], plain, lastSeq);
}

interface StateHere {
  isFirst: boolean;
  stored: readonly StateEntry[];
  hasOwn: boolean;
  /** The ids of the events that come with it. */
  events: ReadonlySet<string>;
}

/** @returns undefined if the state stays as it is. */
function encodedOwnState(
  texts: StoredTexts,
  key: KnownSession,
  { session, state: entries }: ImportedSession,
  { isFirst, stored: raw, hasOwn, events }: StateHere,
): StateWrite | undefined {
  const set = () => encodedState(texts, key, byScope(entries));
  const stored = comparableState(texts, key, 'session', raw, entries);
  // The records explain this state, so a change in the log would look like one that was made here.
  if (isFirst && stored.length === 0) return { set: set(), replaces: false, recorded: [] };
  if (JSON.stringify(stored) === JSON.stringify(entries)) return undefined;
  const kept = new Set(entries.map((entry) => entry.key));
  const removed = stored.map((entry) => entry.key).filter((name) => !kept.has(name));
  const plain = entries.filter(({ json }) => !isEncoded(json));
  const change = { session: key, seq: session.lastSeq };
  const explains = !hasOwn && isExplained(entries, stored, session.changes ?? [], events);
  const recorded = explains ? [] : stateChanges(texts, change, byScope(plain), removed);
  if (explains || plain.length < entries.length) recorded.push({ ...change, kind: 'imported' });
  return { set: set(), replaces: true, recorded };
}

/** @returns the stored state to compare with `entries`: encoded values for entries that are encoded. */
function comparableState(
  texts: StoredTexts,
  owner: KnownSession,
  scope: Scope,
  stored: readonly StateEntry[],
  entries: readonly StateEntry[],
): StateEntry[] {
  const encoded = new Set(entries.filter(({ json }) => isEncoded(json)).map(({ key }) => key));
  return stored.map((entry) => {
    if (encoded.has(prefixed(scope, entry.key))) return entry;
    const json = texts.decode(entry.json, () => ofState(owner, scope, entry.key));
    return { ...entry, json: typeof json === 'string' ? json : '' };
  });
}
