import type { Database } from '../database/calls/database.js';
import { RECODED_TABLES, type RecodedTable, type StoredText } from '../database/stores/recode-store.js';
import { encodingOf } from '../model/codec.js';
import { callHost } from '../model/host-callbacks.js';
import { isPromise } from '../model/maybe-promise.js';
import { givenKey } from '../model/keys.js';
import type { ReencodeResult } from '../model/progress.js';
import { pause } from '../model/signals.js';
import { CallInParts } from './call-in-parts.js';
import { reencodeBatchSize, type ReencodeOptions } from './options.js';

/** A text and what it is to be replaced by. */
interface Recoding {
  stored: StoredText;
  text: string;
}

/** See `SessionMaintenance.reencode`. */
export async function reencode(database: Database, options: ReencodeOptions): Promise<ReencodeResult> {
  const run = new ReencodeRun(database, options);
  const call = new CallInParts(database, { operation: 'reencode', key: givenKey(options) });
  return call.run(
    () => run.result,
    () => run.all(call),
  );
}

/** A call that rewrites texts, from app to app and from table to table, in pages. */
class ReencodeRun {
  readonly #database: Database;
  readonly #options: ReencodeOptions;
  readonly #size: number;
  readonly #done = { texts: 0, rewritten: 0, unreadable: 0, skipped: 0, batches: 0 };
  #more = false;

  constructor(database: Database, options: ReencodeOptions) {
    this.#database = database;
    this.#options = options;
    this.#size = reencodeBatchSize(options);
  }

  get result(): ReencodeResult {
    return { ...this.#done, more: this.#more };
  }

  async all(call: CallInParts): Promise<void> {
    const { appName, userId } = this.#options;
    for await (const [app, tables] of this.#apps(call, appName)) {
      // State of the app is nobody's.
      const meant = tables.filter((table) => userId === undefined || table !== 'app');
      for (const table of meant) if (!(await this.#table(call, table, app))) return;
    }
  }

  /** @returns the apps with the tables that may hold contents of them. */
  async *#apps(call: CallInParts, appName: string | undefined): AsyncGenerator<[string, readonly RecodedTable[]]> {
    if (appName !== undefined) {
      yield [appName, RECODED_TABLES];
      return;
    }
    const { transfer, walk } = this.#database.stores;
    const known = new Set<string>();
    const next = (after: string) => call.read((sql) => transfer.nextApp(sql, after));
    for (let app = await next(''); app !== undefined; app = await next(app)) {
      known.add(app);
      yield [app, RECODED_TABLES];
    }
    // The log may have entries of a user or an app that has no state any more.
    const nextOfLog = (after: string) => call.read((sql) => walk.nextApp(sql, after, 'changes'));
    for (let app = await nextOfLog(''); app !== undefined; app = await nextOfLog(app))
      if (!known.has(app)) yield [app, ['changes']];
  }

  /** @returns false when the work has to end. */
  async #table(call: CallInParts, table: RecodedTable, appName: string): Promise<boolean> {
    const { recode } = this.#database.stores;
    const owner = { appName, userId: this.#options.userId };
    let after: StoredText | undefined;
    for (;;) {
      if (!this.#mayBegin()) return false;
      const page = await call.read((sql) => recode.page(sql, table, owner, after, this.#size));
      await this.#page(call, page);
      if (page.length < this.#size) return true;
      after = page.at(-1);
    }
  }

  #mayBegin(): boolean {
    const { signal, maxBatches = Infinity } = this.#options;
    this.#more = signal?.aborted === true || this.#done.batches >= maxBatches;
    return !this.#more;
  }

  /** Decoded and encoded outside of the transaction: others wait for nothing but the updates. */
  async #page(call: CallInParts, page: readonly StoredText[]): Promise<void> {
    const found = await this.#recodings(page);
    this.#done.texts += page.length;
    if (found.length > 0 && !this.#options.dryRun) {
      const { recode } = this.#database.stores;
      const skipped = await call.write(async (sql) => {
        let skipped = 0;
        for (const { stored, text } of found) if (!(await recode.replace(sql, stored, text))) skipped++;
        return skipped;
      });
      this.#done.skipped += skipped;
      this.#done.rewritten += found.length - skipped;
    } else {
      this.#done.rewritten += found.length;
    }
    if (found.length === 0) return;
    this.#done.batches++;
    callHost(this.#options.onProgress, this.result);
    const { pauseMs = this.#database.dialect.sql.turnMs ?? 0, dryRun, signal } = this.#options;
    if (pauseMs > 0 && !dryRun) await pause(pauseMs, signal);
  }

  /** @returns the texts that are not stored as the codec stores them now. */
  async #recodings(page: readonly StoredText[]): Promise<Recoding[]> {
    const { adoptPlain } = this.#options;
    const decoding = this.#database.code((texts) =>
      page.map(({ text, context }) => {
        if (text === undefined) return undefined;
        return adoptPlain ? texts.decodeLeniently(text, context) : texts.decode(text, () => context);
      }),
    );
    const decoded = isPromise(decoding) ? await decoding : decoding;
    const readable = page.flatMap((stored, i) => {
      const json = decoded[i];
      return typeof json === 'string' ? [{ stored, json }] : [];
    });
    this.#done.unreadable += page.length - readable.length;
    const encoding = this.#database.code((texts) =>
      readable.map(({ stored, json }) => ({ stored, text: texts.encode(json, () => stored.context) })),
    );
    const encoded = isPromise(encoding) ? await encoding : encoding;
    return encoded.filter(({ stored, text }) => encodingOf(text) !== encodingOf(stored.text ?? ''));
  }
}
