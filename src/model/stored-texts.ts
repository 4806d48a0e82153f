import { KeyNeeded, isKeyNeeded, type Codec, type CodecContext, type TextPlace } from './codec.js';
import { isPromise } from './json.js';
import { CodecError } from './errors.js';

/** How large a text may become when it is decoded, in bytes, by default: 64 MB. */
const MAX_DECODED_BYTES = 2 ** 26;

/** The JSON of a key of 255 characters, which have up to six bytes each, and what is around it. */
const MOST_BESIDE_VALUE = 2_000;

/** A stored text that cannot be decoded. */
export class Undecodable {
  /**
   * @param encoding for messages: the codecs and keys that the text names, or why it is refused.
   * @param isUnknown whether the service has the codecs in another order, so that the text may not be damaged.
   */
  constructor(
    readonly encoding: string,
    readonly isUnknown: boolean,
  ) {}
}

interface Step {
  codec: string;
  key?: string;
}

/** A codec that was applied, and the key that the text names. */
interface Decoder {
  codec: Codec;
  key: string | undefined;
}

/**
 * The beginning of an encoded text. `JSON.stringify` never writes a space there, so no value can be mistaken for it. It is a list,
 * so that a reader without codecs does not take it for an event.
 */
const MARK = '[ "adk-codec", ';

const isEncoded = (text: string): boolean => text.startsWith(MARK);

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

const shownSteps = (steps: readonly Step[]) =>
  steps.map(({ codec, key }) => (key === undefined ? codec : `${codec} (key ${key})`)).join(', ');

/** The codecs of a service. */
export class TextCodec {
  readonly codecs: readonly Codec[];
  /** The names of the codecs without which a text is damage. */
  readonly required: readonly string[];
  /** How large a text may be before and after encoding, in bytes. */
  readonly maxBytes: number;
  /** Whether there are no codecs, so that texts are stored as they are. */
  readonly isNone: boolean;
  /** What decodes the text that was decoded last. */
  #last: { steps: readonly Step[]; decoders: readonly Decoder[] | Undecodable } | undefined;

  constructor(codecs: readonly Codec[], maxBytes = MAX_DECODED_BYTES) {
    this.codecs = codecs;
    this.isNone = codecs.length === 0;
    this.maxBytes = maxBytes;
    this.required = codecs.filter(({ required }) => required).map(({ name }) => name);
  }

  /** @returns the required codecs that were not applied. */
  lackedBy(steps: readonly Step[]): string[] {
    return this.required.filter((name) => !steps.some(({ codec }) => codec === name));
  }

  /**
   * @param head the beginning of a stored text.
   * @returns the codecs and keys that it names, and whether these codecs are here; undefined if it is not encoded.
   */
  encodingIn(head: string): { shown: string; isKnown: boolean } | undefined {
    const steps = isEncoded(head) && parsedSteps(head.slice(MARK.length, head.lastIndexOf('], "') + 1));
    if (!steps) return undefined;
    const isKnown = steps.every(({ codec }) => this.codecs.some(({ name }) => name === codec));
    return { shown: shownSteps(steps), isKnown };
  }

  /** @returns what decodes a text, from the last codec that was applied to the first. */
  decodersOf(steps: readonly Step[]): readonly Decoder[] | Undecodable {
    // Most lists of words have the same steps.
    if (this.#last?.steps !== steps) this.#last = { steps, decoders: this.#decodersOf(steps) };
    return this.#last.decoders;
  }

  #decodersOf(steps: readonly Step[]): readonly Decoder[] | Undecodable {
    const places = steps.map(({ codec }) => this.codecs.findIndex(({ name }) => name === codec));
    const missing = steps[places.indexOf(-1)];
    // Not damage: somebody may have forgotten the codec, and then nothing may be reported, skipped or removed as damaged.
    if (missing)
      throw new CodecError(
        `A text is encoded with ${shownSteps(steps)}, and ${missing.codec} is not in the codec option. The text may be intact: ` +
          'add that codec. Nothing was written.',
        undefined,
        missing.codec,
      );
    // Refuse another order: somebody could wrap an encrypted text in a compressed one, and decompression would run before the key
    // has proved that the text is ours.
    if (places.some((place, i) => place <= (places[i - 1] ?? -1)))
      return refusedFor(steps, ', in another order than in the codec option', true);
    return steps
      .flatMap(({ codec: name, key }) =>
        this.codecs.filter((codec) => codec.name === name).map((codec) => ({ codec, key })),
      )
      .reverse();
  }
}

/** The texts of one transaction or reading, for which the keys that it has waited for are kept. */
export class StoredTexts {
  readonly codec: TextCodec;
  readonly #call = {};

  constructor(codec: TextCodec) {
    this.codec = codec;
  }

  /**
   * Leaves an encoded text as it is.
   *
   * @param of returns the text's place; called only if it is needed.
   * @throws KeyNeeded. @throws CodecError also if nobody could read the result: a required codec left it as it is, or it is too large.
   */
  encode(text: string, of: () => TextPlace): string {
    if (this.codec.isNone || isEncoded(text)) return text;
    const { steps, data } = this.#encoded(Buffer.from(text), of());
    if (steps.length === 0) return text;
    const base64 = Buffer.from(data.buffer, data.byteOffset, data.length).toString('base64');
    return `${MARK}${JSON.stringify(steps)}, "${base64}" ]`;
  }

  /** @returns the encoded bytes, after a line that names codecs and keys. @throws KeyNeeded, CodecError as `encode`. */
  encodeBytes(bytes: Uint8Array, place: TextPlace): Uint8Array {
    const { steps, data } = this.#encoded(bytes, place);
    return Buffer.concat([Buffer.from(`${JSON.stringify(steps)}\n`), data]);
  }

  #encoded(bytes: Uint8Array, place: TextPlace): { data: Uint8Array; steps: readonly Step[] } {
    const { codecs, maxBytes } = this.codec;
    const { context, most } = this.#contextOf(place);
    let data = bytes;
    const steps: Step[] = [];
    for (const codec of codecs) {
      const encoded = guarded(codec, () => codec.encode(data, context));
      if (!encoded) continue;
      if (data.length > most)
        throw new CodecError(
          `A text of ${data.length} bytes cannot be encoded: maxDecodedBytes is ${maxBytes}. Nothing was written.`,
        );
      const { key } = encoded;
      data = encoded.data;
      steps.push({ codec: codec.name, ...(key !== undefined && { key }) });
    }
    const [lacking] = this.codec.lackedBy(steps);
    if (lacking !== undefined)
      throw new CodecError(`The codec ${lacking} is required, but did not encode a text. Nothing was written.`);
    return { data, steps };
  }

  /**
   * @param of as for `encode`.
   * @returns the JSON, or why it cannot be decoded.
   * @throws KeyNeeded. @throws CodecError also without the text's codec.
   */
  decode(text: string, of: () => TextPlace): string | Undecodable {
    if (!isEncoded(text)) return this.#refusalOf([]) ?? text;
    const found = parsed(text);
    if (!found) return new Undecodable('encoded, and changed since', false);
    const decoded = this.#refusalOf(found.steps) ?? this.#decoded(found.steps, found.data, of());
    return decoded instanceof Undecodable
      ? decoded
      : Buffer.from(decoded.buffer, decoded.byteOffset, decoded.length).toString();
  }

  /** @param framed from `encodeBytes`. */
  decodeBytes(framed: Uint8Array, place: TextPlace): Uint8Array | Undecodable {
    const { line, steps } = frameOf(framed);
    if (!steps) return new Undecodable('encoded, and changed since', false);
    return this.#refusalOf(steps) ?? this.#decoded(steps, framed.subarray(line.length), place);
  }

  #refusalOf(steps: readonly Step[]): Undecodable | undefined {
    const lacking = this.codec.lackedBy(steps);
    return lacking.length > 0 ? new Undecodable(`not encoded with ${lacking.join(', ')}`, false) : undefined;
  }

  #decoded(steps: readonly Step[], data: Uint8Array, place: TextPlace): Uint8Array | Undecodable {
    const decoders = this.codec.decodersOf(steps);
    if (decoders instanceof Undecodable) return decoders;
    const { context, most } = this.#contextOf(place);
    let decoded = data;
    for (const { codec, key } of decoders) {
      const next = guarded(codec, () => codec.decode({ data: decoded, key }, context, most));
      if (!next) return refusedFor(steps, '');
      if (next === 'tooLarge' || next.length > most)
        return refusedFor(steps, `, and larger than maxDecodedBytes (${this.codec.maxBytes})`);
      decoded = next;
    }
    return decoded;
  }

  /** With the largest size of a text. A change also has the keys of its values: whatever may be a value must also fit into a change. */
  #contextOf(place: TextPlace): { context: CodecContext; most: number } {
    const { maxBytes } = this.codec;
    const most = place.kind === 'change' ? maxBytes + MOST_BESIDE_VALUE : maxBytes;
    return { context: { ...place, call: this.#call }, most };
  }
}

/** @throws KeyNeeded if the codec does. @throws CodecError if it throws anything else, or returns a promise. */
function guarded<T>({ name }: Codec, work: () => T): T {
  const failed = (error: unknown) =>
    error instanceof CodecError
      ? error
      : new CodecError(`The codec ${name} failed. See onError for the reason.`, error);
  const asFailed = (error: unknown) => Promise.reject(failed(error));
  let result: T;
  try {
    result = work();
  } catch (error) {
    throw isKeyNeeded(error) ? new KeyNeeded(error.ready.catch(asFailed)) : failed(error);
  }
  if (!isPromise(result)) return result;
  result.then(undefined, () => undefined);
  throw new CodecError(`The codec ${name} returned a promise. It must answer at once, or throw KeyNeeded.`);
}

const refusedFor = (steps: readonly Step[], why: string, isUnknown = false) =>
  new Undecodable(`encoded with ${shownSteps(steps)}${why}`, isUnknown);

/** Runs work for each row. @throws KeyNeeded for all keys that are missing together, so that they are waited for once. */
export function mapTexts<Row, T>(rows: readonly Row[], work: (row: Row, i: number) => T): T[] {
  const done: T[] = [];
  const needed = new Set<Promise<unknown>>();
  for (const [i, row] of rows.entries()) {
    try {
      done.push(work(row, i));
    } catch (error) {
      if (!isKeyNeeded(error)) throw error;
      needed.add(error.ready);
    }
  }
  if (needed.size > 0) throw new KeyNeeded(Promise.all(needed));
  return done;
}

/** Has no codec: encoded texts cannot be read. */
export const PLAIN = new StoredTexts(new TextCodec([]));
