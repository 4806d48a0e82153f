import { createHash } from 'node:crypto';
import { TextCodec, isEncoded, type CodecContext, type Decoded, type Undecodable } from './codec.js';
import { isPromise, type MaybePromise } from './maybe-promise.js';

const NO_BYTES = new Uint8Array();

type Stored = string | Uint8Array;

/** Thrown out of work that has met texts which are not there yet. The work is run again when they are there. */
export class TextsAwaited extends Error {
  /** @param ready rejects with the codec's error. */
  constructor(readonly ready: Promise<unknown>) {
    super('The work waits for a codec');
  }
}

/**
 * The texts of one call: what it reads is decoded, and what it writes is encoded. A codec's promise is not waited for here:
 * that would keep a connection, and locks, from others, and reading a key may need the only connection there is.
 */
export class StoredTexts {
  readonly codec: TextCodec;
  /** What was waited for in earlier runs of the call's work. */
  readonly #results = new Map<string, unknown>();
  #awaited: Promise<unknown>[] = [];
  readonly #areAsStored: boolean;

  /** @param areAsStored whether what is encoded is read as it is. */
  constructor(codec: TextCodec, areAsStored = false) {
    this.codec = codec;
    this.#areAsStored = areAsStored;
  }

  /**
   * Runs what decodes and encodes texts.
   *
   * @throws TextsAwaited after all of it, when some of the texts are not there yet.
   */
  all<T>(work: () => T): T {
    let ready: Promise<unknown> | undefined;
    try {
      const result = work();
      if (this.#awaited.length === 0) return result;
    } finally {
      if (this.#awaited.length > 0) {
        ready = Promise.all(this.#awaited);
        // Whoever catches the error waits for it; if `work` has thrown nobody does.
        ready.catch(() => undefined);
        this.#awaited = [];
      }
    }
    throw new TextsAwaited(ready ?? Promise.resolve());
  }

  /** @throws TextsAwaited as `all`. */
  decoded<T>(undecoded: Undecoded<T>): T {
    return this.all(() => undecoded(this));
  }

  /** Within `all`. @param of what the text is; called where it is needed alone. */
  decode(text: string, of: () => CodecContext): Decoded {
    if (this.codec.isNone && (this.#areAsStored || !isEncoded(text))) return text;
    const context = of();
    return this.#result('decode', text, context, '', () => this.codec.decode(text, context));
  }

  /** Within `all`. Also what lacks a codec that is required, and may be forged. */
  decodeLeniently(text: string, context: CodecContext): Decoded {
    return this.#result('decode', text, context, '', () => this.codec.decode(text, context, true));
  }

  /** Within `all`. A text that is encoded stays as it is: it comes from an export of texts as they are stored. */
  encode(text: string, of: () => CodecContext): string {
    if (this.codec.isNone || isEncoded(text)) return text;
    const context = of();
    return this.#result('encode', text, context, '', () => this.codec.encode(text, context));
  }

  /** Within `all`. @param isLenient as for `decodeLeniently`. */
  decodeBytes(bytes: Uint8Array, context: CodecContext, isLenient?: boolean): Uint8Array | Undecodable {
    return this.#result('decode', bytes, context, NO_BYTES, () => this.codec.decodeBytes(bytes, context, isLenient));
  }

  /** Within `all`. */
  encodeBytes(bytes: Uint8Array, context: CodecContext): Uint8Array {
    return this.#result('encode', bytes, context, NO_BYTES, () => this.codec.encodeBytes(bytes, context));
  }

  /** @param instead is used until the value is there. */
  #result<T>(what: string, of: Stored, context: CodecContext, instead: T, work: () => MaybePromise<T>): T {
    const id = this.#results.size > 0 ? identity(what, of, context) : undefined;
    const known = id === undefined ? undefined : this.#results.get(id);
    // The same work has given it.
    if (known !== undefined) return known as T;
    const result = work();
    if (!isPromise(result)) return result;
    this.#awaited.push(result.then((value) => this.#results.set(identity(what, of, context), value)));
    return instead;
  }
}

/** What was read, with its texts as they are stored. They are decoded when its connection has been given back. */
export type Undecoded<T> = (texts: StoredTexts) => T;

/** Without a codec: what is encoded cannot be read. */
export const PLAIN = new StoredTexts(new TextCodec([]));

/** Reads texts as they are stored, without a codec. */
export const AS_STORED = new StoredTexts(new TextCodec([]), true);

const identity = (what: string, of: Stored, context: CodecContext) =>
  [what, ...Object.values<string>({ ...context }), typeof of === 'string' ? of : digest(of)].join('\0');

const digest = (bytes: Uint8Array) => createHash('sha256').update(bytes).digest('base64');
