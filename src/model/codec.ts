import { CodecError } from './errors.js';
import type { SessionKey } from './keys.js';
import { isPromise, after, type MaybePromise } from './maybe-promise.js';
import { prefixed, type Scope } from './state.js';

/** The place of a text. A codec that binds a text to it, as encryption does, notices if a row was moved or swapped. */
export interface CodecContext extends SessionKey {
  /**
   * Distinguishes a session from earlier and later ones with its id. A rewind keeps it; a fork and a session that is created again
   * have another. Empty, like the ids, for state of a user or an app.
   */
  origin: string;
  /** `change`: an entry of the log other than an event, which contains state. */
  kind: 'event' | 'state' | 'change' | 'artifact' | 'memory' | 'credential';
  /**
   * Names the text within its kind: the event's id; the key of the state with its prefix; the kind and the numbers of a change; the
   * version, the part and the filename of an artifact; a column and the memory's id; the credential's key.
   */
  name: string;
}

/** The result of encoding. */
export interface CodecData {
  data: Uint8Array;
  /** The id of the key that is needed to read the data, if there is one. It is stored in plain text. */
  key?: string | undefined;
}

/**
 * Encodes contents before they are stored, and decodes them when they are read (contract M1). Several codecs are applied in order;
 * each stored text names those that were applied to it.
 *
 * A codec that must wait, for example for a key, returns a promise. While it works, no connection and no lock is held, except in
 * a host's transaction.
 */
export interface Codec {
  /** Stored texts contain this name, so it must never change. */
  readonly name: string;
  /**
   * Whether a text that this codec has not encoded is damage, even one that was stored before there was a codec. If `encode` then
   * returns undefined, nothing is written.
   */
  readonly required?: boolean | undefined;
  /** @returns undefined to leave the bytes as they are. */
  encode(data: Uint8Array, context: CodecContext): CodecData | undefined | Promise<CodecData | undefined>;
  /**
   * @param maxBytes the largest allowed result. A codec that decompresses must stop there.
   * @returns undefined if the data cannot be read: somebody has changed it, or the key is lost. `'tooLarge'` if the result would
   *   be larger than `maxBytes`. Both are damage (contract I1).
   * @throws any other failure, for example of a key server. The call then fails with `CodecError`.
   */
  decode(encoded: CodecData, context: CodecContext, maxBytes: number): DecodedData | Promise<DecodedData>;
}

export type DecodedData = Uint8Array | 'tooLarge' | undefined;

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
export type Decoded = string | Undecodable;

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
  /** What decodes the text that was decoded last, from the last codec that was applied to the first. */
  #last: { steps: readonly Step[]; decoders: readonly Decoder[] | Undecodable } | undefined;

  constructor(codecs: readonly Codec[], maxBytes = MAX_DECODED_BYTES) {
    this.#codecs = codecs;
    this.maxBytes = maxBytes;
    this.required = codecs.filter(({ required }) => required).map(({ name }) => name);
  }

  /** Whether there are no codecs, so that texts are stored as they are. */
  get isNone(): boolean {
    return this.#codecs.length === 0;
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

/** A session with its origin. For a user or an app, the other names are empty. */
export interface KnownSession extends SessionKey {
  /** See `SessionHead`. */
  origin: string;
}

const contextOf = (
  { appName, userId, sessionId, origin }: KnownSession,
  kind: CodecContext['kind'],
  name: string,
): CodecContext => ({ appName, userId, sessionId, origin, kind, name });

export const ofEvent = (session: KnownSession, eventId: string): CodecContext => contextOf(session, 'event', eventId);

/** @param owner a session. For state of its user or its app, the rest of its key is ignored. */
export function ofState(owner: KnownSession, scope: Scope, key: string): CodecContext {
  const { appName, userId } = owner;
  const name = prefixed(scope, key);
  if (scope === 'session') return contextOf(owner, 'state', name);
  return contextOf({ appName, userId: scope === 'app' ? '' : userId, sessionId: '', origin: '' }, 'state', name);
}

/**
 * @param version the number of a version, or the negative number of an upload in the rows of its parts.
 * @param what the number of a part, or `info`.
 * @param upload the upload whose parts the version has.
 */
export const ofArtifact = (
  { filename, ...session }: KnownSession & { filename: string },
  version: number,
  what: number | 'info',
  upload?: number,
): CodecContext =>
  contextOf(session, 'artifact', `${version}${upload === undefined ? '' : `/${upload}`} ${what} ${filename}`);

/** @param column of the memory's row. */
export const ofMemory = (
  { appName, userId, sessionId, memoryId }: SessionKey & { memoryId: string },
  column: 'data' | 'words' | 'embedding',
): CodecContext => contextOf({ appName, userId, sessionId, origin: '' }, 'memory', `${column} ${memoryId}`);

export const ofCredential = (
  { appName, userId }: Pick<SessionKey, 'appName' | 'userId'>,
  credentialKey: string,
): CodecContext => contextOf({ appName, userId, sessionId: '', origin: '' }, 'credential', credentialKey);

export const ofChange = (
  session: KnownSession,
  { kind, seq, eventSeq }: { kind: string; seq: number; eventSeq?: number | null | undefined },
): CodecContext => contextOf(session, 'change', `${kind} ${seq} ${eventSeq ?? ''}`);
