import { PLAIN, type StoredTexts } from '../../model/stored-texts.js';
import type { Database } from './database.js';
import { Unforeseen } from './public-error.js';

/** How a transaction's texts are encoded, and what for: a codec binds them to facts that only the session's lock shows for sure. */
interface Coding<Facts, Texts> {
  /** Reads the facts before the lock is taken. @param found what the lock has shown instead of the facts before. */
  readonly foresee: (found?: Facts) => Promise<Facts>;
  readonly encode: (texts: StoredTexts, facts: Facts) => Texts;
}

/**
 * Runs a transaction whose texts are encoded before it has a connection: a codec may ask a server for its key, and meanwhile
 * neither a connection nor a lock is kept from others. If the lock then shows other facts, the transaction is rolled back, and its texts are
 * encoded anew for these. Each such round means that somebody else has written.
 *
 * @param work takes the lock, and gets the texts for what that shows before it writes.
 */
export async function encodedFirst<Facts extends object, Texts, T>(
  database: Database,
  { foresee, encode }: Coding<Facts, Texts>,
  work: (textsFor: (facts: Facts) => Texts) => Promise<T>,
): Promise<T> {
  if (database.codec.isNone) return work((facts) => encode(PLAIN, facts));
  for (let facts: Facts = await foresee(); ;) {
    const foreseen = facts;
    let found: Facts | undefined;
    const texts = await database.code((texts) => encode(texts, foreseen));
    try {
      return await work((shown) => {
        if (JSON.stringify(shown) === JSON.stringify(foreseen)) return texts;
        found = shown;
        throw new Unforeseen();
      });
    } catch (error) {
      if (!(error instanceof Unforeseen)) throw error;
    }
    facts = await foresee(found);
  }
}
