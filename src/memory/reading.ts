import { isDeepStrictEqual } from 'node:util';
import { textSaidIn } from '../conversation/said.js';
import type { Database } from '../database/calls/database.js';
import { ifGiven } from '../database/sql/values.js';
import { DamagedMemoryError } from '../model/errors.js';
import { callHost } from '../model/host-callbacks.js';
import { checkKeys } from '../model/keys.js';
import { pagesOf } from '../model/pages.js';
import { Undecodable } from '../model/stored-texts.js';
import type { Embedder } from './embedding.js';
import { repeatsQuestion, type MemoryData } from './memory-content.js';
import {
  LEAST_READ,
  readCompared,
  readData,
  readMemories,
  type ComparedMemory,
  type ReadMemory,
} from './memory-store.js';
import { Ranking, type Ranked } from './ranking.js';
import {
  scopeOf,
  type ListMemoriesRequest,
  type MikroOrmMemoryServiceOptions,
  type SearchMemoriesRequest,
  type StoredMemory,
} from './requests.js';
import { checkedMemoryKey, memoryIdentity } from './stored-memories.js';
import { cosine } from './vectors.js';

/** What fits a prompt: with 100,000 characters in each of ten memories, a model request would fail. */
const MOST_CHARACTERS = 20_000;

/** How many lists of words one statement reads. */
const PAGE = 5_000;

/** How many memories one statement reads at most, for what SQLite accepts. */
const MOST_READ = 500;

/** What reads memories. */
interface MemoryReader {
  database: Database;
  options: Pick<MikroOrmMemoryServiceOptions, 'limit' | 'maxCharacters' | 'embed' | 'onDamage'>;
  embedder?: Embedder | undefined;
}

/** A memory, and how well it matches a question. */
type FoundMemory = StoredMemory & { score: number };

/** See `MikroOrmMemoryService.searchMemory`. */
export async function searchMemory(
  reader: MemoryReader,
  request: SearchMemoriesRequest,
): Promise<{ memories: FoundMemory[] }> {
  const { database, options, embedder } = reader;
  const { appName, userId, query, sessionId, since, includeApp = true } = request;
  checkKeys({ appName, userId, ...(sessionId !== undefined && { sessionId }) });
  // Now: what the caller does to them later does not count.
  const wanted = Object.entries(JSON.parse(JSON.stringify(request.metadata ?? {})) as Record<string, unknown>);
  const ranking = new Ranking(query);
  if (ranking.isEmpty) return { memories: [] };
  const context = { operation: 'searchMemory', key: { appName, userId } };
  return database.call(context, async () => {
    const unit = await embedder?.question(query, context);
    const scope = { sessionId, since, model: unit && embedder?.model };
    const { leastCosine = 0 } = options.embed ?? {};
    const owners = (includeApp ? [userId, ''] : [userId]).map((owner) => ({ appName, userId: owner }));
    const first = await database.run((sql) =>
      Promise.all(owners.map((owner) => readCompared(sql, owner, scope, undefined, PAGE))),
    );
    for (const [i, owner] of owners.entries()) {
      const pages = pagesOf<ReadMemory<ComparedMemory>>(PAGE, async (last) =>
        last ? database.run((sql) => readCompared(sql, owner, scope, last.memory, PAGE)) : (first[i] ?? []),
      );
      for await (const page of pages)
        for (const { memory, value } of readable(page, options)) {
          const similarity = unit && value.vector && cosine(unit, value.vector);
          const isSimilar = similarity !== undefined && similarity > leastCosine;
          ranking.add(memory, value.words, isSimilar ? similarity : undefined);
        }
    }
    return { memories: await bestOf(reader, ranking, wanted, request) };
  });
}

/** Reads the best memories that meet the conditions. */
async function bestOf(
  { database, options }: MemoryReader,
  ranking: Ranking,
  wanted: readonly (readonly [name: string, value: unknown])[],
  request: SearchMemoriesRequest,
): Promise<FoundMemory[]> {
  const { limit = options.limit ?? 10 } = request;
  const { maxCharacters = options.maxCharacters ?? MOST_CHARACTERS } = request;
  const found: FoundMemory[] = [];
  const contents = new Set<string>();
  let characters = 0;
  let isSpent = false;
  for (const part of ranking.ranked(Math.min(Math.max(limit, LEAST_READ), MOST_READ))) {
    if (part.length === 0) break;
    const read = new Map<string, MemoryData>();
    const keys = part.map(({ memory }) => memory);
    const rows = await database.run((sql) => readMemories(sql, keys));
    for (const { memory, value } of readable(rows, options)) read.set(memoryIdentity(memory), value);
    for (const { memory, score } of part) {
      const data = read.get(memoryIdentity(memory));
      if (!data || found.length === limit) continue;
      const length = textSaidIn(data.content).length;
      const has = data.customMetadata ?? {};
      const isMeant = wanted.every(([name, value]) => Object.hasOwn(has, name) && isDeepStrictEqual(has[name], value));
      if (!isMeant || (ranking.hasWordsOf(memory) && repeatsQuestion(data, request.query))) continue;
      // What somebody says in several sessions is one result: the newest, since their ranks are equal.
      const content = JSON.stringify([data.content, data.author]);
      if (contents.has(content)) continue;
      if (characters + length > maxCharacters) {
        isSpent ||= length <= maxCharacters;
        continue;
      }
      contents.add(content);
      characters += length;
      found.push({ ...storedMemory(memory, data), score });
    }
    // Otherwise it would read all memories with a word of the question, to find one that is short enough for the rest.
    if (found.length === limit || isSpent) break;
  }
  return found;
}

/** See `MikroOrmMemoryService.listMemories`. */
export async function listMemories(
  { database, options }: MemoryReader,
  request: ListMemoriesRequest,
): Promise<StoredMemory[]> {
  const { owner, sessionId } = scopeOf(request);
  const { limit, after } = request;
  let last = after && checkedMemoryKey({ ...owner, sessionId: after.sessionId ?? '', memoryId: after.id });
  return database.call({ operation: 'listMemories', key: owner }, async () => {
    const found: StoredMemory[] = [];
    // Fills the page even if some memories cannot be read: only the last page may be shorter.
    for (;;) {
      const size = limit - found.length;
      const read = await database.run((sql) => readData(sql, owner, ifGiven('session_id = ?', sessionId), last, size));
      for (const { memory, value } of readable(read, options)) found.push(storedMemory(memory, value));
      if (found.length === limit || read.length < size) return found;
      last = read.at(-1)?.memory;
    }
  });
}

/** Leaves out what cannot be read, and reports it. */
function* readable<T>(
  read: readonly ReadMemory<T>[],
  { onDamage }: MemoryReader['options'],
): Generator<{ memory: Ranked; value: T }> {
  for (const { memory, value } of read) {
    if (!(value instanceof Undecodable)) {
      yield { memory, value };
      continue;
    }
    const error = new DamagedMemoryError(memory.memoryId, memory.sessionId || undefined, `it is ${value.encoding}`);
    if (onDamage) callHost(onDamage, error);
    else process.emitWarning(error);
  }
}

const storedMemory = (
  { memoryId, sessionId, time }: Ranked,
  { content, author, customMetadata }: MemoryData,
): StoredMemory => ({
  id: memoryId,
  ...(sessionId && { sessionId }),
  content,
  ...(author !== undefined && { author }),
  timestamp: new Date(time).toISOString(),
  ...(customMetadata && { customMetadata }),
});
