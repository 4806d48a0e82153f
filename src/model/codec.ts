import type { SessionKey } from './keys.js';
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
