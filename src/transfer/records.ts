import type { StoredEvent } from '../database/dialects/dialect.js';
import {
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
  type Checks,
} from '../model/arguments.js';
import { checkLabels, checkTitle } from '../model/description.js';
import { isFramed } from '../model/stored-texts.js';
import { InvalidArgumentError, InvalidKeyError, UnserializableValueError } from '../model/errors.js';
import { MOST_LEVELS, encode } from '../model/json.js';
import { withoutInternalMetadata } from '../model/internal-metadata.js';
import { checkKeys, checkedSessionKey, type ForkedFrom, type SessionKey } from '../model/keys.js';
import { MAX_SEQ } from '../model/seq-ranges.js';
import { checkStateKey, prefixed, scopeOf, type Scope, type StateEntry } from '../model/state.js';
import { beginsTurn, type LooseEvent } from '../model/turn.js';
import type {
  AppRecord,
  ArtifactNames,
  ArtifactPartRecord,
  ArtifactRecord,
  EventRecord,
  HostRecord,
  MemoryRecord,
  ForgottenRecord,
  SessionRecord,
  StateChangeRecord,
  StateRecord,
  ExportRecord,
  UserRecord,
} from '../model/records.js';
import type { VersionKey } from '../artifacts/stored-version.js';
import { aContent, type ForgottenMemory, type MemoryKey, type TransferredMemory } from '../memory/stored-memories.js';

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
    }
  | { type: 'part'; owner: VersionKey; part: number; data: Buffer }
  | { type: 'memory'; owner: SessionKey; memory: TransferredMemory }
  | { type: 'forgotten'; owner: SessionKey; mark: ForgottenMemory }
  | { type: 'owned' };

export type NumberedEvent = StoredEvent & { seq: number };

const seqFrom = (least: number, most = MAX_SEQ) =>
  rule(
    `a whole number from ${least} to ${most}`,
    (value) => Number.isInteger(value) && Number(value) >= least && Number(value) <= most,
  );

const aTitle: Check = (value, name) => {
  aString(value, name);
  checkTitle(value as string);
};
const someLabels: Check = (value, name) => {
  aRecord(value, name);
  checkLabels(value as Record<string, unknown>);
};

const aForkPoint = object<ForkedFrom>({ sessionId: aString, at: seqFrom(0), root: aString }, 'sessionId', 'at');

/** Not checked as a date, since sums of times may be later than any date. */
const aNumber = rule('a number', Number.isFinite);

/** `checkKeys` checks the names. */
const named: Checks<SessionKey & { type: string }> = {
  ...{ type: anything, appName: anything, userId: anything, sessionId: anything },
};
const ofVersion = { ...named, filename: anything, version: seqFrom(0) };
const CHECKS = {
  app: object<AppRecord>({ type: anything, appName: anything, state: objects }, 'state'),
  user: object<UserRecord>({ type: anything, appName: anything, userId: anything, state: objects }, 'state'),
  session: object<SessionRecord>(
    {
      ...{
        ...named,
        state: objects,
        createTime: aTime,
        lastUpdateTime: aTime,
        firstSeq: seqFrom(1),
        lastSeq: seqFrom(0),
      },
      ...{ deletedAt: aTime, title: aTitle, labels: someLabels, forkedFrom: aForkPoint },
      ...{ created: aRecord, changes: objects },
    },
    ...(['createTime', 'lastUpdateTime', 'firstSeq', 'lastSeq', 'state'] as const),
  ),
  event: object<EventRecord>(
    { ...named, seq: seqFrom(1), event: aRecord, superseded: strings, appendTime: aTime },
    'seq',
    'event',
  ),
  artifact: object<ArtifactRecord>(
    { ...ofVersion, createTime: aTime, parts: seqFrom(0), info: aRecord },
    ...(['version', 'createTime', 'parts', 'info'] as const),
  ),
  part: object<ArtifactPartRecord>(
    { ...ofVersion, part: seqFrom(0), data: aString },
    ...(['version', 'part', 'data'] as const),
  ),
  memory: object<MemoryRecord>(
    {
      ...{ ...named, memoryId: anything, seq: seqFrom(1), time: aDate, createTime: aTime },
      ...{ settles: aNumber, expires: aNumber, words: aString, embedding: aString, model: aString },
      data: aRecord,
    },
    ...(['time', 'createTime', 'words', 'data'] as const),
  ),
  forgotten: object<ForgottenRecord>({ ...named, memoryId: anything, createTime: aTime }, 'createTime'),
  owned: object<HostRecord>({ ...named, entity: aString, row: aRecord }),
};
const checkState = object<StateRecord>({ key: aString, value: anything, eventId: nullable(aString) }, 'key', 'eventId');
const seq = seqFrom(0);
const checkChange = object<StateChangeRecord>(
  { seq, kind: oneOf('state', 'trimmed'), set: aRecord, removed: strings },
  ...(['seq', 'kind', 'set', 'removed'] as const),
);
const isType = (type: unknown): type is ExportRecord['type'] => typeof type === 'string' && Object.hasOwn(CHECKS, type);

/** Two levels more than a value: the change, and its object of state. */
const RECORDED_LEVELS = MOST_LEVELS + 2;

/**
 * @param number the record's number, counted from 1.
 * @throws InvalidArgumentError that begins with the number, for something that is not a record of an export, or cannot be stored.
 */
export function storableRecord(record: unknown, number: number): StorableRecord {
  const name = `Record ${number}`;
  aRecord(record, name);
  const { type }: { type?: unknown } = record as object;
  if (!isType(type))
    throw new InvalidArgumentError(
      `${name} is not a record: its type must be app, user, session, event, artifact, part, memory or forgotten.`,
    );
  try {
    CHECKS[type](record, name);
    return storable(record as ExportRecord);
  } catch (error) {
    const isRefusal =
      error instanceof InvalidArgumentError ||
      error instanceof InvalidKeyError ||
      error instanceof UnserializableValueError;
    if (!isRefusal || error.message.startsWith(name)) throw error;
    throw new InvalidArgumentError(`${name}: ${error.message}`);
  }
}

const bytesIn = ({ words, embedding }: MemoryRecord) =>
  [words, embedding].flatMap((bytes) => (bytes === undefined ? [] : [Buffer.from(bytes, 'base64')]));

function storable(record: ExportRecord): StorableRecord {
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
      for (const sessionId of forkedFrom ? [forkedFrom.sessionId, forkedFrom.root] : [])
        if (sessionId !== undefined) checkKeys({ sessionId });
      if (forkedFrom && forkedFrom.at > record.lastSeq)
        throw new InvalidArgumentError('forkedFrom.at must be lastSeq at most.');
      if (record.created) encode(record.created, 'created', RECORDED_LEVELS);
      for (const change of record.changes ?? []) {
        checkChange(change, 'changes');
        encode(change, 'changes', RECORDED_LEVELS);
      }
      return { type, owner, state: storableState(record.state, 'session', owner), session: record };
    }
    case 'event': {
      const { seq, superseded, appendTime = null } = record;
      const event: EventRecord['event'] & LooseEvent = record.event;
      aString(event.id, 'event.id');
      aTime(event.timestamp, 'event.timestamp');
      const owner = checkedSessionKey(record);
      checkKeys({ ...owner, eventId: event.id });
      // Anybody who makes a file or another store could write keys that ADK trusts.
      const { json } = encode(withoutInternalMetadata(event), 'event');
      const lost = superseded && { superseded: JSON.stringify(superseded) };
      const { id, timestamp } = event;
      return { type, owner, event: { seq, id, timestamp, json, ...lost, beginsTurn: beginsTurn(event), appendTime } };
    }
    case 'artifact': {
      const { createTime, parts, info } = record;
      return { type, owner: versionOf(record), createTime, parts, info: encode(info, 'info', RECORDED_LEVELS).json };
    }
    case 'part':
      return { type, owner: versionOf(record), part: record.part, data: Buffer.from(record.data, 'base64') };
    case 'memory':
      return { type, owner: record, memory: storableMemory(record) };
    case 'forgotten':
      return { type, owner: record, mark: { key: memoryKeyOf(record), createTime: record.createTime } };
    case 'owned':
      return { type };
  }
}

/** @throws InvalidKeyError, InvalidArgumentError. */
function storableMemory(record: MemoryRecord): TransferredMemory {
  const key = memoryKeyOf(record);
  const { data, time, createTime, model } = record;
  aContent(data['content'], 'data.content');
  if ((model === undefined) !== (record.embedding === undefined))
    throw new InvalidArgumentError('It must have embedding and model, or neither.');
  const bytes = bytesIn(record);
  if (bytes.some(isFramed)) throw new InvalidArgumentError('words and embedding must not be encoded by a codec.');
  const [words = Buffer.alloc(0), embedding] = bytes;
  return {
    key,
    ...{ time, createTime, seq: record.seq, settles: record.settles, expires: record.expires },
    ...{ words, model, embedding },
    data: encode(data, 'data', RECORDED_LEVELS).json,
  };
}

/** @throws InvalidKeyError for names that no memory can have. */
function memoryKeyOf({ appName, userId, sessionId, memoryId }: MemoryKey): MemoryKey {
  checkKeys({ appName, ...(userId !== '' && { userId }), ...(sessionId !== '' && { sessionId }), memoryId });
  return { appName, userId, sessionId, memoryId };
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
    const { key, value, eventId } = each;
    const name = prefixed(scope, key);
    if (scopeOf(name).scope !== scope)
      throw new InvalidArgumentError(`The key '${key}' of the state of a session has a prefix of another scope.`);
    if (names.has(name)) throw new InvalidArgumentError(`The key '${key}' of the state occurs twice.`);
    names.add(name);
    checkStateKey(owner, name);
    if (eventId !== null) checkKeys({ eventId });
    return { key: name, json: encode(value, `state.${key}`).json, eventId };
  });
}
