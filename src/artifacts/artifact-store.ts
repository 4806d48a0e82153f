import { mapTexts } from '../model/stored-texts.js';
import type { Sql } from '../database/dialects/dialect.js';
import { keysetAfter, ownedAfter } from '../database/sql/keyset.js';
import { ARTIFACT_COLUMNS, ARTIFACT_NAMES, IN_ARTIFACT, isSameSession } from '../database/sql/columns.js';
import {
  allOf,
  ifGiven,
  keyed,
  named,
  perTables,
  sessionKeyOf,
  sessionValues,
  bytesOf,
  numberOf,
  optionalNumberOf,
  textOf,
} from '../database/sql/values.js';
import type { SessionKey } from '../model/keys.js';
import { isWhole, type ArtifactInfo, type NewVersion } from './artifact-content.js';
import {
  CHANGED,
  DamagedVersion,
  decodedContent,
  encodedVersion,
  storedVersion,
  type ArtifactKey,
  type VersionContent,
  type EncodedVersion,
  type StoredVersion,
  type VersionKey,
  type VersionRow,
} from './stored-version.js';

// The statements of artifacts that several files need.

/** A version, to be read a part at a time. */
export interface OpenedVersion extends StoredVersion {
  /** The content, if it is in the version's row. */
  only?: Buffer | undefined;
}

/** The newest version of an artifact, without its content. */
interface ListedVersion extends StoredVersion {
  sessionId: string;
  filename: string;
}

/** A version with its content, and its row. */
interface ReadVersion extends StoredVersion {
  content: VersionContent | DamagedVersion;
  row: VersionRow;
  parts: readonly Buffer[];
}

/** The largest number in the column. */
const MAX_VERSION = 2 ** 31 - 1;

export const isVersion = (version: number) => Number.isInteger(version) && version >= 0 && version <= MAX_VERSION;

/** The values that name an artifact in a statement. */
export const artifactValues = (key: ArtifactKey) => ({ ...keyed(key), file: key.filename });

/** Saves a version under the lock of the artifact's row, which numbers it. Needs a transaction. @returns the version's number. */
export async function saveVersion(sql: Sql, key: ArtifactKey, content: NewVersion): Promise<number> {
  const version = await sql.dialect.operations.nextVersion(sql, artifactValues(key));
  await insertVersion(sql, { ...key, version }, encodedVersion(sql.texts, { ...key, version }, content));
  return version;
}

/** @param createTime in ms; the time of the statement by default. */
export async function insertVersion(
  sql: Sql,
  key: VersionKey,
  { info, parts }: EncodedVersion,
  createTime?: number,
): Promise<void> {
  const { insertNow, insertAt, insertPart } = statements(sql);
  await sql.dialect.limits?.refuseTooLarge(sql, 'The row of an artifact', info, inRow(parts));
  const id = { ...artifactValues(key), version: key.version };
  const values = { ...id, info, data: inRow(parts) };
  sql.later(...(createTime === undefined ? insertNow(values) : insertAt({ ...values, createTime })));
  if (parts.length > 1) for (const [part, data] of parts.entries()) sql.later(...insertPart({ ...id, part, data }));
}

/** @returns the part to store in the version's row, if it is the only one. */
export const inRow = (parts: readonly Uint8Array[]) => (parts.length === 1 ? parts[0] : null);

/**
 * @param version undefined for the newest.
 * @param refuse throws for a version that must not be read.
 * @returns a version with its content, which has the stored hash; undefined if there is none.
 */
export async function readContent(
  sql: Sql,
  key: ArtifactKey,
  version?: number,
  refuse: (info: ArtifactInfo) => void = () => {},
): Promise<ReadVersion | undefined> {
  for (;;) {
    const row = await versionRow(sql, key, version, { withData: true });
    if (!row) return undefined;
    const stored = storedVersion(sql.texts, key, row);
    if (stored.info instanceof DamagedVersion) return { ...stored, row, parts: [], content: stored.info };
    refuse(stored.info);
    const parts = await partsOf(sql, key, row);
    const decoded = decodedContent(sql.texts, key, stored, parts);
    const content = decoded instanceof DamagedVersion || isWhole(decoded) ? decoded : CHANGED;
    const read = { ...stored, row, parts, content };
    if (!(content instanceof DamagedVersion)) return read;
    // Not damage if somebody has deleted, saved again or encoded the version between the statements.
    const again = await versionRow(sql, key, stored.version);
    const isSame =
      again && textOf(again.info) === textOf(row.info) && numberOf(again.create_time) === stored.createTime;
    if (isSame) return read;
  }
}

/** All parts of a version, as they are stored. */
async function partsOf(sql: Sql, key: ArtifactKey, { data, version }: VersionRow): Promise<Buffer[]> {
  if (data !== null) return [bytesOf(data)];
  const rows = await sql.all<{ data: unknown }>(...statements(sql).parts({ ...artifactValues(key), version }));
  return rows.map((row) => bytesOf(row.data));
}

/** Reads at most `limit` versions of an app, or of one user in it, in the order of their keys. */
export async function versionPage(
  sql: Sql,
  owner: { appName: string; userId: string | undefined },
  after: VersionKey | undefined,
  limit: number,
): Promise<VersionKey[]> {
  const columns = ['user_id', 'session_id', 'filename', 'version'];
  const last = after && [after.userId, after.sessionId, after.filename, after.version];
  const { where, values } = ownedAfter(owner, columns, last);
  const rows = await sql.all(statements(sql).page(where), [...values, limit]);
  return rows.map((row) => ({
    ...sessionKeyOf(row),
    filename: textOf(row['filename']),
    version: numberOf(row['version']),
  }));
}

/**
 * Reads a version's row, to read its content a part at a time.
 *
 * @param version undefined for the newest.
 */
export async function openVersion(sql: Sql, key: ArtifactKey, version?: number): Promise<OpenedVersion | undefined> {
  const row = await versionRow(sql, key, version, { withData: true });
  if (!row) return undefined;
  const stored = storedVersion(sql.texts, key, row);
  if (stored.info instanceof DamagedVersion || row.data === null) return stored;
  const content = decodedContent(sql.texts, key, stored, [bytesOf(row.data)]);
  return content instanceof DamagedVersion ? { ...stored, info: content } : { ...stored, only: content.parts[0] };
}

/** @returns one part; undefined if it is missing or another version's, or cannot be read. */
export async function readPart(
  sql: Sql,
  key: ArtifactKey,
  opened: OpenedVersion,
  part: number,
): Promise<Buffer | undefined> {
  const [row] = await sql.all<{ data: unknown; create_time: number | string | null }>(
    ...statements(sql).part({ ...artifactValues(key), version: opened.version, part }),
  );
  // Somebody may have deleted the artifact, and saved another one that has this number now.
  if (!row || optionalNumberOf(row.create_time) !== opened.createTime) return undefined;
  const content = decodedContent(sql.texts, key, opened, [bytesOf(row.data)], part);
  return content instanceof DamagedVersion ? undefined : content.parts[0];
}

/**
 * Lists artifacts of a user with their newest versions, the user's own first, then by session and name.
 *
 * @param sessionId only artifacts of the user and of this session; undefined for all sessions.
 */
export async function listArtifacts(
  sql: Sql,
  { appName, userId, sessionId }: { appName: string; userId: string; sessionId: string | undefined },
  after: { sessionId: string; filename: string } | undefined,
  limit: number,
): Promise<ListedVersion[]> {
  const keyset = after && keysetAfter(['a.session_id', 'a.filename'], [after.sessionId, after.filename]);
  const { where, values } = allOf(
    ['a.app_name = ? and a.user_id = ?', appName, userId],
    ifGiven(`a.session_id in ('', ?)`, sessionId),
    keyset && [keyset.where, ...keyset.values],
  );
  const text = statements(sql).list(where);
  const rows = await sql.all<VersionRow & { session_id: string; filename: string }>(text, [...values, limit]);
  return mapTexts(rows, (row) => {
    const names = { sessionId: textOf(row.session_id), filename: textOf(row.filename) };
    return { ...names, ...storedVersion(sql.texts, { appName, userId, ...names }, row) };
  });
}

/** @param version undefined for the newest. */
export async function findVersion(sql: Sql, key: ArtifactKey, version?: number): Promise<StoredVersion | undefined> {
  const row = await versionRow(sql, key, version);
  return row && storedVersion(sql.texts, key, row);
}

/** All versions of an artifact, in order. */
export async function allVersions(sql: Sql, key: ArtifactKey): Promise<StoredVersion[]> {
  const rows = await sql.all<VersionRow>(...statements(sql).all(artifactValues(key)));
  return mapTexts(rows, (row) => storedVersion(sql.texts, key, row));
}

export async function versionNumbers(sql: Sql, key: ArtifactKey): Promise<number[]> {
  const rows = await sql.all<{ version: number }>(...statements(sql).numbers(artifactValues(key)));
  return rows.map(({ version }) => numberOf(version));
}

/** The names of a session's artifacts and of its user's, ordered by their bytes. */
export async function artifactNames(sql: Sql, session: SessionKey): Promise<{ ofSession: string[]; ofUser: string[] }> {
  const rows = await sql.all<{ session_id: string; filename: string }>(statements(sql).names, sessionValues(session));
  const of = (sessionId: string) =>
    rows.filter((row) => textOf(row.session_id) === sessionId).map((row) => textOf(row.filename));
  return { ofSession: of(session.sessionId), ofUser: of('') };
}

export async function deleteArtifact(sql: Sql, key: ArtifactKey): Promise<void> {
  await sql.run(...statements(sql).delete(artifactValues(key)));
}

/** @param version undefined for the newest. */
export async function versionRow(
  sql: Sql,
  key: ArtifactKey,
  version?: number,
  { withData = false } = {},
): Promise<VersionRow | undefined> {
  if (version !== undefined && !isVersion(version)) return undefined;
  const { of, newest } = withData ? statements(sql).oneWithData : statements(sql).one;
  const values = artifactValues(key);
  const [row] = await sql.all<VersionRow>(...(version === undefined ? newest(values) : of({ ...values, version })));
  return row;
}

const statements = perTables(({ dialect, tables: { artifacts, artifactVersions, artifactParts, select } }: Sql) => {
  const insert = (time: string) =>
    named(`insert into ${artifactVersions} (${ARTIFACT_COLUMNS}, version, info, data, create_time)
      values (${ARTIFACT_NAMES}, :version, :info, :data, ${time})`);
  const all = (columns = '') =>
    `select version, ${select.info} as info, create_time${columns} from ${artifactVersions} where ${IN_ARTIFACT}` as const;
  const one = (columns?: string) => ({
    of: named(`${all(columns)} and version = :version`),
    newest: named(`${all(columns)} order by version desc limit 1`),
  });
  const ofParts = `from ${artifactParts} where ${IN_ARTIFACT} and version = :version` as const;
  return {
    insertNow: insert(dialect.sql.now),
    insertAt: insert(':createTime'),
    insertPart: named(`insert into ${artifactParts} (${ARTIFACT_COLUMNS}, version, part, data)
      values (${ARTIFACT_NAMES}, :version, :part, :data)`),
    one: one(),
    oneWithData: one(`, ${select.bytes} as data`),
    all: named(`${all()} order by version`),
    numbers: named(`select version from ${artifactVersions} where ${IN_ARTIFACT} order by version`),
    parts: named(`select ${select.bytes} as data ${ofParts} order by part`),
    part: named(`select ${select.bytes} as data,
      (select create_time from ${artifactVersions} where ${IN_ARTIFACT} and version = :version) as create_time
      ${ofParts} and part = :part`),
    list: (where: string) => `select a.session_id as session_id, a.filename as filename, v.version as version,
      ${select.info.replace('info', 'v.info')} as info, v.create_time as create_time
      from ${artifacts} as a join ${artifactVersions} as v on ${isSameSession('v', 'a')}
        and v.filename = a.filename and v.version = a.last_version
      where ${where} order by a.session_id, a.filename limit ?`,
    page: (where: string) => `select ${ARTIFACT_COLUMNS}, version from ${artifactVersions}
      where ${where} order by user_id, session_id, filename, version limit ?`,
    names: `select session_id, filename from ${artifacts} where app_name = ? and user_id = ? and session_id in (?, '')
      order by filename`,
    delete: named(`delete from ${artifacts} where ${IN_ARTIFACT}`),
  };
});
