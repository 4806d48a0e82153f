import { randomInt } from 'node:crypto';
import type { Sql } from '../database/dialects/dialect.js';
import { ownedAfter } from '../database/sql/keyset.js';
import {
  ARTIFACT_COLUMNS,
  ARTIFACT_WHERE,
  insertIntoArtifacts,
  isSameSession,
  perTables,
  numberOf,
} from '../database/sql/tables.js';
import { countRows } from '../database/statements/count.js';
import { ArtifactDeletedError } from '../model/errors.js';
import { nameOfUsers } from './artifact-name.js';
import type { NewVersion } from './artifact-content.js';
import { insertParts, saveVersion, valuesOf } from './artifact-store.js';
import { artifactKeyOf, type ArtifactKey, type ArtifactKeyRow } from './stored-version.js';

// A stream is written in several transactions, and must not be visible before the last one. Its parts belong to an upload: a row of
// `artifact_versions` with a negative number. The last transaction inserts the version, which names the upload. It does not move the
// parts to the version's number: SQLite would write them twice, which for 1 GB took 40 s under the lock of the file. The foreign key
// deletes uploads with their artifact.

/** How long an upload may go without another part before `prune` removes it. */
export const ABANDONED_MS = 86_400_000;

/** The number in an artifact's row that has no version yet. */
const NO_VERSION = -1;

export interface Upload {
  key: ArtifactKey;
  /** The version number of its row. */
  number: number;
}

export const newUpload = (key: ArtifactKey): Upload => ({ key, number: -randomInt(2, 2 ** 31) });

const idOf = ({ key, number }: Upload) => [...valuesOf(key), number];

/** Inserts the upload's row. */
export async function beginUpload(sql: Sql, upload: Upload): Promise<void> {
  const text = textsOf(sql);
  await sql.run(text.makeHead, [...valuesOf(upload.key), NO_VERSION]);
  await sql.run(text.begin, [...idOf(upload), stateOf(0)]);
}

/**
 * Adds encoded parts. Needs a transaction.
 *
 * @param first the number of the first part.
 * @throws ArtifactDeletedError if the upload is gone.
 */
export async function addToUpload(
  sql: Sql,
  upload: Upload,
  first: number,
  parts: readonly Uint8Array[],
): Promise<void> {
  await touch(sql, upload, stateOf(first + parts.length));
  await insertParts(sql, idOf(upload), first, parts);
}

/**
 * Makes a version of a complete upload. Needs a transaction.
 *
 * @param written the number of its parts.
 * @returns the version's number.
 * @throws ArtifactDeletedError if the upload is gone.
 */
export async function endUpload(sql: Sql, upload: Upload, given: NewVersion, written: number): Promise<number> {
  // Locks the artifact's row first, as a deletion does.
  const version = await saveVersion(sql, upload.key, given, { upload: upload.number, written });
  await touch(sql, upload, '{"isWhole":true}');
  return version;
}

/** Removes an upload. Needs a transaction. @param untouchedSince only if it got no part after this time, in ms. */
export async function dropUpload(sql: Sql, upload: Upload, untouchedSince?: number): Promise<boolean> {
  const text = textsOf(sql);
  const head = [...valuesOf(upload.key), NO_VERSION];
  // Locks the artifact's row. If it is deleted below, the foreign key would delete another upload that begins now.
  await sql.run(text.lockHead, head);
  const { affectedRows } =
    untouchedSince === undefined
      ? await sql.run(text.drop, idOf(upload))
      : await sql.run(text.dropUntouched, [...idOf(upload), untouchedSince]);
  await sql.run(text.dropHead, [...head, ...valuesOf(upload.key)]);
  return affectedRows > 0;
}

/** Marks an upload as in use, and locks its row. @param state must differ from the stored one: MySQL counts only changed rows. */
async function touch(sql: Sql, upload: Upload, state: string): Promise<void> {
  const { affectedRows } = await sql.run(textsOf(sql).touch, [state, ...idOf(upload)]);
  const { sessionId, filename } = upload.key;
  if (affectedRows === 0) throw new ArtifactDeletedError(sessionId === '' ? nameOfUsers(filename) : filename);
}

const stateOf = (parts: number) => JSON.stringify({ parts });

/** An artifact of a walk. */
export interface WalkedArtifact {
  key: ArtifactKey;
  hasUpload: boolean;
}

/** Reads the next artifacts of an app, or of one user in it. */
export async function artifactPage(
  sql: Sql,
  owner: { appName: string; userId: string | undefined },
  after: ArtifactKey | undefined,
  limit: number,
): Promise<WalkedArtifact[]> {
  const columns = ['user_id', 'session_id', 'filename'];
  const { where, values } = ownedAfter(owner, columns, after && [after.userId, after.sessionId, after.filename]);
  const rows = await sql.all<ArtifactRow>(textsOf(sql).firstVersions(where), [...values, limit]);
  return rows.map((row) => ({
    key: artifactKeyOf(row),
    hasUpload: row.first_version !== null && numberOf(row.first_version) < 0,
  }));
}

/** @returns the uploads of an artifact that got no part after a time, in ms. */
export async function abandonedUploads(sql: Sql, key: ArtifactKey, since: number): Promise<Upload[]> {
  const found = await sql.all<{ version: number | string }>(textsOf(sql).untouched, [...valuesOf(key), since]);
  return found.map(({ version }) => ({ key, number: numberOf(version) }));
}

/** Reads the keys of all versions. @returns how many uploads got no part for `ABANDONED_MS`, at most `limit`. */
export function countAbandoned(sql: Sql, limit: number): Promise<number> {
  return countRows(sql, textsOf(sql).allUntouched, [ABANDONED_MS, limit]);
}

/** The condition for a row `v` of `artifact_versions` that is an upload without a version. */
export const isOpenUpload = (versions: string) =>
  `v.version < 0 and not exists (select 1 from ${versions} as n where ${isSameSession('n', 'v')} and n.filename = v.filename
    and n.upload = v.version)`;

interface ArtifactRow extends ArtifactKeyRow {
  first_version: number | string | null;
}

const textsOf = perTables(({ tables, dialect }: Sql) => {
  const { artifacts, artifactVersions } = tables;
  const { now } = dialect.sql;
  const one = `${ARTIFACT_WHERE} and version = ?`;
  const isOpen = isOpenUpload(artifactVersions);
  const head = `${ARTIFACT_WHERE} and last_version = ?`;
  const drop = `delete from ${artifactVersions} where ${one}`;
  return {
    // Leaves an existing row as it is.
    makeHead: `${insertIntoArtifacts(artifacts)} values (?, ?, ?, ?, ?, ${now}) ${dialect.sql.onSameKey(ARTIFACT_COLUMNS, ['filename'])}`,
    begin: `insert into ${artifactVersions} (${ARTIFACT_COLUMNS}, version, info, create_time) values (?, ?, ?, ?, ?, ?, ${now})`,
    touch: `update ${artifactVersions} set info = ?, create_time = ${now} where ${one}`,
    lockHead: `update ${artifacts} set update_time = update_time where ${head}`,
    drop,
    dropUntouched: `${drop} and create_time <= ?`,
    dropHead: `delete from ${artifacts} where ${head} and not exists (select 1 from ${artifactVersions} where ${ARTIFACT_WHERE})`,
    firstVersions: (where: string) => `select ${ARTIFACT_COLUMNS}, (select v.version from ${artifactVersions} as v
        where ${isSameSession('v', 'a')} and v.filename = a.filename order by v.version limit 1) as first_version
      from ${artifacts} as a where ${where} order by user_id, session_id, filename limit ?`,
    untouched: `select version from ${artifactVersions} as v where ${ARTIFACT_WHERE} and create_time <= ? and ${isOpen}`,
    allUntouched: `(select 1 from ${artifactVersions} as v
      where ${isOpen} and create_time <= ${now} - ? limit ?) as abandoned`,
  };
});
