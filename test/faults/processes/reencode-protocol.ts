import { createHash } from 'node:crypto';
import { encryption, type Codec } from '../../../src/codecs/index.js';
import type { Database } from './open-orm.js';

export interface Job {
  database: Database;
  /** Rewrites what is stored; or appends to this session. */
  work: 'reencode' | { appName: string; userId: string; sessionId: string };
}

/** How many batches were written, or how many events were appended; or an error. */
export type Report = { done: number } | { error: string };

/** @param known the ids of the keys that are there; the first one is the current key. */
export const codecWith = (...known: [string, ...string[]]): Codec =>
  encryption({
    currentKey: known[0],
    key: (id) => (known.includes(id) ? createHash('sha256').update(id).digest() : undefined),
  });
