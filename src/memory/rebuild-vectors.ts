import type { Database } from '../database/calls/database.js';
import { once } from '../database/calls/once.js';
import type { Sql } from '../database/dialects/dialect.js';
import { nextApp } from '../database/statements/walk.js';
import { Undecodable } from '../model/codec.js';
import { givenKey } from '../model/keys.js';
import {
  decodedMemory,
  encodedMemory,
  memoryPage,
  recodeMemory,
  type MemoryKey,
  type TransferredMemory,
} from '../transfer/stored-memories.js';
import { TEXTS_AT_ONCE, type Embedder } from './embedding.js';
import { memoryDataOf, textOf } from './memory-content.js';

/** Whose memories get the vectors that they lack; all by default. */
export interface RebuildVectorsRequest {
  appName?: string;
  userId?: string;
  /** Whether to count them alone. */
  dryRun?: boolean;
  /** Ends the call before `embed` is called again. */
  signal?: AbortSignal;
}

type Run = <T>(work: (sql: Sql) => Promise<T>) => Promise<T>;

/** See `MikroOrmMemoryService.rebuildVectors`. */
export async function rebuildVectors(
  database: Database,
  embedder: Embedder,
  { dryRun, signal, ...owner }: RebuildVectorsRequest,
): Promise<number> {
  const context = { operation: 'rebuildVectors', key: givenKey(owner) };
  const run: Run = (work) => database.call(context, () => database.run(work));
  let rebuilt = 0;
  for await (const page of pagesOf(run, owner)) {
    const lacking = page.filter(({ model }) => model !== embedder.model);
    if (signal?.aborted) break;
    if (dryRun) rebuilt += lacking.length;
    if (dryRun || lacking.length === 0) continue;
    const read = await database.call(context, () =>
      database.code((texts) => lacking.map((memory) => ({ memory, plain: decodedMemory(texts, memory) }))),
    );
    const readable = read.flatMap(({ memory, plain }) => {
      const content = plain instanceof Undecodable ? undefined : memoryDataOf(plain.data)?.content;
      return content ? [{ memory, text: textOf(content) }] : [];
    });
    // Not in a call: what it throws is the host's.
    const vectors = await embedder.vectorsOf(readable.map(({ text }) => text));
    rebuilt += await database.call(context, async () => {
      const encoded = await database.code((texts) =>
        readable.flatMap(({ memory, text }) => {
          const embedding = vectors.get(text);
          return embedding ? [{ memory, stored: encodedMemory(texts, memory.key, { ...memory, embedding }) }] : [];
        }),
      );
      return once(database, async (sql) => {
        let written = 0;
        for (const { memory, stored } of encoded)
          if (await recodeMemory(sql, memory, stored, embedder.model)) written++;
        return written;
      });
    });
  }
  return rebuilt;
}

async function* pagesOf(
  run: Run,
  { appName, userId }: Pick<RebuildVectorsRequest, 'appName' | 'userId'>,
): AsyncGenerator<TransferredMemory[]> {
  const next = (after: string) => run((sql) => nextApp(sql, after, 'memories'));
  for (let app = appName ?? (await next('')); app !== undefined;) {
    const owner = { appName: app, userId };
    for (let after: MemoryKey | undefined; ;) {
      const page = await run((sql) => memoryPage(sql, owner, after, TEXTS_AT_ONCE));
      yield page;
      if (page.length < TEXTS_AT_ONCE) break;
      after = page.at(-1)?.key;
    }
    app = appName === undefined ? await next(app) : undefined;
  }
}
