import { isObject } from './json.js';
import type { SessionKey } from './keys.js';
import { prefixed, type Scope } from './state.js';

/** The place of a text, and the call that needs it. A codec that binds a text to its place notices if a row was moved or swapped. */
export interface CodecContext extends SessionKey {
  /**
   * Distinguishes a session from earlier and later ones with its id. A rewind keeps it; a fork and a session that is created again
   * have another. Empty, like the ids, for state of a user or an app.
   */
  origin: string;
  /** `change`: an entry of the log other than an event, which contains state. */
  kind: 'event' | 'state' | 'change' | 'artifact' | 'memory' | 'credential';
  /**
   * Names the text within its kind: the event's id; the key of the state with its prefix; the kind, the number and the id
   * of a change; the version, the part and the filename of an artifact; a column and the memory's id; the credential's key.
   */
  name: string;
  /** Of a memory: which column. A codec may keep decoded lists of words, since a search reads those of all memories. */
  column?: 'data' | 'words' | 'embedding';
  /**
   * One object for all texts of a transaction or a reading, however often it is repeated. A codec keeps here, in a `WeakMap`, the
   * keys for which a call has waited, so that the call finds them even if they have left the codec's cache meanwhile.
   */
  call: object;
}

/** What a codec binds a text to. */
export type TextPlace = Omit<CodecContext, 'call'>;

/**
 * Thrown by a codec that does not have a key yet. The call rolls back and gives its connection back, waits for the key within
 * `timeoutMs`, and runs again. In a host's transaction it rolls back to a savepoint; the host's connection waits with it.
 */
export class KeyNeeded extends Error {
  override name = 'KeyNeeded';

  /** @param ready resolves when the codec has the key. If it rejects, the call fails with `CodecError`. */
  constructor(readonly ready: Promise<unknown>) {
    super('A codec needs a key that it does not have yet.');
    // Nobody may wait for it, if the rollback fails.
    ready.catch(() => undefined);
  }
}

/** Without `instanceof`: a codec may come from the package's other build, for `import` or for `require`. */
export const isKeyNeeded = (error: unknown): error is KeyNeeded =>
  isObject(error) && 'name' in error && error.name === 'KeyNeeded' && 'ready' in error;

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
 * A codec answers at once, since the call may hold a lock. If it lacks a key, it throws `KeyNeeded`.
 */
export interface Codec {
  /** Stored texts contain this name, so it must never change. */
  readonly name: string;
  /**
   * Whether a text that this codec has not encoded is damage, even one that was stored before there was a codec. If `encode` then
   * returns undefined, nothing is written.
   */
  readonly required?: boolean | undefined;
  /**
   * @returns undefined to leave the bytes as they are.
   * @throws KeyNeeded to be called again once it has a key.
   * @throws any other failure. The call then fails with `CodecError`.
   */
  encode(data: Uint8Array, context: CodecContext): CodecData | undefined;
  /**
   * @param maxBytes the largest allowed result. A codec that decompresses must stop there.
   * @returns undefined if the data cannot be read: somebody has changed it, or the key is lost. `'tooLarge'` if the result would
   *   be larger than `maxBytes`. Both are damage (contract I1).
   * @throws KeyNeeded to be called again once it has a key.
   * @throws any other failure. The call then fails with `CodecError`.
   */
  decode(encoded: CodecData, context: CodecContext, maxBytes: number): DecodedData;
}

export type DecodedData = Uint8Array | 'tooLarge' | undefined;

/** A session with its origin. For a user or an app, the other names are empty. */
export interface KnownSession extends SessionKey {
  /** See `SessionHead`. */
  origin: string;
}

const contextOf = (
  { appName, userId, sessionId, origin }: KnownSession,
  kind: TextPlace['kind'],
  name: string,
): TextPlace => ({ appName, userId, sessionId, origin, kind, name });

export const ofEvent = (session: KnownSession, eventId: string): TextPlace => contextOf(session, 'event', eventId);

/** @param owner a session. For state of its user or its app, the rest of its key is ignored. */
export function ofState(owner: KnownSession, scope: Scope, key: string): TextPlace {
  const { appName, userId } = owner;
  const name = prefixed(scope, key);
  if (scope === 'session') return contextOf(owner, 'state', name);
  return contextOf({ appName, userId: scope === 'app' ? '' : userId, sessionId: '', origin: '' }, 'state', name);
}

/** @param what the number of a part, or `info`. */
export const ofArtifact = (
  { filename, ...session }: KnownSession & { filename: string },
  version: number,
  what: number | 'info',
): TextPlace => contextOf(session, 'artifact', `${version} ${what} ${filename}`);

/** @param column of the memory's row. */
export const ofMemory = (
  { appName, userId, sessionId, memoryId }: SessionKey & { memoryId: string },
  column: NonNullable<CodecContext['column']>,
): TextPlace => ({
  ...contextOf({ appName, userId, sessionId, origin: '' }, 'memory', `${column} ${memoryId}`),
  column,
});

export const ofCredential = (
  { appName, userId }: Pick<SessionKey, 'appName' | 'userId'>,
  credentialKey: string,
): TextPlace => contextOf({ appName, userId, sessionId: '', origin: '' }, 'credential', credentialKey);

export const ofChange = (
  session: KnownSession,
  { id, kind, seq }: { id: number; kind: string; seq: number },
): TextPlace => contextOf(session, 'change', `${kind} ${seq} ${id}`);
