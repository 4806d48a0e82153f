import type { Sql } from '../database/dialects/dialect.js';
import { mapTexts, Undecodable } from '../model/stored-texts.js';
import { ownedTable, type EncodedRows, type OwnedRows } from '../database/statements/owned-rows.js';
import { nextApp } from '../database/statements/walk.js';
import {
  areEncodedAlike,
  decodedMemory,
  encodedMemory,
  memoryPage,
  recodeMemory,
  type TransferredMemory,
} from './stored-memories.js';

const texts: EncodedRows<TransferredMemory> = {
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
};

/** The marks of memories that agents had to forget. */
export const ownedMarks: OwnedRows = {
  name: 'forgotten memories',
  nextApp: (sql, after) => nextApp(sql, after, 'forgottenMemories'),
  rows: ownedTable({ table: ({ tables }) => tables.forgottenMemories, key: ['session_id', 'memory_id'] }),
};
