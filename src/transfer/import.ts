import { randomUUID } from 'node:crypto';
import type { VersionKey } from '../artifacts/stored-version.js';
import { Calls } from '../conversation/calls.js';
import type { CallInParts } from '../database/calls/call-in-parts.js';
import type { Sql } from '../database/dialects/dialect.js';
import { insertEvents, setState } from '../database/dialects/session-rows.js';
import { creationChanges, recordChange, recordChanges } from '../database/statements/changes.js';
import { encodedEvent } from '../database/statements/events.js';
import { setOpenCalls } from '../database/statements/open-calls.js';
import { deleteSessionRow, insertSession } from '../database/statements/sessions.js';
import { lockStoredSession, storedSession, type StoredSession } from '../database/statements/stored-session.js';
import { encodedState, writtenState } from '../database/statements/state.js';
import type { KnownSession } from '../model/codec.js';
import { mapTexts } from '../model/stored-texts.js';
import { InvalidArgumentError, AlreadyExistsError } from '../model/errors.js';
import { decodeEvent } from '../model/json.js';
import { callHost } from '../model/host-callbacks.js';
import { sessionIdentity } from '../model/keys.js';
import { batchSizeOf } from '../model/pages.js';
import type { SessionRecord } from '../model/records.js';
import type { MaintenanceResult } from '../model/results.js';
import { byScope, prefixed, type StateEntry } from '../model/state.js';
import { planOf, type ImportPlan, type ImportRules } from './import-plan.js';
import { storableRecord, type NumberedEvent, type StorableRecord } from './records.js';
import { encodedImport, importVersion, nameOf } from '../artifacts/transferred-versions.js';
import {
  encodedMemory,
  importMark,
  importMemory,
  type ForgottenMemory,
  type TransferredMemory,
} from '../memory/stored-memories.js';
import {
  describeTransferred,
  hideImported,
  importedAs,
  isAsImported,
  showImported,
  type DescribedSession,
} from './transferred-sessions.js';

interface ImportMode extends Partial<ImportRules> {
  batchSize?: number;
  /** Whether to write nothing; the progress is the same. */
  isDryRun?: boolean;
  /** Whether existing values of apps and users stay. */
  sharedState?: 'overwrite' | 'keep';
}

const NOTHING = {
  ...{ sessions: 0, events: 0, artifactVersions: 0, memories: 0 },
  ...{ records: 0, refused: 0, annulled: 0 },
};

type ImportedArtifact = StorableRecord & { type: 'artifact' };

/** A session whose records are coming. */
interface Incoming {
  record: SessionRecord;
  /** Its own state. */
  state: readonly StateEntry[];
  /** A new history: nothing that was encoded for another one can be read in it. */
  key: KnownSession;
  incarnation: string;
  /** The events that are not written yet. */
  events: NumberedEvent[];
  /** The number of the next event. */
  nextSeq: number;
  /** The calls that wait after the events so far. */
  calls: Calls;
  /** Undefined until the first batch is written. */
  plan?: ImportPlan;
  /** What people call it, once the first batch is written. */
  names: Pick<DescribedSession, 'title' | 'labels'>;
}

/** Writes records in their order, in transactions of at most n events. */
export class Import {
  readonly #call: CallInParts;
  readonly #mode: Pick<ImportMode, 'isDryRun' | 'sharedState'>;
  readonly #rules: ImportRules;
  readonly #batchSize: number;
  readonly #done = { ...NOTHING };
  #skipped = 0;
  #batches = 0;
  #more = false;
  #session: Incoming | undefined;
  /** The version whose parts follow. */
  #artifact: ImportedArtifact | undefined;
  #parts: Buffer[] = [];
  /** The memories, and marks of forgotten ones, that will be written together. */
  #memories: (TransferredMemory | ForgottenMemory)[] = [];

  constructor(call: CallInParts, mode: ImportMode) {
    this.#call = call;
    const { onExisting = 'skip', force = false, isForeign = false } = mode;
    this.#mode = mode;
    this.#rules = { onExisting, force, isForeign };
    this.#batchSize = batchSizeOf(mode, 500);
  }

  get result(): MaintenanceResult<keyof typeof NOTHING> {
    return { done: { ...this.#done }, skipped: this.#skipped, batches: this.#batches, more: this.#more };
  }

  /** @throws InvalidArgumentError for something that is not a record of an export, or is out of order. */
  async add(record: unknown): Promise<void> {
    const number = this.#done.records + 1;
    const storable = storableRecord(record, number);
    if (storable.type === 'event') {
      await this.#addEvent(storable, number);
    } else if (storable.type === 'part') {
      this.#addPart(storable, number);
    } else if (storable.type === 'owned') {
      // The host's own tables are the host's to fill.
    } else if (storable.type === 'memory' || storable.type === 'forgotten') {
      if (this.#memories.length === 0 || this.#memories.length >= this.#batchSize) await this.end();
      this.#memories.push(storable.type === 'memory' ? storable.memory : storable.mark);
    } else {
      await this.end();
      if (storable.type === 'session') this.#session = incoming(storable);
      else if (storable.type === 'artifact') this.#artifact = storable;
      else await this.#writeShared(storable);
    }
    if (this.#artifact?.parts === this.#parts.length) await this.#writeArtifact(this.#artifact);
    this.#done.records++;
  }

  async #addEvent({ owner, event }: StorableRecord & { type: 'event' }, number: number): Promise<void> {
    const session = this.#session;
    if (!session || sessionIdentity(session.key) !== sessionIdentity(owner))
      throw new InvalidArgumentError(
        `Record ${number} is an event, but the record of its session does not come before it.`,
      );
    const { firstSeq, lastSeq, sessionId } = session.record;
    const { seq, json } = event;
    if (seq < firstSeq || seq > lastSeq)
      throw new InvalidArgumentError(
        `Record ${number}: seq is ${seq}, and the session has events from ${firstSeq} to ${lastSeq}.`,
      );
    if (seq !== session.nextSeq)
      throw new InvalidArgumentError(
        `Session ${sessionId} lacks the events between ${session.nextSeq - 1} and ${seq}.`,
      );
    // A session that may replace another one is read to its end first: if a record is refused, the other one stays.
    const isFull = session.events.length >= this.#batchSize && this.#rules.onExisting !== 'replace';
    if (isFull) await this.#write(session, false);
    session.events.push(event);
    session.nextSeq++;
    const decoded = decodeEvent(json);
    if (decoded) session.calls.add(seq, decoded);
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

  async #writeArtifact({ owner, info, createTime }: ImportedArtifact): Promise<void> {
    const version = { info, parts: this.#parts };
    this.drop();
    const isNew = await this.#transaction((sql) =>
      importVersion(sql, owner, createTime, encodedImport(sql.texts, owner, version)),
    );
    if (isNew) this.#done.artifactVersions++;
  }

  /** @returns undefined in a dry run, which runs no transaction and only counts it. */
  async #transaction<T>(work: (sql: Sql) => Promise<T>): Promise<T | undefined> {
    const done = this.#mode.isDryRun ? undefined : await this.#call.write(work);
    this.#batches++;
    return done;
  }

  /** Adds all records, until the signal fires. */
  async addAll(
    records: AsyncIterable<unknown> | Iterable<unknown>,
    { signal, onProgress }: { signal?: AbortSignal; onProgress?: (result: MaintenanceResult) => void },
  ): Promise<void> {
    for await (const record of records) {
      this.#more = signal?.aborted === true;
      if (this.#more) return;
      await this.add(record);
      callHost(onProgress, this.result);
    }
    await this.end();
  }

  async #writeMemories(memories: readonly (TransferredMemory | ForgottenMemory)[]): Promise<void> {
    if (memories.length === 0) return;
    const written = await this.#transaction(async (sql) => {
      const encoded = mapTexts(memories, (memory) =>
        memory.data === undefined ? memory : { ...memory, ...encodedMemory(sql.texts, memory.key, memory) },
      );
      let written = 0;
      for (const memory of encoded)
        if (memory.data === undefined) await importMark(sql, memory);
        else if (await importMemory(sql, memory)) written++;
      return written;
    });
    this.#done.memories += written ?? 0;
  }

  /** Writes what is not written yet. */
  async end(): Promise<void> {
    if (this.#session) await this.#endSession(this.#session);
    await this.#writeMemories(this.#memories);
    if (this.#artifact) {
      const { owner, parts } = this.#artifact;
      throw new InvalidArgumentError(`${nameOf(owner)} has only ${this.#parts.length} of its ${parts} parts.`);
    }
    this.drop();
  }

  async #endSession(session: Incoming): Promise<void> {
    const { record, nextSeq, events } = session;
    if (nextSeq <= record.lastSeq)
      throw new InvalidArgumentError(`Session ${record.sessionId} lacks its events after number ${nextSeq - 1}.`);
    while (events.length > this.#batchSize) await this.#write(session, false);
    await this.#write(session, true);
    if (session.plan === 'keep') this.#skipped++;
    else this.#done.sessions++;
  }

  /** Forgets the session or the artifact whose records are coming, and everything that is not written yet. */
  drop(): void {
    this.#artifact = undefined;
    this.#parts = [];
    this.#memories = [];
    this.#session = undefined;
  }

  async #writeShared({ type: scope, owner, state: entries }: StorableRecord & { type: 'app' | 'user' }): Promise<void> {
    const known = { ...owner, origin: '' };
    await this.#transaction(async (sql) => {
      const stored = await writtenState(sql, owner, scope);
      const byKey = new Map(
        stored.map(({ key, json, eventId }) => [prefixed(scope, key), JSON.stringify([json, eventId])]),
      );
      const isKept = (key: string) => this.#mode.sharedState === 'keep' && byKey.has(key);
      const fresh = entries.filter(
        ({ key, json, eventId }) => byKey.get(key) !== JSON.stringify([json, eventId]) && !isKept(key),
      );
      if (fresh.length === 0) return;
      await setState(sql, owner, encodedState(sql.texts, known, byScope(fresh)));
      await recordChange(sql, { session: known, kind: 'state', seq: 0 });
    });
  }

  /** Writes the next events of a session. @param isLast whether the session is whole with them. */
  async #write(session: Incoming, isLast: boolean): Promise<void> {
    const events = session.events.splice(0, this.#batchSize);
    if (session.plan === 'keep') return;
    const firstSeq = session.nextSeq - session.events.length - events.length;
    const plan = await this.#transaction((sql) => this.#writeBatch(sql, session, { events, firstSeq, isLast }));
    session.plan =
      plan ??
      session.plan ??
      (await this.#call.read(async (sql) => this.#planOf(sql, session, await storedSession(sql, session.key))));
    if (session.plan !== 'keep') this.#done.events += events.length;
  }

  async #planOf(sql: Sql, { record }: Incoming, row: StoredSession | undefined): Promise<ImportPlan> {
    const { onExisting, force, isForeign } = this.#rules;
    const mustKnow = row && onExisting === 'replace' && !force;
    const isAsBefore = mustKnow ? await isAsImported(sql, row, { isNamedAnew: isForeign }) : false;
    return planOf(record, row && { ...row, isAsImported: isAsBefore }, this.#rules);
  }

  async #writeBatch(
    sql: Sql,
    session: Incoming,
    { events, firstSeq, isLast }: { events: readonly NumberedEvent[]; firstSeq: number; isLast: boolean },
  ): Promise<ImportPlan> {
    const { key, incarnation, record } = session;
    const row = await lockStoredSession(sql, key);
    const isFirst = session.plan === undefined;
    const plan = session.plan ?? (await this.#planOf(sql, session, row));
    if (plan === 'keep') return plan;
    // A deletion that has begun takes several transactions: it would delete the rest of a session that is shown again.
    if (!isFirst && (row?.incarnation !== incarnation || row.status !== 'importing'))
      throw new AlreadyExistsError(key.sessionId, 'Others have deleted or imported it meanwhile: import it again.');
    if (isFirst) {
      const { isForeign } = this.#rules;
      // Other stores have neither titles, labels nor artifacts, so those that are here stay.
      if (row && isForeign) session.names = { title: row.title, labels: row.labels };
      if (row) await deleteSessionRow(sql, key, { keepsArtifacts: isForeign });
      const { origin } = key;
      const { lastUpdateTime, forkedFrom } = record;
      const head = { incarnation, origin, firstSeq, lastSeq: firstSeq - 1, lastUpdateTime };
      await insertSession(sql, key, { ...head, forkedFrom });
    }
    const encoded = mapTexts(events, (event) => encodedEvent(sql.texts, key, event));
    insertEvents(sql, key, firstSeq, encoded);
    const lastSeq = firstSeq + events.length - 1;
    if (isLast) await complete(sql, session, { isHidden: !isFirst });
    else await hideImported(sql, key, lastSeq);
    return plan;
  }
}

function incoming({ owner, session, state }: StorableRecord & { type: 'session' }): Incoming {
  const key = { ...owner, origin: randomUUID() };
  const { firstSeq: nextSeq, title = null, labels } = session;
  const names = { title, labels: labels ? JSON.stringify(labels) : null };
  const incarnation = randomUUID();
  return { record: session, state, key, incarnation, events: [], nextSeq, calls: new Calls(), names };
}

/** Writes everything of a session except its events, and makes it visible. */
async function complete(
  sql: Sql,
  { key, record, state, calls, names }: Incoming,
  { isHidden }: { isHidden: boolean },
): Promise<void> {
  const { firstSeq, lastSeq, createTime, lastUpdateTime, deletedAt, created, changes = [] } = record;
  if (isHidden) await showImported(sql, key);
  // Records that no JSON was read from may have what JSON drops.
  const given = Object.entries(created ?? {}).flatMap(([name, value]) =>
    value === undefined ? [] : [{ key: name, json: JSON.stringify(value), eventId: null }],
  );
  // A session of another store: its events have the values that they wrote.
  const unwritten = state.filter(({ eventId }) => eventId === null);
  await recordChanges(sql, creationChanges(sql.texts, key, byScope(created ? given : unwritten)));
  for (const { kind, seq, set, removed } of changes) {
    const data = JSON.stringify(kind === 'state' ? { set, removed } : set);
    await recordChange(sql, { session: key, kind, seq, data });
  }
  await setState(sql, key, encodedState(sql.texts, key, byScope(state)));
  describeTransferred(sql, { key, firstSeq, lastSeq, createTime, lastUpdateTime, deletedAt, ...names });
  await setOpenCalls(sql, key, calls, []);
  const change = { session: key, seq: lastSeq, data: importedAs(names) };
  // If an event of the session was rewritten, no other entry explains some of the state.
  await recordChange(sql, { ...change, kind: 'imported' });
  if (deletedAt !== undefined) await recordChange(sql, { ...change, kind: 'soft-deleted' });
}
