import { createHash } from 'node:crypto';
import { TextCodec, isEncoded, type CodecContext, type Decoded, type Undecodable } from './codec.js';
import { isPromise, type MaybePromise } from './maybe-promise.js';

const NO_BYTES = new Uint8Array();

type Stored = string | Uint8Array;

/** Decodes what was read, and encodes what is to be written, by functions that do not wait for a codec themselves. */
export class StoredTexts {
  readonly codec: TextCodec;
  /** What was waited for in earlier runs of the work. */
  readonly #results = new Map<string, unknown>();
  readonly #awaited: Promise<unknown>[] = [];
  readonly #areAsStored: boolean;

  /** @param areAsStored whether what is encoded is read as it is. */
  constructor(codec: TextCodec, areAsStored = false) {
    this.codec = codec;
    this.#areAsStored = areAsStored;
  }

  /**
   * Runs work, again when texts are there that it has to wait for. Until then they are empty, and neither what it returns nor what it
   * throws counts.
   *
   * @param wait waits for codecs.
   */
  async run<T>(work: (texts: StoredTexts) => T, wait: (ready: Promise<unknown>) => Promise<unknown>): Promise<T> {
    for (;;) {
      try {
        const result = work(this);
        if (this.#awaited.length === 0) return result;
      } catch (error) {
        if (this.#awaited.length === 0) throw error;
      }
      await wait(Promise.all(this.#awaited.splice(0)));
    }
  }

  /** @param of gives the text's context; called only if it is needed. */
  decode(text: string, of: () => CodecContext): Decoded {
    if (this.codec.isNone && (this.#areAsStored || !isEncoded(text))) return text;
    const context = of();
    return this.#result('decode', text, context, '', () => this.codec.decode(text, context));
  }

  /** Also what lacks a codec that is required, and may be forged. */
  decodeLeniently(text: string, context: CodecContext): Decoded {
    return this.#result('decode', text, context, '', () => this.codec.decode(text, context, true));
  }

  /** A text that is encoded stays as it is: it comes from an export of texts as they are stored. */
  encode(text: string, of: () => CodecContext): string {
    if (this.codec.isNone || isEncoded(text)) return text;
    const context = of();
    return this.#result('encode', text, context, '', () => this.codec.encode(text, context));
  }

  /** @param isLenient as for `decodeLeniently`. */
  decodeBytes(bytes: Uint8Array, context: CodecContext, isLenient?: boolean): Uint8Array | Undecodable {
    return this.#result('decode', bytes, context, NO_BYTES, () => this.codec.decodeBytes(bytes, context, isLenient));
  }

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
