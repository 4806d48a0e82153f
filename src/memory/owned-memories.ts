import type { Sql } from '../database/dialects/dialect.js';
import { SESSION_KEY } from '../database/sql/tables.js';
import { mapTexts, Undecodable } from '../model/stored-texts.js';
import {
  ownedTable,
  type EncodedRows,
  type OwnedRows,
  type Owner,
  type Reading,
} from '../database/statements/owned-rows.js';
import { nextApp } from '../database/statements/walk.js';
import { decode, given } from '../model/json.js';
import { pagesOf } from '../model/pages.js';
import type { ForgottenRecord, MemoryRecord } from '../model/records.js';
import {
  areEncodedAlike,
  decodedMemory,
  encodedMemory,
  markPage,
  memoryPage,
  recodeMemory,
  transferredMemories,
  type ForgottenMemory,
  type TransferredMemory,
} from './stored-memories.js';

const texts: EncodedRows<TransferredMemory> = {
  place: ({ tables }) => ({
    table: tables.memories,
    selected: tables.select.data,
    order: [...SESSION_KEY, 'memory_id'],
  }),
  page: (sql, owner, after, limit) => memoryPage(sql, owner, after?.key, limit),
  recoded: ({ code, isLenient }, memories) =>
    code((texts) =>
      mapTexts(memories, (memory) => {
        const plain = decodedMemory(texts, memory, isLenient);
        if (plain instanceof Undecodable) return 'unreadable';
        const coded = encodedMemory(texts, memory.key, plain);
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
  rows: ownedTable({
    table: ({ tables }) => tables.memories,
    key: ['session_id', 'memory_id'],
    expired: ({ dialect }) => `expires <= ${dialect.sql.now}`,
  }),
  texts: [texts],
  records: { read: memoryRecords },
};

/** How many memories one query reads. */
const PAGE = 200;

/** Includes expired memories, and those that have not settled. */
async function* memoryRecords(reading: Reading, owner: Owner): AsyncGenerator<MemoryRecord> {
  const memories = (after?: TransferredMemory) =>
    reading.run(async (sql) => transferredMemories(sql.texts, await memoryPage(sql, owner, after?.key, PAGE)));
  for await (const page of pagesOf(PAGE, memories)) {
    for (const { key, seq, time, createTime, settles, expires, words, model, embedding, data } of page)
      yield {
        type: 'memory',
        ...key,
        ...given({ seq, time, createTime, settles, expires }),
        words: words.toString('base64'),
        ...(embedding && model !== undefined && { model, embedding: embedding.toString('base64') }),
        data: decode(data)?.value as Record<string, unknown>,
      };
  }
}

/** The marks of memories that agents had to forget. */
export const ownedMarks: OwnedRows = {
  name: 'forgotten memories',
  nextApp: (sql, after) => nextApp(sql, after, 'forgottenMemories'),
  rows: ownedTable({ table: ({ tables }) => tables.forgottenMemories, key: ['session_id', 'memory_id'] }),
  records: { read: markRecords },
};

async function* markRecords({ run }: Reading, owner: Owner): AsyncGenerator<ForgottenRecord> {
  const marks = (after?: ForgottenMemory) => run((sql) => markPage(sql, owner, after?.key, PAGE));
  for await (const page of pagesOf(PAGE, marks))
    for (const { key, createTime } of page) yield { type: 'forgotten', ...key, createTime };
}
