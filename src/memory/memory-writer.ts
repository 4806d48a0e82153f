import type { Sql } from '../database/dialects/dialect.js';
import { aDate, aRecord, aString, aTime, anything, object, rule } from '../model/arguments.js';
import { InvalidArgumentError } from '../model/errors.js';
import { encode } from '../model/json.js';
import type { ForgottenRecord, MemoryRecord } from '../model/records.js';
import { isFramed, mapTexts } from '../model/stored-texts.js';
import { RECORDED_LEVELS, inRecord, wholeFrom, type ImportRun, type RecordWriter } from '../owned/record-writer.js';
import { lockOwners } from './memory-store.js';
import { isVector } from './vectors.js';
import { isWordList } from './words.js';
import {
  aContent,
  checkedMemoryKey,
  encodedMemory,
  importMark,
  importMemory,
  type ForgottenMemory,
  type MemoryRow,
} from './stored-memories.js';

/** Not checked as a date, since sums of times may be later than any date. */
const aNumber = rule('a number', Number.isFinite);

const checkMemory = object<MemoryRecord>(
  {
    ...{ ...inRecord, memoryId: anything, seq: wholeFrom(1), time: aDate, createTime: aTime },
    ...{ settles: aNumber, expires: aNumber, words: aString, embedding: aString, model: aString },
    data: aRecord,
  },
  ...(['time', 'createTime', 'words', 'data'] as const),
);
const checkMark = object<ForgottenRecord>({ ...inRecord, memoryId: anything, createTime: aTime }, 'createTime');

/**
 * Writes rows many at a time.
 *
 * @param write returns how many memories it has added.
 */
function rowWriter<Row>(
  type: MemoryRecord['type'] | ForgottenRecord['type'],
  run: ImportRun,
  rowOf: (record: unknown, name: string) => Row,
  write: (sql: Sql, rows: readonly Row[]) => Promise<number>,
): RecordWriter {
  let rows: Row[] = [];
  const drop = () => {
    rows = [];
  };
  const end = async () => {
    if (rows.length === 0) return;
    run.count('memories', (await run.write((sql) => write(sql, rows))) ?? 0);
    drop();
  };
  return {
    types: [type],
    check(record, name) {
      const row = rowOf(record, name);
      return async () => {
        if (rows.length >= run.batchSize) await end();
        rows.push(row);
      };
    },
    end,
    drop,
  };
}

export const memoryWriter = (run: ImportRun): RecordWriter =>
  rowWriter(
    'memory',
    run,
    (record, name) => storableMemory(checkMemory(record, name)),
    async (sql, memories) => {
      lockOwners(sql, memories);
      const encoded = mapTexts(memories, (memory) => encodedMemory(sql.texts, memory));
      let written = 0;
      for (const memory of encoded) if (await importMemory(sql, memory)) written++;
      return written;
    },
  );

export const markWriter = (run: ImportRun): RecordWriter =>
  rowWriter(
    'forgotten',
    run,
    (record, name): ForgottenMemory => {
      const mark = checkMark(record, name);
      return { ...checkedMemoryKey(mark), createTime: mark.createTime };
    },
    (sql, marks) => {
      lockOwners(sql, marks, false);
      for (const mark of marks) importMark(sql, mark);
      return Promise.resolve(0);
    },
  );

/** @throws InvalidArgumentError, InvalidKeyError, UnserializableValueError. */
function storableMemory(record: MemoryRecord): MemoryRow {
  const key = checkedMemoryKey(record);
  const { data, time, createTime, model } = record;
  aContent(data['content'], 'data.content');
  if ((model === undefined) !== (record.embedding === undefined))
    throw new InvalidArgumentError('It must have embedding and model, or neither.');
  const bytes = [record.words, record.embedding].flatMap((text) =>
    text === undefined ? [] : [Buffer.from(text, 'base64')],
  );
  if (bytes.some(isFramed)) throw new InvalidArgumentError('words and embedding must not be encoded by a codec.');
  const [words = Buffer.alloc(0), embedding] = bytes;
  // Otherwise no search would find it, and each would report damage.
  if (!isWordList(words) || (embedding && !isVector(embedding)))
    throw new InvalidArgumentError('words or embedding are not of this version of the package.');
  return {
    ...key,
    ...{ time, createTime, seq: record.seq, settles: record.settles, expires: record.expires },
    ...{ words, model, embedding },
    data: encode(data, 'data', RECORDED_LEVELS).json,
  };
}
