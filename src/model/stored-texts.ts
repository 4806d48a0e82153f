import { createHash } from 'node:crypto';
import { TextCodec, isEncoded, type CodecContext, type Decoded, type Undecodable } from './codec.js';
import { isPromise, type MaybePromise } from './maybe-promise.js';

const NO_BYTES = new Uint8Array();

type Stored = string | Uint8Array;

/** Lets code decode and encode texts without `await`: it is run again once the codecs have answered. */
export class StoredTexts {
  readonly codec: TextCodec;
  /** The answers of codecs in earlier runs. */
  readonly #results = new Map<string, unknown>();
  readonly #awaited: Promise<unknown>[] = [];
  readonly #areAsStored: boolean;

  /** @param areAsStored whether encoded texts are read without decoding. */
  constructor(codec: TextCodec, areAsStored = false) {
    this.codec = codec;
    this.#areAsStored = areAsStored;
  }

  /**
   * Runs work, and runs it again when the texts that it needs have been decoded. Until then they are empty, and the result or the
   * error of the run is ignored.
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

  /** @param of returns the text's context; called only if it is needed. */
  decode(text: string, of: () => CodecContext): Decoded {
    if (this.codec.isNone && (this.#areAsStored || !isEncoded(text))) return text;
    const context = of();
    return this.#result('decode', text, context, '', () => this.codec.decode(text, context));
  }

  /** Also accepts a text that lacks a required codec, and may be forged. */
  decodeLeniently(text: string, context: CodecContext): Decoded {
    return this.#result('decode', text, context, '', () => this.codec.decode(text, context, true));
  }

  /** Leaves an encoded text as it is: it comes from an export with `texts: 'asStored'`. */
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
    // An earlier run of the same work had the same kind of result here.
    if (known !== undefined) return known as T;
    const result = work();
    if (!isPromise(result)) return result;
    this.#awaited.push(result.then((value) => this.#results.set(identity(what, of, context), value)));
    return instead;
  }
}

/** A result whose texts are still encoded. They are decoded after the connection was given back. */
export type Undecoded<T> = (texts: StoredTexts) => T;

/** Has no codec: encoded texts cannot be read. */
export const PLAIN = new StoredTexts(new TextCodec([]));

/** Returns texts as they are stored. */
export const AS_STORED = new StoredTexts(new TextCodec([]), true);

const identity = (what: string, of: Stored, context: CodecContext) =>
  [what, ...Object.values<string>({ ...context }), typeof of === 'string' ? of : digest(of)].join('\0');

const digest = (bytes: Uint8Array) => createHash('sha256').update(bytes).digest('base64');
