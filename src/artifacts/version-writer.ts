import { isWhole, type NewVersion } from './artifact-content.js';
import { artifactValues, insertVersion, versionRow } from './artifact-store.js';
import {
  DamagedVersion,
  encodedVersion,
  infoOf,
  withEncoding,
  type EncodedVersion,
  type VersionKey,
} from './stored-version.js';
import type { Sql } from '../database/dialects/dialect.js';
import { ARTIFACT_COLUMNS, ARTIFACT_NAMES, IN_ARTIFACT, insertIntoArtifacts } from '../database/sql/columns.js';
import { named, numberOf, perTables } from '../database/sql/values.js';
import { aRecord, aString, aTime, anything, object } from '../model/arguments.js';
import { InvalidArgumentError } from '../model/errors.js';
import { encode } from '../model/json.js';
import { checkKeys } from '../model/keys.js';
import type { ArtifactNames, ArtifactPartRecord, ArtifactRecord } from '../model/records.js';
import type { StoredTexts } from '../model/stored-texts.js';
import { RECORDED_LEVELS, inRecord, wholeFrom, type ImportRun, type RecordWriter } from '../owned/record-writer.js';

const ofVersion = { ...inRecord, filename: anything, version: wholeFrom(0) };
const checkVersion = object<ArtifactRecord>(
  { ...ofVersion, createTime: aTime, parts: wholeFrom(0), info: aRecord },
  ...(['version', 'createTime', 'parts', 'info'] as const),
);
const checkPart = object<ArtifactPartRecord>(
  { ...ofVersion, part: wholeFrom(0), data: aString },
  ...(['version', 'part', 'data'] as const),
);

/** A version whose parts are coming. */
interface IncomingVersion extends NewVersion {
  key: VersionKey;
  createTime: number;
  /** How many parts it will have. */
  count: number;
  parts: Buffer[];
}

/** Writes versions of artifacts, each with its parts. */
export class VersionWriter implements RecordWriter {
  readonly types = ['artifact', 'part'] as const;
  readonly #run: ImportRun;
  #version: IncomingVersion | undefined;
  /** The artifact that stays as it is here: the import also leaves out its later versions, which belong to the other one. */
  #kept: string | undefined;

  constructor(run: ImportRun) {
    this.#run = run;
  }

  check(record: { type: 'artifact' | 'part' }, name: string): () => Promise<void> {
    if (record.type === 'part') {
      const { part, data, ...names } = checkPart(record, name);
      const key = versionOf(names);
      return () => this.#addPart(key, part, Buffer.from(data, 'base64'), name);
    }
    const { createTime, parts: count, info, ...names } = checkVersion(record, name);
    const json = encode(info, 'info', RECORDED_LEVELS).json;
    const version = { key: versionOf(names), createTime, count, info: json, parts: [] };
    return async () => {
      await this.end();
      this.#version = version;
      await this.#writeIfWhole(version);
    };
  }

  async #addPart(key: VersionKey, part: number, data: Buffer, name: string): Promise<void> {
    const version = this.#version;
    if (!version || JSON.stringify(version.key) !== JSON.stringify(key) || part !== version.parts.length)
      throw new InvalidArgumentError(
        `${name} is a part of an artifact, but the artifact's record or an earlier part is missing.`,
      );
    version.parts.push(data);
    await this.#writeIfWhole(version);
  }

  async #writeIfWhole({ key, createTime, count, info, parts }: IncomingVersion): Promise<void> {
    if (parts.length < count) return;
    this.drop();
    const artifact = JSON.stringify({ ...key, version: 0 });
    if (artifact === this.#kept) return;
    const here = await this.#run.write((sql) =>
      importVersion(sql, key, createTime, encodedImport(sql.texts, key, { info, parts })),
    );
    if (here === 'written') this.#run.count('artifactVersions', 1);
    if (here !== 'another') return;
    if (this.#run.rules.onExisting === 'error')
      throw new InvalidArgumentError(`${nameOf(key)} exists here, and was saved at another time.`);
    this.#kept = artifact;
    this.#run.count('skipped', 1);
  }

  end(): Promise<void> {
    const version = this.#version;
    if (!version) return Promise.resolve();
    const { key, count, parts } = version;
    throw new InvalidArgumentError(`${nameOf(key)} has only ${parts.length} of its ${count} parts.`);
  }

  drop(): void {
    this.#version = undefined;
  }
}

/** @throws InvalidKeyError for names that no version can have. */
function versionOf({ appName, userId, sessionId, filename, version }: ArtifactNames): VersionKey {
  checkKeys({ appName, userId, ...(sessionId !== '' && { sessionId }), filename });
  return { appName, userId, sessionId, filename, version };
}

const nameOf = ({ filename, version }: VersionKey) => `Version ${version} of artifact ${filename}`;

/**
 * @returns a version of an export as it will be stored.
 * @throws InvalidArgumentError if its content does not match its hash.
 */
function encodedImport(texts: StoredTexts, key: VersionKey, { info: text, parts }: NewVersion): EncodedVersion {
  const info = infoOf(text);
  if (info instanceof DamagedVersion || info.content?.isEncoded)
    throw new InvalidArgumentError(`${nameOf(key)} has no info of a plain artifact.`);
  if (!isWhole({ info, parts })) throw new InvalidArgumentError(`${nameOf(key)} has other content than its info says.`);
  return encodedVersion(texts, key, withEncoding({ info, parts }, !texts.codec.isNone));
}

/**
 * Writes a version of an export, for a transaction.
 *
 * @returns `stored` if it was here already, and `another` if a version here that was saved at another time has its number.
 */
async function importVersion(
  sql: Sql,
  key: VersionKey,
  createTime: number,
  encoded: EncodedVersion,
): Promise<'written' | 'stored' | 'another'> {
  const { version } = key;
  const values = { ...artifactValues(key), version, createTime };
  const { insertOrLock, raise } = statements(sql);
  // Locks the artifact's row first, as a save and a deletion do.
  await sql.run(...insertOrLock(values));
  const stored = await versionRow(sql, key, version);
  if (stored) return numberOf(stored.create_time) === createTime ? 'stored' : 'another';
  await sql.run(...raise(values));
  await insertVersion(sql, key, encoded, createTime);
  return 'written';
}

const statements = perTables(({ dialect, tables: { artifacts } }: Sql) => ({
  insertOrLock: named(`${insertIntoArtifacts(artifacts)} values (${ARTIFACT_NAMES}, :version, :createTime)
    ${dialect.sql.onSameKey(ARTIFACT_COLUMNS, ['filename'])}`),
  raise: named(`update ${artifacts} set last_version = :version, update_time = :createTime
    where ${IN_ARTIFACT} and last_version < :version`),
}));
