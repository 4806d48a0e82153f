import { textSaidIn } from '../conversation/said.js';
import type { Database } from '../database/calls/database.js';
import { once } from '../database/calls/once.js';
import type { SqlRunner } from '../database/dialects/dialect.js';
import { nextApp } from '../database/statements/walk.js';
import { Undecodable } from '../model/stored-texts.js';
import { partialKey } from '../model/keys.js';
import type { Owner } from '../owned/owned-rows.js';
import { eachName, pagesOf } from '../model/pages.js';
import { decodedMemory, encodedMemory, memoryPage, recodeMemory, type MemoryRow } from './stored-memories.js';
import { TEXTS_AT_ONCE, type Embedder } from './embedding.js';
import { memoryDataOf } from './memory-content.js';

/** See `MikroOrmMemoryService.rebuildVectors`. */
export async function rebuildVectors(
  database: Database,
  embedder: Embedder,
  { dryRun, signal, ...owner }: Partial<Owner> & { dryRun?: boolean; signal?: AbortSignal },
): Promise<number> {
  const context = { operation: 'rebuildVectors', key: partialKey(owner) };
  const run: SqlRunner = (work) => database.call(context, () => database.run(work));
  let rebuilt = 0;
  for await (const page of memoryPages(run, owner)) {
    const lacking = page.filter(({ model }) => model !== embedder.model);
    if (signal?.aborted) break;
    if (dryRun) rebuilt += lacking.length;
    if (dryRun || lacking.length === 0) continue;
    const readable = await database.call(context, () =>
      database.code((texts) =>
        lacking.flatMap((memory) => {
          const plain = decodedMemory(texts, memory);
          const content = plain instanceof Undecodable ? undefined : memoryDataOf(plain.data)?.content;
          return content ? [{ memory, text: textSaidIn(content) }] : [];
        }),
      ),
    );
    // Outside of a call, so that the host's own error reaches the caller.
    const vectors = await embedder.vectorsOf(readable.map(({ text }) => text));
    rebuilt += await database.call(context, async () => {
      const encoded = await database.code((texts) =>
        readable.flatMap(({ memory, text }) => {
          const embedding = vectors.get(text);
          const { model } = embedder;
          return embedding ? [{ memory, stored: encodedMemory(texts, { ...memory, embedding, model }) }] : [];
        }),
      );
      return once(database, async (sql) => {
        let written = 0;
        for (const { memory, stored } of encoded) if (await recodeMemory(sql, memory, stored)) written++;
        return written;
      });
    });
  }
  return rebuilt;
}

async function* memoryPages(run: SqlRunner, { appName, userId }: Partial<Owner>): AsyncGenerator<readonly MemoryRow[]> {
  for await (const app of eachName(appName, (after) => run((sql) => nextApp(sql, after, 'memories'))))
    yield* pagesOf<MemoryRow>(TEXTS_AT_ONCE, (last) =>
      run((sql) => memoryPage(sql, { appName: app, userId }, last, TEXTS_AT_ONCE)),
    );
}
