import { createHash } from 'node:crypto';
import type { Codec, CodecContext, DecodedData } from './codec.js';
import { CodecError } from './errors.js';
import { after, isPromise, type MaybePromise } from './maybe-promise.js';

/** How large a text may become when it is decoded, in bytes, by default: 64 MB. */
const MAX_DECODED_BYTES = 2 ** 26;

/** The JSON of a key of 255 characters, which have up to six bytes each, and what is around it. */
const MOST_BESIDE_VALUE = 2_000;

/** A stored text that cannot be decoded. */
export class Undecodable {
  /**
   * @param encoding for messages: the codecs and keys that the text names, or why it is refused.
   * @param isUnknown whether the service lacks the codec, so that the text may not be damaged.
   */
  constructor(
    readonly encoding: string,
    readonly isUnknown: boolean,
  ) {}
}

/** The JSON of a text, or why it cannot be decoded. */
type Decoded = string | Undecodable;

interface Step {
  codec: string;
  key?: string;
}

/** A codec that was applied, and the key that the text names. */
interface Decoder {
  codec: Codec;
  key: string | undefined;
}

interface Encoded {
  data: Uint8Array;
  steps: readonly Step[];
}

/**
 * The beginning of an encoded text. `JSON.stringify` never writes a space there, so no value can be mistaken for it. It is a list,
 * so that a reader without codecs does not take it for an event.
 */
const MARK = '[ "adk-codec", ';

export const isEncoded = (text: string): boolean => text.startsWith(MARK);

/** @returns the part of a text that names its codecs and keys; empty for a text that is not encoded. */
export const encodingOf = (text: string): string => (isEncoded(text) ? text.slice(0, text.lastIndexOf(', "')) : '');

/** Whether a text names a key, so that nobody can read it without that key. */
export const namesKey = (text: string): boolean =>
  isEncoded(text) && (parsed(text)?.steps.some(({ key }) => key !== undefined) ?? false);

/** @returns undefined if somebody has changed the text. */
function parsed(text: string): { steps: readonly Step[]; data: Uint8Array } | undefined {
  try {
    const [, steps, data] = JSON.parse(text) as [mark: string, steps: readonly Step[], data: string];
    const areSteps = steps.length > 0 && areNamed(steps);
    return areSteps && typeof data === 'string' ? { steps, data: Buffer.from(data, 'base64') } : undefined;
  } catch {
    return undefined;
  }
}

const LINE_END = 0x0a;

const OPENING = 0x5b;

/** Whether bytes are from `encodeBytes`, if other bytes never begin with a bracket. */
export const isFramed = (bytes: Uint8Array): boolean => bytes[0] === OPENING;

/** @returns the codecs and keys that encoded bytes name. */
export const encodingOfBytes = (framed: Uint8Array = new Uint8Array()): string =>
  Buffer.from(framed.subarray(0, framed.indexOf(LINE_END))).toString();

/** What the first line of bytes that are encoded says. */
interface Frame {
  line: Buffer;
  /** Undefined if somebody has changed it. */
  steps: readonly Step[] | undefined;
}

let last: Frame | undefined;

/** A search decodes thousands of lists of words, and most of them have the same line. */
function frameOf(framed: Uint8Array): Frame {
  if (last?.line.compare(framed, 0, Math.min(last.line.length, framed.length)) === 0) return last;
  const line = Buffer.from(framed.subarray(0, framed.indexOf(LINE_END) + 1));
  const frame = { line, steps: parsedSteps(line.toString()) };
  if (frame.steps) last = frame;
  return frame;
}

function parsedSteps(line: string): readonly Step[] | undefined {
  try {
    const steps = JSON.parse(line) as readonly Step[];
    return areNamed(steps) ? steps : undefined;
  } catch {
    return undefined;
  }
}

const areNamed = (steps: readonly Step[]) => steps.every(({ codec }) => typeof codec === 'string');

/** Whether a text has the form of an encoded one, so that every database accepts it. Its content is not checked. */
export const isWhole = (text: string): boolean => isEncoded(text) && parsed(text) !== undefined;

const shownSteps = (steps: readonly Step[]) =>
  steps.map(({ codec, key }) => (key === undefined ? codec : `${codec} (key ${key})`)).join(', ');

/** The codecs of a service. */
export class TextCodec {
  readonly #codecs: readonly Codec[];
  /** The names of the codecs without which a text is damage. */
  readonly required: readonly string[];
  /** How large a text may be before and after encoding, in bytes. */
  readonly maxBytes: number;
  /** Whether there are no codecs, so that texts are stored as they are. */
  readonly isNone: boolean;
  /** What decodes the text that was decoded last, from the last codec that was applied to the first. */
  #last: { steps: readonly Step[]; decoders: readonly Decoder[] | Undecodable } | undefined;

  constructor(codecs: readonly Codec[], maxBytes = MAX_DECODED_BYTES) {
    this.#codecs = codecs;
    this.isNone = codecs.length === 0;
    this.maxBytes = maxBytes;
    this.required = codecs.filter(({ required }) => required).map(({ name }) => name);
  }

  /** @throws CodecError also if nobody could read the result: a required codec left it as it is, or it is too large. */
  encode(text: string, context: CodecContext): MaybePromise<string> {
    if (this.isNone) return text;
    return after(this.#encoded(Buffer.from(text), context), ({ steps, data }) => {
      if (steps.length === 0) return text;
      const base64 = Buffer.from(data.buffer, data.byteOffset, data.length).toString('base64');
      return `${MARK}${JSON.stringify(steps)}, "${base64}" ]`;
    });
  }

  /** @returns the encoded bytes, after a line that names codecs and keys. @throws CodecError as `encode`. */
  encodeBytes(bytes: Uint8Array, context: CodecContext): MaybePromise<Uint8Array> {
    return after(this.#encoded(bytes, context), ({ steps, data }) =>
      Buffer.concat([Buffer.from(`${JSON.stringify(steps)}\n`), data]),
    );
  }

  #encoded(bytes: Uint8Array, context: CodecContext): MaybePromise<Encoded> {
    return after(this.#encodeFrom(0, bytes, [], context), (encoded) => {
      const [lacking] = this.#lacking(encoded.steps);
      if (lacking !== undefined)
        throw new CodecError(`The codec ${lacking} is required, but did not encode a text. Nothing was written.`);
      return encoded;
    });
  }

  /** A change also contains the keys of its values: whatever may be a value must also fit into a change. */
  #most({ kind }: CodecContext): number {
    return kind === 'change' ? this.maxBytes + MOST_BESIDE_VALUE : this.maxBytes;
  }

  #lacking(steps: readonly Step[]): string[] {
    return this.required.filter((name) => !steps.some(({ codec }) => codec === name));
  }

  #encodeFrom(index: number, data: Uint8Array, steps: readonly Step[], context: CodecContext): MaybePromise<Encoded> {
    const codec = this.#codecs[index];
    if (!codec) return { data, steps };
    return after(
      guarded(codec, () => codec.encode(data, context)),
      (encoded) => {
        if (!encoded) return this.#encodeFrom(index + 1, data, steps, context);
        if (data.length > this.#most(context))
          throw new CodecError(
            `A text of ${data.length} bytes cannot be encoded: maxDecodedBytes is ${this.maxBytes}. Nothing was written.`,
          );
        const { data: next, key } = encoded;
        const step = { codec: codec.name, ...(key !== undefined && { key }) };
        return this.#encodeFrom(index + 1, next, [...steps, step], context);
      },
    );
  }

  /** @param isLenient whether to accept a text that lacks a required codec, in order to encode it. */
  decode(text: string, context: CodecContext, isLenient = false): MaybePromise<Decoded> {
    const found = isEncoded(text) ? parsed(text) : { steps: [], data: undefined };
    if (!found) return new Undecodable('encoded, and changed since', false);
    const { steps, data } = found;
    const lacking = isLenient ? [] : this.#lacking(steps);
    if (lacking.length > 0) return refused(lacking);
    if (!data) return text;
    return after(this.#decoded(steps, data, context), (decoded) =>
      decoded instanceof Undecodable
        ? decoded
        : Buffer.from(decoded.buffer, decoded.byteOffset, decoded.length).toString(),
    );
  }

  /** @param framed from `encodeBytes`. @param isLenient as for `decode`. */
  decodeBytes(framed: Uint8Array, context: CodecContext, isLenient = false): MaybePromise<Uint8Array | Undecodable> {
    const { line, steps } = frameOf(framed);
    if (!steps) return new Undecodable('encoded, and changed since', false);
    const lacking = isLenient ? [] : this.#lacking(steps);
    return lacking.length > 0 ? refused(lacking) : this.#decoded(steps, framed.subarray(line.length), context);
  }

  #decoded(steps: readonly Step[], data: Uint8Array, context: CodecContext): MaybePromise<Uint8Array | Undecodable> {
    // Most lists of words have the same steps.
    if (this.#last?.steps !== steps) this.#last = { steps, decoders: this.#decodersOf(steps) };
    const { decoders } = this.#last;
    if (decoders instanceof Undecodable) return decoders;
    return after(this.#decodeFrom(decoders, 0, data, context), (decoded) => {
      if (!decoded) return refusedFor(steps, '');
      if (decoded === 'tooLarge') return refusedFor(steps, `, and larger than maxDecodedBytes (${this.maxBytes})`);
      return decoded;
    });
  }

  #decodersOf(steps: readonly Step[]): readonly Decoder[] | Undecodable {
    const places = steps.map(({ codec }) => this.#codecs.findIndex(({ name }) => name === codec));
    if (places.includes(-1)) return refusedFor(steps, ', a codec that is not in the codec option', true);
    // Refuse another order: somebody could wrap an encrypted text in a compressed one, and decompression would run before the key
    // has proved that the text is ours.
    if (places.some((place, i) => place <= (places[i - 1] ?? -1)))
      return refusedFor(steps, ', in another order than in the codec option', true);
    return steps
      .flatMap(({ codec: name, key }) =>
        this.#codecs.filter((codec) => codec.name === name).map((codec) => ({ codec, key })),
      )
      .reverse();
  }

  #decodeFrom(
    decoders: readonly Decoder[],
    index: number,
    data: Uint8Array,
    context: CodecContext,
  ): MaybePromise<DecodedData> {
    const decoder = decoders[index];
    if (!decoder) return data;
    const { codec, key } = decoder;
    const most = this.#most(context);
    return after(
      guarded(codec, () => codec.decode({ data, key }, context, most)),
      (next) => {
        if (!next || next === 'tooLarge') return next;
        return next.length > most ? 'tooLarge' : this.#decodeFrom(decoders, index + 1, next, context);
      },
    );
  }
}

/** @throws CodecError if the codec throws. */
function guarded<T>({ name }: Codec, work: () => MaybePromise<T>): MaybePromise<T> {
  const failed = (error: unknown): never => {
    if (error instanceof CodecError) throw error;
    throw new CodecError(`The codec ${name} failed. See onError for the reason.`, error);
  };
  try {
    const result = work();
    return isPromise(result) ? result.then((value) => value, failed) : result;
  } catch (error) {
    return failed(error);
  }
}

const refusedFor = (steps: readonly Step[], why: string, isUnknown = false) =>
  new Undecodable(`encoded with ${shownSteps(steps)}${why}`, isUnknown);

const refused = (required: readonly string[]) => new Undecodable(`not encoded with ${required.join(', ')}`, false);

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
