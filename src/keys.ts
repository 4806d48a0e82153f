import { KEY_LENGTHS } from '../entities/columns.js';
import { InvalidKeyError } from './errors.js';

/** What names a session; ADK's `CompositeSessionKey`. */
export interface SessionKey {
  appName: string;
  userId: string;
  sessionId: string;
}

/** What a PostgreSQL index takes of one row: 2,704 bytes less its own overhead (contract D7). */
const MAX_ROW_KEY_BYTES = 2_600;

const NAMES = {
  appName: 'app name',
  userId: 'user id',
  sessionId: 'session id',
  eventId: 'event id',
  stateKey: 'state key',
} as const;

type Keys = { readonly [K in keyof typeof NAMES]?: string };

/**
 * Refuses names that cannot be a row's key on every database, so that what works in a test on SQLite works on the
 * others too (contract D7).
 *
 * @throws InvalidKeyError when one is empty, too long, or holds NUL or half of a surrogate pair, or when all of them
 *   together are too long for an index.
 */
export function checkKeys(keys: Keys): void {
  let codeUnits = 0;
  for (const [kind, value] of Object.entries(keys) as [keyof Keys, unknown][]) {
    const name = NAMES[kind];
    if (typeof value !== 'string' || value === '') {
      throw new InvalidKeyError(`The ${name} must be a string of 1 to ${KEY_LENGTHS[kind]} characters.`);
    }
    codeUnits += value.length;
    // A string has at most as many characters as code units, so most are not counted.
    if (value.length > KEY_LENGTHS[kind] && Array.from(value).length > KEY_LENGTHS[kind]) {
      throw new InvalidKeyError(`The ${name} is longer than ${KEY_LENGTHS[kind]} characters.`);
    }
    if (/[\0\p{Surrogate}]/u.test(value)) {
      throw new InvalidKeyError(`The ${name} holds NUL or half of a surrogate pair, which no database compares alike.`);
    }
  }
  // A code unit takes three bytes at most.
  if (codeUnits * 3 > MAX_ROW_KEY_BYTES && Buffer.byteLength(Object.values(keys).join('')) > MAX_ROW_KEY_BYTES) {
    throw new InvalidKeyError(
      `The ${Object.keys(keys)
        .map((kind) => NAMES[kind as keyof Keys])
        .join(', ')} together are longer than ${MAX_ROW_KEY_BYTES} bytes of UTF-8; shorten one of them.`,
    );
  }
}
