import { promisify } from 'node:util';
import { constants, deflateRaw, inflateRaw, type ZlibOptions } from 'node:zlib';
import { ArtifactStore, type VersionKey } from '../artifacts/artifact-store.js';
import type { Run, Sql } from '../database/dialects/dialect.js';
import { pastChangeOf, recordedChanges, type RecordedChange } from '../database/stores/change-store.js';
import { loggedEventsOf, loggedEventsOfSession, type LoggedEvent } from '../database/stores/logged-events.js';
import { openCallsOf } from '../database/stores/open-calls.js';
import type { Stores } from '../database/stores/stores.js';
import { walkedSessions, type KeptSession } from '../database/stores/walk.js';
import { isEncoded, isWhole } from '../model/codec.js';
import { DamagedSessionError, type DamagedEvents } from '../model/errors.js';
import { decode, decodeEvent } from '../model/event-codec.js';
import type { SessionKey } from '../model/keys.js';
import { isRecord } from '../model/objects.js';
import { gapsIn } from '../model/seq-ranges.js';
import { type Scope, type StateEntry } from '../model/state.js';
import { AS_STORED } from '../model/stored-texts.js';
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
import { memoryPage, transferredMemories, type MemoryKey } from './stored-memories.js';
import { eventHeads, nextAppWithState, nextUserWithState, transferredSession } from './transferred-sessions.js';

/** How an export reads. */
interface Reading {
  run: Run;
  /** The same as of one moment. */
  snapshot: Run;
}

const deflate = promisify<string, ZlibOptions, Buffer>(deflateRaw);
const inflate = promisify<Buffer, Buffer>(inflateRaw);

/** What to export, all conditions given must hold, and how. */
export interface ExportOptions {
  appName?: string;
  /** Without the state of apps (`app:`), which is nobody's. */
  userId?: string;
  /**
   * `'plain'` by default. With `'asStored'` what a codec has encoded stays encoded, and no key is needed. It can be imported under
   * the same names alone, and read with the same codecs and keys.
   */
  texts?: TransferTexts;
}

/** How many sessions one query reads. */
const PAGE = 200;

/** How many events are in memory at a time uncompressed. */
const BATCH = 200;

/** Reads what is stored, in an order that is the same on every database. */
export async function* exportRecords(
  plain: Reading,
  stores: Stores,
  { appName, userId, texts }: ExportOptions,
): AsyncGenerator<TransferRecord> {
  const reading = texts === 'asStored' ? { run: asStored(plain.run), snapshot: asStored(plain.snapshot) } : plain;
  const nextApp = (after: string) => reading.run((sql) => nextAppWithState(sql, after));
  for (let app = appName ?? (await nextApp('')); app !== undefined;) {
    yield* exportApp(reading, stores, app, userId);
    app = appName === undefined ? await nextApp(app) : undefined;
  }
}

const asStored =
  (run: Run): Run =>
  (work) =>
    run((sql) => work({ ...sql, texts: AS_STORED }));

/** What the texts that are read are bound to; nothing if they are not as they are stored. */
const boundIn = ({ texts }: Sql, owner: SessionKey, origin = ''): { bound?: TextBinding } =>
  texts === AS_STORED ? { bound: bindingOf(owner, origin) } : {};

async function* exportApp(
  { run, snapshot }: Reading,
  stores: Stores,
  appName: string,
  userId: string | undefined,
): AsyncGenerator<TransferRecord> {
  const stateOf = (owner: SessionKey, scope: Scope) =>
    run(async (sql) => {
      const entries = sql.texts.decoded(await stores.state.written(sql, owner, scope));
      return { ...boundIn(sql, owner), state: entries.map((entry) => stateRecord(entry, owner)) };
    });
  const app = { appName, userId: '', sessionId: '' };
  if (userId === undefined) {
    const found = await stateOf(app, 'app');
    if (found.state.length > 0) yield { type: 'app', appName, ...found };
  }
  const nextUser = (after: string) => run((sql) => nextUserWithState(sql, appName, after));
  for (let user = userId ?? (await nextUser('')); user !== undefined;) {
    const found = await stateOf({ ...app, userId: user }, 'user');
    if (found.state.length > 0) yield { type: 'user', appName, userId: user, ...found };
    user = userId === undefined ? await nextUser(user) : undefined;
  }
  let after: KeptSession | undefined;
  for (;;) {
    const page = await run((sql) => walkedSessions(sql, { appName, userId, by: 'key' }, after, PAGE));
    for (const { key } of page) yield* exportSession(snapshot, stores, key);
    if (page.length < PAGE) break;
    after = page.at(-1);
  }
  yield* exportArtifacts({ run, snapshot }, stores, appName, userId);
  yield* exportMemories(run, appName, userId);
}

/** Also those that nobody finds any more, or not yet. */
async function* exportMemories(run: Run, appName: string, userId: string | undefined): AsyncGenerator<MemoryRecord> {
  let after: MemoryKey | undefined;
  for (;;) {
    const page = await run(async (sql) => {
      const read = transferredMemories(sql.texts, await memoryPage(sql, { appName, userId }, after, PAGE));
      return read.map(({ key, seq, time, createTime, settles, expires, words, data }): MemoryRecord => ({
        type: 'memory',
        ...key,
        ...(seq !== undefined && { seq }),
        time,
        createTime,
        ...(settles !== undefined && { settles }),
        ...(expires !== undefined && { expires }),
        ...boundIn(sql, key),
        words: words.toString('base64'),
        ...(isWhole(data) ? { encoded: data } : { data: decode(data)?.value as Record<string, unknown> }),
      }));
    });
    yield* page;
    if (page.length < PAGE) return;
    after = page.at(-1);
  }
}

/** One version at a time is in memory. */
async function* exportArtifacts(
  { run, snapshot }: Reading,
  stores: Stores,
  appName: string,
  userId: string | undefined,
): AsyncGenerator<ArtifactRecord | ArtifactPartRecord> {
  const artifacts = ArtifactStore.of(stores);
  let after: VersionKey | undefined;
  for (;;) {
    const page = await run((sql) => artifacts.page(sql, { appName, userId }, after, PAGE));
    for (const key of page) {
      const found = await snapshot(async (sql) => {
        const version = await artifacts.transferred(sql, key);
        return version && { ...version, ...boundIn(sql, key) };
      });
      // Deleted since the page was read.
      if (!found) continue;
      const { info, parts, createTime, bound, upload } = found;
      const text = isWhole(info) ? { encoded: info } : { info: decode(info)?.value as Record<string, unknown> };
      const binding = { ...(bound && { bound }), ...(upload !== undefined && { upload }) };
      yield { type: 'artifact', ...key, createTime, parts: parts.length, ...binding, ...text };
      for (const [part, data] of parts.entries()) yield { type: 'part', ...key, part, data: data.toString('base64') };
    }
    if (page.length < PAGE) return;
    after = page.at(-1);
  }
}

/** The record of an event without its session's key and its number. */
type EventContent = Omit<EventRecord, 'type' | 'seq' | keyof SessionKey>;

/** A session, while it is in memory. */
interface WholeSession {
  record: SessionRecord;
  /** `EventContent` of its events, in their order, JSON of an array each, compressed. */
  batches: Buffer[];
}

/**
 * A session is read in one snapshot, and nothing of it is given out before all of it is read: a snapshot that waited for the
 * consumer would keep the only connection of an ORM from its host, and what has been given out cannot be taken back when
 * the connection is lost.
 */
async function* exportSession(
  snapshot: Run,
  stores: Stores,
  key: SessionKey,
): AsyncGenerator<SessionRecord | EventRecord> {
  const read = await snapshot((sql) => readSession(sql, stores, key));
  // Deleted since the page was read, or on the way.
  if (!read) return;
  const { record, batches } = read;
  yield record;
  let seq = record.firstSeq;
  for (const batch of batches) {
    const events = JSON.parse((await inflate(batch)).toString()) as EventContent[];
    for (const event of events) yield { type: 'event', ...key, seq: seq++, ...event };
  }
}

/** @throws DamagedSessionError when it cannot be read whole. */
async function readSession(sql: Sql, stores: Stores, key: SessionKey): Promise<WholeSession | undefined> {
  const session = await transferredSession(sql, key);
  if (!session || session.status === 'ending') return undefined;
  const state = sql.texts.decoded(await stores.state.written(sql, key, 'session'));
  const history = sql.texts.decoded(await recordedChanges(sql, key));
  const { incarnation, origin, firstSeq, lastSeq, createTime, lastUpdateTime, deletedAt, title, labels } = session;
  const record: SessionRecord = {
    type: 'session',
    ...key,
    createTime,
    lastUpdateTime,
    firstSeq,
    lastSeq,
    ...(deletedAt !== undefined && { deletedAt }),
    ...(title !== null && { title }),
    ...(labels !== null && { labels: labelsOf(labels) }),
    ...boundIn(sql, key, origin),
    state: state.map((entry) => stateRecord(entry, key)),
    ...pastOf(key, history),
  };
  const openCalls = record.bound ? await openCallsOf(sql, key) : [];
  if (openCalls.length > 0) record.openCalls = openCalls;
  const batches: Buffer[] = [];
  for (let after = firstSeq - 1; after < lastSeq;) {
    const range = { incarnation, after, upTo: lastSeq, limit: BATCH };
    const events = sql.texts.decoded(loggedEventsOf(await loggedEventsOfSession(sql, key, range)));
    const upTo = events.length < BATCH ? lastSeq : (events.at(-1)?.seq ?? lastSeq);
    const numbers = events.map(({ seq }) => seq);
    refuse(
      key,
      gapsIn(numbers, after, upTo).map((gap) => ({ ...gap, problem: 'missing' })),
    );
    const contents = await eventContents(sql, stores, key, events);
    batches.push(await deflate(`[${contents.join()}]`, { level: constants.Z_BEST_SPEED }));
    after = upTo;
  }
  return { record, batches };
}

/** @returns JSON of the records of events, without the session's key. */
async function eventContents(
  sql: Sql,
  stores: Stores,
  key: SessionKey,
  events: readonly LoggedEvent[],
): Promise<string[]> {
  const encoded = events.filter(({ json }) => typeof json === 'string' && isEncoded(json));
  const heads = await eventHeads(
    sql,
    key,
    encoded.map(({ seq }) => seq),
  );
  const [from, upTo] = [events[0]?.seq ?? 0, events.at(-1)?.seq ?? 0];
  const superseded = await stores.events.superseded(sql, key, { from, upTo });
  return events.map(({ seq, json }) => {
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
}

/** What was recorded of a session's state, in its record. */
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

function labelsOf(json: string): Record<string, string> {
  const labels = decode(json)?.value;
  // What somebody else has stored there and is no label is left out: it could not be imported.
  const strings = Object.entries(isRecord(labels) ? labels : {}).filter(
    (entry): entry is [string, string] => typeof entry[1] === 'string',
  );
  return Object.fromEntries(strings);
}

/** What is damaged would be missing in the export, and nobody would know. */
function refuse(key: SessionKey, events: readonly DamagedEvents[], stateKeys: readonly string[] = []): void {
  if (events.length + stateKeys.length === 0) return;
  throw new DamagedSessionError(
    `Session ${key.sessionId} cannot be exported: it is damaged. Repair it with SessionMaintenance.repair, and export again.`,
    key,
    { events, stateKeys },
  );
}
