import type { Sql } from '../database/dialects/dialect.js';
import { keysetAfter } from '../database/sql/keyset.js';
import { IN_SESSION, SESSION_COLUMNS } from '../database/sql/columns.js';
import {
  allOf,
  anyOf,
  bound,
  bytesOf,
  ifGiven,
  keyed,
  named,
  placeholders,
  type Condition,
  numberOf,
  optionalTextOf,
  textOf,
} from '../database/sql/values.js';
import { countRows } from '../database/statements/count.js';
import { countedElsewhere } from '../database/statements/forks.js';
import { copiedEvents } from './forks.js';
import { ofMemory } from '../model/codec.js';
import type { SessionKey } from '../model/keys.js';
import { chunksOf } from '../model/pages.js';
import { mapTexts, Undecodable, type StoredTexts } from '../model/stored-texts.js';
import {
  CONTENT,
  IN_MARKS,
  IN_MEMORY,
  MEMORY_COLUMNS,
  MEMORY_NAMES,
  decodedBytes,
  keyedMemory,
  marksOf,
  memoryIdentity,
  memoryKeyOf,
  ofMemories,
  type MemoryKey,
} from './stored-memories.js';
import { memoryDataOf, type MemoryData, type MemoryOwner, type NewMemory } from './memory-content.js';
import type { Ranked } from './ranking.js';
import type { SearchMemoriesRequest } from './requests.js';
import { isVector } from './vectors.js';
import { isWordList } from './words.js';

/** Which memories to delete; all if nothing is given. */
interface MemorySelection {
  memoryId?: string | undefined;
  sessionId?: string | undefined;
  before?: number | undefined;
}

/** The content of a memory's row, or why it cannot be read. */
export interface ReadMemory<T> {
  memory: Ranked;
  value: T | Undecodable;
}

/** The words and the vector of a memory, which a search compares. */
export interface ComparedMemory {
  words: Buffer;
  /** Undefined if it is from another model. */
  vector: Buffer | undefined;
}

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
  const end = sql.dialect.sql.onSameKey(
    MEMORY_COLUMNS,
    settleMs === undefined ? CONTENT.filter((column) => column !== 'seq') : CONTENT,
  );
  const row = named(
    `(${MEMORY_NAMES}, :seq, :time, ${now}, ${now} + :settles, ${now} + :expires, :words, :model, :embedding, :data)`,
  );
  for (const batch of batchesOf(each)) {
    for (const { data, words, embedding } of batch)
      await sql.dialect.limits?.refuseTooLarge(sql, 'A memory', data, words, embedding);
    const rows = batch.map(({ seq = null, time, ttlMs, words, model = null, embedding = null, data, ...key }) =>
      row({
        ...keyedMemory(key),
        ...{ seq, time, settles: settleMs || null, expires: ttlMs ?? null, words, model, embedding, data },
      }),
    );
    const insert = `insert into ${sql.tables.memories} (${MEMORY_COLUMNS}, ${CONTENT.join(', ')})`;
    sql.later(
      `${insert} values ${rows.map(([text]) => text).join(', ')} ${end}`,
      rows.flatMap(([, values]) => values),
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

/** A search reads the contents of so many memories at least. If an owner has no more, they come with the words. */
export const LEAST_READ = 20;

/**
 * @param model whose vectors are read, too.
 * @returns the words of the next memories that can be found now, in the order of their keys.
 */
export async function readCompared(
  sql: Sql,
  owner: MemoryOwner,
  { sessionId, since, model }: Pick<SearchMemoriesRequest, 'sessionId' | 'since'> & { model?: string | undefined },
  after: MemoryKey | undefined,
  limit: number,
): Promise<ReadMemory<ComparedMemory>[]> {
  const { memories, select } = sql.tables;
  const { now } = sql.dialect.sql;
  const conditions: (Condition | undefined)[] = [
    ifGiven('session_id = ?', sessionId),
    ifGiven('time >= ?', since),
    [`(expires is null or expires > ${now}) and (settles is null or settles <= ${now})`],
  ];
  const vectors = model === undefined ? '' : `, model, ${select.embedding} as embedding`;
  const few = `(select 1 as one from ${memories} where ${WHERE_OWNER} limit ${LEAST_READ + 1}) as few`;
  const [data, ...values] = after
    ? ['null']
    : [`case when (select count(*) from ${few}) <= ${LEAST_READ} then ${select.data} end`, owner.appName, owner.userId];
  const columns = [`time, ${data} as data, ${select.words} as words${vectors}`, ...values] as const;
  return readPage(sql, columns, owner, conditions, after, limit, (memory, row) =>
    comparedOf(sql.texts, memory, row, model),
  );
}

const CHANGED = new Undecodable('changed, or of a later version of this package', false);

function comparedOf(
  texts: StoredTexts,
  key: MemoryKey,
  row: Row,
  model: string | undefined,
): ComparedMemory | Undecodable {
  const words = decodedBytes(texts, key, 'words', bytesOf(row['words']));
  if (words instanceof Undecodable) return words;
  const isOfModel = model !== undefined && row['model'] === model && row['embedding'] !== null;
  const vector = isOfModel ? decodedBytes(texts, key, 'embedding', bytesOf(row['embedding'])) : undefined;
  if (vector instanceof Undecodable) return vector;
  return isWordList(words) && (!vector || isVector(vector)) ? { words, vector } : CHANGED;
}

/** @returns those that still exist, in any order. */
export async function readMemories(sql: Sql, searched: readonly Ranked[]): Promise<ReadMemory<MemoryData>[]> {
  const lacking = searched.filter(({ data }) => data === undefined);
  // Memories of the app in a statement of their own, since they may be on another node (contract F7).
  const read = [...new Map(lacking.map((key) => [key.userId, key])).values()].map((owner) => {
    const some = lacking.filter(({ userId }) => userId === owner.userId);
    const any = some.map(() => '(session_id = ? and memory_id = ?)').join(' or ');
    const named = some.flatMap(({ sessionId, memoryId }) => [sessionId, memoryId]);
    return readData(sql, owner, [`(${any})`, ...named], undefined, some.length);
  });
  const found = (await Promise.all(read)).flat();
  const known = searched.filter(({ data }) => data !== undefined);
  return [...found, ...mapTexts(known, (memory) => ({ memory, value: dataOf(sql.texts, memory) }))];
}

/** @returns the next memories of an owner, of any time, in the order of their keys. */
export function readData(
  sql: Sql,
  owner: MemoryOwner,
  condition: Condition | undefined,
  after: MemoryKey | undefined,
  limit: number,
): Promise<ReadMemory<MemoryData>[]> {
  const columns = [`time, ${sql.tables.select.data} as data`] as const;
  return readPage(sql, columns, owner, [condition], after, limit, (memory) => dataOf(sql.texts, memory));
}

function dataOf(texts: StoredTexts, { data = '', ...memory }: Ranked): MemoryData | Undecodable {
  const json = texts.decode(data, () => ofMemory(memory, 'data'));
  return json instanceof Undecodable ? json : (memoryDataOf(json) ?? CHANGED);
}

type Row = Readonly<Record<string, unknown>>;

/** Reads the next memories of an owner that meet conditions, in the order of their keys. */
async function readPage<T>(
  sql: Sql,
  [columns, ...given]: Condition,
  { appName, userId }: MemoryOwner,
  conditions: readonly (Condition | undefined)[],
  after: MemoryKey | undefined,
  limit: number,
  valueOf: (memory: Ranked, row: Row) => T | Undecodable,
): Promise<ReadMemory<T>[]> {
  const keyset = after && keysetAfter(['session_id', 'memory_id'], [after.sessionId, after.memoryId]);
  const place: Condition | undefined = keyset && [keyset.where, ...keyset.values];
  const { where, values } = allOf([WHERE_OWNER, appName, userId], ...conditions, place);
  const from = `from ${sql.tables.memories} where ${where} order by session_id, memory_id limit ?`;
  const text = `select session_id, memory_id, ${columns} ${from}`;
  const rows = await sql.all(text, [...given, ...values, limit]);
  return mapTexts(rows, (row) => {
    const key = { appName, userId, sessionId: textOf(row['session_id']), memoryId: textOf(row['memory_id']) };
    const memory = { ...key, time: numberOf(row['time']), data: optionalTextOf(row['data']) ?? undefined };
    return { memory, value: valueOf(memory, row) };
  });
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

/**
 * Keeps `forget` from running beside what adds memories of the same owners: it would not see them, and they would not see its marks.
 *
 * @param isShared whether others that add may do so at once.
 */
export function lockOwners(sql: Sql, owners: readonly MemoryOwner[], isShared = true): void {
  const { lockName } = sql.dialect.sql;
  if (!lockName) return;
  const names = owners.map(({ appName, userId }) => JSON.stringify([sql.tables.memories, appName, userId]));
  for (const name of [...new Set(names)].sort()) sql.later(lockName(isShared), [name]);
}

/**
 * @param session whose events they are: what it has copied as a fork is left out, too.
 * @returns the memories that nobody has forgotten (contract Q9), and those of them that have a vector.
 */
export async function withoutForgotten(
  sql: Sql,
  memories: readonly NewMemory[],
  session?: SessionKey,
): Promise<{ wanted: NewMemory[]; embedded: NewMemory[] }> {
  const found = { mark: new Set<string>(), vector: new Set<string>(), fork: new Set<string>() };
  const { tables } = sql;
  // Together, since each statement may be a trip, most sessions are no forks, and most memories have no vector.
  const [fork, forkValues] = session
    ? bound(
        `union all select ${SESSION_COLUMNS}, '', 'fork' from ${tables.sessions} where ${IN_SESSION} and forked_seq > 0`,
        keyed(session),
      )
    : ['', []];
  for (const some of chunksOf(memories, MOST_ROWS)) {
    const [marks, markValues] = marksOf(some);
    const [any, values] = ofMemories(some);
    const rows = await sql.all<Record<string, unknown> & { found: keyof typeof found }>(
      `select ${MEMORY_COLUMNS}, 'mark' as found from ${tables.forgottenMemories} where ${marks}
        union all select ${MEMORY_COLUMNS}, 'vector' from ${tables.memories} where model is not null and ${any} ${fork}`,
      [...markValues, ...values, ...forkValues],
    );
    for (const row of rows) found[row.found].add(memoryIdentity(memoryKeyOf(row)));
  }
  const ids = memories.map(({ memoryId }) => memoryId);
  const copied = session && found.fork.size > 0 ? await rememberedElsewhere(sql, session, ids) : undefined;
  const wanted = memories.filter(
    (each) =>
      !found.mark.has(memoryIdentity(each)) &&
      !found.mark.has(memoryIdentity({ ...each, sessionId: '' })) &&
      !copied?.has(each.memoryId),
  );
  return { wanted, embedded: wanted.filter((each) => found.vector.has(memoryIdentity(each))) };
}

/** Deletes those of the memories just added that were forgotten since `withoutForgotten` has read the marks. */
export function dropForgotten(sql: Sql, memories: readonly NewMemory[]): void {
  const { sql: pieces } = sql.dialect;
  // Elsewhere nobody can forget them meanwhile, see `lockOwners`.
  if (pieces.underLock === '') return;
  // It waits for marks that are not committed. `forget`, which writes them before it looks for memories, waits for those just added.
  const mark = `select 1 from ${sql.tables.forgottenMemories} ${pieces.fromIndex('primary')} where ${IN_MARKS}${pieces.underLock}`;
  const isForgotten = named(`${IN_MEMORY} and exists (${mark})`);
  for (const some of chunksOf(memories, MOST_ROWS)) {
    const [any, values] = anyOf(some.map((memory) => isForgotten(keyedMemory(memory))));
    sql.later(`${pieces.deleteThrough(sql.tables.memories, 'primary')} where ${any}`, values);
  }
}

/** Lets memories be added again. */
export function removeMarks(sql: Sql, memories: readonly MemoryKey[]): void {
  for (const key of memories)
    sql.later(...bound(`delete from ${sql.tables.forgottenMemories} where ${IN_MARKS}`, keyedMemory(key)));
}

/** Marks memories as forgotten, and deletes them. @returns how many were deleted. */
export async function deleteMemories(sql: Sql, owner: MemoryOwner, forgotten: MemorySelection): Promise<number> {
  lockOwners(sql, [owner], false);
  const { where, values } = whereForgotten(owner, forgotten);
  const { forgottenMemories, memories } = sql.tables;
  const { sql: pieces } = sql.dialect;
  const { memoryId, sessionId = '', before } = forgotten;
  const marksAny = memoryId === undefined || before !== undefined;
  const locksRows = marksAny && pieces.underLock !== '';
  const lock = `select count(*) from ${memories} ${pieces.fromIndex('primary')} where ${where}${pieces.underLock}`;
  // While this waits for a row, a projection may add a fork's memory where the scan has passed. The next statement finds it.
  const locked = locksRows ? sql.all(lock, values) : undefined;
  const insert = `insert into ${forgottenMemories} (${MEMORY_COLUMNS}, create_time)`;
  const end = pieces.onSameKey(MEMORY_COLUMNS, ['create_time']);
  sql.later(
    `${insert} select ${MEMORY_COLUMNS}, ${pieces.nowOfSelect ?? pieces.now} from ${memories} where ${where}${pieces.underLock} ${end}`,
    values,
  );
  // Its event may not have been remembered yet.
  if (memoryId !== undefined && !marksAny)
    sql.later(
      ...bound(
        `${insert} values (${MEMORY_NAMES}, ${pieces.now}) ${end}`,
        keyedMemory({ ...owner, sessionId, memoryId }),
      ),
    );
  // Not those that somebody has added meanwhile: without a mark they would come back.
  const marked = `(session_id, memory_id) in (select session_id, memory_id from ${forgottenMemories} where ${WHERE_OWNER})`;
  const text = `${pieces.deleteThrough(memories, 'primary')} where ${where}${locksRows ? ` and ${marked}` : ''}`;
  const owned = locksRows ? [owner.appName, owner.userId] : [];
  const [{ affectedRows }] = await Promise.all([sql.run(text, [...values, ...owned]), locked]);
  return affectedRows;
}

/** @returns how many memories `deleteMemories` would delete. */
export function countMemories(sql: Sql, owner: MemoryOwner, forgotten: MemorySelection): Promise<number> {
  const { where, values } = whereForgotten(owner, forgotten);
  return countRows(sql, `${sql.tables.memories} where ${where}`, values);
}

const whereForgotten = ({ appName, userId }: MemoryOwner, { memoryId, sessionId, before }: MemorySelection) =>
  allOf(
    [WHERE_OWNER, appName, userId],
    ifGiven('session_id = ?', sessionId),
    ifGiven('memory_id = ?', memoryId),
    ifGiven('time < ?', before),
  );
