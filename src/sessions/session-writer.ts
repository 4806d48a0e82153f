import { randomUUID } from 'node:crypto';
import { Calls } from '../conversation/calls.js';
import type { Sql, StoredEvent } from '../database/dialects/dialect.js';
import { insertEvents, setState } from '../database/dialects/session-rows.js';
import { creationChanges, recordChange, recordChanges } from '../database/statements/changes.js';
import { encodedEvent } from '../database/statements/events.js';
import { setOpenCalls } from '../database/statements/open-calls.js';
import { deleteSessionRow, insertSession, setColumns } from '../database/statements/sessions.js';
import { encodedState } from '../database/statements/state.js';
import { lockStoredSession, storedSession, type StoredSession } from '../database/statements/stored-session.js';
import { aRecord, aString, aTime, object, objects, oneOf, strings } from '../model/arguments.js';
import type { KnownSession } from '../model/codec.js';
import { aTitle, someLabels } from '../model/description.js';
import { AlreadyExistsError, InvalidArgumentError } from '../model/errors.js';
import { withoutInternalMetadata } from '../model/internal-metadata.js';
import { decodeEvent, encode } from '../model/json.js';
import { checkKeys, checkedSessionKey, sessionIdentity, type ForkedFrom, type SessionKey } from '../model/keys.js';
import type { EventRecord, SessionRecord, StateChangeRecord } from '../model/records.js';
import { byScope, type StateEntry } from '../model/state.js';
import { mapTexts } from '../model/stored-texts.js';
import { beginsTurn, type LooseEvent } from '../model/turn.js';
import { RECORDED_LEVELS, inRecord, wholeFrom, type ImportRun, type RecordWriter } from '../owned/record-writer.js';
import { planOf, type ImportPlan } from './import-plan.js';
import { storableState } from './state-writer.js';
import { hideImported, importedAs, isAsImported, showImported, type SessionNames } from './transferred-sessions.js';

type NumberedEvent = StoredEvent & { seq: number };

/** A session whose records are coming. */
interface IncomingSession {
  record: SessionRecord;
  /** Its own state. */
  state: readonly StateEntry[];
  /** A new history: nothing that was encoded for another one can be read in it. */
  key: KnownSession;
  incarnation: string;
  /** The events that are not written yet. */
  events: NumberedEvent[];
  /** Of all events so far. */
  ids: Set<string>;
  /** The number of the next event. */
  nextSeq: number;
  /** The calls that wait after the events so far. */
  calls: Calls;
  /** Undefined until the first batch is written. */
  plan?: ImportPlan;
  /** What people call it, once the first batch is written. */
  names: SessionNames;
}

const aForkPoint = object<ForkedFrom>(
  { sessionId: aString, at: wholeFrom(0), root: aString },
  ...(['sessionId', 'at'] as const),
);
const checkSession = object<SessionRecord>(
  {
    ...inRecord,
    ...{ createTime: aTime, lastUpdateTime: aTime, deletedAt: aTime },
    ...{ firstSeq: wholeFrom(1), lastSeq: wholeFrom(0) },
    ...{ title: aTitle, labels: someLabels, forkedFrom: aForkPoint },
    ...{ state: objects, created: aRecord, changes: objects },
  },
  ...(['createTime', 'lastUpdateTime', 'firstSeq', 'lastSeq', 'state'] as const),
);
const checkEvent = object<EventRecord>(
  { ...inRecord, seq: wholeFrom(1), event: aRecord, superseded: strings, appendTime: aTime },
  ...(['seq', 'event'] as const),
);
const checkChange = object<StateChangeRecord>(
  { seq: wholeFrom(0), kind: oneOf('state', 'trimmed'), set: aRecord, removed: strings },
  ...(['seq', 'kind', 'set', 'removed'] as const),
);

/** Writes sessions with their events, in transactions of at most n events. */
export class SessionWriter implements RecordWriter {
  readonly types = ['session', 'event'] as const;
  readonly #run: ImportRun;
  #session: IncomingSession | undefined;

  constructor(run: ImportRun) {
    this.#run = run;
  }

  check(record: { type: 'session' | 'event' }, name: string): () => Promise<void> {
    if (record.type === 'event') {
      const { owner, event } = storableEvent(checkEvent(record, name));
      return () => this.#addEvent(owner, event, name);
    }
    const session = incoming(checkSession(record, name));
    return async () => {
      await this.end();
      this.#session = session;
    };
  }

  async #addEvent(owner: SessionKey, event: NumberedEvent, name: string): Promise<void> {
    const session = this.#session;
    if (!session || sessionIdentity(session.key) !== sessionIdentity(owner))
      throw new InvalidArgumentError(`${name} is an event, but the record of its session does not come before it.`);
    const { record, nextSeq, ids } = session;
    const { seq, id, json } = event;
    if (seq !== nextSeq || seq > record.lastSeq)
      throw new InvalidArgumentError(
        `${name}: seq is ${seq} after ${nextSeq - 1}, and session ${record.sessionId} has events from ${record.firstSeq} to ${record.lastSeq}.`,
      );
    if (ids.has(id)) throw new InvalidArgumentError(`${name}: event.id is that of an earlier event: ${id}.`);
    // A session that may replace another one is read to its end first: if a record is refused, the other one stays.
    const isFull = session.events.length >= this.#run.batchSize && this.#run.rules.onExisting !== 'replace';
    if (isFull) await this.#write(session, false);
    session.events.push(event);
    ids.add(id);
    session.nextSeq++;
    const decoded = decodeEvent(json);
    if (decoded) session.calls.add(seq, decoded);
  }

  async end(): Promise<void> {
    const session = this.#session;
    if (!session) return;
    const { record, nextSeq, events } = session;
    if (nextSeq <= record.lastSeq)
      throw new InvalidArgumentError(`Session ${record.sessionId} lacks its events after number ${nextSeq - 1}.`);
    while (events.length > this.#run.batchSize) await this.#write(session, false);
    await this.#write(session, true);
    this.#run.count(session.plan === 'keep' ? 'skipped' : 'sessions', 1);
    this.drop();
  }

  drop(): void {
    this.#session = undefined;
  }

  /** Writes the next events of a session. @param isLast whether the session is whole with them. */
  async #write(session: IncomingSession, isLast: boolean): Promise<void> {
    const events = session.events.splice(0, this.#run.batchSize);
    if (session.plan === 'keep') return;
    const firstSeq = session.nextSeq - session.events.length - events.length;
    const plan = await this.#run.write((sql) => this.#writeBatch(sql, session, { events, firstSeq, isLast }));
    session.plan =
      plan ??
      session.plan ??
      (await this.#run.read(async (sql) => this.#planOf(sql, session, await storedSession(sql, session.key))));
    if (session.plan !== 'keep') this.#run.count('events', events.length);
  }

  #planOf(sql: Sql, { record }: IncomingSession, row: StoredSession | undefined): Promise<ImportPlan> {
    const { rules } = this.#run;
    const isNamedAnew = rules.isOfOtherStore;
    return planOf(record, row, rules, async () => row !== undefined && isAsImported(sql, row, { isNamedAnew }));
  }

  async #writeBatch(
    sql: Sql,
    session: IncomingSession,
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
      const { isOfOtherStore } = this.#run.rules;
      // Other stores have neither titles, labels nor artifacts, so those that are here stay.
      if (row && isOfOtherStore) session.names = { title: row.title, labels: row.labels };
      if (row) await deleteSessionRow(sql, key, { keepsArtifacts: isOfOtherStore });
      const { origin } = key;
      const { lastUpdateTime, forkedFrom } = record;
      const head = { incarnation, origin, firstSeq, lastSeq: firstSeq - 1, lastUpdateTime };
      await insertSession(sql, key, { ...head, forkedFrom });
    }
    const encoded = mapTexts(events, (event) => encodedEvent(sql.texts, key, event));
    insertEvents(sql, key, firstSeq, encoded);
    const lastSeq = firstSeq + events.length - 1;
    if (isLast) await complete(sql, session, { isHidden: !isFirst });
    else await hideImported(sql, key, { firstSeq, lastSeq });
    return plan;
  }
}

/** @throws InvalidArgumentError, InvalidKeyError, UnserializableValueError. */
function incoming(record: SessionRecord): IncomingSession {
  const owner = checkedSessionKey(record);
  const { firstSeq: nextSeq, lastSeq, title = null, labels, forkedFrom, created, changes = [] } = record;
  if (nextSeq > lastSeq + 1) throw new InvalidArgumentError('firstSeq must be lastSeq + 1 at most.');
  for (const sessionId of forkedFrom ? [forkedFrom.sessionId, forkedFrom.root] : [])
    if (sessionId !== undefined) checkKeys({ sessionId });
  if (forkedFrom && forkedFrom.at > lastSeq) throw new InvalidArgumentError('forkedFrom.at must be lastSeq at most.');
  if (created) encode(created, 'created', RECORDED_LEVELS);
  for (const change of changes) {
    checkChange(change, 'changes');
    encode(change, 'changes', RECORDED_LEVELS);
  }
  const state = storableState(record.state, 'session', owner);
  const names = { title, labels: labels ? JSON.stringify(labels) : null };
  const none = { events: [], ids: new Set<string>(), calls: new Calls() };
  return { record, state, key: { ...owner, origin: randomUUID() }, incarnation: randomUUID(), nextSeq, names, ...none };
}

/** @throws InvalidArgumentError, InvalidKeyError, UnserializableValueError. */
function storableEvent(record: EventRecord): { owner: SessionKey; event: NumberedEvent } {
  const { seq, superseded, appendTime = null } = record;
  const event: EventRecord['event'] & LooseEvent = record.event;
  const { id, timestamp } = event;
  aString(id, 'event.id');
  aTime(timestamp, 'event.timestamp');
  const owner = checkedSessionKey(record);
  checkKeys({ ...owner, eventId: id });
  // Anybody who makes a file or another store could write keys that ADK trusts.
  const { json } = encode(withoutInternalMetadata(event), 'event');
  const lost = superseded && { superseded: JSON.stringify(superseded) };
  return { owner, event: { seq, id, timestamp, json, ...lost, beginsTurn: beginsTurn(event), appendTime } };
}

/** Writes everything of a session except its events, and makes it visible. */
async function complete(
  sql: Sql,
  { key, record, state, calls, names }: IncomingSession,
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
  setColumns(sql, key, {
    ...{ first_seq: firstSeq, last_seq: lastSeq, create_time: createTime, last_update_time: lastUpdateTime },
    ...{ deleted_at: deletedAt ?? null, status: deletedAt === undefined ? 'active' : 'deleted', ...names },
  });
  await setOpenCalls(sql, key, calls, { before: [] });
  const change = { session: key, seq: lastSeq, data: importedAs(names) };
  // If an event of the session was rewritten, no other entry explains some of the state.
  await recordChange(sql, { ...change, kind: 'imported' });
  if (deletedAt !== undefined) await recordChange(sql, { ...change, kind: 'soft-deleted' });
}
