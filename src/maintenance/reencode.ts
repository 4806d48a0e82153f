import { versionPage } from '../artifacts/artifact-store.js';
import { Damaged, type VersionKey } from '../artifacts/stored-version.js';
import { CallInParts } from '../database/calls/call-in-parts.js';
import type { Database } from '../database/calls/database.js';
import type { Sql } from '../database/dialects/dialect.js';
import { nextApp } from '../database/statements/walk.js';
import { Undecodable, encodingOf, namesKey } from '../model/codec.js';
import { givenKey } from '../model/keys.js';
import type { MaintenanceResult } from '../model/results.js';
import {
  areEncodedAlike,
  decodedMemory,
  encodedMemory,
  memoryPage,
  recodeMemory,
  type MemoryKey,
} from '../transfer/stored-memories.js';
import { nextAppWithState } from '../transfer/transferred-sessions.js';
import { Batches } from './batches.js';
import { reencodeBatchSize, type ReencodeOptions } from './options.js';
import { recodedVersion, replaceVersion, type RecodedVersion } from './recoded-artifacts.js';
import { RECODED_TABLES, recode, recodedPage, type RecodedTable, type StoredText } from './recoded-texts.js';

/** A text and what it is to be replaced by. */
interface Recoding {
  stored: StoredText;
  text: string;
}

/** How many bytes of artifacts one transaction rewrites; of a larger version all of it. */
const TOGETHER_BYTES = 4_000_000;

/** See `SessionMaintenance.reencode`. */
export async function reencode(database: Database, options: ReencodeOptions): Promise<MaintenanceResult> {
  const run = new ReencodeRun(database, options);
  const call = new CallInParts(database, { operation: 'reencode', key: givenKey(options) });
  return call.run(
    () => run.batches.result,
    () => run.all(call),
  );
}

/** A call that rewrites texts, from app to app and from table to table, in pages. */
class ReencodeRun {
  readonly batches: Batches;
  readonly #database: Database;
  readonly #options: ReencodeOptions;

  constructor(database: Database, options: ReencodeOptions) {
    this.#database = database;
    this.#options = options;
    this.batches = new Batches(options, reencodeBatchSize(options), database.dialect.sql.turnMs);
  }

  async all(call: CallInParts): Promise<void> {
    const { appName, userId } = this.#options;
    for await (const [app, tables] of this.#apps(call, appName)) {
      // State of the app is nobody's.
      const meant = tables.filter((table) => userId === undefined || table !== 'app');
      for (const table of meant) if (!(await this.#table(call, table, app))) return;
      if (!(await this.#artifacts(call, app))) return;
      if (!(await this.#memories(call, app))) return;
    }
  }

  /** @returns the apps with the tables that may hold contents of them. */
  async *#apps(call: CallInParts, appName: string | undefined): AsyncGenerator<[string, readonly RecodedTable[]]> {
    if (appName !== undefined) {
      yield [appName, RECODED_TABLES];
      return;
    }
    const known = new Set<string>();
    const next = (after: string) => call.read((sql) => nextAppWithState(sql, after));
    for (let app = await next(''); app !== undefined; app = await next(app)) {
      known.add(app);
      yield [app, RECODED_TABLES];
    }
    // The log may have entries of a user or an app that has no state any more, and a user may have credentials alone.
    for (const table of ['changes', 'credentials'] as const) {
      const nextOf = (after: string) => call.read((sql) => nextApp(sql, after, table));
      for (let app = await nextOf(''); app !== undefined; app = await nextOf(app))
        if (!known.has(app)) yield [app, [table]];
    }
  }

  /** @returns false when the work has to end. */
  async #artifacts(call: CallInParts, appName: string): Promise<boolean> {
    const owner = { appName, userId: this.#options.userId };
    const isLenient = this.#options.adoptPlain ?? false;
    let after: VersionKey | undefined;
    for (;;) {
      if (!(await this.batches.mayBegin())) return false;
      const page = await call.read((sql) => versionPage(sql, owner, after, this.batches.size));
      let group: RecodedVersion[] = [];
      for (const key of page) {
        const recoded = await call.encoding(() => recodedVersion(this.#database, key, isLenient));
        if (!recoded) continue;
        if (recoded instanceof Damaged) this.batches.count({ unreadable: 1 });
        else group.push(recoded);
        if (group.reduce((sum, { size }) => sum + size, 0) < TOGETHER_BYTES) continue;
        await this.#replace(call, group);
        group = [];
        if (!(await this.batches.mayBegin())) return false;
      }
      await this.#replace(call, group);
      if (page.length < this.batches.size) return true;
      after = page.at(-1);
    }
  }

  /** @returns false when the work has to end. */
  async #memories(call: CallInParts, appName: string): Promise<boolean> {
    const { userId, adoptPlain: isLenient } = this.#options;
    let after: MemoryKey | undefined;
    for (;;) {
      if (!(await this.batches.mayBegin())) return false;
      const page = await call.read((sql) => memoryPage(sql, { appName, userId }, after, this.batches.size));
      const decoded = await this.#database.code((texts) =>
        page.map((memory) => ({ memory, plain: decodedMemory(texts, memory, isLenient) })),
      );
      const readable = decoded.flatMap(({ memory, plain }) =>
        plain instanceof Undecodable ? [] : [{ memory, plain }],
      );
      this.batches.count({ unreadable: page.length - readable.length });
      const encoded = await this.#database.code((texts) =>
        readable.map(({ memory, plain }) => ({ memory, recoded: encodedMemory(texts, memory.key, plain) })),
      );
      const changed = encoded.filter(({ memory, recoded }) => !areEncodedAlike(memory, recoded));
      await this.#write(call, changed, (sql, { memory, recoded }) => recodeMemory(sql, memory, recoded));
      if (page.length < this.batches.size) return true;
      after = page.at(-1)?.key;
    }
  }

  async #replace(call: CallInParts, versions: readonly RecodedVersion[]): Promise<void> {
    await this.#write(call, versions, replaceVersion);
  }

  /** One transaction. @param replace returns false if it changed nothing. */
  async #write<T>(
    call: CallInParts,
    found: readonly T[],
    replace: (sql: Sql, each: T) => Promise<boolean>,
  ): Promise<void> {
    if (found.length === 0) return;
    const skipped = this.batches.isDryRun
      ? 0
      : await call.write(async (sql) => {
          let skipped = 0;
          for (const each of found) if (!(await replace(sql, each))) skipped++;
          return skipped;
        });
    this.batches.add({ texts: found.length - skipped, skipped });
  }

  /** @returns false when the work has to end. */
  async #table(call: CallInParts, table: RecodedTable, appName: string): Promise<boolean> {
    const owner = { appName, userId: this.#options.userId };
    let after: StoredText | undefined;
    for (;;) {
      if (!(await this.batches.mayBegin())) return false;
      const page = await call.read((sql) => recodedPage(sql, table, owner, after, this.batches.size));
      await this.#page(call, page);
      if (page.length < this.batches.size) return true;
      after = page.at(-1);
    }
  }

  /** Decoded and encoded outside of the transaction: others wait for nothing but the updates. */
  async #page(call: CallInParts, page: readonly StoredText[]): Promise<void> {
    await this.#write(call, await this.#recodings(page), (sql, { stored, text }) => recode(sql, stored, text));
  }

  /** @returns the texts that are not stored as the codec stores them now. */
  async #recodings(page: readonly StoredText[]): Promise<Recoding[]> {
    const { adoptPlain } = this.#options;
    const decoded = await this.#database.code((texts) =>
      page.map(({ text, context }) => {
        if (text === undefined) return undefined;
        return adoptPlain ? texts.decodeLeniently(text, context) : texts.decode(text, () => context);
      }),
    );
    const readable = page.flatMap((stored, i) => {
      const json = decoded[i];
      return typeof json === 'string' ? [{ stored, json }] : [];
    });
    this.batches.count({ unreadable: page.length - readable.length });
    const encoded = await this.#database.code((texts) =>
      readable.map(({ stored, json }) => ({ stored, text: texts.encode(json, () => stored.context) })),
    );
    return encoded.filter(
      ({ stored, text }) =>
        encodingOf(text) !== encodingOf(stored.text ?? '') &&
        // A credential is never stored as it is.
        (stored.table !== 'credentials' || namesKey(text)),
    );
  }
}
