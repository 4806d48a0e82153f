import type { Sql } from '../database/dialects/dialect.js';
import { SESSION_KEY } from '../database/sql/columns.js';
import { mapTexts, Undecodable, type StoredTexts } from '../model/stored-texts.js';
import {
  ownedTable,
  sumOfBytes,
  type EncodedRows,
  type OwnedRows,
  type Owner,
  type ExportReader,
} from '../owned/owned-rows.js';
import { nextApp } from '../database/statements/walk.js';
import { DamagedMemoryError } from '../model/errors.js';
import { decode, withoutUndefined, isRecord } from '../model/json.js';
import { pagesOf } from '../model/pages.js';
import { markWriter, memoryWriter } from './memory-writer.js';
import type { ForgottenRecord, MemoryRecord } from '../model/records.js';
import {
  areEncodedAlike,
  decodedMemory,
  encodedMemory,
  markPage,
  memoryPage,
  recodeMemory,
  type ForgottenMemory,
  type MemoryRow,
} from './stored-memories.js';

const texts: EncodedRows<MemoryRow> = {
  place: ({ tables }) => ({
    table: tables.memories,
    selected: tables.select.data,
    order: [...SESSION_KEY, 'memory_id'],
  }),
  page: memoryPage,
  recoded: ({ code }, memories) =>
    code((texts) =>
      mapTexts(memories, (memory) => {
        const plain = decodedMemory(texts, memory);
        if (plain instanceof Undecodable) return 'unreadable';
        const coded = encodedMemory(texts, plain);
        return areEncodedAlike(memory, coded)
          ? undefined
          : { bytes: 0, replace: (sql: Sql) => recodeMemory(sql, memory, coded) };
      }),
    ),
};

export const ownedMemories: OwnedRows = {
  name: 'memories',
  isCounted: true,
  nextApp: (sql, after) => nextApp(sql, after, 'memories'),
  sums: (sql) => ({
    memories: [['count(*)', sql.tables.memories]],
    memoryBytes: [[sumOfBytes(sql, 'data'), sql.tables.memories]],
  }),
  rows: ownedTable({
    table: ({ tables }) => tables.memories,
    key: ['session_id', 'memory_id'],
    expired: ({ dialect }) => `expires <= ${dialect.sql.now}`,
  }),
  texts: [texts],
  records: { read: memoryRecords, writer: memoryWriter },
};

/** How many memories one query reads. */
const PAGE = 200;

/** Includes expired memories, and those that have not settled. */
async function* memoryRecords(reading: ExportReader, owner: Owner): AsyncGenerator<MemoryRecord> {
  const memories = (after?: MemoryRecord) =>
    reading.run(async (sql) =>
      mapTexts(await memoryPage(sql, owner, after, PAGE), (memory) => recordOf(sql.texts, memory)),
    );
  for await (const page of pagesOf(PAGE, memories)) yield* page;
}

/** @throws DamagedMemoryError if it cannot be read. */
function recordOf(texts: StoredTexts, memory: MemoryRow): MemoryRecord {
  const plain = decodedMemory(texts, memory);
  const data = plain instanceof Undecodable ? undefined : decode(plain.data)?.value;
  // Without a content an import would refuse it.
  if (plain instanceof Undecodable || !isRecord(data) || !isRecord(data['content'])) {
    const damage = plain instanceof Undecodable ? plain.encoding : 'changed';
    throw new DamagedMemoryError(memory.memoryId, memory.sessionId || undefined, `it is ${damage}`);
  }
  const { words, model, embedding, ...rest } = plain;
  return {
    type: 'memory',
    ...withoutUndefined(rest),
    words: words.toString('base64'),
    ...(embedding && model !== undefined && { model, embedding: embedding.toString('base64') }),
    data,
  };
}

/** The marks of memories that agents had to forget. */
export const ownedMarks: OwnedRows = {
  name: 'forgotten memories',
  nextApp: (sql, after) => nextApp(sql, after, 'forgottenMemories'),
  rows: ownedTable({ table: ({ tables }) => tables.forgottenMemories, key: ['session_id', 'memory_id'] }),
  records: { read: markRecords, writer: markWriter },
};

async function* markRecords({ run }: ExportReader, owner: Owner): AsyncGenerator<ForgottenRecord> {
  const marks = (after?: ForgottenMemory) => run((sql) => markPage(sql, owner, after, PAGE));
  for await (const page of pagesOf(PAGE, marks)) for (const mark of page) yield { type: 'forgotten', ...mark };
}
