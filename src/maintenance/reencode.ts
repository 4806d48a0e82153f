import { CallInParts } from '../database/calls/call-in-parts.js';
import type { Database } from '../database/calls/database.js';
import type { EncodedRows, Owner, OwnedRows, Recoding, Replacement } from '../owned/owned-rows.js';
import { partialKey } from '../model/keys.js';
import { batchSizeOf, chunksOf, eachName, pagesOf } from '../model/pages.js';
import type { MaintenanceResult } from '../model/results.js';
import { Batches } from './batches.js';
import type { ReencodeOptions } from './options.js';

/** How many bytes of artifacts one transaction rewrites at most, unless a single version is larger. */
const TOGETHER_BYTES = 4_000_000;

/** See `SessionMaintenance.reencode`. */
export async function reencode(
  database: Database,
  options: ReencodeOptions,
  kinds: readonly OwnedRows[],
): Promise<MaintenanceResult<'texts' | 'unreadable'>> {
  const run = new ReencodeRun(database, options);
  return run.run(
    () => run.batches.result,
    () => run.all(kinds),
  );
}

/** A call that rewrites texts from table to table and from app to app, in pages. */
class ReencodeRun extends CallInParts {
  readonly batches: Batches<'texts' | 'unreadable'>;
  readonly #options: ReencodeOptions;

  constructor(database: Database, options: ReencodeOptions) {
    super(database, { operation: 'reencode', key: partialKey(options) });
    this.#options = options;
    this.batches = new Batches(
      options,
      ['texts', 'unreadable'],
      batchSizeOf(options, 200),
      database.dialect.sql.turnMs,
    );
  }

  async all(kinds: readonly OwnedRows[]): Promise<void> {
    const { appName, userId } = this.#options;
    for (const { texts = [], nextApp } of kinds)
      for (const rows of texts) {
        if (rows.areOfApp && userId !== undefined) continue;
        for await (const app of eachName(appName, (after) => this.read((sql) => nextApp(sql, after))))
          await this.#recode(rows, { appName: app, userId });
      }
  }

  /** Decodes and encodes before the transaction, so that others wait only for the updates. */
  async #recode(rows: EncodedRows, owner: Owner): Promise<void> {
    const { batches } = this;
    const recoding: Recoding = { read: this.read, code: (work) => this.database.code(work) };
    const pages = pagesOf<unknown>(batches.size, async (after) =>
      (await batches.mayBegin()) ? this.read((sql) => rows.page(sql, owner, after, batches.size)) : [],
    );
    for await (const page of pages) {
      let changed: Replacement[] = [];
      for (const some of chunksOf(page, rows.together ?? page.length)) {
        for (const recoded of await rows.recoded(recoding, some)) {
          if (recoded === 'unreadable') batches.count({ done: { unreadable: 1 } });
          else if (recoded) changed.push(recoded);
        }
        if (changed.reduce((sum, { bytes }) => sum + bytes, 0) < TOGETHER_BYTES) continue;
        await this.#write(changed);
        changed = [];
        if (!(await batches.mayBegin())) return;
      }
      await this.#write(changed);
    }
  }

  async #write(changed: readonly Replacement[]): Promise<void> {
    if (changed.length === 0) return;
    const skipped = this.batches.isDryRun
      ? 0
      : await this.write(async (sql) => {
          let skipped = 0;
          for (const each of changed) if (!(await each.replace(sql))) skipped++;
          return skipped;
        });
    this.batches.add({ done: { texts: changed.length - skipped }, skipped });
  }
}
