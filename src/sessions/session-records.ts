import { promisify } from 'node:util';
import { constants, deflateRaw, inflateRaw, type ZlibOptions } from 'node:zlib';
import type { Sql } from '../database/dialects/dialect.js';
import { recordedChanges, type RecordedChange } from '../database/statements/changes.js';
import { supersededKeys } from '../database/statements/events.js';
import type { Owner, ExportReader } from '../owned/owned-rows.js';
import { writtenState } from '../database/statements/state.js';
import { isWhole, storedSession, type StoredSession } from '../database/statements/stored-session.js';
import { walkedSessions } from '../database/statements/walk.js';
import { labelsIn } from '../model/description.js';
import { DamagedSessionError, type Damage } from '../model/errors.js';
import { decode, withoutUndefined } from '../model/json.js';
import type { SessionKey } from '../model/keys.js';
import { pagesOf } from '../model/pages.js';
import type { EventRecord, SessionRecord, StateChangeRecord, StateRecord } from '../model/records.js';
import type { Scope } from '../model/state.js';
import { eventPages, readableChanges } from './past.js';
import { readableEvents, readableState } from './read.js';

const deflate = promisify<string, ZlibOptions, Buffer>(deflateRaw);
const inflate = promisify<Buffer, Buffer>(inflateRaw);

/** How many sessions one query reads. */
const PAGE = 200;

/** How many uncompressed events are in memory at a time. */
const BATCH = 200;

/** Reads the records of an owner's sessions, in the order of their keys. */
export async function* sessionRecords(
  reading: ExportReader,
  { appName, userId }: Owner,
): AsyncGenerator<SessionRecord | EventRecord> {
  const sessions = (after?: StoredSession) =>
    reading.run((sql) => walkedSessions(sql, { appName, userId, by: 'key' }, after, PAGE));
  for await (const page of pagesOf(PAGE, sessions)) for (const { key } of page) yield* exportSession(reading, key);
}

/** Reads the state of one scope. @throws DamagedSessionError if a value cannot be read. */
export async function stateRecords(sql: Sql, owner: SessionKey, scope: Scope): Promise<StateRecord[]> {
  const state = await writtenState(sql, owner, scope);
  const { damaged } = readableState(state);
  if (damaged) refuse(owner, damaged);
  return state.map(({ key, json, eventId }) => ({ key, value: decode(json)?.value, eventId }));
}

/** The record of an event without its session's key and its number. */
type KeptEvent = Omit<EventRecord, 'type' | 'seq' | keyof SessionKey>;

/**
 * Reads a session in one snapshot, and yields nothing before all of it is read: a snapshot that waited for the consumer would keep
 * an ORM's only connection from its host, and yielded records could not be taken back if the connection is lost.
 */
async function* exportSession(reading: ExportReader, key: SessionKey): AsyncGenerator<SessionRecord | EventRecord> {
  const read = await reading.snapshot((sql) => readRows(sql, key));
  // It was deleted since the page was read, or is being deleted or imported.
  if (!read) return;
  yield read.record;
  let seq = read.record.firstSeq;
  for (const batch of read.batches) {
    const events = JSON.parse((await inflate(batch)).toString()) as KeptEvent[];
    for (const event of events) yield { type: 'event', ...key, seq: seq++, ...event };
  }
}

/**
 * @returns the session's record, and its events in order, as compressed JSON of `KeptEvent`.
 * @throws DamagedSessionError if something is missing or cannot be read.
 */
async function readRows(sql: Sql, key: SessionKey) {
  const row = await storedSession(sql, key);
  if (!row || !isWhole(row)) return undefined;
  const state = await stateRecords(sql, key, 'session');
  const record = sessionRecord(row, state, await recordedChanges(sql, key));
  const batches: Buffer[] = [];
  for await (const { events, gaps, after, upTo } of eventPages(sql, row, row.lastSeq, BATCH)) {
    const { damaged } = readableEvents({ events, missing: gaps });
    if (damaged) refuse(key, damaged);
    const superseded = await supersededKeys(sql, key, { from: after + 1, upTo });
    const contents = events.map(({ seq, json, appendTime }) => {
      const lost = superseded.has(seq) ? `,"superseded":${JSON.stringify(superseded.get(seq))}` : '';
      const time = appendTime === null ? '' : `,"appendTime":${appendTime}`;
      return `{"event":${json}${lost}${time}}`;
    });
    batches.push(await deflate(`[${contents.join()}]`, { level: constants.Z_BEST_SPEED }));
  }
  return { record, batches };
}

function sessionRecord(
  { key, createTime, lastUpdateTime, firstSeq, lastSeq, deletedAt, forkedFrom, title, labels }: StoredSession,
  state: readonly StateRecord[],
  history: readonly RecordedChange[],
): SessionRecord {
  const { value: past, damaged } = readableChanges(history);
  if (damaged) refuse(key, damaged);
  const created = past.find(({ kind }) => kind === 'created')?.set;
  const changes = past.filter((change): change is StateChangeRecord => change.kind !== 'created');
  return {
    type: 'session',
    ...key,
    ...{ createTime, lastUpdateTime, firstSeq, lastSeq },
    ...withoutUndefined({
      deletedAt,
      title: title ?? undefined,
      labels: labels === null ? undefined : labelsIn(labels),
      forkedFrom,
    }),
    state,
    ...(created && { created }),
    ...(changes.length > 0 && { changes }),
  };
}

/** Refuses damage: it would be missing in the export, and nobody would know. */
function refuse(key: SessionKey, damage: Damage): never {
  const what = key.sessionId === '' ? 'State' : `Session ${key.sessionId}`;
  throw new DamagedSessionError(
    `${what} cannot be exported: it is damaged. Repair it with SessionMaintenance.repair, and export again.`,
    key,
    damage,
  );
}
