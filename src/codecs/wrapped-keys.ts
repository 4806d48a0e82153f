import { randomBytes } from 'node:crypto';
import { aFunction, object } from '../model/arguments.js';
import { CodecError } from '../model/errors.js';
import type { KeyFunction } from './encryption.js';

/** How data keys are wrapped, and where they are kept. */
export interface WrappedKeysOptions {
  /** Encrypts a data key with a key that never leaves the KMS. */
  wrap: (key: Uint8Array, id: string) => Uint8Array | Promise<Uint8Array>;
  /** Decrypts it again. */
  unwrap: (wrapped: Uint8Array, id: string) => Uint8Array | Promise<Uint8Array>;
  /** @returns the wrapped key; undefined if there is none, or it was erased. */
  load: (id: string) => Uint8Array | undefined | Promise<Uint8Array | undefined>;
  /**
   * Stores a wrapped key, unless another process has already stored one.
   *
   * @returns the stored key.
   * @throws for an id whose key was erased, so that nothing more is written with it.
   */
  save: (id: string, wrapped: Uint8Array) => Uint8Array | Promise<Uint8Array>;
}

const checkOptions = object<WrappedKeysOptions>(
  { wrap: aFunction, unwrap: aFunction, load: aFunction, save: aFunction },
  'wrap',
  'unwrap',
  'load',
  'save',
);

/**
 * Makes the `key` function of `encryption`, for random data keys that a KMS wraps. The first text with an id creates its key. Once
 * the wrapped key is erased, nobody can read its texts, not even in a backup (crypto-shredding). So keep wrapped keys apart from the
 * backups of the sessions.
 *
 * @throws InvalidArgumentError if an option is unknown or missing.
 */
export function wrappedKeys(options: WrappedKeysOptions): KeyFunction {
  const { wrap, unwrap, load, save } = checkOptions(options, 'The options of wrappedKeys');
  return async (id, use) => {
    const wrapped = await load(id);
    if (wrapped) return unwrap(wrapped, id);
    if (use === 'decrypt') return undefined;
    const key = randomBytes(32);
    const stored = await save(id, await wrap(key, id));
    const usable = await unwrap(stored, id);
    // A text that is encrypted with a key that nobody can unwrap would be lost.
    if (usable.length !== key.length) throw new CodecError(`The wrapped key ${id} could not be unwrapped again.`);
    return usable;
  };
}
