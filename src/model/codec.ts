import { CodecError } from './errors.js';
import type { SessionKey } from './keys.js';
import { isPromise, after, type MaybePromise } from './maybe-promise.js';
import { prefixed, type Scope } from './state.js';

/** Which text a codec has before it. Whoever binds a text to it notices that a row was moved or swapped. */
export interface CodecContext extends SessionKey {
  /**
   * Names one session among those that had its id, one after the other; forks and sessions that are created again have another
   * one, and a rewind keeps it. Empty, as the ids are, for state of a user or of an app.
   */
  origin: string;
  /** An event; a value of the state; an entry of the log that is not an event: it holds state; a version of an artifact; a memory; a credential. */
  kind: 'event' | 'state' | 'change' | 'artifact' | 'memory' | 'credential';
  /**
   * The event's id; the key of the state, with its prefix; the kind and the numbers of a change; the version of an artifact (for parts of
   * a stream a negative number, which follows that of the version for its `info`), what of it is encoded (`info` or the number of a
   * part), and its filename;
   * which column of a memory is encoded, and the memory's id; the key of the credential.
   */
  name: string;
}

/** What a codec makes of bytes. */
export interface CodecData {
  data: Uint8Array;
  /** The id of the key that is needed to read them, if there is one. It is stored as it is. */
  key?: string | undefined;
}

/**
 * What contents of events and values of state pass through on their way into the database and out of it (contract M1). Several
 * of them are applied in their order; what is stored names those that were, so that each text is read by its own.
 *
 * A codec that has to wait, such as for a key, returns a promise. No connection and no lock is held while it works, except in a
 * host's transaction.
 */
export interface Codec {
  /** What is stored names it; it must never change. */
  readonly name: string;
  /**
   * Whether a text that this codec has not encoded is damage, also one that was stored before there was a codec. Nothing is written
   * that it leaves as it is.
   */
  readonly required?: boolean | undefined;
  /** @returns undefined if the bytes are to stay as they are. */
  encode(data: Uint8Array, context: CodecContext): CodecData | undefined | Promise<CodecData | undefined>;
  /**
   * @param maxBytes how large the result may be. A codec that expands must stop there.
   * @returns undefined if they cannot be read: they were changed, or the key is lost. `'tooLarge'` if they would become larger
   *   than `maxBytes`. Both are damage (contract I1).
   * @throws whatever keeps it from finding that out. The call fails with `CodecError`.
   */
  decode(encoded: CodecData, context: CodecContext, maxBytes: number): DecodedData | Promise<DecodedData>;
}

/** What `decode` of a codec returns. */
export type DecodedData = Uint8Array | 'tooLarge' | undefined;

/** How large a text may become when it is decoded, in bytes, by default: 64 MB. */
const MAX_DECODED_BYTES = 2 ** 26;

/** A key of 255 characters has up to six bytes for each in JSON. */
const MOST_BESIDE_VALUE = 2_000;

/** A stored text that cannot be decoded. */
export class Undecodable {
  /**
   * @param encoding the codecs and keys that the text names, or why it is refused; for messages.
   * @param isUnknown whether the service has no such codec, so that the text may be whole.
   */
  constructor(
    readonly encoding: string,
    readonly isUnknown: boolean,
  ) {}
}

/** The JSON of a text, or why there is none. */
export type Decoded = string | Undecodable;

/** What one codec has done to a text. */
interface Step {
  codec: string;
  key?: string;
}

/** What all codecs have made of bytes. */
interface Encoded {
  data: Uint8Array;
  steps: readonly Step[];
}

/**
 * What an encoded text begins with: JSON that `JSON.stringify` never writes, so that no value is taken for one. As a list it is
 * not an event for those who know nothing of codecs.
 */
const MARK = '[ "adk-codec", ';

export const isEncoded = (text: string): boolean => text.startsWith(MARK);

/** @returns the part of a text that names its codecs and keys; empty for a text that is not encoded. */
export const encodingOf = (text: string): string => (isEncoded(text) ? text.slice(0, text.lastIndexOf(', "')) : '');

/** Whether a text names a key, so that nobody can read it without that key. */
export const namesKey = (text: string): boolean =>
  isEncoded(text) && (parsed(text)?.steps.some(({ key }) => key !== undefined) ?? false);

/** @returns undefined if somebody has changed it. */
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

/** Whether bytes are what `encodeBytes` gave; for those that never begin with a bracket otherwise. */
export const isFramed = (bytes: Uint8Array): boolean => bytes[0] === OPENING;

/** @returns what bytes that are encoded name of codecs and keys. */
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

/** Whether a text is one that a codec can have made, so that every database takes it; what it says is not looked into. */
export const isWhole = (text: string): boolean => isEncoded(text) && parsed(text) !== undefined;

const shownSteps = (steps: readonly Step[]) =>
  steps.map(({ codec, key }) => (key === undefined ? codec : `${codec} (key ${key})`)).join(', ');

/** The codecs of a service. */
export class TextCodec {
  readonly #codecs: readonly Codec[];
  /** The names of the codecs without which a text is damage. */
  readonly required: readonly string[];
  /** How large a text that is encoded, and what a codec makes of it, may be. */
  readonly maxBytes: number;

  constructor(codecs: readonly Codec[], maxBytes = MAX_DECODED_BYTES) {
    this.#codecs = codecs;
    this.maxBytes = maxBytes;
    this.required = codecs.filter(({ required }) => required).map(({ name }) => name);
  }

  /** Whether there is none, so that texts are stored as they are. */
  get isNone(): boolean {
    return this.#codecs.length === 0;
  }

  /** @throws CodecError also for what nobody could read: a text that a required codec leaves as it is, or that is too large. */
  encode(text: string, context: CodecContext): MaybePromise<string> {
    if (this.isNone) return text;
    return after(this.#encoded(Buffer.from(text), context), ({ steps, data }) => {
      if (steps.length === 0) return text;
      const base64 = Buffer.from(data.buffer, data.byteOffset, data.length).toString('base64');
      return `${MARK}${JSON.stringify(steps)}, "${base64}" ]`;
    });
  }

  /** @returns the bytes behind a line that names codecs and keys. @throws CodecError as `encode`. */
  encodeBytes(bytes: Uint8Array, context: CodecContext): MaybePromise<Uint8Array> {
    return after(this.#encoded(bytes, context), ({ steps, data }) =>
      Buffer.concat([Buffer.from(`${JSON.stringify(steps)}\n`), data]),
    );
  }

  #encoded(bytes: Uint8Array, context: CodecContext): MaybePromise<Encoded> {
    return after(this.#encodeFrom(0, bytes, [], context), (encoded) => {
      const [lacking] = this.#lacking(encoded.steps);
      if (lacking !== undefined)
        throw new CodecError(`The codec ${lacking} is required, and has not encoded a text. Nothing was written.`);
      return encoded;
    });
  }

  /** A change has its values' keys beside them: what may be a value may be recorded. */
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

  /** @param isLenient whether a text that lacks a codec which is required is read, too: to give it that codec. */
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

  /** @param framed what `encodeBytes` gave. @param isLenient as for `decode`. */
  decodeBytes(framed: Uint8Array, context: CodecContext, isLenient = false): MaybePromise<Uint8Array | Undecodable> {
    const { line, steps } = frameOf(framed);
    if (!steps) return new Undecodable('encoded, and changed since', false);
    const lacking = isLenient ? [] : this.#lacking(steps);
    return lacking.length > 0 ? refused(lacking) : this.#decoded(steps, framed.subarray(line.length), context);
  }

  #decoded(steps: readonly Step[], data: Uint8Array, context: CodecContext): MaybePromise<Uint8Array | Undecodable> {
    const refuse = (why: string, isForeign = false) =>
      new Undecodable(`encoded with ${shownSteps(steps)}${why}`, isForeign);
    const places = steps.map(({ codec }) => this.#codecs.findIndex(({ name }) => name === codec));
    if (places.includes(-1)) return refuse(', a codec that is not in the codec option', true);
    // Somebody could put a codec that expands around what is encrypted: it would run before the key has proved anything.
    if (places.some((place, i) => place <= (places[i - 1] ?? -1)))
      return refuse(', in another order than in the codec option', true);
    return after(this.#decodeFrom(steps, data, context), (decoded) => {
      if (!decoded) return refuse('');
      if (decoded === 'tooLarge') return refuse(`, and larger than maxDecodedBytes (${this.maxBytes})`);
      return decoded;
    });
  }

  /** From the last codec that was applied to the first. */
  #decodeFrom(steps: readonly Step[], data: Uint8Array, context: CodecContext): MaybePromise<DecodedData> {
    const step = steps.at(-1);
    if (!step) return data;
    const codec = this.#codecs.find(({ name }) => name === step.codec);
    const most = this.#most(context);
    const decoded = codec && guarded(codec, () => codec.decode({ data, key: step.key }, context, most));
    return after(decoded, (next) => {
      if (!next || next === 'tooLarge') return next;
      return next.length > most ? 'tooLarge' : this.#decodeFrom(steps.slice(0, -1), next, context);
    });
  }
}

/** @throws CodecError for what a codec throws. */
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

const refused = (required: readonly string[]) => new Undecodable(`not encoded with ${required.join(', ')}`, false);

/** A session of which it is known which one it is. Of a user or an app the other names are empty. */
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

/** @param owner a session; of state of its user or its app what follows in its key does not count. */
export function ofState(owner: KnownSession, scope: Scope, key: string): CodecContext {
  const { appName, userId } = owner;
  const name = prefixed(scope, key);
  if (scope === 'session') return contextOf(owner, 'state', name);
  return contextOf({ appName, userId: scope === 'app' ? '' : userId, sessionId: '', origin: '' }, 'state', name);
}

/**
 * @param version of a part that of its row: an upload's number is negative.
 * @param what of the version: a part, by its number, or `info`.
 * @param upload that has the parts of the version.
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
