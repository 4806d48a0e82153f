import type { Sql } from '../database/dialects/dialect.js';
import { ownedAfter } from '../database/sql/keyset.js';
import type { Bound } from '../database/drivers/driver.js';
import { IN_SESSION, SESSION_COLUMNS } from '../database/sql/columns.js';
import {
  bound,
  bytesOf,
  keyed,
  sessionKeyOf,
  anyOf,
  named,
  numberOf,
  optionalNumberOf,
  optionalTextOf,
  textOf,
} from '../database/sql/values.js';
import { countedElsewhere } from '../database/statements/forks.js';
import type { Owner } from '../owned/owned-rows.js';
import { heirsOf } from './forks.js';
import { aPlainObject, objects, type Check } from '../model/arguments.js';
import { ofMemory } from '../model/codec.js';
import { Undecodable, encodingOf, encodingOfBytes, isFramed, type StoredTexts } from '../model/stored-texts.js';
import { checkKeys, sessionIdentity, type SessionKey } from '../model/keys.js';

/** What a memory may have as its content. */
export const aContent: Check = (value, name) => {
  const content = aPlainObject(value, name);
  // LOAD_MEMORY fails for a part that is null.
  if (content['parts'] !== undefined) objects(content['parts'], `${name}.parts`);
  return content;
};

/** Names a memory. The user is empty if it belongs to the app; the session is empty if it belongs to none. */
export interface MemoryKey extends SessionKey {
  memoryId: string;
}

/** What a codec encodes of a memory. */
export interface MemoryTexts {
  /** JSON of content, author and metadata. */
  data: string;
  /** In the form that a search reads. */
  words: Buffer;
  /** Its vector, if it has one. */
  embedding?: Buffer | undefined;
}

/** A memory's row. */
export interface MemoryRow extends MemoryKey, MemoryTexts {
  /** The number of its event, if a projection has added it. */
  seq: number | undefined;
  time: number;
  createTime: number;
  settles: number | undefined;
  expires: number | undefined;
  /** What made the vector. */
  model: string | undefined;
}

/** The mark of a memory that was forgotten: in all sessions if its session is empty. */
export interface ForgottenMemory extends MemoryKey {
  createTime: number;
}

export const MEMORY_COLUMNS = `${SESSION_COLUMNS}, memory_id`;
/** The names of their values, as `keyedMemory` has them. */
export const MEMORY_NAMES = ':app, :user, :session, :memory';
export const keyedMemory = (key: MemoryKey) => ({ ...keyed(key), memory: key.memoryId });

/** Finds one memory. */
export const IN_MEMORY = `${IN_SESSION} and memory_id = :memory` as const;
/** Finds the marks of one memory, of its session and of all. */
export const IN_MARKS = `app_name = :app and user_id = :user and session_id in (:session, '') and memory_id = :memory`;

const [boundMemory, boundMarks] = [named(IN_MEMORY), named(IN_MARKS)];
/** The condition that finds any of these memories. */
export const ofMemories = (keys: readonly MemoryKey[]): Bound =>
  anyOf(keys.map((key) => boundMemory(keyedMemory(key))));
/** The condition that finds the marks of any of these memories: those of one session, and those of all sessions. */
export const marksOf = (keys: readonly MemoryKey[]): Bound => anyOf(keys.map((key) => boundMarks(keyedMemory(key))));

/** @throws InvalidKeyError if a name or an id cannot be a key on every database. */
export function checkedMemoryKey({ appName, userId, sessionId, memoryId }: MemoryKey): MemoryKey {
  checkKeys({ appName, ...(userId && { userId }), ...(sessionId && { sessionId }), memoryId });
  return { appName, userId, sessionId, memoryId };
}

export const memoryIdentity = (key: MemoryKey): string => `${sessionIdentity(key)}\0${key.memoryId}`;

export const memoryKeyOf = (row: Readonly<Record<string, unknown>>): MemoryKey => ({
  ...sessionKeyOf(row),
  memoryId: textOf(row['memory_id']),
});

/** The other columns of a memory's row. */
export const CONTENT = ['seq', 'time', 'create_time', 'settles', 'expires', 'words', 'model', 'embedding', 'data'];

/** Reads the next rows of an app, or of one user in it, in the order of their keys. */
const pageOf =
  <Row>(rowsWhere: (sql: Sql, where: Bound) => Promise<Row[]>) =>
  (sql: Sql, owner: Owner, after: MemoryKey | undefined, limit: number): Promise<Row[]> => {
    const order = ['user_id', 'session_id', 'memory_id'];
    const { where, values } = ownedAfter(owner, order, after && [after.userId, after.sessionId, after.memoryId]);
    return rowsWhere(sql, [`${where} order by ${order.join(', ')} limit ?`, [...values, limit]]);
  };

export const markPage = pageOf(async (sql, [where, values]): Promise<ForgottenMemory[]> => {
  const text = `select ${MEMORY_COLUMNS}, create_time from ${sql.tables.forgottenMemories} where ${where}`;
  const rows = await sql.all(text, values);
  return rows.map((row) => ({ ...memoryKeyOf(row), createTime: numberOf(row['create_time']) }));
});

/** With their texts as they are stored. */
export const memoryPage = pageOf(memoriesWhere);

/** @returns those of the memories that have a vector, in no order, with their texts as they are stored. */
export function memoriesWithVectors(sql: Sql, keys: readonly MemoryKey[]): Promise<MemoryRow[]> {
  const [any, values] = ofMemories(keys);
  return memoriesWhere(sql, [`model is not null and ${any}`, values]);
}

/**
 * Gives a projection's memories of a session to the forks that have the events, if any has, for a transaction that has locked the
 * session's owner (`lockOwners`).
 */
export async function passOn(
  sql: Sql,
  session: SessionKey,
  condition: string,
  values?: { seq: number },
): Promise<void> {
  const { memories } = sql.tables;
  const { sql: pieces } = sql.dialect;
  // Locks the rows, so that `forget` waits until their copies are written.
  const rows = await sql.all(
    ...bound(
      `select memory_id from ${memories} ${pieces.fromIndex('primary')} where ${IN_SESSION} and ${condition}${pieces.underLock}`,
      { ...keyed(session), ...values },
    ),
  );
  const ids = rows.map((row) => textOf(row['memory_id']));
  for (const { session: heir, seq, id } of await heirsOf(sql, session, ids)) {
    const [memory] = await memoriesWhere(
      sql,
      bound(IN_MEMORY + pieces.underLock, keyedMemory({ ...session, memoryId: id })),
    );
    if (!memory || (await countedElsewhere(sql, heir, [id])).size > 0) continue;
    const plain = decodedMemory(sql.texts, memory);
    // What cannot be read goes with its session.
    if (plain instanceof Undecodable) continue;
    await importMemory(sql, encodedMemory(sql.texts, { ...plain, ...heir, seq }));
    await sql.run(...bound(`delete from ${memories} where ${IN_MEMORY}`, keyedMemory(memory)));
  }
}

async function memoriesWhere(sql: Sql, [where, values]: Bound): Promise<MemoryRow[]> {
  const { memories, select } = sql.tables;
  const rows = await sql.all(
    `select ${MEMORY_COLUMNS}, seq, time, create_time, settles, expires, model,
        ${select.words} as words, ${select.embedding} as embedding, ${select.data} as data
      from ${memories} where ${where}`,
    values,
  );
  return rows.map((row) => ({
    ...memoryKeyOf(row),
    seq: optionalNumberOf(row['seq']),
    time: numberOf(row['time']),
    createTime: numberOf(row['create_time']),
    settles: optionalNumberOf(row['settles']),
    expires: optionalNumberOf(row['expires']),
    model: optionalTextOf(row['model']) ?? undefined,
    data: textOf(row['data']),
    words: bytesOf(row['words']),
    embedding: row['embedding'] === null ? undefined : bytesOf(row['embedding']),
  }));
}

export function decodedMemory<Memory extends MemoryKey & MemoryTexts>(
  texts: StoredTexts,
  memory: Memory,
): Memory | Undecodable {
  const data = texts.decode(memory.data, () => ofMemory(memory, 'data'));
  if (data instanceof Undecodable) return data;
  const words = decodedBytes(texts, memory, 'words', memory.words);
  if (words instanceof Undecodable) return words;
  const embedding = memory.embedding && decodedBytes(texts, memory, 'embedding', memory.embedding);
  return embedding instanceof Undecodable ? embedding : { ...memory, data, words, embedding };
}

/** Decodes the bytes of a column. */
export function decodedBytes(
  texts: StoredTexts,
  key: MemoryKey,
  column: 'words' | 'embedding',
  stored: Buffer,
): Buffer | Undecodable {
  if (isFramed(stored)) {
    const read = texts.decodeBytes(stored, ofMemory(key, column));
    return read instanceof Undecodable ? read : bytesOf(read);
  }
  const { required } = texts.codec;
  return required.length > 0 ? new Undecodable(`not encoded with ${required.join(', ')}`, false) : stored;
}

/** Encodes the texts of a memory that are plain. */
export function encodedMemory<Memory extends MemoryKey & MemoryTexts>(texts: StoredTexts, memory: Memory): Memory {
  const encoded = (column: 'words' | 'embedding', bytes: Buffer) =>
    texts.codec.isNone || isFramed(bytes) ? bytes : bytesOf(texts.encodeBytes(bytes, ofMemory(memory, column)));
  return {
    ...memory,
    data: texts.encode(memory.data, () => ofMemory(memory, 'data')),
    words: encoded('words', memory.words),
    embedding: memory.embedding && encoded('embedding', memory.embedding),
  };
}

/** Whether both have the same codecs and keys. */
export const areEncodedAlike = (one: MemoryTexts, other: MemoryTexts): boolean =>
  encodingOf(one.data) === encodingOf(other.data) &&
  encodingOfColumn(one.words) === encodingOfColumn(other.words) &&
  encodingOfColumn(one.embedding) === encodingOfColumn(other.embedding);

const encodingOfColumn = (bytes: Buffer | undefined) => (bytes && isFramed(bytes) ? encodingOfBytes(bytes) : '');

/**
 * Replaces the texts of a memory, for a transaction.
 *
 * @param read the memory as it was read.
 * @returns false if it has changed since, or if another transaction has locked its row.
 */
export async function recodeMemory(
  sql: Sql,
  read: MemoryRow,
  { data, words, embedding, model }: MemoryRow,
): Promise<boolean> {
  const key = keyedMemory(read);
  const [row] = await memoriesWhere(sql, bound(`${IN_MEMORY}${sql.dialect.sql.skipLocked ?? ''}`, key));
  const isSame = row?.data === read.data && row.words.equals(read.words);
  if (!isSame || (row.embedding ? !read.embedding?.equals(row.embedding) : read.embedding)) return false;
  const update = `update ${sql.tables.memories}
    set data = :data, words = :words, embedding = :embedding, model = :model where ${IN_MEMORY}`;
  const content = { data, words, embedding: embedding ?? null, model: model ?? null };
  await sql.run(...bound(update, { ...key, ...content }));
  return true;
}

/**
 * Writes a memory of an export, for a transaction that has locked its owner (`lockOwners`). If a memory with the same key exists, the
 * one that was added later stays.
 *
 * @returns false if the same memory or a later one is stored, or if it was forgotten since it was added.
 */
export async function importMemory(sql: Sql, memory: MemoryRow): Promise<boolean> {
  const { memories, forgottenMemories } = sql.tables;
  const { sql: pieces } = sql.dialect;
  const { seq, time, createTime, settles, expires, words, model, embedding, data } = memory;
  const values = {
    ...keyedMemory(memory),
    ...{ seq: seq ?? null, time, create_time: createTime, settles: settles ?? null, expires: expires ?? null },
    ...{ words, model: model ?? null, embedding: embedding ?? null, data },
  };
  const timeOfStored = async (end = '') => {
    const text = `select create_time from ${memories} where ${IN_MEMORY}${end}`;
    const [row] = await sql.all(...bound(text, values));
    return row && numberOf(row['create_time']);
  };
  const stored = await timeOfStored();
  if (stored !== undefined && stored >= createTime) return false;
  await sql.dialect.limits?.refuseTooLarge(sql, 'A memory', data, words, embedding);
  const write = async () => {
    if (stored === undefined) {
      // Changes nothing if somebody has added it meanwhile.
      const insert = `insert into ${memories} (${MEMORY_COLUMNS}, ${CONTENT.join(', ')})
        values (${MEMORY_NAMES}, ${CONTENT.map((column) => `:${column}`).join(', ')})`;
      sql.later(...bound(`${insert} ${pieces.onSameKey(MEMORY_COLUMNS, ['memory_id'])}`, values));
      if ((await timeOfStored(pieces.underLock)) === createTime) return true;
    }
    const set = CONTENT.map((column) => `${column} = :${column}`).join(', ');
    const text = `update ${memories} set ${set} where ${IN_MEMORY} and create_time < :create_time`;
    return (await sql.run(...bound(text, values))).affectedRows > 0;
  };
  // After its row is locked: `forget` writes marks before it looks for memories.
  const mark = `select create_time from ${forgottenMemories} ${pieces.fromIndex('primary')}
    where ${IN_MARKS} and create_time >= :create_time limit 1${pieces.underLock}`;
  const [isWritten, marks] = await Promise.all([write(), sql.all(...bound(mark, values))]);
  if (!isWritten || marks.length === 0) return isWritten;
  sql.later(...bound(`delete from ${memories} where ${IN_MEMORY}`, values));
  return false;
}

/**
 * Writes a mark of an export, for a transaction that has locked its owner alone (`lockOwners`), and forgets the memory, unless it was
 * added later.
 */
export function importMark(sql: Sql, forgotten: ForgottenMemory): void {
  const { memories, forgottenMemories } = sql.tables;
  const { sql: pieces } = sql.dialect;
  const where = forgotten.sessionId === '' ? 'app_name = :app and user_id = :user and memory_id = :memory' : IN_MEMORY;
  const values = { ...keyedMemory(forgotten), time: forgotten.createTime };
  const later = (text: string) => sql.later(...bound(text, values));
  // Before it looks for memories, as `forget` does.
  later(`insert into ${forgottenMemories} (${MEMORY_COLUMNS}, create_time) values (${MEMORY_NAMES}, :time)
    ${pieces.onSameKey(MEMORY_COLUMNS, ['memory_id'])}`);
  // The later of two marks counts: it also forgets what was added between them.
  later(`update ${forgottenMemories} set create_time = :time where ${IN_MEMORY} and create_time < :time`);
  later(`delete from ${memories} where ${where} and create_time <= :time`);
  const added = `select 1 from ${memories} ${pieces.fromIndex('primary')} where ${where}${pieces.underLock}`;
  // Leaves a stored mark that is later than the imported one.
  later(`delete from ${forgottenMemories} where ${IN_MEMORY} and create_time = :time and exists (${added})`);
}
