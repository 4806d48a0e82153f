import { inRow, readContent, valuesOf } from '../artifacts/artifact-store.js';
import {
  Damaged,
  encodedVersion,
  withEncoding,
  type EncodedVersion,
  type VersionKey,
} from '../artifacts/stored-version.js';
import type { Sql } from '../database/dialects/dialect.js';
import { ARTIFACT_WHERE, textOf } from '../database/sql/tables.js';
import { encodingOf, encodingOfBytes } from '../model/stored-texts.js';

/** A version of an artifact, encoded as the codecs do now. */
export interface RecodedVersion {
  key: VersionKey;
  /** The stored row without its content. It contains the content's hash, so if the row is equal, so is the content. */
  read: string;
  encoded: EncodedVersion;
  /** In bytes. */
  size: number;
}

/**
 * @param isLenient whether to accept and encode a version that lacks a required codec.
 * @returns undefined if the version is already stored as the codecs do now, or is gone.
 */
export async function recodedVersion(
  sql: Sql,
  key: VersionKey,
  isLenient: boolean,
): Promise<RecodedVersion | Damaged | undefined> {
  const found = await readContent(sql, key, key.version, { isLenient });
  if (!found) return undefined;
  const { content, row, parts } = found;
  if (content instanceof Damaged) return content;
  const isFramed = !sql.texts.codec.isNone;
  const asNow = withEncoding(content, isFramed);
  const encoded = encodedVersion(sql.texts, key, asNow);
  const read = textOf(row.info);
  const { info } = content;
  const isSame =
    encodingOf(encoded.info) === encodingOf(read) &&
    (info.content?.isEncoded ?? isFramed) === isFramed &&
    (!isFramed || parts.every((each, i) => encodingOfBytes(each) === encodingOfBytes(encoded.parts[i])));
  return isSame ? undefined : { key, read, encoded, size: info.content?.size ?? 0 };
}

/**
 * Replaces a version by the same in another encoding. Needs a transaction.
 *
 * @returns false if it has changed since it was read, or another transaction has locked its row.
 */
export async function replaceVersion(sql: Sql, { key, read, encoded }: RecodedVersion): Promise<boolean> {
  const { artifactVersions, artifactParts, select } = sql.tables;
  const { skipLocked = '' } = sql.dialect.sql;
  const { info, parts } = encoded;
  const where = `${ARTIFACT_WHERE} and version = ?`;
  const id = [...valuesOf(key), key.version];
  const lock = `select ${select.info} as info from ${artifactVersions} where ${where}${skipLocked}`;
  const [row] = await sql.all<{ info: string }>(lock, id);
  if (row?.info !== read) return false;
  await sql.run(`update ${artifactVersions} set info = ?, data = ? where ${where}`, [info, inRow(parts), ...id]);
  const updatePart = `update ${artifactParts} set data = ? where ${where} and part = ?`;
  if (parts.length > 1) for (const [part, data] of parts.entries()) await sql.run(updatePart, [data, ...id, part]);
  return true;
}
