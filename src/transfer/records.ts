import type { LongRunningCall } from '../conversation/calls.js';
import type { StoredEvent } from '../database/dialects/dialect.js';
import {
  aBoolean,
  aDate,
  aRecord,
  aString,
  aTime,
  anything,
  nullable,
  object,
  objects,
  oneOf,
  rule,
  strings,
  type Check,
  type Known,
} from '../model/arguments.js';
import { checkLabels, checkTitle } from '../model/description.js';
import { isFramed, isWhole } from '../model/stored-texts.js';
import { InvalidArgumentError, InvalidKeyError, UnserializableValueError } from '../model/errors.js';
import { MOST_LEVELS, encode, isRecord } from '../model/json.js';
import { withoutInternalMetadata } from '../model/internal-metadata.js';
import { checkKeys, checkedSessionKey, type ForkedFrom, type SessionKey } from '../model/keys.js';
import { MAX_SEQ } from '../model/seq-ranges.js';
import { checkStateKey, prefixed, scopeOf, type Scope, type StateEntry } from '../model/state.js';
import { beginsTurn, type LooseEvent } from '../model/turn.js';
import type { VersionKey } from '../artifacts/stored-version.js';
import { aContent, type TransferredMemory } from './stored-memories.js';
import { isBoundTo, type TextBinding, type TransferTexts } from './bound-texts.js';

/** A value of the state. Its key has no prefix, since the record names the owner. */
export interface StateRecord {
  key: string;
  /** Absent if it is encoded. */
  value?: unknown;
  /** The value as a codec has stored it. */
  encoded?: string;
  /** The event that wrote it; null if it was set outside a run. */
  eventId: string | null;
}

/**
 * A change of state outside an event; a session's past state is computed from both. `state` was set outside a run, after the event
 * `seq`. `trimmed` is the state before the first event that is kept. If a codec has encoded the change, `encoded` replaces `set`.
 */
export interface StateChangeRecord {
  kind: 'state' | 'trimmed';
  seq: number;
  set?: Record<string, unknown>;
  removed: readonly string[];
  encoded?: string;
}

/** The state of an app (`app:`). */
export interface AppRecord {
  type: 'app';
  appName: string;
  /** Of an export of texts as they are stored. */
  bound?: TextBinding;
  state: readonly StateRecord[];
}

/** The state of a user in an app (`user:`). */
export interface UserRecord {
  type: 'user';
  appName: string;
  userId: string;
  /** Of an export of texts as they are stored. */
  bound?: TextBinding;
  state: readonly StateRecord[];
}

/** A session; its events follow as further records. */
export interface SessionRecord extends SessionKey {
  type: 'session';
  /** In ms since 1970, like the other times. */
  createTime: number;
  lastUpdateTime: number;
  /** The number of the oldest event that is kept; 1 if none was trimmed. */
  firstSeq: number;
  /** The number of the newest event; 0 if there was none. */
  lastSeq: number;
  /** When it was deleted with `deletion: 'soft'`. */
  deletedAt?: number;
  title?: string;
  labels?: Record<string, string>;
  /** Of a fork. */
  forkedFrom?: ForkedFrom;
  /** Of an export of texts as they are stored. */
  bound?: TextBinding;
  /** Its own state. */
  state: readonly StateRecord[];
  /** The state at its creation, with prefixed keys; by default the state that no event has written. */
  created?: Record<string, unknown>;
  /** The same as a codec has stored it. */
  encodedCreated?: string;
  changes?: readonly StateChangeRecord[];
  /** In an export of texts as they are stored: the calls that wait for a person, which encoded events do not show. */
  openCalls?: readonly LongRunningCall[];
}

/** An event of the session in the preceding record. */
export interface EventRecord extends SessionKey {
  type: 'event';
  seq: number;
  /** ADK's event as JSON; if it is encoded, only its id and its time. */
  event: { id: string; timestamp: number } & Record<string, unknown>;
  /** The event as a codec has stored it. */
  encoded?: string;
  /** The keys of its state delta that lost to an earlier event with a later write. */
  superseded?: readonly string[];
  /** For an encoded event, which does not show it: a turn begins with it. */
  beginsTurn?: true;
}

/** Names a version of an artifact in records. */
interface ArtifactNames extends SessionKey {
  /** Empty for a file of the user. */
  sessionId: string;
  /** Without `user:`. */
  filename: string;
  version: number;
}

/** A version of an artifact; the parts of its content follow as further records. */
export interface ArtifactRecord extends ArtifactNames {
  type: 'artifact';
  /** When it was saved, in ms since 1970. */
  createTime: number;
  /** How many parts its content has. */
  parts: number;
  /** Of an export of texts as they are stored. */
  bound?: TextBinding;
  /** The Part without its content, the metadata, and type, size and hash. Absent if it is encoded. */
  info?: Record<string, unknown>;
  /** The same as a codec has stored it. */
  encoded?: string;
  /** Negative: the number of the upload to which a codec has bound the content of a stream. */
  upload?: number;
}

/** A part of the content of the preceding artifact. */
export interface ArtifactPartRecord extends ArtifactNames {
  type: 'part';
  /** Counted from 0. */
  part: number;
  /** The bytes in base64. */
  data: string;
}

/** What an agent remembers. */
export interface MemoryRecord extends SessionKey {
  type: 'memory';
  /** Empty if all users of the app share it. */
  userId: string;
  /** Empty if it belongs to no session. */
  sessionId: string;
  memoryId: string;
  /** The number of its event, if a projection has added it. */
  seq?: number;
  /** When it was said, in ms since 1970, like the other times. */
  time: number;
  /** When it was added. */
  createTime: number;
  /** Before this time nobody finds it. */
  settles?: number;
  /** From this time on nobody finds it. */
  expires?: number;
  /** Of an export of texts as they are stored. */
  bound?: TextBinding;
  /** What a search compares, in base64. */
  words: string;
  /** Its vector, in base64, and the name of what made it. */
  embedding?: string;
  model?: string;
  /** Content, author and metadata. Absent if it is encoded. */
  data?: Record<string, unknown>;
  /** The same as a codec has stored it. */
  encoded?: string;
}

/** A line of an export. */
export type TransferRecord =
  AppRecord | UserRecord | SessionRecord | EventRecord | ArtifactRecord | ArtifactPartRecord | MemoryRecord;

/** A record that can be stored. `owner` has empty names if the state does not belong to a session. */
export type StorableRecord =
  | { type: 'app' | 'user'; owner: SessionKey; state: StateEntry[] }
  | { type: 'session'; owner: SessionKey; state: StateEntry[]; session: SessionRecord }
  | { type: 'event'; owner: SessionKey; event: NumberedEvent }
  | {
      type: 'artifact';
      owner: VersionKey;
      createTime: number;
      parts: number;
      info: string;
      upload?: number | undefined;
    }
  | { type: 'part'; owner: VersionKey; part: number; data: Buffer }
  | { type: 'memory'; owner: SessionKey; memory: TransferredMemory };

export type NumberedEvent = StoredEvent & { seq: number };

const seqFrom = (least: number, most = MAX_SEQ) =>
  rule(
    `a whole number from ${least} to ${most}`,
    (value) => Number.isInteger(value) && Number(value) >= least && Number(value) <= most,
  );
const anUpload = seqFrom(-MAX_SEQ, -1);

const aTitle: Check = (value, name) => {
  aString(value, name);
  checkTitle(value as string);
};
const someLabels: Check = (value, name) => {
  aRecord(value, name);
  checkLabels(value as Record<string, unknown>);
};

const aForkPoint = object<ForkedFrom>({ sessionId: aString, at: seqFrom(0) }, 'sessionId', 'at');

const encoded = rule('a text as a codec has stored it', (value) => typeof value === 'string' && isWhole(value));
const bound = object<TextBinding>({ origin: aString, names: aString }, 'origin', 'names');

/** Not checked as a date, since sums of times may be later than any date. */
const aNumber = rule('a number', Number.isFinite);

/** `checkKeys` checks the names. */
const named: Known<SessionKey & { type: string }> = {
  ...{ type: anything, appName: anything, userId: anything, sessionId: anything },
};
const ofVersion = { ...named, filename: anything, version: seqFrom(0) };
const ofState = { bound, state: objects };

const CHECKS = {
  app: object<AppRecord>({ type: anything, appName: anything, ...ofState }, 'state'),
  user: object<UserRecord>({ type: anything, appName: anything, userId: anything, ...ofState }, 'state'),
  session: object<SessionRecord>(
    {
      ...{ ...named, ...ofState, createTime: aTime, lastUpdateTime: aTime, firstSeq: seqFrom(1), lastSeq: seqFrom(0) },
      ...{ deletedAt: aTime, title: aTitle, labels: someLabels, forkedFrom: aForkPoint },
      ...{ created: aRecord, encodedCreated: encoded, changes: objects, openCalls: objects },
    },
    ...(['createTime', 'lastUpdateTime', 'firstSeq', 'lastSeq', 'state'] as const),
  ),
  event: object<EventRecord>(
    { ...named, seq: seqFrom(1), event: aRecord, encoded, superseded: strings, beginsTurn: aBoolean },
    'seq',
    'event',
  ),
  artifact: object<ArtifactRecord>(
    { ...ofVersion, createTime: aTime, parts: seqFrom(0), bound, info: aRecord, encoded, upload: anUpload },
    ...(['version', 'createTime', 'parts'] as const),
  ),
  part: object<ArtifactPartRecord>(
    { ...ofVersion, part: seqFrom(0), data: aString },
    ...(['version', 'part', 'data'] as const),
  ),
  memory: object<MemoryRecord>(
    {
      ...{ ...named, memoryId: anything, seq: seqFrom(1), time: aDate, createTime: aTime },
      ...{ settles: aNumber, expires: aNumber, bound, words: aString, embedding: aString, model: aString },
      ...{ data: aRecord, encoded },
    },
    ...(['time', 'createTime', 'words'] as const),
  ),
};
const checkState = object<StateRecord>(
  { key: aString, value: anything, encoded, eventId: nullable(aString) },
  'key',
  'eventId',
);
const seq = seqFrom(0);
const checkChange = object<StateChangeRecord>(
  { seq, kind: oneOf('state', 'trimmed'), set: aRecord, removed: strings, encoded },
  'seq',
  'kind',
  'removed',
);
const checkCall = (call: LongRunningCall, name: string) => {
  for (const each of [call.seq, call.number]) seq(each, name);
  aTime(call.timestamp, name);
  for (const each of [call.id, call.name]) aString(each, name);
};
const isType = (type: unknown): type is TransferRecord['type'] =>
  typeof type === 'string' && Object.hasOwn(CHECKS, type);

/** Two levels more than a value: the change, and its object of state. */
const RECORDED_LEVELS = MOST_LEVELS + 2;

/** Which texts are accepted. */
export interface AcceptedTexts {
  /** Plain texts by default. */
  texts?: TransferTexts | undefined;
  /** The codecs without which a text as it is stored is damage. */
  required?: readonly string[];
}

/**
 * @param number the record's number, counted from 1.
 * @throws InvalidArgumentError that begins with the number, for something that is not a record of an export, or cannot be stored.
 */
export function storableRecord(record: unknown, number: number, accepted: AcceptedTexts = {}): StorableRecord {
  const name = `Record ${number}`;
  aRecord(record, name);
  const { type }: { type?: unknown } = record as object;
  if (!isType(type))
    throw new InvalidArgumentError(
      `${name} is not a record: its type must be app, user, session, event, artifact, part or memory.`,
    );
  try {
    CHECKS[type](record, name);
    const stored = storable(record as TransferRecord);
    checkTexts(record as TransferRecord, stored, name, accepted);
    return stored;
  } catch (error) {
    const isRefusal =
      error instanceof InvalidArgumentError ||
      error instanceof InvalidKeyError ||
      error instanceof UnserializableValueError;
    if (!isRefusal || error.message.startsWith(name)) throw error;
    throw new InvalidArgumentError(`${name}: ${error.message}`);
  }
}

/** The records of events and of parts have no binding: that of their session or their artifact counts. */
function checkTexts(
  record: TransferRecord,
  { owner }: StorableRecord,
  name: string,
  { texts = 'plain', required }: AcceptedTexts,
): void {
  if (record.type === 'event') {
    if (record.encoded !== undefined && texts === 'plain') refuseStored();
    return;
  }
  if (record.type === 'part') return;
  const { bound } = record;
  const hasEncoded = textsOf(record).some((each) => each.encoded !== undefined);
  if ((bound || hasEncoded) && texts === 'plain') refuseStored();
  if (hasEncoded && !bound)
    throw new InvalidArgumentError('It has encoded texts, and does not say what they are bound to.');
  if (bound && !isBoundTo(owner, bound))
    throw new InvalidArgumentError(
      `Its texts are as they were stored under other names, and nobody could read them under these. Import them under the names that they had, or export plain texts.`,
    );
  if (bound && hasPlain(record)) refusePlain(name, required);
}

type OwnRecord = AppRecord | UserRecord | SessionRecord | ArtifactRecord | MemoryRecord;

/** The texts of a record that may be encoded. */
function textsOf(record: OwnRecord): readonly { encoded?: string | undefined }[] {
  if (record.type === 'artifact')
    return [{ encoded: record.encoded ?? (hasEncodedContent(record.info) ? '' : undefined) }];
  if (record.type === 'memory')
    return [{ encoded: record.encoded ?? (bytesIn(record).some(isFramed) ? '' : undefined) }];
  if (record.type !== 'session') return record.state;
  return [...record.state, { encoded: record.encodedCreated }, ...(record.changes ?? [])];
}

/** Whether some content of a record is not encoded. */
function hasPlain(record: OwnRecord): boolean {
  if (record.type === 'artifact') return record.encoded === undefined;
  if (record.type === 'memory') return record.encoded === undefined || !bytesIn(record).every(isFramed);
  if (record.state.some((each) => each.encoded === undefined)) return true;
  if (record.type !== 'session') return false;
  const { created, changes = [] } = record;
  return created !== undefined || changes.some(({ set }) => set !== undefined);
}

const bytesIn = ({ words, embedding }: MemoryRecord) =>
  [words, embedding].flatMap((bytes) => (bytes === undefined ? [] : [Buffer.from(bytes, 'base64')]));

/** For a codec that has encoded only the content. */
const hasEncodedContent = (info: ArtifactRecord['info']) =>
  isRecord(info?.['content']) && info['content']['isEncoded'] === true;

/** Refuses a plain text if a codec is required: it may be forged, and once it is encoded everybody would trust it. */
export function refusePlain(record: string, required: readonly string[] = []): void {
  if (required.length > 0)
    throw new InvalidArgumentError(
      `${record} has a text that is not encoded with ${required.join(', ')}, which is required, so somebody may have forged it. Export plain texts with that codec: that refuses what is forged.`,
    );
}

function refuseStored(): never {
  throw new InvalidArgumentError(
    `It is from an export of texts as they are stored. Import it with texts: 'asStored' (--as-stored), if you trust whoever made it: encoded texts are not checked.`,
  );
}

function storable(record: TransferRecord): StorableRecord {
  const { type, appName } = record;
  switch (type) {
    case 'app':
    case 'user': {
      checkKeys(type === 'app' ? { appName } : { appName, userId: record.userId });
      const owner = { appName, userId: type === 'user' ? record.userId : '', sessionId: '' };
      return { type, owner, state: storableState(record.state, type, owner) };
    }
    case 'session': {
      const owner = checkedSessionKey(record);
      if (record.firstSeq > record.lastSeq + 1) throw new InvalidArgumentError('firstSeq must be lastSeq + 1 at most.');
      const { forkedFrom } = record;
      if (forkedFrom) checkKeys({ sessionId: forkedFrom.sessionId });
      if (forkedFrom && forkedFrom.at > record.lastSeq)
        throw new InvalidArgumentError('forkedFrom.at must be lastSeq at most.');
      if (record.created) encode(record.created, 'created', RECORDED_LEVELS);
      for (const call of record.openCalls ?? []) checkCall(call, 'openCalls');
      for (const change of record.changes ?? []) {
        checkChange(change, 'changes');
        encode(change, 'changes', RECORDED_LEVELS);
      }
      return { type, owner, state: storableState(record.state, 'session', owner), session: record };
    }
    case 'event': {
      const { seq, superseded } = record;
      const event: EventRecord['event'] & LooseEvent = record.event;
      aString(event.id, 'event.id');
      aTime(event.timestamp, 'event.timestamp');
      const owner = checkedSessionKey(record);
      checkKeys({ ...owner, eventId: event.id });
      // Anybody who makes a file or another store could write keys that ADK trusts.
      const json = record.encoded ?? encode(withoutInternalMetadata(event), 'event').json;
      const lost = superseded && { superseded: JSON.stringify(superseded) };
      const begins = record.encoded === undefined ? beginsTurn(event) : (record.beginsTurn ?? false);
      const { id, timestamp } = event;
      return { type, owner, event: { seq, id, timestamp, json, ...lost, beginsTurn: begins } };
    }
    case 'artifact': {
      const { createTime, parts, info, encoded, upload } = record;
      const text = eitherText('info', info, encoded);
      return { type, owner: versionOf(record), createTime, parts, upload, info: text };
    }
    case 'part':
      return { type, owner: versionOf(record), part: record.part, data: Buffer.from(record.data, 'base64') };
    case 'memory':
      return { type, owner: record, memory: storableMemory(record) };
  }
}

/** @returns the text to store: the JSON of `plain`, or `encoded` if the record has that. @throws InvalidArgumentError if it has both or neither. */
function eitherText(name: string, plain: unknown, encoded: string | undefined): string {
  if ((plain === undefined) === (encoded === undefined))
    throw new InvalidArgumentError(`It must have either ${name} or encoded.`);
  return encoded ?? encode(plain, name, RECORDED_LEVELS).json;
}

/** @throws InvalidKeyError, InvalidArgumentError. */
function storableMemory(record: MemoryRecord): TransferredMemory {
  const { appName, userId, sessionId, memoryId, data, encoded, time, createTime, model } = record;
  checkKeys({ appName, ...(userId !== '' && { userId }), ...(sessionId !== '' && { sessionId }), memoryId });
  const text = eitherText('data', data, encoded);
  if (data) aContent(data['content'], 'data.content');
  if ((model === undefined) !== (record.embedding === undefined))
    throw new InvalidArgumentError('It must have embedding and model, or neither.');
  const [words = Buffer.alloc(0), embedding] = bytesIn(record);
  return {
    key: { appName, userId, sessionId, memoryId },
    ...{ time, createTime, seq: record.seq, settles: record.settles, expires: record.expires },
    ...{ words, model, embedding },
    data: text,
  };
}

/** @throws InvalidKeyError for names that no version can have. */
function versionOf({ appName, userId, sessionId, filename, version }: ArtifactNames): VersionKey {
  checkKeys({ appName, userId, ...(sessionId !== '' && { sessionId }), filename });
  return { appName, userId, sessionId, filename, version };
}

function storableState(state: readonly StateRecord[], scope: Scope, owner: SessionKey): StateEntry[] {
  const names = new Set<string>();
  return state.map((each) => {
    checkState(each, 'state');
    const { key, value, encoded, eventId } = each;
    const name = prefixed(scope, key);
    if (scopeOf(name).scope !== scope)
      throw new InvalidArgumentError(`The key '${key}' of the state of a session has a prefix of another scope.`);
    if (names.has(name)) throw new InvalidArgumentError(`The key '${key}' of the state occurs twice.`);
    names.add(name);
    checkStateKey(owner, name);
    if (eventId !== null) checkKeys({ eventId });
    return { key: name, json: encoded ?? encode(value, `state.${key}`).json, eventId };
  });
}
