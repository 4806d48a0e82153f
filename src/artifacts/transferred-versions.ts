import type { Sql } from '../database/dialects/dialect.js';
import { isWhole } from './artifact-content.js';
import { nameOfUsers } from '../model/artifact-name.js';
import { insertVersion, partsOf, valuesOf, versionRow } from './artifact-store.js';
import {
  CHANGED,
  Damaged,
  decodedContent,
  encodedVersion,
  infoOf,
  storedVersion,
  withEncoding,
  type EncodedVersion,
  type VersionKey,
} from './stored-version.js';
import { ARTIFACT_COLUMNS, ARTIFACT_WHERE, insertIntoArtifacts, numberOf } from '../database/sql/tables.js';
import type { StoredTexts } from '../model/stored-texts.js';
import { DamagedArtifactError, InvalidArgumentError } from '../model/errors.js';

/** A version, as exports and imports have it. */
interface TransferredVersion {
  /** JSON of `ArtifactInfo`. */
  info: string;
  parts: readonly Buffer[];
  createTime: number;
}

export const nameOf = ({ filename, version }: VersionKey) => `Version ${version} of artifact ${filename}`;

/**
 * @returns the version without its encoding; undefined if there is none.
 * @throws DamagedArtifactError if it cannot be read.
 */
export async function transferredVersion(
  sql: Sql,
  { version, ...key }: VersionKey,
): Promise<TransferredVersion | undefined> {
  const row = await versionRow(sql, key, version, { withData: true });
  if (!row) return undefined;
  const parts = await partsOf(sql, key, row);
  const { texts } = sql;
  const stored = storedVersion(texts, key, row);
  const content = decodedContent(texts, key, stored, parts);
  if (!(content instanceof Damaged) && isWhole(content))
    return { info: withEncoding(content, false).info, parts: content.parts, createTime: stored.createTime };
  const filename = key.sessionId === '' ? nameOfUsers(key.filename) : key.filename;
  throw new DamagedArtifactError(filename, version, (content instanceof Damaged ? content : CHANGED).what);
}

/**
 * @returns a version of an export as it will be stored.
 * @throws InvalidArgumentError if its content does not match its hash.
 */
export function encodedImport(
  texts: StoredTexts,
  key: VersionKey,
  { info: text, parts }: Omit<TransferredVersion, 'createTime'>,
): EncodedVersion {
  const info = infoOf(text);
  if (info instanceof Damaged || info.content?.isEncoded)
    throw new InvalidArgumentError(`${nameOf(key)} has no info of a plain artifact.`);
  if (!isWhole({ info, parts })) throw new InvalidArgumentError(`${nameOf(key)} has other content than its info says.`);
  return encodedVersion(texts, key, withEncoding({ info, parts }, !texts.codec.isNone));
}

/**
 * Writes a version of an export, for a transaction.
 *
 * @returns false if it is stored already.
 * @throws InvalidArgumentError if another version has its number.
 */
export async function importVersion(
  sql: Sql,
  key: VersionKey,
  createTime: number,
  encoded: EncodedVersion,
): Promise<boolean> {
  const { version } = key;
  const values = valuesOf(key);
  const { artifacts } = sql.tables;
  // Locks the artifact's row first, as a save and a deletion do.
  const end = sql.dialect.sql.onSameKey(ARTIFACT_COLUMNS, ['filename']);
  await sql.run(`${insertIntoArtifacts(artifacts)} values (?, ?, ?, ?, ?, ?) ${end}`, [...values, version, createTime]);
  const stored = await versionRow(sql, key, version);
  if (stored && numberOf(stored.create_time) !== createTime)
    throw new InvalidArgumentError(`${nameOf(key)} exists here, and was saved at another time.`);
  if (stored) return false;
  await sql.run(
    `update ${artifacts} set last_version = ?, update_time = ? where ${ARTIFACT_WHERE} and last_version < ?`,
    [version, createTime, ...values, version],
  );
  await insertVersion(sql, key, encoded, createTime);
  return true;
}
