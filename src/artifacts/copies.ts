import type { Event } from '@google/adk';
import type { Database } from '../database/calls/database.js';
import type { Sql } from '../database/dialects/dialect.js';
import {
  ARTIFACT_COLUMNS,
  ARTIFACT_WHERE as where,
  SESSION_WHERE,
  insertIntoArtifacts,
  perTables,
  placeholders,
  sessionValues,
  numberOf,
} from '../database/sql/tables.js';
import { DamagedArtifactError } from '../model/errors.js';
import { isKey, type SessionKey } from '../model/keys.js';
import { isOfUser } from './artifact-name.js';
import { insertVersion, isVersion, readContent, valuesOf } from './artifact-store.js';
import {
  Damaged,
  encodedVersion,
  withEncoding,
  type ArtifactKey,
  type EncodedVersion,
  type VersionKey,
} from './stored-version.js';

/** Versions by the names of their artifacts. */
type NamedVersions = ReadonlyMap<string, ReadonlySet<number>>;

/** A version, encoded for another session. */
export interface EncodedCopy {
  key: VersionKey;
  encoded: EncodedVersion;
  createTime: number;
}

/** @returns the versions of a session's own artifacts that its events name. */
export function versionsNamedBy(events: readonly Event[]): NamedVersions {
  const named = new Map<string, Set<number>>();
  for (const { actions } of events)
    for (const [filename, version] of Object.entries(actions?.artifactDelta ?? {})) {
      if (isOfUser(filename) || !isKey('filename', filename) || !isVersion(version)) continue;
      named.set(filename, (named.get(filename) ?? new Set()).add(version));
    }
  return named;
}

/**
 * Encodes versions for another session, to which a codec binds them. Keeps all of them in memory.
 *
 * @throws DamagedArtifactError if one cannot be decoded.
 */
export async function encodedCopies(
  database: Database,
  from: SessionKey,
  to: SessionKey,
  named: NamedVersions,
): Promise<EncodedCopy[]> {
  const copies: EncodedCopy[] = [];
  for (const [filename, versions] of named) {
    for (const version of versions) {
      const found = await readContent(database, { ...from, filename }, version);
      if (!found) continue;
      const { content, createTime } = found;
      if (content instanceof Damaged) throw new DamagedArtifactError(filename, version, content.what);
      const key = { ...to, filename, version };
      const encoded = await database.code((texts) => encodedVersion(texts, key, withEncoding(content, true)));
      copies.push({ key, encoded, createTime });
    }
  }
  return copies;
}

/**
 * Copies versions of a session's artifacts into a new session of the same user, where they keep their numbers.
 *
 * @param named the versions of each artifact; missing ones are left out.
 * @param copies these versions, encoded for the new session; undefined without a codec.
 */
export async function copyVersions(
  sql: Sql,
  from: SessionKey,
  to: SessionKey,
  named: NamedVersions,
  copies?: readonly EncodedCopy[],
): Promise<void> {
  if (named.size === 0) return;
  const text = texts(sql);
  // Somebody may have saved artifacts under this id before the session existed.
  await sql.run(text.deleteOfSession, sessionValues(to));
  for (const [filename, versions] of named) {
    if (copies) {
      const encoded = copies.filter(({ key }) => key.filename === filename);
      await insertCopies(sql, { ...to, filename }, encoded);
      continue;
    }
    const source = valuesOf({ ...from, filename });
    // Nobody may delete it between the statements.
    await sql.run(text.lockArtifact, source);
    const list = `(${placeholders(versions.size)})`;
    const { affectedRows } = await sql.run(text.copyArtifact(list), [to.sessionId, ...source, ...versions]);
    if (affectedRows === 0) continue;
    const uploads = await sql.all<{ upload: number }>(text.uploads(list), [...source, ...versions]);
    const all = [...versions, ...uploads.map(({ upload }) => numberOf(upload))];
    for (const copy of text.copyVersions)
      await sql.run(copy(`(${placeholders(all.length)})`), [to.sessionId, ...source, ...all]);
  }
}

/** Does not look at the rows that they were read from, which somebody may have changed since. */
async function insertCopies(sql: Sql, to: ArtifactKey, copies: readonly EncodedCopy[]): Promise<void> {
  if (copies.length === 0) return;
  const version = Math.max(...copies.map(({ key }) => key.version));
  const time = Math.max(...copies.map(({ createTime }) => createTime));
  const text = `${insertIntoArtifacts(sql.tables.artifacts)} values (?, ?, ?, ?, ?, ?)`;
  await sql.run(text, [...valuesOf(to), version, time]);
  for (const { key, encoded, createTime } of copies) await insertVersion(sql, key, encoded, createTime);
}

const texts = perTables(({ dialect, tables: { artifacts, artifactVersions, artifactParts } }: Sql) => {
  const copy =
    (into: string, selected: string, from: string, columns = selected) =>
    (versions: string) =>
      `insert into ${into} (${ARTIFACT_COLUMNS}, ${columns})
      select app_name, user_id, ?, filename, ${selected} from ${from} where ${where} and version in ${versions}`;
  const copyArtifact = copy(artifacts, 'max(version), max(create_time)', artifactVersions, 'last_version, update_time');
  return {
    lockArtifact: `update ${artifacts} set update_time = update_time where ${where}`,
    deleteOfSession: `delete from ${artifacts} where ${SESSION_WHERE}`,
    uploads: (versions: string) => `select upload from ${artifactVersions} where ${where} and version in ${versions}
      and upload is not null${dialect.sql.underLock}`,
    copyArtifact: (versions: string) => `${copyArtifact(versions)} group by app_name, user_id, filename`,
    copyVersions: [
      copy(artifactVersions, 'version, info, data, upload, parts, create_time', artifactVersions),
      copy(artifactParts, 'version, part, data', artifactParts),
    ],
  };
});
