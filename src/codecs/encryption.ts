import { createCipheriv, createDecipheriv, createSecretKey, randomBytes, type KeyObject } from 'node:crypto';
import { aBoolean, aFunction, aWait, anything, object } from '../model/arguments.js';
import { now } from '../model/clock.js';
import { KeyNeeded, type Codec, type CodecContext } from '../model/codec.js';
import { isPromise } from '../model/json.js';
import { CodecError, InvalidArgumentError } from '../model/errors.js';

/** What a key is needed for. */
export type KeyUse = 'encrypt' | 'decrypt';

/**
 * Returns the 32 bytes of a key.
 *
 * @param id the id of the key, which encrypted texts name.
 * @returns undefined if the key no longer exists: all texts that it has encrypted then count as damaged.
 * @throws if it cannot find out, for example because a KMS does not answer. The call then fails with `CodecError`, and nothing
 *   counts as damaged.
 */
export type KeyFunction = (id: string, use: KeyUse) => Uint8Array | undefined | Promise<Uint8Array | undefined>;

export interface EncryptionOptions {
  key: KeyFunction;
  /**
   * The id of the key for new texts, or a function that chooses it, for example one for each user. If it is undefined, or the
   * function returns undefined, new texts are not encrypted; encrypted texts are still read.
   */
  currentKey: string | ((context: CodecContext) => string | undefined) | undefined;
  /**
   * How long a key is cached in memory, in ms, with lists of words that searches have decrypted with it; 300,000 by default, 0 for
   * only as long as a call takes.
   */
  cacheMs?: number;
  /**
   * Whether a text that is not encrypted is damage; false by default. Without it, somebody who can write to the tables can replace
   * an encrypted text by a plain one. Set it once `reencode` has encrypted everything. Then nothing is written unencrypted, either.
   */
  required?: boolean;
}

const checkOptions = object<EncryptionOptions>(
  { key: aFunction, currentKey: anything, cacheMs: aWait, required: aBoolean },
  'key',
);

const NAME = 'aes-256-gcm';
const KEY_BYTES = 32;
const NONCE_BYTES = 12;
const TAG_BYTES = 16;
const DECIPHER = { authTagLength: TAG_BYTES };
const CACHE_MS = 300_000;

/** How many keys are kept in memory: there may be one for each user. */
const MOST_KEYS = 10_000;

/** How large the lists of words in memory are together, in bytes: those of some 40,000 memories. */
const MOST_BYTES_OF_LISTS = 2 ** 25;

/**
 * A codec that encrypts with AES-256-GCM of `node:crypto`. Each text has a random nonce, so equal values look different. The
 * encryption binds it to its app, user, session, origin and event id or state key, and to its key: a text that was moved, swapped
 * or changed is damage (contract M2).
 *
 * @throws InvalidArgumentError if an option is unknown or its value is invalid.
 */
export function encryption(options: EncryptionOptions): Codec {
  const { key, currentKey, cacheMs = CACHE_MS, required } = checkOptions(options, 'The options of encryption');
  if (currentKey !== undefined && typeof currentKey !== 'string' && typeof currentKey !== 'function')
    throw new InvalidArgumentError('currentKey must be the id of a key, or a function that returns one.');
  const keys = new Keys(key, cacheMs);
  const lists = cacheMs > 0 ? new WordLists() : undefined;
  return {
    name: NAME,
    required,
    encode(data, context) {
      const id = typeof currentKey === 'function' ? currentKey(context) : currentKey;
      if (id === undefined) return undefined;
      const secret = keys.get(id, 'encrypt', context);
      if (!secret) throw new CodecError(`There is no key ${id} to encrypt with.`);
      return { key: id, data: encrypted(data, secret, boundTo(context, id)) };
    },
    decode({ data, key: id }, context) {
      const secret = id === undefined ? undefined : keys.get(id, 'decrypt', context);
      if (id === undefined || !secret) return undefined;
      const bound = boundTo(context, id);
      return lists && context.column === 'words' ? lists.get(data, secret, bound) : decrypted(data, secret, bound);
    },
  };
}

let last: { owner: readonly string[]; json: string } | undefined;

/** The texts of a search have the same owner, and it takes as long to make JSON of that as to encrypt some of them. */
function boundTo({ appName, userId, sessionId, origin, kind, name }: CodecContext, keyId: string): Buffer {
  const owner = [NAME, keyId, appName, userId, sessionId, origin, kind];
  if (!last || owner.some((each, i) => each !== last?.owner[i]))
    last = { owner, json: JSON.stringify(owner).slice(0, -1) };
  return Buffer.from(`${last.json},${JSON.stringify(name)}]`);
}

function encrypted(data: Uint8Array, secret: KeyObject, bound: Buffer): Buffer {
  const nonce = randomBytes(NONCE_BYTES);
  const cipher = createCipheriv(NAME, secret, nonce).setAAD(bound);
  return Buffer.concat([nonce, cipher.update(data), cipher.final(), cipher.getAuthTag()]);
}

/** @returns undefined if the text was encrypted with another key, was changed, or belongs to another place. */
function decrypted(data: Uint8Array, secret: KeyObject, bound: Buffer): Buffer | undefined {
  if (data.length < NONCE_BYTES + TAG_BYTES) return undefined;
  const end = data.length - TAG_BYTES;
  // Faster than `subarray` of a Buffer.
  const part = (from: number, to: number) => new Uint8Array(data.buffer, data.byteOffset + from, to - from);
  const decipher = createDecipheriv(NAME, secret, part(0, NONCE_BYTES), DECIPHER)
    .setAAD(bound)
    .setAuthTag(part(end, data.length));
  const plain = decipher.update(part(NONCE_BYTES, end));
  try {
    // Returns no bytes in this mode: it only checks the tag.
    decipher.final();
    return plain;
  } catch {
    return undefined;
  }
}

interface WordList {
  encrypted: Buffer;
  bound: Buffer;
  plain: Buffer;
}

/** Decrypted lists of words. Each search reads all lists of a user, and to decrypt them takes longer than the rest of it. */
class WordLists {
  /** By key, so that they leave memory with it. */
  #known = new WeakMap<KeyObject, Map<string, WordList>>();
  #bytes = 0;

  /** @returns undefined as `decrypted`. */
  get(data: Uint8Array, secret: KeyObject, bound: Buffer): Buffer | undefined {
    const encrypted = Buffer.from(data.buffer, data.byteOffset, data.length);
    const id = encrypted.toString('latin1', 0, NONCE_BYTES);
    const known = this.#known.get(secret)?.get(id);
    if (known?.bound.equals(bound) && known.encrypted.equals(encrypted)) return known.plain;
    const plain = decrypted(data, secret, bound);
    if (plain) this.#remember(id, secret, { encrypted: Buffer.from(encrypted), bound, plain });
    return plain;
  }

  #remember(id: string, secret: KeyObject, list: WordList): void {
    this.#bytes += list.encrypted.length + list.bound.length + list.plain.length;
    if (this.#bytes > MOST_BYTES_OF_LISTS) {
      this.#known = new WeakMap();
      this.#bytes = 0;
    }
    const ofKey = this.#known.get(secret) ?? new Map<string, WordList>();
    this.#known.set(secret, ofKey.set(id, list));
  }
}

/** Undefined for a key that does not exist. */
type Secret = KeyObject | undefined;

class Keys {
  readonly #key: KeyFunction;
  readonly #cacheMs: number;
  readonly #known = new Map<string, { secret: KeyObject; until: number }>();
  /** The pending results of `key`. */
  readonly #asked = new Map<string, Promise<Secret>>();
  /** The keys for which calls have waited: one that leaves the cache in the middle of a call must not be asked for again. */
  readonly #ofCalls = new WeakMap<object, Map<string, Secret>>();

  constructor(key: KeyFunction, cacheMs: number) {
    this.#key = key;
    this.#cacheMs = cacheMs;
  }

  /** @throws KeyNeeded if the key must be waited for. */
  get(id: string, use: KeyUse, { call }: CodecContext): Secret {
    const time = now();
    const known = this.#known.get(id);
    if (known && time < known.until) return known.secret;
    const request = `${use} ${id}`;
    const ofCall = this.#ofCalls.get(call);
    if (ofCall?.has(request)) return ofCall.get(request);
    // Keys whose time is over leave memory, with the lists that they have decrypted. The oldest come first.
    for (const [old, { until }] of this.#known) {
      if (time < until) break;
      this.#known.delete(old);
    }
    const answer = this.#asked.get(request) ?? this.#ask(id, use, request);
    if (!isPromise(answer)) return answer;
    throw new KeyNeeded(
      answer.then((secret) => {
        const kept = this.#ofCalls.get(call) ?? new Map<string, Secret>();
        this.#ofCalls.set(call, kept.set(request, secret));
      }),
    );
  }

  #ask(id: string, use: KeyUse, request: string): Secret | Promise<Secret> {
    const found = this.#key(id, use);
    if (!isPromise(found)) return this.#remember(id, found);
    const remember = (bytes: Uint8Array | undefined) => this.#remember(id, bytes);
    const answer = Promise.resolve(found)
      .then(remember)
      .finally(() => this.#asked.delete(request));
    this.#asked.set(request, answer);
    return answer;
  }

  #remember(id: string, bytes: Uint8Array | undefined): Secret {
    // Not cached: the key may exist the next time.
    if (bytes === undefined) return undefined;
    if (bytes.length !== KEY_BYTES) throw new CodecError(`The key ${id} must have ${KEY_BYTES} bytes.`);
    const secret = createSecretKey(bytes);
    if (this.#cacheMs > 0) {
      const [oldest] = this.#known.keys();
      if (oldest !== undefined && this.#known.size >= MOST_KEYS) this.#known.delete(oldest);
      this.#known.set(id, { secret, until: now() + this.#cacheMs });
    }
    return secret;
  }
}
