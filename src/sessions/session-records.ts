import { promisify } from 'node:util';
import { constants, deflateRaw, inflateRaw, type ZlibOptions } from 'node:zlib';
import type { Sql } from '../database/dialects/dialect.js';
import { pastChangeOf, recordedChanges, type RecordedChange } from '../database/statements/changes.js';
import { supersededKeys } from '../database/statements/events.js';
import { loggedEventsOfSession, type LoggedEvent } from '../database/statements/logged-events.js';
import type { Owner, Reading } from '../database/statements/owned-rows.js';
import { writtenState } from '../database/statements/state.js';
import { isWhole, storedSession, type StoredSession } from '../database/statements/stored-session.js';
import { walkedSessions } from '../database/statements/walk.js';
import { labelsIn } from '../model/description.js';
import { DamagedSessionError, type Damage } from '../model/errors.js';
import { decode, decodeEvent, given } from '../model/json.js';
import type { SessionKey } from '../model/keys.js';
import { pagesOf } from '../model/pages.js';
import type { EventRecord, SessionRecord, StateChangeRecord, StateRecord } from '../model/records.js';
import { gapsIn } from '../model/seq-ranges.js';
import { prefixed, type Scope, type StateEntry } from '../model/state.js';

const deflate = promisify<string, ZlibOptions, Buffer>(deflateRaw);
const inflate = promisify<Buffer, Buffer>(inflateRaw);

/** How many sessions one query reads. */
const PAGE = 200;

/** How many uncompressed events are in memory at a time. */
const BATCH = 200;

/** Reads the records of an owner's sessions, in the order of their keys. */
export async function* sessionRecords(
  reading: Reading,
  { appName, userId }: Owner,
): AsyncGenerator<SessionRecord | EventRecord> {
  const sessions = (after?: StoredSession) =>
    reading.run((sql) => walkedSessions(sql, { appName, userId, by: 'key' }, after, PAGE));
  for await (const page of pagesOf(PAGE, sessions)) for (const { key } of page) yield* exportSession(reading, key);
}

/** Reads the state of one scope. @throws DamagedSessionError if a value cannot be read. */
export async function stateRecords(sql: Sql, owner: SessionKey, scope: Scope): Promise<StateRecord[]> {
  return (await writtenState(sql, owner, scope)).map((entry) => stateRecord(entry, owner, scope));
}

/** The record of an event without its session's key and its number. */
type EventContent = Omit<EventRecord, 'type' | 'seq' | keyof SessionKey>;

/** A session, while it is in memory. */
interface ReadSession {
  row: StoredSession;
  state: readonly StateEntry[];
  history: readonly RecordedChange[];
  /** Its events in order, as compressed JSON of `EventContent`. */
  batches: Buffer[];
}

/** Some events of a session. */
interface EventPage {
  events: readonly LoggedEvent[];
  superseded: ReadonlyMap<number, readonly string[]>;
}

/**
 * Reads a session in one snapshot, and yields nothing before all of it is read: a snapshot that waited for the consumer would keep
 * an ORM's only connection from its host, and yielded records could not be taken back if the connection is lost.
 */
async function* exportSession(reading: Reading, key: SessionKey): AsyncGenerator<SessionRecord | EventRecord> {
  const read = await reading.snapshot((sql) => readSession(sql, key));
  // It was deleted since the page was read, or is being deleted or imported.
  if (!read) return;
  const { row, batches } = read;
  const record = sessionRecord(row, read.state, read.history);
  yield record;
  let seq = record.firstSeq;
  for (const batch of batches) {
    for (const event of await unpacked<EventContent[]>(batch)) yield { type: 'event', ...key, seq: seq++, ...event };
  }
}

const packed = (json: string) => deflate(json, { level: constants.Z_BEST_SPEED });

const unpacked = async <T>(batch: Buffer): Promise<T> => JSON.parse((await inflate(batch)).toString()) as T;

/** @throws DamagedSessionError if an event is missing or cannot be read. */
async function readSession(sql: Sql, key: SessionKey): Promise<ReadSession | undefined> {
  const row = await storedSession(sql, key);
  if (!row || !isWhole(row)) return undefined;
  const state = await writtenState(sql, key, 'session');
  const history = await recordedChanges(sql, key);
  const { incarnation, firstSeq, lastSeq } = row;
  const batches: Buffer[] = [];
  for (let after = firstSeq - 1; after < lastSeq;) {
    const events = await loggedEventsOfSession(sql, key, { incarnation, after, upTo: lastSeq, limit: BATCH });
    const upTo = events.length < BATCH ? lastSeq : (events.at(-1)?.seq ?? lastSeq);
    const numbers = events.map(({ seq }) => seq);
    const gaps = gapsIn(numbers, after, upTo);
    if (gaps.length > 0)
      refuse(
        key,
        gaps.map((gap) => ({ ...gap, problem: 'missing' })),
      );
    const superseded = await supersededKeys(sql, key, { from: after + 1, upTo });
    batches.push(await packed(eventContents(key, { events, superseded })));
    after = upTo;
  }
  return { row, state, history, batches };
}

function sessionRecord(
  { key, createTime, lastUpdateTime, firstSeq, lastSeq, deletedAt, forkedFrom, title, labels }: StoredSession,
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
    state: state.map((entry) => stateRecord(entry, key, 'session')),
    ...pastOf(key, history),
  };
}

/** @returns JSON of the records of events, without the session's key. @throws DamagedSessionError. */
function eventContents(key: SessionKey, { events, superseded }: EventPage): string {
  const contents = events.map(({ seq, json, appendTime }) => {
    const text = json ?? undefined;
    const lost = superseded.has(seq) ? `,"superseded":${JSON.stringify(superseded.get(seq))}` : '';
    if (!decodeEvent(text)) refuse(key, [{ from: seq, to: seq, problem: 'unreadable' }]);
    const time = appendTime === null ? '' : `,"appendTime":${appendTime}`;
    return `{"event":${text}${lost}${time}}`;
  });
  return `[${contents.join()}]`;
}

/** The recorded changes of a session's state, for its record. */
function pastOf(key: SessionKey, history: readonly RecordedChange[]): Pick<SessionRecord, 'created' | 'changes'> {
  let created: SessionRecord['created'];
  const changes = history.flatMap((change): StateChangeRecord[] => {
    const { kind, seq } = change;
    const past = pastChangeOf(change);
    if (!past) refuse(key, [{ from: seq, to: seq, problem: 'change' }]);
    const { set, removed } = past;
    if (kind !== 'created') return [{ kind, seq, set, removed }];
    created = set;
    return [];
  });
  return { ...(created && { created }), ...(changes.length > 0 && { changes }) };
}

function stateRecord({ key, json, eventId }: StateEntry, owner: SessionKey, scope: Scope): StateRecord {
  const value = decode(json);
  if (!value) refuse(owner, [], [prefixed(scope, key)]);
  return { key, value: value.value, eventId };
}

/** Refuses damage: it would be missing in the export, and nobody would know. */
function refuse(key: SessionKey, events: Damage['events'], stateKeys: readonly string[] = []): never {
  const what = key.sessionId === '' ? 'State' : `Session ${key.sessionId}`;
  throw new DamagedSessionError(
    `${what} cannot be exported: it is damaged. Repair it with SessionMaintenance.repair, and export again.`,
    key,
    { events, stateKeys },
  );
}
