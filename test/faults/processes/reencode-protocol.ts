import { createHash } from 'node:crypto';
import { encryption, type Codec } from '../../../src/codecs/index.js';
import type { Database } from './open-orm.js';

export interface Job {
  database: Database;
  /** Re-encodes what is stored, or appends to this session. */
  work: 'reencode' | { appName: string; userId: string; sessionId: string };
}

/** The number of batches written or events appended, or an error. */
export type Report = { done: number } | { error: string };

/** @param known the ids of the available keys; the first is the current one. */
export const codecWith = (...known: [string, ...string[]]): Codec =>
  encryption({
    currentKey: known[0],
    key: (id) => (known.includes(id) ? createHash('sha256').update(id).digest() : undefined),
  });
