import type { Sql } from '../database/dialects/dialect.js';
import { leaseIsFree } from '../database/dialects/session-rows.js';
import { IN_ARTIFACT, SESSION_KEY, isSameSession } from '../database/sql/columns.js';
import { named, perTables, textOf } from '../database/sql/values.js';
import {
  ownedTable,
  type EncodedRows,
  type OwnedRows,
  type Owner,
  type ExportReader,
  type RecodedRow,
  type Sum,
} from '../owned/owned-rows.js';
import { nextApp } from '../database/statements/walk.js';
import { nameOfUsers } from '../model/artifact-name.js';
import { encodingOf, encodingOfBytes } from '../model/stored-texts.js';
import { decode } from '../model/json.js';
import { pagesOf } from '../model/pages.js';
import type { ArtifactPartRecord, ArtifactRecord } from '../model/records.js';
import { artifactValues, inRow, readContent, versionPage } from './artifact-store.js';
import {
  DamagedVersion,
  encodedVersion,
  undamaged,
  withEncoding,
  type EncodedVersion,
  type VersionKey,
} from './stored-version.js';
import { VersionWriter } from './version-writer.js';

const rows = ownedTable({
  table: ({ tables }) => tables.artifacts,
  key: ['session_id', 'filename'],
  // Before the sessions, whose deletion would delete them without counting them.
  precedeSessions: true,
  // The session stays, and whoever has its lease reads them.
  only: ({ tables, dialect }, { includesLeased }) =>
    includesLeased
      ? undefined
      : `not exists (select 1 from ${tables.sessions} as s where ${isSameSession('s', 'e')} and not ${leaseIsFree(dialect.sql)})`,
});

const texts: EncodedRows<VersionKey> = {
  together: 1,
  place: ({ tables }) => ({
    table: tables.artifactVersions,
    selected: tables.select.info,
    order: [...SESSION_KEY, 'filename', 'version'],
  }),
  page: versionPage,
  recoded: ({ read }, keys) => Promise.all(keys.map((key) => read((sql) => recodedVersion(sql, key)))),
};

/** Artifacts with all their versions. */
export const ownedArtifacts: OwnedRows = {
  name: 'artifacts',
  isCounted: true,
  nextApp: (sql, after) => nextApp(sql, after, 'artifacts'),
  // No database reads the contents for this.
  sums: ({ tables }) => ({
    artifacts: [['count(*)', tables.artifacts]],
    artifactBytes: [tables.artifactVersions, tables.artifactParts].map((table): Sum => [
      'coalesce(sum(length(data)), 0)',
      table,
    ]),
  }),
  rows,
  texts: [texts],
  records: { read: artifactRecords, writer: (run) => new VersionWriter(run) },
};

/** How many versions one query reads. */
const PAGE = 200;

/** Has one version in memory at a time. */
async function* artifactRecords(
  { run, snapshot }: ExportReader,
  { appName, userId }: Owner,
): AsyncGenerator<ArtifactRecord | ArtifactPartRecord> {
  const versions = (after?: VersionKey) => run((sql) => versionPage(sql, { appName, userId }, after, PAGE));
  for await (const page of pagesOf(PAGE, versions)) {
    for (const key of page) {
      const found = await snapshot((sql) => readContent(sql, key, key.version));
      // It was deleted since the page was read.
      if (!found) continue;
      const filename = key.sessionId === '' ? nameOfUsers(key.filename) : key.filename;
      const content = undamaged(filename, key.version, found.content);
      const { createTime } = found;
      const { parts } = content;
      const info = decode(withEncoding(content, false).info)?.value as Record<string, unknown>;
      yield { type: 'artifact', ...key, createTime, parts: parts.length, info };
      for (const [part, data] of parts.entries()) yield { type: 'part', ...key, part, data: data.toString('base64') };
    }
  }
}

async function recodedVersion(sql: Sql, key: VersionKey): Promise<RecodedRow> {
  const found = await readContent(sql, key, key.version);
  if (!found) return undefined;
  const { content, row, parts } = found;
  if (content instanceof DamagedVersion) return 'unreadable';
  const isFramed = !sql.texts.codec.isNone;
  const encoded = encodedVersion(sql.texts, key, withEncoding(content, isFramed));
  const read = textOf(row.info);
  const { info } = content;
  const isSame =
    encodingOf(encoded.info) === encodingOf(read) &&
    (info.content?.isEncoded ?? isFramed) === isFramed &&
    (!isFramed || parts.every((each, i) => encodingOfBytes(each) === encodingOfBytes(encoded.parts[i])));
  return isSame
    ? undefined
    : { bytes: info.content?.size ?? 0, replace: (tx: Sql) => replaceVersion(tx, key, read, encoded) };
}

/** @param read the stored row without its content. It contains the content's hash, so if the row is equal, so is the content. */
async function replaceVersion(
  sql: Sql,
  key: VersionKey,
  read: string,
  { info, parts }: EncodedVersion,
): Promise<boolean> {
  const { lock, update, updatePart } = statements(sql);
  const id = { ...artifactValues(key), version: key.version };
  const [row] = await sql.all<{ info: string }>(...lock(id));
  if (row?.info !== read) return false;
  await sql.run(...update({ ...id, info, data: inRow(parts) }));
  if (parts.length > 1) for (const [part, data] of parts.entries()) await sql.run(...updatePart({ ...id, part, data }));
  return true;
}

const statements = perTables(({ dialect, tables: { artifactVersions, artifactParts, select } }: Sql) => {
  const where = `${IN_ARTIFACT} and version = :version` as const;
  return {
    lock: named(`select ${select.info} as info from ${artifactVersions} where ${where}${dialect.sql.skipLocked ?? ''}`),
    update: named(`update ${artifactVersions} set info = :info, data = :data where ${where}`),
    updatePart: named(`update ${artifactParts} set data = :data where ${where} and part = :part`),
  };
});
