import type { Sql } from '../database/dialects/dialect.js';
import { keysetAfter } from '../database/sql/keyset.js';
import { bytesOf, numberOf, optionalNumberOf, textOf } from '../database/sql/row-values.js';
import { SESSION_COLUMNS, SESSION_WHERE, sessionValues } from '../database/sql/tables.js';
import { Undecodable, encodingOf, encodingOfBytes, isFramed, ofMemory } from '../model/codec.js';
import { DamagedMemoryError } from '../model/errors.js';
import { decode } from '../model/event-codec.js';
import type { SessionKey } from '../model/keys.js';
import { isRecord } from '../model/objects.js';
import { AS_STORED, type StoredTexts } from '../model/stored-texts.js';

/** Names a memory. The user is empty for one of the app, the session for one of none. */
export interface MemoryKey extends SessionKey {
  memoryId: string;
}

/** What a codec encodes of a memory. */
interface MemoryTexts {
  /** JSON of content, author and metadata. */
  data: string;
  /** As a search reads them. */
  words: Buffer;
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
}

const KEY = `${SESSION_COLUMNS}, memory_id`;
const WHERE = `${SESSION_WHERE} and memory_id = ?`;
const CONTENT = ['seq', 'time', 'create_time', 'settles', 'expires', 'words', 'model', 'embedding', 'data'];

const valuesOf = (key: MemoryKey) => [...sessionValues(key), key.memoryId];

/** Reads the next memories of an app, or of one user in it, by their keys, with their texts as they are stored. */
export async function memoryPage(
  sql: Sql,
  { appName, userId }: { appName: string; userId?: string | undefined },
  after: MemoryKey | undefined,
  limit: number,
): Promise<TransferredMemory[]> {
  const { memories, select } = sql.tables;
  const columns = [...(userId === undefined ? ['user_id'] : []), 'session_id', 'memory_id'];
  const last = after && [...(userId === undefined ? [after.userId] : []), after.sessionId, after.memoryId];
  const keyset = last && keysetAfter(columns, last);
  const owner = userId === undefined ? [appName] : [appName, userId];
  const where = `app_name = ?${userId === undefined ? '' : ' and user_id = ?'}${keyset ? ` and ${keyset.where}` : ''}`;
  const rows = await sql.all<MemoryRow>(
    `select user_id, session_id, memory_id, seq, time, create_time, settles, expires,
        ${select.words} as words, ${select.data} as data
      from ${memories} where ${where} order by ${columns.join(', ')} limit ?`,
    [...owner, ...(keyset?.values ?? []), limit],
  );
  return rows.map((row) => ({
    key: {
      appName,
      userId: textOf(row.user_id),
      sessionId: textOf(row.session_id),
      memoryId: textOf(row.memory_id),
    },
    seq: optionalNumberOf(row.seq),
    time: numberOf(row.time),
    createTime: numberOf(row.create_time),
    settles: optionalNumberOf(row.settles),
    expires: optionalNumberOf(row.expires),
    data: textOf(row.data),
    words: bytesOf(row.words),
  }));
}

/** @param isLenient whether what lacks a codec that is required is read, too: to give it that codec. */
export function decodedMemory(
  texts: StoredTexts,
  { key, data, words }: TransferredMemory,
  isLenient = false,
): MemoryTexts | Undecodable {
  const known = { ...key, id: key.memoryId, origin: '' };
  const context = ofMemory(known, 'data');
  const json = isLenient ? texts.decodeLeniently(data, context) : texts.decode(data, () => context);
  if (json instanceof Undecodable) return json;
  const { required } = texts.codec;
  if (!isFramed(words))
    return required.length > 0 && !isLenient
      ? new Undecodable(`not encoded with ${required.join(', ')}`, false)
      : { data: json, words };
  const list = texts.decodeBytes(words, ofMemory(known, 'words'), isLenient);
  return list instanceof Undecodable ? list : { data: json, words: bytesOf(list) };
}

/** What is encoded stays as it is. */
export function encodedMemory(texts: StoredTexts, key: MemoryKey, { data, words }: MemoryTexts): MemoryTexts {
  const known = { ...key, id: key.memoryId, origin: '' };
  return {
    data: texts.encode(data, () => ofMemory(known, 'data')),
    words: texts.codec.isNone || isFramed(words) ? words : bytesOf(texts.encodeBytes(words, ofMemory(known, 'words'))),
  };
}

/**
 * @returns memories without their encoding, or with `AS_STORED` as they are.
 * @throws DamagedMemoryError if one cannot be read.
 */
export function transferredMemories(texts: StoredTexts, page: readonly TransferredMemory[]): TransferredMemory[] {
  if (texts === AS_STORED) return [...page];
  return page.map((memory) => {
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
  encodingOf(one.data) === encodingOf(other.data) && encodingOfWords(one) === encodingOfWords(other);

const encodingOfWords = ({ words }: MemoryTexts) => (isFramed(words) ? encodingOfBytes(words) : '');

/**
 * Replaces the encoded columns of a memory, for a transaction.
 *
 * @param read as it was read.
 * @returns false if it changed since, or another transaction has locked its row.
 */
export async function recodeMemory(sql: Sql, read: TransferredMemory, { data, words }: MemoryTexts): Promise<boolean> {
  const { memories, select } = sql.tables;
  const key = valuesOf(read.key);
  const [row] = await sql.all<Pick<MemoryRow, 'data' | 'words'>>(
    `select ${select.data} as data, ${select.words} as words from ${memories} where ${WHERE}${sql.dialect.sql.skipLocked ?? ''}`,
    key,
  );
  if (!row || textOf(row.data) !== read.data || !bytesOf(row.words).equals(read.words)) return false;
  await sql.run(`update ${memories} set data = ?, words = ? where ${WHERE}`, [data, words, ...key]);
  return true;
}

/**
 * Writes a memory of an export as it is to be stored, for a transaction: of two with one key the one that was added later stays.
 *
 * @returns false if it is here already, or a later one.
 */
export async function importMemory(sql: Sql, memory: TransferredMemory): Promise<boolean> {
  const { memories } = sql.tables;
  const { key, seq, time, createTime, settles, expires, data, words } = memory;
  const [here] = await sql.all<Pick<MemoryRow, 'create_time'>>(
    `select create_time from ${memories} where ${WHERE}`,
    valuesOf(key),
  );
  if (here && numberOf(here.create_time) >= createTime) return false;
  await sql.dialect.limits?.refuseTooLarge(sql, data);
  await sql.run(
    `insert into ${memories} (${KEY}, ${CONTENT.join(', ')}) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
      ${sql.dialect.sql.onSameKey(KEY, CONTENT)}`,
    [...valuesOf(key), seq ?? null, time, createTime, settles ?? null, expires ?? null, words, null, null, data],
  );
  return true;
}

interface MemoryRow {
  user_id: string;
  session_id: string;
  memory_id: string;
  seq: number | string | null;
  time: number | string;
  create_time: number | string;
  settles: number | string | null;
  expires: number | string | null;
  words: unknown;
  data: string;
}
