import { TextCodec, isEncoded, type CodecContext, type Decoded } from './codec.js';
import { isPromise, type MaybePromise } from './maybe-promise.js';

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
  readonly #results = new Map<string, Decoded>();
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
        // Whoever catches the error waits for it; where `work` has thrown nobody does.
        ready.catch(() => undefined);
        this.#awaited = [];
      }
    }
    throw new TextsAwaited(ready ?? Promise.resolve());
  }

  /** Within `all`. @param of what the text is; called where it is needed alone. */
  decode(text: string, of: () => CodecContext): Decoded {
    if (this.codec.isNone && (this.#areAsStored || !isEncoded(text))) return text;
    const context = of();
    return this.#result('decode', text, context, () => this.codec.decode(text, context));
  }

  /** Within `all`. Also what lacks a codec that is required, and may be forged. */
  decodeLeniently(text: string, context: CodecContext): Decoded {
    return this.#result('decode', text, context, () => this.codec.decode(text, context, true));
  }

  /** Within `all`. A text that is encoded stays as it is: it comes from an export of texts as they are stored. */
  encode(text: string, of: () => CodecContext): string {
    if (this.codec.isNone || isEncoded(text)) return text;
    const context = of();
    const encoded = this.#result('encode', text, context, () => this.codec.encode(text, context));
    return typeof encoded === 'string' ? encoded : '';
  }

  #result(what: string, text: string, context: CodecContext, work: () => MaybePromise<Decoded>): Decoded {
    const id = this.#results.size > 0 ? identity(what, text, context) : undefined;
    const known = id === undefined ? undefined : this.#results.get(id);
    if (known !== undefined) return known;
    const result = work();
    if (!isPromise(result)) return result;
    this.#awaited.push(result.then((value) => this.#results.set(identity(what, text, context), value)));
    return '';
  }
}

/** Without a codec: what is encoded cannot be read. */
export const PLAIN = new StoredTexts(new TextCodec([]));

/** Reads texts as they are stored, without a codec. */
export const AS_STORED = new StoredTexts(new TextCodec([]), true);

const identity = (what: string, text: string, context: CodecContext) =>
  [what, ...Object.values<string>({ ...context }), text].join('\0');
