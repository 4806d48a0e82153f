import type { CallInParts } from '../database/calls/call-in-parts.js';
import { aRecord, aString, object } from '../model/arguments.js';
import { InvalidArgumentError, InvalidKeyError, UnserializableValueError } from '../model/errors.js';
import { callHost } from '../model/host-callbacks.js';
import { batchSizeOf } from '../model/pages.js';
import type { HostRecord } from '../model/records.js';
import type { MaintenanceResult } from '../model/results.js';
import type { OwnedRows } from '../owned/owned-rows.js';
import { inRecord, type ImportRules, type ImportRun, type RecordWriter } from '../owned/record-writer.js';
import { OWNED_ROWS } from './owned-kinds.js';

interface ImportMode extends Partial<ImportRules> {
  batchSize?: number;
  /** Whether to write nothing; the progress is the same. */
  isDryRun?: boolean;
}

const NOTHING = {
  ...{ sessions: 0, events: 0, artifactVersions: 0, memories: 0 },
  ...{ records: 0, refused: 0, annulled: 0 },
};

const checkHostRecord = object<HostRecord>({ ...inRecord, entity: aString, row: aRecord });

/** The host's own tables are the host's to fill. */
const LEFT_OUT: RecordWriter = {
  types: ['owned'],
  check(record, name) {
    checkHostRecord(record, name);
    return () => Promise.resolve();
  },
};

/** Writes records in their order, in transactions of at most n events. */
export class Import {
  readonly #writers = new Map<string, RecordWriter>();
  /** Writes the records that are coming. */
  #writer: RecordWriter | undefined;
  readonly #result: MaintenanceResult<keyof typeof NOTHING> = {
    ...{ done: { ...NOTHING }, skipped: 0 },
    ...{ batches: 0, more: false },
  };

  constructor(call: CallInParts, mode: ImportMode, kinds: readonly OwnedRows[] = OWNED_ROWS) {
    const { onExisting = 'skip', force = false, isOfOtherStore = false, sharedState = 'overwrite' } = mode;
    const result = this.#result;
    const run: ImportRun = {
      rules: { onExisting, force, isOfOtherStore, sharedState },
      batchSize: batchSizeOf(mode, 500),
      read: call.read,
      write: async (work) => {
        const done = mode.isDryRun ? undefined : await call.write(work);
        result.batches++;
        return done;
      },
      count(what, number) {
        if (what === 'skipped') result.skipped += number;
        else result.done[what] += number;
      },
    };
    const writers = kinds.flatMap(({ records }) => records?.writer?.(run) ?? []);
    for (const writer of [LEFT_OUT, ...writers]) for (const type of writer.types) this.#writers.set(type, writer);
  }

  get result(): MaintenanceResult<keyof typeof NOTHING> {
    return { ...this.#result, done: { ...this.#result.done } };
  }

  /** @throws InvalidArgumentError for something that is not a record of an export, or is out of order. */
  async add(record: unknown): Promise<void> {
    const name = `Record ${this.#result.done.records + 1}`;
    const { writer, write } = this.#checked(record, name);
    if (writer !== this.#writer) await this.end();
    this.#writer = writer;
    await write();
    this.#result.done.records++;
  }

  #checked(record: unknown, name: string) {
    aRecord(record, name);
    const { type }: { type?: unknown } = record as object;
    const writer = typeof type === 'string' ? this.#writers.get(type) : undefined;
    if (!writer) {
      const types = [...this.#writers.keys()].join(', ');
      throw new InvalidArgumentError(`${name} is not a record: its type must be one of ${types}.`);
    }
    try {
      return { writer, write: writer.check(record as { type: string }, name) };
    } catch (error) {
      const isRefusal =
        error instanceof InvalidArgumentError ||
        error instanceof InvalidKeyError ||
        error instanceof UnserializableValueError;
      if (!isRefusal || error.message.startsWith(name)) throw error;
      throw new InvalidArgumentError(`${name}: ${error.message}`);
    }
  }

  /** Adds all records, until the signal fires. */
  async addAll(
    records: AsyncIterable<unknown> | Iterable<unknown>,
    { signal, onProgress }: { signal?: AbortSignal; onProgress?: (result: MaintenanceResult) => void },
  ): Promise<void> {
    for await (const record of records) {
      this.#result.more = signal?.aborted === true;
      if (this.#result.more) return;
      await this.add(record);
      callHost(onProgress, this.result);
    }
    await this.end();
  }

  /** Writes what is not written yet. @throws InvalidArgumentError if records are missing. */
  async end(): Promise<void> {
    await this.#writer?.end?.();
  }

  /** Forgets everything that is not written yet. */
  drop(): void {
    this.#writer?.drop?.();
  }
}
