import { versionPage } from '../artifacts/artifact-store.js';
import { Damaged, type VersionKey } from '../artifacts/stored-version.js';
import { CallInParts } from '../database/calls/call-in-parts.js';
import type { Database } from '../database/calls/database.js';
import type { Sql } from '../database/dialects/dialect.js';
import { nextApp } from '../database/statements/walk.js';
import { Undecodable, encodingOf, namesKey, type StoredTexts } from '../model/stored-texts.js';
import { givenKey } from '../model/keys.js';
import { namesOf, pagesOf } from '../model/pages.js';
import type { MaintenanceResult } from '../model/results.js';
import {
  areEncodedAlike,
  decodedMemory,
  encodedMemory,
  memoryPage,
  recodeMemory,
  type MemoryTexts,
  type TransferredMemory,
} from '../transfer/stored-memories.js';
import { nextAppWithState } from '../transfer/transferred-sessions.js';
import { Batches } from './batches.js';
import { batchSizeOf, type ReencodeOptions } from './options.js';
import { recodedVersion, replaceVersion, type RecodedVersion } from './recoded-artifacts.js';
import { RECODED_TABLES, recode, recodedPage, type RecodedTable, type StoredText } from './recoded-texts.js';

/** How rows are brought to the encoding that the codecs have now. */
interface Recoding<Row, Content> {
  page: (sql: Sql, after: Row | undefined, limit: number) => Promise<readonly Row[]>;
  /** @returns undefined for a row that has lost a part. */
  decode: (texts: StoredTexts, row: Row) => Content | Undecodable | undefined;
  encode: (texts: StoredTexts, row: Row, plain: Content) => Content;
  isChanged: (row: Row, coded: Content) => boolean;
  /** @returns false if it changed nothing. */
  replace: (sql: Sql, row: Row, coded: Content) => Promise<boolean>;
}

/** How many bytes of artifacts one transaction rewrites at most, unless a single version is larger. */
const TOGETHER_BYTES = 4_000_000;

/** See `SessionMaintenance.reencode`. */
export async function reencode(database: Database, options: ReencodeOptions): Promise<MaintenanceResult> {
  const run = new ReencodeRun(database, options);
  return run.run(
    () => run.batches.result,
    () => run.all(),
  );
}

/** The app or the user whose texts are rewritten. */
interface Owner {
  appName: string;
  userId: string | undefined;
}

/** A call that rewrites texts from app to app and from table to table, in pages. */
class ReencodeRun extends CallInParts {
  readonly batches: Batches;
  readonly #options: ReencodeOptions;

  constructor(database: Database, options: ReencodeOptions) {
    super(database, { operation: 'reencode', key: givenKey(options) });
    this.#options = options;
    this.batches = new Batches(options, batchSizeOf(options, 200), database.dialect.sql.turnMs);
  }

  async all(): Promise<void> {
    const { userId } = this.#options;
    for await (const [appName, tables] of this.#apps()) {
      const owner = { appName, userId };
      // The app's state does not belong to a user.
      for (const table of tables) if (userId === undefined || table !== 'app') await this.#texts(table, owner);
      await this.#artifacts(owner);
      await this.#memories(owner);
      if (this.batches.result.more) return;
    }
  }

  /** @returns the apps, with the tables in which they may have contents. */
  async *#apps(): AsyncGenerator<[string, readonly RecodedTable[]]> {
    const { appName } = this.#options;
    const known = new Set<string>();
    for await (const app of namesOf(appName, (after) => this.read((sql) => nextAppWithState(sql, after)))) {
      known.add(app);
      yield [app, RECODED_TABLES];
    }
    // An app without sessions and state may still have entries in the log, or credentials of a user.
    for (const table of appName === undefined ? (['changes', 'credentials'] as const) : [])
      for await (const app of namesOf(undefined, (after) => this.read((sql) => nextApp(sql, after, table))))
        if (!known.has(app)) yield [app, [table]];
  }

  /** Reads pages until there are no more, or the work must end. */
  #pages<Row>(read: (sql: Sql, after: Row | undefined, limit: number) => Promise<readonly Row[]>) {
    const { size } = this.batches;
    return pagesOf<Row>(size, async (after) =>
      (await this.batches.mayBegin()) ? this.read((sql) => read(sql, after, size)) : [],
    );
  }

  async #artifacts(owner: Owner): Promise<void> {
    const isLenient = this.#options.adoptPlain ?? false;
    for await (const page of this.#pages<VersionKey>((sql, ...range) => versionPage(sql, owner, ...range))) {
      let group: RecodedVersion[] = [];
      for (const key of page) {
        const recoded = await this.read((sql) => recodedVersion(sql, key, isLenient));
        if (!recoded) continue;
        if (recoded instanceof Damaged) this.batches.count({ unreadable: 1 });
        else group.push(recoded);
        if (group.reduce((sum, { size }) => sum + size, 0) < TOGETHER_BYTES) continue;
        await this.#write(group, replaceVersion);
        group = [];
        if (!(await this.batches.mayBegin())) return;
      }
      await this.#write(group, replaceVersion);
    }
  }

  #memories(owner: Owner): Promise<void> {
    return this.#recode<TransferredMemory, MemoryTexts>({
      page: (sql, after, limit) => memoryPage(sql, owner, after?.key, limit),
      decode: (texts, memory) => decodedMemory(texts, memory, this.#options.adoptPlain),
      encode: (texts, { key }, plain) => encodedMemory(texts, key, plain),
      isChanged: (memory, coded) => !areEncodedAlike(memory, coded),
      replace: recodeMemory,
    });
  }

  #texts(table: RecodedTable, owner: Owner): Promise<void> {
    const { adoptPlain } = this.#options;
    return this.#recode<StoredText, string>({
      page: (sql, ...range) => recodedPage(sql, table, owner, ...range),
      decode: (texts, { text, context }) => {
        if (text === undefined) return undefined;
        return adoptPlain ? texts.decodeLeniently(text, context) : texts.decode(text, () => context);
      },
      encode: (texts, { context }, json) => texts.encode(json, () => context),
      isChanged: ({ text = '' }, coded) =>
        encodingOf(coded) !== encodingOf(text) &&
        // A credential is never stored as it is.
        (table !== 'credentials' || namesKey(coded)),
      replace: recode,
    });
  }

  /** Decodes and encodes before the transaction, so that others wait only for the updates. */
  async #recode<Row, Content>({ page, decode, encode, isChanged, replace }: Recoding<Row, Content>): Promise<void> {
    for await (const rows of this.#pages(page)) {
      const decoded = await this.database.code((texts) => rows.map((row) => ({ row, plain: decode(texts, row) })));
      const readable = decoded.flatMap(({ row, plain }) =>
        plain === undefined || plain instanceof Undecodable ? [] : [{ row, plain }],
      );
      this.batches.count({ unreadable: rows.length - readable.length });
      const encoded = await this.database.code((texts) =>
        readable.map(({ row, plain }) => ({ row, coded: encode(texts, row, plain) })),
      );
      const changed = encoded.filter(({ row, coded }) => isChanged(row, coded));
      await this.#write(changed, (sql, { row, coded }) => replace(sql, row, coded));
    }
  }

  /** Runs one transaction. @param replace returns false if it changed nothing. */
  async #write<T>(found: readonly T[], replace: (sql: Sql, each: T) => Promise<boolean>): Promise<void> {
    if (found.length === 0) return;
    const count = async (sql: Sql) => {
      let skipped = 0;
      for (const each of found) if (!(await replace(sql, each))) skipped++;
      return skipped;
    };
    const skipped = this.batches.isDryRun ? 0 : await this.write(count);
    this.batches.add({ texts: found.length - skipped, skipped });
  }
}
