import { CodecError } from '../../model/errors.js';
import type { SessionKey } from '../../model/keys.js';
import { PLAIN, type StoredTexts, type Undecoded } from '../../model/stored-texts.js';
import type { Sql } from '../dialects/dialect.js';
import { sessionVersion } from '../statements/sessions.js';
import type { Database } from './database.js';
import { Unforeseen } from './public-error.js';

/** The same number as the default attempts of a conflict. */
const LEAST_ROUNDS = 10;

/** How to encode the texts of a transaction. A codec binds them to facts that are certain only under the session's lock. */
interface Coding<Facts, Texts> {
  /** Reads the facts before the lock is taken. @param found the facts that the lock has shown, if an earlier round was wrong. */
  readonly foresee: (found?: Facts) => Promise<Facts>;
  readonly encode: (texts: StoredTexts, facts: Facts) => Texts;
}

/**
 * Encodes the texts of a transaction before it takes a connection: a codec may ask a server for its key, and meanwhile no
 * connection or lock is held. If the lock then shows other facts, the transaction is rolled back, and its texts are encoded again.
 *
 * @param work takes the lock, and asks for the texts that fit the facts under it before it writes.
 * @throws CodecError if others have written first each time, for `retry.forMs` and at least ten times.
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

/** What to read of a session, and how to encode what is written from it. */
export interface SessionCoding<Head, Read, Texts> {
  readonly key: SessionKey;
  /** @param locked the session's row, for the caller that holds its lock. */
  readonly read: (sql: Sql, locked?: Head) => Promise<Undecoded<Read>>;
  /** Makes and encodes the new texts from those that were read and decoded. */
  readonly encode: (read: Read) => Promise<Texts>;
  /** Besides the session's version, this must be the same under the lock as before. */
  readonly version?: (sql: Sql) => Promise<string>;
}

/** What was read, and the texts to write. */
interface Coded<Read, Texts> {
  read: Read;
  texts: Texts;
}

/** Returns them to the caller that holds the session's lock. */
export type CodedFor<Head, Read, Texts> = (sql: Sql, locked: Head) => Promise<Coded<Read, Texts>>;

/** Like `encodedFirst`, for texts that are made from a session's own: it also reads and decodes those before. */
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
    // The version comes first: if it is the same under the lock, nothing that was read after it has changed.
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
 * Runs rounds until the lock shows the expected facts. In each failed round somebody else has committed, so there may be as many as
 * there are writers. A codec that is always slower than others' writes must not keep the caller waiting for ever, so the rounds end
 * after `retry.forMs`, like an outage, but not before ten.
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
