import { createHash } from 'node:crypto';
import { types } from 'node:util';
import type { Run } from '../database/dialects/dialect.js';
import { DatabaseError, InvalidArgumentError } from '../model/errors.js';
import { PART_BYTES, tooLarge, type ArtifactInfo } from './artifact-content.js';
import { saveVersion } from './artifact-store.js';
import { encodedParts, type ArtifactKey } from './stored-version.js';
import { addToUpload, beginUpload, dropUpload, endUpload, newUpload, type Upload } from './uploads.js';

/** How many parts are in memory and written by one transaction: 2 MB. */
const PARTS_TOGETHER = 4;

interface Saving {
  /** Runs a transaction, which is not repeated if its answer was lost. */
  write: Run;
  key: ArtifactKey;
  maxBytes: number;
  /** @returns the JSON of `ArtifactInfo`. */
  infoOf: (content: Pick<NonNullable<ArtifactInfo['content']>, 'size' | 'sha256'>) => string;
}

/**
 * Saves a stream as a new version: in one transaction if it fits, otherwise as an upload.
 *
 * @returns the version's number.
 */
export async function saveStream(saving: Saving, content: AsyncIterable<unknown>): Promise<number> {
  const saved = new SavedStream(saving);
  try {
    for await (const chunk of content) await saved.add(chunk);
    return await saved.end();
  } catch (error) {
    if (!saved.mayBeStored(error)) await saved.drop();
    throw error;
  }
}

class SavedStream {
  readonly #saving: Saving;
  readonly #hash = createHash('sha256');
  #size = 0;
  /** The parts that are not written yet; all except the last are full. The buffers are reused, to spare the garbage collector. */
  readonly #parts: Buffer[] = [];
  /** How many bytes of these are filled. */
  #filled = 0;
  #upload: Upload | undefined;
  /** How many parts are written. */
  #written = 0;
  #isEnding = false;

  constructor(saving: Saving) {
    this.#saving = saving;
  }

  /** Must not be called again before it has resolved. */
  async add(chunk: unknown): Promise<void> {
    // Not `instanceof`, which is false for bytes of another realm, as in jest with jsdom.
    if (!types.isUint8Array(chunk))
      throw new InvalidArgumentError(
        'content must yield bytes (Uint8Array). A Readable with an encoding yields strings. Nothing was written.',
      );
    const { maxBytes } = this.#saving;
    this.#size += chunk.length;
    if (this.#size > maxBytes) throw tooLarge(`at least ${this.#size}`, maxBytes);
    this.#hash.update(chunk);
    for (let start = 0; start < chunk.length;) {
      if (this.#filled === PARTS_TOGETHER * PART_BYTES) await this.#flush();
      const part = Math.floor(this.#filled / PART_BYTES);
      const at = this.#filled % PART_BYTES;
      const buffer = (this.#parts[part] ??= Buffer.allocUnsafe(PART_BYTES));
      const some = chunk.subarray(start, start + PART_BYTES - at);
      buffer.set(some, at);
      start += some.length;
      this.#filled += some.length;
    }
  }

  async end(): Promise<number> {
    const { write, key, infoOf } = this.#saving;
    const info = infoOf({ size: this.#size, sha256: this.#hash.digest('hex') });
    if (this.#upload && this.#filled > 0) await this.#flush();
    const upload = this.#upload;
    this.#isEnding = true;
    const parts = upload ? [] : this.#size === 0 ? [Buffer.alloc(0)] : this.#full();
    // A transaction of its own, since it locks the artifact's row.
    return write((sql) =>
      upload ? endUpload(sql, upload, { info, parts }, this.#written) : saveVersion(sql, key, { info, parts }),
    );
  }

  /** Whether the version may be stored, because the answer to the last transaction was lost. */
  mayBeStored(error: unknown): boolean {
    return this.#isEnding && error instanceof DatabaseError && error.outcome !== 'none';
  }

  /** Removes what was written. It never throws: `prune` would remove the invisible rest. */
  async drop(): Promise<void> {
    const upload = this.#upload;
    if (upload) await this.#saving.write((sql) => dropUpload(sql, upload)).catch(() => undefined);
  }

  async #flush(): Promise<void> {
    const { write, key } = this.#saving;
    const isNew = !this.#upload;
    const upload = (this.#upload ??= newUpload(key));
    const full = this.#full();
    await write(async (sql) => {
      if (isNew) await beginUpload(sql, upload);
      const parts = encodedParts(sql.texts, key, upload.number, full, this.#written);
      await addToUpload(sql, upload, this.#written, parts);
    });
    this.#written += full.length;
    this.#filled = 0;
  }

  #full(): Buffer[] {
    const full = this.#parts.slice(0, Math.ceil(this.#filled / PART_BYTES));
    return full.map((part, i) => part.subarray(0, this.#filled - i * PART_BYTES));
  }
}
