import { CodecError } from '../../model/errors.js';
import type { SessionKey } from '../../model/keys.js';
import { PLAIN, type StoredTexts, type Undecoded } from '../../model/stored-texts.js';
import type { Sql } from '../dialects/dialect.js';
import { sessionVersion } from '../statements/sessions.js';
import type { Database } from './database.js';
import { Unforeseen } from './public-error.js';

/** As many as a conflict has attempts by default. */
const LEAST_ROUNDS = 10;

/** How a transaction's texts are encoded, and what for: a codec binds them to facts that only the session's lock shows for sure. */
interface Coding<Facts, Texts> {
  /** Reads the facts before the lock is taken. @param found what the lock has shown instead of the facts before. */
  readonly foresee: (found?: Facts) => Promise<Facts>;
  readonly encode: (texts: StoredTexts, facts: Facts) => Texts;
}

/**
 * Runs a transaction whose texts are encoded before it has a connection: a codec may ask a server for its key, and meanwhile
 * neither a connection nor a lock is kept from others. If the lock then shows other facts, the transaction is rolled back, and its texts are
 * encoded anew for these.
 *
 * @param work takes the lock, and gets the texts for what that shows before it writes.
 * @throws CodecError when others have always written first for `retry.forMs`, and ten times at least.
 */
export async function encodedFirst<Facts extends object, Texts, T>(
  database: Database,
  { foresee, encode }: Coding<Facts, Texts>,
  work: (textsFor: (facts: Facts) => Texts) => Promise<T>,
): Promise<T> {
  if (database.codec.isNone) return work((facts) => encode(PLAIN, facts));
  let found: Facts | undefined;
  return inRounds(database, async () => {
    const facts = await foresee(found);
    found = undefined;
    const texts = await database.code((texts) => encode(texts, facts));
    return work((shown) => {
      if (JSON.stringify(shown) === JSON.stringify(facts)) return texts;
      found = shown;
      throw new Unforeseen();
    });
  });
}

/** What is read of a session, and written of what that is. */
export interface SessionCoding<Head, Read, Texts> {
  readonly key: SessionKey;
  /** @param locked the session's row, for the caller that holds its lock. */
  readonly read: (sql: Sql, locked?: Head) => Promise<Undecoded<Read>>;
  /** Encodes what is written of what was read and decoded. */
  readonly encode: (read: Read) => Promise<Texts>;
  /** More than the session's version that must be the same under the lock. */
  readonly version?: (sql: Sql) => Promise<string>;
}

/** What was read, and the texts that are to be written. */
interface Coded<Read, Texts> {
  read: Read;
  texts: Texts;
}

/** Gives them to the caller that holds the session's lock. */
export type CodedFor<Head, Read, Texts> = (sql: Sql, locked: Head) => Promise<Coded<Read, Texts>>;

/** Like `encodedFirst`, for texts that come of those of a session: these are read and decoded before, too. */
export async function decodedFirst<Head, Read, Texts, T>(
  database: Database,
  coding: SessionCoding<Head, Read, Texts>,
  work: (codedFor: CodedFor<Head, Read, Texts>) => Promise<T>,
): Promise<T> {
  const { key, read, encode } = coding;
  const coded = async (reading: Undecoded<Read>) => {
    const read = await database.code(reading);
    return { read, texts: await encode(read) };
  };
  if (database.codec.isNone) return work(async (sql, locked) => coded(await read(sql, locked)));
  const versionOf = async (sql: Sql, isLocked: boolean) =>
    [await sessionVersion(sql, key, { isLocked }), await coding.version?.(sql)].join();
  return inRounds(database, async () => {
    // The version comes first: if the lock shows it, too, all that was read after it is as of one moment.
    const { version, reading } = await database.run(async (sql) => ({
      version: await versionOf(sql, false),
      reading: await read(sql),
    }));
    const foreseen = await coded(reading);
    return work(async (sql) => {
      if ((await versionOf(sql, true)) !== version) throw new Unforeseen();
      return foreseen;
    });
  });
}

/**
 * Runs rounds until the lock shows what was foreseen. Each further round means that somebody else has committed, so there may be as
 * many as there are writers. A codec that is always slower than the others' writes must not keep the caller for ever, though: it
 * ends as an outage does, but not before a few rounds, however short the host retries outages.
 */
async function inRounds<T>(database: Database, round: () => Promise<T>): Promise<T> {
  const began = performance.now();
  const { forMs } = database.retry;
  for (let rounds = 1; ; rounds++) {
    try {
      return await round();
    } catch (error) {
      if (!(error instanceof Unforeseen)) throw error;
      if (rounds < LEAST_ROUNDS || performance.now() - began < forMs) continue;
      throw new CodecError(
        `Others have written ${rounds} times while the codec encoded. Nothing was written. Try again, or make the codec faster.`,
      );
    }
  }
}
