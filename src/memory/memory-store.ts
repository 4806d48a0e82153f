import type { Sql } from '../database/dialects/dialect.js';
import { keysetAfter } from '../database/sql/keyset.js';
import { allOf, ifGiven, placeholders, type Condition, bytesOf, numberOf, textOf } from '../database/sql/tables.js';
import { countRows } from '../database/statements/count.js';
import { copiedEvents, countedElsewhere } from '../database/statements/forks.js';
import { ofMemory } from '../model/codec.js';
import type { SessionKey } from '../model/keys.js';
import { chunksOf } from '../model/pages.js';
import { mapTexts, Undecodable, type StoredTexts } from '../model/stored-texts.js';
import {
  MARK_WHERE,
  MEMORY_COLUMNS,
  MEMORY_WHERE,
  decodedBytes,
  memoryIdentity,
  memoryKeyOf,
  memoryValues,
  type MemoryKey,
  type MemoryKeyRow,
} from './stored-memories.js';
import { memoryDataOf, type MemoryData, type MemoryOwner, type NewMemory } from './memory-content.js';
import type { Ranked } from './ranking.js';
import { isVector } from './vectors.js';
import { isWordList } from './words.js';

/** The memories that a search reads. */
interface MemoryScope {
  sessionId?: string | undefined;
  /** In ms since 1970. */
  since?: number | undefined;
}

/** Which memories to delete; all if nothing is given. */
interface Forgotten {
  memoryId?: string | undefined;
  sessionId?: string | undefined;
  before?: number | undefined;
}

/** The content of a memory's row, or why it cannot be read. */
export interface Read<T> {
  memory: Ranked;
  value: T | Undecodable;
}

/** The words and the vector of a memory, which a search compares. */
export interface Compared {
  words: Buffer;
  /** Undefined if it is from another model. */
  vector: Buffer | undefined;
}

const CONTENT = ['time', 'create_time', 'settles', 'expires', 'words', 'model', 'embedding', 'data'];
const WHERE_OWNER = 'app_name = ? and user_id = ?';

/** As much as one statement may insert, far less than the smallest default of a packet, 4 MB. */
const MOST_ROWS = 100;
const MOST_CHARACTERS = 100_000;

/**
 * Adds encoded memories, or replaces existing ones.
 *
 * @param settleMs for a projection: after how long they can be found, in ms.
 */
export async function addMemories(sql: Sql, memories: readonly NewMemory[], settleMs?: number): Promise<void> {
  const { now } = sql.dialect.sql;
  // Ordered, so that two calls with the same memories cannot deadlock. A statement must not have the same memory twice.
  const each = [...new Map(memories.map((memory) => [memoryIdentity(memory), memory])).entries()]
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([, memory]) => memory);
  const end = sql.dialect.sql.onSameKey(MEMORY_COLUMNS, settleMs === undefined ? CONTENT : ['seq', ...CONTENT]);
  const row = `(?, ?, ?, ?, ?, ?, ${now}, ${now} + ?, ${now} + ?, ?, ?, ?, ?)`;
  for (const batch of batchesOf(each)) {
    for (const { data, words, embedding } of batch)
      await sql.dialect.limits?.refuseTooLarge(sql, 'A memory', data, words, embedding);
    sql.later(
      `insert into ${sql.tables.memories} (${MEMORY_COLUMNS}, seq, time, create_time, settles, expires, words, model, embedding, data)
        values ${batch.map(() => row).join(', ')} ${end}`,
      batch.flatMap(({ seq, time, ttlMs, words, model, embedding, data, ...key }) => [
        ...[...memoryValues(key), seq ?? null, time, settleMs || null, ttlMs ?? null],
        ...[words, model ?? null, embedding ?? null, data],
      ]),
    );
  }
}

function* batchesOf(memories: readonly NewMemory[]): Generator<NewMemory[]> {
  let batch: NewMemory[] = [];
  let length = 0;
  for (const memory of memories) {
    const own = memory.data.length + memory.words.length + (memory.embedding?.length ?? 0);
    if (batch.length === MOST_ROWS || (batch.length > 0 && length + own > MOST_CHARACTERS)) {
      yield batch;
      [batch, length] = [[], 0];
    }
    batch.push(memory);
    length += own;
  }
  if (batch.length > 0) yield batch;
}

/**
 * @param model whose vectors are read, too.
 * @returns the words of the next memories that can be found now, in the order of their keys.
 */
export async function readCompared(
  sql: Sql,
  owner: MemoryOwner,
  { sessionId, since, model }: MemoryScope & { model?: string | undefined },
  after: MemoryKey | undefined,
  limit: number,
): Promise<Read<Compared>[]> {
  const { select } = sql.tables;
  const { now } = sql.dialect.sql;
  const conditions: (Condition | undefined)[] = [
    ifGiven('session_id = ?', sessionId),
    ifGiven('time >= ?', since),
    [`(expires is null or expires > ${now}) and (settles is null or settles <= ${now})`],
  ];
  const vectors = model === undefined ? '' : `, model, ${select.embedding} as embedding`;
  const columns = `time, ${select.words} as words${vectors}`;
  const rows = await readPage<ComparedRow>(sql, columns, owner, conditions, after, limit);
  return mapTexts(rows, (row) => {
    const memory = rankedOf(owner, row);
    return { memory, value: comparedOf(sql.texts, memory, row, model) };
  });
}

const rankedOf = ({ appName, userId }: MemoryOwner, row: KeyRow): Ranked => ({
  appName,
  userId,
  sessionId: textOf(row.session_id),
  memoryId: textOf(row.memory_id),
  time: numberOf(row.time),
});

const CHANGED = new Undecodable('changed, or of a later version of this package', false);

function comparedOf(
  texts: StoredTexts,
  key: MemoryKey,
  row: ComparedRow,
  model: string | undefined,
): Compared | Undecodable {
  const words = decodedBytes(texts, key, 'words', bytesOf(row.words));
  if (words instanceof Undecodable) return words;
  const isOfModel = model !== undefined && row.model === model && row.embedding !== null;
  const vector = isOfModel ? decodedBytes(texts, key, 'embedding', bytesOf(row.embedding)) : undefined;
  if (vector instanceof Undecodable) return vector;
  return isWordList(words) && (!vector || isVector(vector)) ? { words, vector } : CHANGED;
}

/** @returns the next memories of an owner, of any time, in the order of their keys. */
export async function listMemories(
  sql: Sql,
  owner: MemoryOwner,
  { sessionId }: MemoryScope,
  after: MemoryKey | undefined,
  limit: number,
): Promise<Read<MemoryData>[]> {
  const columns = `time, ${sql.tables.select.data} as data`;
  const rows = await readPage<DataRow>(sql, columns, owner, [ifGiven('session_id = ?', sessionId)], after, limit);
  return mapTexts(rows, (row) => dataOf(sql.texts, rankedOf(owner, row), row.data));
}

async function readPage<Row extends object>(
  sql: Sql,
  columns: string,
  { appName, userId }: MemoryOwner,
  conditions: readonly (Condition | undefined)[],
  after: MemoryKey | undefined,
  limit: number,
): Promise<Row[]> {
  const keyset = after && keysetAfter(['session_id', 'memory_id'], [after.sessionId, after.memoryId]);
  const place: Condition | undefined = keyset && [keyset.where, ...keyset.values];
  const { where, values } = allOf([WHERE_OWNER, appName, userId], ...conditions, place);
  const from = `from ${sql.tables.memories} where ${where} order by session_id, memory_id limit ?`;
  return sql.all<Row>(`select session_id, memory_id, ${columns} ${from}`, [...values, limit]);
}

/** @returns the memories that still exist, in any order. */
export async function readMemories(sql: Sql, keys: readonly MemoryKey[]): Promise<Read<MemoryData>[]> {
  const { memories, select } = sql.tables;
  const rows: (DataRow & MemoryKeyRow)[] = [];
  // Memories of the app in a statement of their own, since they may be on another node (contract F7).
  for (const userId of new Set(keys.map((key) => key.userId))) {
    const some = keys.filter((key) => key.userId === userId);
    const found = await sql.all<DataRow & MemoryKeyRow>(
      `select ${MEMORY_COLUMNS}, time, ${select.data} as data from ${memories}
        where ${some.map(() => `(${MEMORY_WHERE})`).join(' or ')}`,
      some.flatMap(memoryValues),
    );
    rows.push(...found);
  }
  return mapTexts(rows, (row) => dataOf(sql.texts, { ...memoryKeyOf(row), time: numberOf(row.time) }, row.data));
}

function dataOf(texts: StoredTexts, memory: Ranked, data: string): Read<MemoryData> {
  const json = texts.decode(textOf(data), () => ofMemory(memory, 'data'));
  return { memory, value: json instanceof Undecodable ? json : (memoryDataOf(json) ?? CHANGED) };
}

/**
 * @returns those of a session's events that it has copied as a fork and that need not be remembered with it: another session has them,
 *   or they were remembered or forgotten with one that is gone.
 */
export async function rememberedElsewhere(sql: Sql, session: SessionKey, ids: readonly string[]): Promise<Set<string>> {
  const copied = await copiedEvents(sql, session, ids);
  const found = await countedElsewhere(sql, session, copied);
  const { memories, forgottenMemories } = sql.tables;
  const { appName, userId, sessionId } = session;
  for (const some of chunksOf(
    copied.filter((id) => !found.has(id)),
    MOST_ROWS,
  ))
    for (const table of [memories, forgottenMemories]) {
      const named = `session_id <> ? and memory_id in (${placeholders(some.length)})`;
      const text = `select memory_id from ${table} where ${WHERE_OWNER} and ${named}`;
      for (const row of await sql.all(text, [appName, userId, sessionId, ...some])) found.add(textOf(row['memory_id']));
    }
  return found;
}

/** @returns the memories that nobody has forgotten (contract Q9). */
export async function withoutForgotten(sql: Sql, memories: readonly NewMemory[]): Promise<NewMemory[]> {
  const marks = new Set<string>();
  for (let i = 0; i < memories.length; i += MOST_ROWS) {
    const some = memories.slice(i, i + MOST_ROWS);
    const rows = await sql.all<MemoryKeyRow>(
      `select ${MEMORY_COLUMNS} from ${sql.tables.forgottenMemories} where ${some.map(() => `(${MARK_WHERE})`).join(' or ')}`,
      some.flatMap(memoryValues),
    );
    for (const row of rows) marks.add(memoryIdentity(memoryKeyOf(row)));
  }
  return memories.filter(
    (key) => !marks.has(memoryIdentity(key)) && !marks.has(memoryIdentity({ ...key, sessionId: '' })),
  );
}

/** Lets memories be added again. */
export function removeMarks(sql: Sql, memories: readonly MemoryKey[]): void {
  for (const key of memories)
    sql.later(`delete from ${sql.tables.forgottenMemories} where ${MARK_WHERE}`, memoryValues(key));
}

/** Marks memories as forgotten, and deletes them. @returns how many were deleted. */
export async function deleteMemories(sql: Sql, owner: MemoryOwner, forgotten: Forgotten): Promise<number> {
  const { where, values } = whereForgotten(owner, forgotten);
  const { sql: pieces } = sql.dialect;
  const insert = `insert into ${sql.tables.forgottenMemories} (${MEMORY_COLUMNS}, create_time)`;
  const end = pieces.onSameKey(MEMORY_COLUMNS, ['create_time']);
  sql.later(
    `${insert} select ${MEMORY_COLUMNS}, ${pieces.now} from ${sql.tables.memories} where ${where} ${end}`,
    values,
  );
  const { memoryId, sessionId = '', before } = forgotten;
  // Its event may not have been remembered yet.
  if (memoryId !== undefined && before === undefined)
    sql.later(`${insert} values (?, ?, ?, ?, ${pieces.now}) ${end}`, memoryValues({ ...owner, sessionId, memoryId }));
  const text = `${sql.dialect.sql.deleteThrough(sql.tables.memories, 'primary')} where ${where}`;
  return (await sql.run(text, values)).affectedRows;
}

/** @returns how many memories `deleteMemories` would delete. */
export function countMemories(sql: Sql, owner: MemoryOwner, forgotten: Forgotten): Promise<number> {
  const { where, values } = whereForgotten(owner, forgotten);
  return countRows(sql, `${sql.tables.memories} where ${where}`, values);
}

const whereForgotten = ({ appName, userId }: MemoryOwner, { memoryId, sessionId, before }: Forgotten) =>
  allOf(
    [WHERE_OWNER, appName, userId],
    ifGiven('session_id = ?', sessionId),
    ifGiven('memory_id = ?', memoryId),
    ifGiven('time < ?', before),
  );

/** A row without its owner. */
type KeyRow = Pick<MemoryKeyRow, 'session_id' | 'memory_id'> & { time: number | string };

interface ComparedRow extends KeyRow {
  words: unknown;
  model?: string | null;
  embedding?: unknown;
}

interface DataRow extends KeyRow {
  data: string;
}
