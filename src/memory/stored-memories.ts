import type { Sql } from '../database/dialects/dialect.js';
import { ownedAfter } from '../database/sql/keyset.js';
import {
  SESSION_COLUMNS,
  SESSION_WHERE,
  sessionKeyOf,
  sessionValues,
  type SessionKeyRow,
  bytesOf,
  numberOf,
  optionalNumberOf,
  optionalTextOf,
  textOf,
} from '../database/sql/tables.js';
import { countedElsewhere, heirsOf } from '../database/statements/forks.js';
import { aPlainObject, objects, type Check } from '../model/arguments.js';
import { ofMemory } from '../model/codec.js';
import {
  Undecodable,
  encodingOf,
  encodingOfBytes,
  isFramed,
  mapTexts,
  type StoredTexts,
} from '../model/stored-texts.js';
import { DamagedMemoryError } from '../model/errors.js';
import { decode, isRecord } from '../model/json.js';
import { sessionIdentity, type SessionKey } from '../model/keys.js';

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
export interface TransferredMemory extends MemoryTexts {
  key: MemoryKey;
  /** The number of its event, if a projection has added it. */
  seq: number | undefined;
  time: number;
  createTime: number;
  settles: number | undefined;
  expires: number | undefined;
  /** What made the vector. */
  model: string | undefined;
}

/** The mark of a memory that was forgotten: in all sessions if that of its key is empty. */
export interface ForgottenMemory {
  key: MemoryKey;
  createTime: number;
  /** A memory has some. */
  data?: undefined;
}

export const MEMORY_COLUMNS = `${SESSION_COLUMNS}, memory_id`;
/** Finds one memory; takes `memoryValues`. */
export const MEMORY_WHERE = `${SESSION_WHERE} and memory_id = ?`;
export const memoryValues = (key: MemoryKey): unknown[] => [...sessionValues(key), key.memoryId];
export const memoryIdentity = (key: MemoryKey): string => `${sessionIdentity(key)}\0${key.memoryId}`;

export interface MemoryKeyRow extends SessionKeyRow {
  memory_id: string;
}

export const memoryKeyOf = (row: MemoryKeyRow): MemoryKey => ({
  ...sessionKeyOf(row),
  memoryId: textOf(row.memory_id),
});

const CONTENT = ['seq', 'time', 'create_time', 'settles', 'expires', 'words', 'model', 'embedding', 'data'];

/** Finds the marks of one memory, of its session and of all; takes `memoryValues`. */
export const MARK_WHERE = `app_name = ? and user_id = ? and session_id in (?, '') and memory_id = ?`;

const IN_ORDER = ['user_id', 'session_id', 'memory_id'];

/** Reads the next marks of an app, or of one user in it, by their keys. */
export async function markPage(
  sql: Sql,
  owner: { appName: string; userId?: string | undefined },
  after: MemoryKey | undefined,
  limit: number,
): Promise<ForgottenMemory[]> {
  const { where, values } = ownedAfter(owner, IN_ORDER, after && [after.userId, after.sessionId, after.memoryId]);
  const rows = await sql.all<MemoryKeyRow & { create_time: number | string }>(
    `select ${MEMORY_COLUMNS}, create_time from ${sql.tables.forgottenMemories}
      where ${where} order by ${IN_ORDER.join(', ')} limit ?`,
    [...values, limit],
  );
  return rows.map((row) => ({ key: memoryKeyOf(row), createTime: numberOf(row.create_time) }));
}

/** Reads the next memories of an app, or of one user in it, by their keys, with their texts as they are stored. */
export async function memoryPage(
  sql: Sql,
  owner: { appName: string; userId?: string | undefined },
  after: MemoryKey | undefined,
  limit: number,
): Promise<TransferredMemory[]> {
  const { where, values } = ownedAfter(owner, IN_ORDER, after && [after.userId, after.sessionId, after.memoryId]);
  return memoriesWhere(sql, `${where} order by ${IN_ORDER.join(', ')} limit ?`, [...values, limit]);
}

/** @returns those of the memories that have a vector, in no order, with their texts as they are stored. */
export async function memoriesWithVectors(sql: Sql, keys: readonly MemoryKey[]): Promise<TransferredMemory[]> {
  const any = keys.map(() => `(${MEMORY_WHERE})`).join(' or ');
  return memoriesWhere(sql, `model is not null and (${any})`, keys.flatMap(memoryValues));
}

/** Gives a projection's memories of a session to the forks that have the events, if any has, for a transaction. */
export async function passOn(sql: Sql, session: SessionKey, condition: string, ...values: number[]): Promise<void> {
  const { memories } = sql.tables;
  const where = `${SESSION_WHERE} and ${condition}`;
  const rows = await sql.all(`select memory_id from ${memories} where ${where}`, [
    ...sessionValues(session),
    ...values,
  ]);
  const ids = rows.map((row) => textOf(row['memory_id']));
  for (const { session: heir, seq, id } of await heirsOf(sql, session, ids)) {
    const [memory] = await memoriesWhere(sql, MEMORY_WHERE, memoryValues({ ...session, memoryId: id }));
    if (!memory || (await countedElsewhere(sql, heir, [id])).size > 0) continue;
    const key = { ...heir, memoryId: id };
    const [passed] = mapTexts([memory], (each) => {
      const plain = decodedMemory(sql.texts, each);
      // What cannot be read goes with its session.
      return plain instanceof Undecodable ? undefined : { ...each, ...encodedMemory(sql.texts, key, plain), key, seq };
    });
    if (!passed) continue;
    await importMemory(sql, passed);
    await sql.run(`delete from ${memories} where ${MEMORY_WHERE}`, memoryValues(memory.key));
  }
}

async function memoriesWhere(sql: Sql, where: string, values: readonly unknown[]): Promise<TransferredMemory[]> {
  const { memories, select } = sql.tables;
  const rows = await sql.all<MemoryRow>(
    `select ${MEMORY_COLUMNS}, seq, time, create_time, settles, expires, model,
        ${select.words} as words, ${select.embedding} as embedding, ${select.data} as data
      from ${memories} where ${where}`,
    values,
  );
  return rows.map((row) => ({
    key: memoryKeyOf(row),
    seq: optionalNumberOf(row.seq),
    time: numberOf(row.time),
    createTime: numberOf(row.create_time),
    settles: optionalNumberOf(row.settles),
    expires: optionalNumberOf(row.expires),
    model: optionalTextOf(row.model) ?? undefined,
    data: textOf(row.data),
    words: bytesOf(row.words),
    embedding: row.embedding === null ? undefined : bytesOf(row.embedding),
  }));
}

/** @param isLenient whether to read texts that lack a required codec, too, in order to encode them. */
export function decodedMemory(
  texts: StoredTexts,
  { key, data, words, embedding }: TransferredMemory,
  isLenient = false,
): MemoryTexts | Undecodable {
  const context = ofMemory(key, 'data');
  const json = isLenient ? texts.decodeLeniently(data, context) : texts.decode(data, () => context);
  if (json instanceof Undecodable) return json;
  const list = decodedBytes(texts, key, 'words', words, isLenient);
  if (list instanceof Undecodable) return list;
  const vector = embedding && decodedBytes(texts, key, 'embedding', embedding, isLenient);
  return vector instanceof Undecodable ? vector : { data: json, words: list, embedding: vector };
}

/** Decodes the bytes of a column. */
export function decodedBytes(
  texts: StoredTexts,
  key: MemoryKey,
  column: 'words' | 'embedding',
  stored: Buffer,
  isLenient = false,
): Buffer | Undecodable {
  if (isFramed(stored)) {
    const read = texts.decodeBytes(stored, ofMemory(key, column), isLenient);
    return read instanceof Undecodable ? read : bytesOf(read);
  }
  const { required } = texts.codec;
  return required.length > 0 && !isLenient ? new Undecodable(`not encoded with ${required.join(', ')}`, false) : stored;
}

/** Encodes the plain texts of a memory. */
export function encodedMemory(
  texts: StoredTexts,
  key: MemoryKey,
  { data, words, embedding }: MemoryTexts,
): MemoryTexts {
  const encoded = (column: 'words' | 'embedding', bytes: Buffer) =>
    texts.codec.isNone || isFramed(bytes) ? bytes : bytesOf(texts.encodeBytes(bytes, ofMemory(key, column)));
  return {
    data: texts.encode(data, () => ofMemory(key, 'data')),
    words: encoded('words', words),
    embedding: embedding && encoded('embedding', embedding),
  };
}

/**
 * @returns memories without their encoding.
 * @throws DamagedMemoryError if one cannot be read.
 */
export function transferredMemories(texts: StoredTexts, page: readonly TransferredMemory[]): TransferredMemory[] {
  return mapTexts(page, (memory) => {
    const { memoryId, sessionId } = memory.key;
    const decoded = decodedMemory(texts, memory);
    const damage = decoded instanceof Undecodable ? decoded.encoding : 'changed';
    if (decoded instanceof Undecodable || !isRecord(decode(decoded.data)?.value))
      throw new DamagedMemoryError(memoryId, sessionId || undefined, `it is ${damage}`);
    return { ...memory, ...decoded };
  });
}

/** Whether both have the same codecs and keys. */
export const areEncodedAlike = (one: MemoryTexts, other: MemoryTexts): boolean =>
  encodingOf(one.data) === encodingOf(other.data) &&
  encodingOfColumn(one.words) === encodingOfColumn(other.words) &&
  encodingOfColumn(one.embedding) === encodingOfColumn(other.embedding);

const encodingOfColumn = (bytes: Buffer | undefined) => (bytes && isFramed(bytes) ? encodingOfBytes(bytes) : '');

/**
 * Replaces the encoded columns of a memory, for a transaction.
 *
 * @param read the memory as it was read.
 * @param model the name of what made its vector.
 * @returns false if it has changed since, or if another transaction has locked its row.
 */
export async function recodeMemory(
  sql: Sql,
  read: TransferredMemory,
  { data, words, embedding }: MemoryTexts,
  model = read.model,
): Promise<boolean> {
  const key = memoryValues(read.key);
  const [row] = await memoriesWhere(sql, `${MEMORY_WHERE}${sql.dialect.sql.skipLocked ?? ''}`, key);
  const isSame = row?.data === read.data && row.words.equals(read.words);
  if (!isSame || (row.embedding ? !read.embedding?.equals(row.embedding) : read.embedding)) return false;
  const values = [data, words, embedding ?? null, model ?? null, ...key];
  const set = 'data = ?, words = ?, embedding = ?, model = ?';
  await sql.run(`update ${sql.tables.memories} set ${set} where ${MEMORY_WHERE}`, values);
  return true;
}

/**
 * Writes a memory of an export, for a transaction. If a memory with the same key exists, the one that was added later stays.
 *
 * @returns false if the same memory or a later one is stored, or if it was forgotten since it was added.
 */
export async function importMemory(sql: Sql, memory: TransferredMemory): Promise<boolean> {
  const { memories } = sql.tables;
  const { key, seq, time, createTime, settles, expires, words, model, embedding, data } = memory;
  const [stored] = await sql.all<Pick<MemoryRow, 'create_time'>>(
    `select create_time from ${memories} where ${MEMORY_WHERE}`,
    memoryValues(key),
  );
  if (stored && numberOf(stored.create_time) >= createTime) return false;
  const mark = `select create_time from ${sql.tables.forgottenMemories} where ${MARK_WHERE} and create_time >= ? limit 1`;
  if ((await sql.all(mark, [...memoryValues(key), createTime])).length > 0) return false;
  await sql.dialect.limits?.refuseTooLarge(sql, 'A memory', data, words, embedding);
  const content = [seq, time, createTime, settles, expires, words, model, embedding, data].map(
    (value) => value ?? null,
  );
  if (stored) {
    const set = CONTENT.map((column) => `${column} = ?`).join(', ');
    const text = `update ${memories} set ${set} where ${MEMORY_WHERE} and create_time < ?`;
    return (await sql.run(text, [...content, ...memoryValues(key), createTime])).affectedRows > 0;
  }
  // Changes nothing if somebody has added it meanwhile.
  await sql.run(
    `insert into ${memories} (${MEMORY_COLUMNS}, ${CONTENT.join(', ')}) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
      ${sql.dialect.sql.onSameKey(MEMORY_COLUMNS, ['memory_id'])}`,
    [...memoryValues(key), ...content],
  );
  return true;
}

/** Writes a mark of an export, for a transaction, and forgets the memory, unless it was added later. */
export async function importMark(sql: Sql, { key, createTime }: ForgottenMemory): Promise<void> {
  const { memories, forgottenMemories } = sql.tables;
  const where = key.sessionId === '' ? `app_name = ? and user_id = ? and memory_id = ?` : MEMORY_WHERE;
  const values = key.sessionId === '' ? [key.appName, key.userId, key.memoryId] : memoryValues(key);
  await sql.run(`delete from ${memories} where ${where} and create_time <= ?`, [...values, createTime]);
  if ((await sql.all(`select memory_id from ${memories} where ${where} limit 1`, values)).length > 0) return;
  await sql.run(
    `insert into ${forgottenMemories} (${MEMORY_COLUMNS}, create_time) values (?, ?, ?, ?, ?)
      ${sql.dialect.sql.onSameKey(MEMORY_COLUMNS, ['memory_id'])}`,
    [...memoryValues(key), createTime],
  );
}

interface MemoryRow extends MemoryKeyRow {
  seq: number | string | null;
  time: number | string;
  create_time: number | string;
  settles: number | string | null;
  expires: number | string | null;
  words: unknown;
  model: string | null;
  embedding: unknown;
  data: string;
}
