import { promisify } from 'node:util';
import { constants, deflateRaw, inflateRaw, type ZlibOptions } from 'node:zlib';
import { writtenState } from '../database/statements/state.js';
import { supersededKeys } from '../database/statements/events.js';
import { versionPage } from '../artifacts/artifact-store.js';
import type { VersionKey } from '../artifacts/stored-version.js';
import type { LongRunningCall } from '../conversation/calls.js';
import type { Database } from '../database/calls/database.js';
import type { Run, Sql, StoredEvent } from '../database/dialects/dialect.js';
import { pastChangeOf, recordedChanges, type RecordedChange } from '../database/statements/changes.js';
import { loggedEventsOfSession, type LoggedEvent } from '../database/statements/logged-events.js';
import { openCallsOf } from '../database/statements/open-calls.js';
import { isUnfinished } from '../database/statements/stored-session.js';
import { walkedSessions, type KeptSession } from '../database/statements/walk.js';
import { AS_STORED, isEncoded, isWhole } from '../model/stored-texts.js';
import { labelsIn } from '../model/description.js';
import { DamagedSessionError, type DamagedEvents } from '../model/errors.js';
import { decode, decodeEvent, given } from '../model/json.js';
import type { SessionKey } from '../model/keys.js';
import type { ErrorContext } from '../model/options.js';
import { namesOf, pagesOf } from '../model/pages.js';
import { gapsIn } from '../model/seq-ranges.js';
import { type Scope, type StateEntry } from '../model/state.js';
import { bindingOf, type TextBinding, type TransferTexts } from './bound-texts.js';
import type {
  ArtifactPartRecord,
  ArtifactRecord,
  EventRecord,
  MemoryRecord,
  SessionRecord,
  StateChangeRecord,
  StateRecord,
  TransferRecord,
} from './records.js';
import { transferredVersion } from './stored-artifacts.js';
import { memoryPage, transferredMemories, type TransferredMemory } from './stored-memories.js';
import {
  eventHeads,
  nextAppWithState,
  nextUserWithState,
  transferredSession,
  type TransferredSession,
} from './transferred-sessions.js';

/** How an export reads. */
interface Reading {
  readonly run: Run;
  /** The same as of one moment. */
  readonly snapshot: Run;
  readonly areAsStored: boolean;
}

const deflate = promisify<string, ZlibOptions, Buffer>(deflateRaw);
const inflate = promisify<Buffer, Buffer>(inflateRaw);

/** What to export, and how. A session must meet all conditions. */
export interface ExportOptions {
  appName?: string;
  /** Leaves out the state of apps (`app:`), which belongs to nobody. */
  userId?: string;
  /**
   * `'plain'` by default. With `'asStored'` encoded texts stay encoded, and no key is needed. They can only be imported under the
   * same names, and read with the same codecs and keys.
   */
  texts?: TransferTexts;
}

/** How many sessions one query reads. */
const PAGE = 200;

/** How many uncompressed events are in memory at a time. */
const BATCH = 200;

/** Reads what is stored, in an order that is the same on every database. */
export async function* exportRecords(
  database: Database,
  call: ErrorContext,
  { appName, userId, texts }: ExportOptions,
): AsyncGenerator<TransferRecord> {
  const areAsStored = texts === 'asStored';
  const of =
    <T>(work: (sql: Sql) => Promise<T>) =>
    (sql: Sql) =>
      work(areAsStored ? { ...sql, texts: AS_STORED } : sql);
  const reading: Reading = {
    run: (work) => database.call(call, () => database.run(of(work))),
    snapshot: (work) => database.call(call, () => database.snapshot(of(work))),
    areAsStored,
  };
  for await (const app of namesOf(appName, (after) => reading.run((sql) => nextAppWithState(sql, after))))
    yield* exportApp(reading, app, userId);
}

/** What the texts of an export as stored are bound to; nothing for other exports. */
const boundIn = ({ areAsStored }: Reading, owner: SessionKey, origin = ''): { bound?: TextBinding } =>
  areAsStored ? { bound: bindingOf(owner, origin) } : {};

async function* exportApp(
  reading: Reading,
  appName: string,
  userId: string | undefined,
): AsyncGenerator<TransferRecord> {
  const { run } = reading;
  const stateOf = async (owner: SessionKey, scope: Scope) => {
    const entries = await run((sql) => writtenState(sql, owner, scope));
    return { ...boundIn(reading, owner), state: entries.map((entry) => stateRecord(entry, owner)) };
  };
  const app = { appName, userId: '', sessionId: '' };
  if (userId === undefined) {
    const found = await stateOf(app, 'app');
    if (found.state.length > 0) yield { type: 'app', appName, ...found };
  }
  for await (const user of namesOf(userId, (after) => run((sql) => nextUserWithState(sql, appName, after)))) {
    const found = await stateOf({ ...app, userId: user }, 'user');
    if (found.state.length > 0) yield { type: 'user', appName, userId: user, ...found };
  }
  const sessions = (after?: KeptSession) =>
    run((sql) => walkedSessions(sql, { appName, userId, by: 'key' }, after, PAGE));
  for await (const page of pagesOf(PAGE, sessions)) for (const { key } of page) yield* exportSession(reading, key);
  yield* exportArtifacts(reading, appName, userId);
  yield* exportMemories(reading, appName, userId);
}

/** Includes expired memories, and those that have not settled. */
async function* exportMemories(
  reading: Reading,
  appName: string,
  userId: string | undefined,
): AsyncGenerator<MemoryRecord> {
  const memories = (after?: TransferredMemory) =>
    reading.run(async (sql) =>
      transferredMemories(sql.texts, await memoryPage(sql, { appName, userId }, after?.key, PAGE)),
    );
  for await (const page of pagesOf(PAGE, memories)) {
    for (const { key, seq, time, createTime, settles, expires, words, model, embedding, data } of page)
      yield {
        type: 'memory',
        ...key,
        ...given({ seq, time, createTime, settles, expires }),
        ...boundIn(reading, key),
        words: words.toString('base64'),
        ...(embedding && model !== undefined && { model, embedding: embedding.toString('base64') }),
        ...(isWhole(data) ? { encoded: data } : { data: decode(data)?.value as Record<string, unknown> }),
      };
  }
}

/** Has one version in memory at a time. */
async function* exportArtifacts(
  reading: Reading,
  appName: string,
  userId: string | undefined,
): AsyncGenerator<ArtifactRecord | ArtifactPartRecord> {
  const { run, snapshot } = reading;
  const versions = (after?: VersionKey) => run((sql) => versionPage(sql, { appName, userId }, after, PAGE));
  for await (const page of pagesOf(PAGE, versions)) {
    for (const key of page) {
      const found = await snapshot((sql) => transferredVersion(sql, key));
      // It was deleted since the page was read.
      if (!found) continue;
      const { info, parts, createTime, upload } = found;
      const text = isWhole(info) ? { encoded: info } : { info: decode(info)?.value as Record<string, unknown> };
      const binding = { ...boundIn(reading, key), ...given({ upload }) };
      yield { type: 'artifact', ...key, createTime, parts: parts.length, ...binding, ...text };
      for (const [part, data] of parts.entries()) yield { type: 'part', ...key, part, data: data.toString('base64') };
    }
  }
}

/** The record of an event without its session's key and its number. */
type EventContent = Omit<EventRecord, 'type' | 'seq' | keyof SessionKey>;

/** A session, while it is in memory. */
interface StoredSession {
  row: TransferredSession;
  state: readonly StateEntry[];
  history: readonly RecordedChange[];
  openCalls: readonly LongRunningCall[];
  /** Its events in order, as compressed JSON of `EventContent`. */
  batches: Buffer[];
}

/** Some events of a session. */
interface EventPage {
  events: readonly LoggedEvent[];
  /** The heads of events that are exported as they are stored, by number. */
  heads: ReadonlyMap<number, Omit<StoredEvent, 'json'>>;
  superseded: ReadonlyMap<number, readonly string[]>;
}

/**
 * Reads a session in one snapshot, and yields nothing before all of it is read: a snapshot that waited for the consumer would keep
 * an ORM's only connection from its host, and yielded records could not be taken back if the connection is lost.
 */
async function* exportSession(reading: Reading, key: SessionKey): AsyncGenerator<SessionRecord | EventRecord> {
  const read = await reading.snapshot((sql) => readSession(sql, reading, key));
  // It was deleted since the page was read, or is being deleted or imported.
  if (!read) return;
  const { row, openCalls, batches } = read;
  const bound = boundIn(reading, key, row.origin);
  const record = sessionRecord(row, bound, read.state, read.history);
  yield openCalls.length > 0 ? { ...record, openCalls } : record;
  let seq = record.firstSeq;
  for (const batch of batches) {
    for (const event of await unpacked<EventContent[]>(batch)) yield { type: 'event', ...key, seq: seq++, ...event };
  }
}

const packed = (json: string) => deflate(json, { level: constants.Z_BEST_SPEED });

const unpacked = async <T>(batch: Buffer): Promise<T> => JSON.parse((await inflate(batch)).toString()) as T;

/** @throws DamagedSessionError if an event is missing or cannot be read. */
async function readSession(sql: Sql, { areAsStored }: Reading, key: SessionKey): Promise<StoredSession | undefined> {
  const row = await transferredSession(sql, key);
  if (!row || row.status === 'ending' || isUnfinished(row)) return undefined;
  const state = await writtenState(sql, key, 'session');
  const history = await recordedChanges(sql, key);
  const openCalls = areAsStored ? await openCallsOf(sql, key) : [];
  const { incarnation, firstSeq, lastSeq } = row;
  const batches: Buffer[] = [];
  for (let after = firstSeq - 1; after < lastSeq;) {
    const events = await loggedEventsOfSession(sql, key, { incarnation, after, upTo: lastSeq, limit: BATCH });
    const upTo = events.length < BATCH ? lastSeq : (events.at(-1)?.seq ?? lastSeq);
    const numbers = events.map(({ seq }) => seq);
    refuse(
      key,
      gapsIn(numbers, after, upTo).map((gap) => ({ ...gap, problem: 'missing' })),
    );
    const encoded = areAsStored ? events.filter(({ json }) => isEncoded(json ?? '')).map(({ seq }) => seq) : [];
    const heads = new Map(await eventHeads(sql, key, encoded));
    const superseded = await supersededKeys(sql, key, { from: after + 1, upTo });
    batches.push(await packed(eventContents(key, { events, heads, superseded })));
    after = upTo;
  }
  return { row, state, history, openCalls, batches };
}

function sessionRecord(
  { key, createTime, lastUpdateTime, firstSeq, lastSeq, deletedAt, forkedFrom, title, labels }: TransferredSession,
  bound: { bound?: TextBinding },
  state: readonly StateEntry[],
  history: readonly RecordedChange[],
): SessionRecord {
  return {
    type: 'session',
    ...key,
    ...{ createTime, lastUpdateTime, firstSeq, lastSeq },
    ...given({
      deletedAt,
      title: title ?? undefined,
      labels: labels === null ? undefined : labelsIn(labels),
      forkedFrom,
    }),
    ...bound,
    state: state.map((entry) => stateRecord(entry, key)),
    ...pastOf(key, history),
  };
}

/** @returns JSON of the records of events, without the session's key. @throws DamagedSessionError. */
function eventContents(key: SessionKey, { events, heads, superseded }: EventPage): string {
  const contents = events.map(({ seq, json }) => {
    const text = json ?? undefined;
    const head = heads.get(seq);
    const lost = superseded.has(seq) ? `,"superseded":${JSON.stringify(superseded.get(seq))}` : '';
    if (text !== undefined && head && isWhole(text)) {
      const { beginsTurn, ...event } = head;
      const begins = beginsTurn ? ',"beginsTurn":true' : '';
      return `{"event":${JSON.stringify(event)},"encoded":${JSON.stringify(text)}${lost}${begins}}`;
    }
    if (!decodeEvent(text)) refuse(key, [{ from: seq, to: seq, problem: 'unreadable' }]);
    return `{"event":${text}${lost}}`;
  });
  return `[${contents.join()}]`;
}

/** The recorded changes of a session's state, for its record. */
function pastOf(
  key: SessionKey,
  history: readonly RecordedChange[],
): Pick<SessionRecord, 'created' | 'encodedCreated' | 'changes'> {
  const given: Pick<SessionRecord, 'created' | 'encodedCreated'> = {};
  const changes = history.flatMap(({ kind, seq, ...change }): StateChangeRecord[] => {
    const past = pastChangeOf({ kind, seq, ...change });
    const encoded = change.data ?? '';
    if (!past && !isEncoded(encoded)) refuse(key, [{ from: seq, to: seq, problem: 'change' }]);
    const set = past ? { set: past.set } : { encoded };
    if (kind !== 'created') return [{ kind, seq, ...set, removed: past?.removed ?? [] }];
    Object.assign(given, past ? { created: past.set } : { encodedCreated: encoded });
    return [];
  });
  return { ...given, ...(changes.length > 0 && { changes }) };
}

function stateRecord({ key, json, eventId }: StateEntry, owner: SessionKey): StateRecord {
  if (isWhole(json)) return { key, encoded: json, eventId };
  const value = isEncoded(json) ? undefined : decode(json);
  if (!value) refuse(owner, [], [key]);
  return { key, value: value?.value, eventId };
}

/** Refuses damage: it would be missing in the export, and nobody would know. */
function refuse(key: SessionKey, events: readonly DamagedEvents[], stateKeys: readonly string[] = []): void {
  if (events.length + stateKeys.length === 0) return;
  throw new DamagedSessionError(
    `Session ${key.sessionId} cannot be exported: it is damaged. Repair it with SessionMaintenance.repair, and export again.`,
    key,
    { events, stateKeys },
  );
}
