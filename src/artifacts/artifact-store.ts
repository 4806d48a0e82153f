import type { Event } from '@google/adk';
import type { Sql } from '../database/dialects/dialect.js';
import { bytesOf, numberOf, textOf } from '../database/sql/row-values.js';
import { ARTIFACT_COLUMNS, SESSION_WHERE, placeholders, sessionValues, type Tables } from '../database/sql/tables.js';
import type { Stores } from '../database/stores/stores.js';
import { Undecodable, ofArtifact } from '../model/codec.js';
import { decode } from '../model/event-codec.js';
import { isRecord } from '../model/objects.js';
import { DamagedArtifactError } from '../model/errors.js';
import { isKey, type SessionKey } from '../model/keys.js';
import type { StoredTexts } from '../model/stored-texts.js';
import { isOfUser } from './artifact-name.js';
import { partOf, type ArtifactInfo, type NewVersion, type Part } from './artifact-content.js';

/** Names an artifact as it is stored: one of the user has no session, and no `user:`. */
export interface ArtifactKey extends SessionKey {
  filename: string;
}

/** A version without its content. */
export interface StoredVersion {
  version: number;
  /** Or what is wrong with it. */
  info: ArtifactInfo | Damaged;
  /** In ms since 1970, by the database's clock. */
  createTime: number;
}

/** Why a version cannot be read. */
export class Damaged {
  constructor(readonly what: string) {}
}

const CHANGED = new Damaged('a part of its content is missing, or was changed');

/** A version with its content, decoded. */
interface Content {
  info: ArtifactInfo;
  parts: readonly Buffer[];
}

/** A version as it is stored. */
interface EncodedVersion {
  info: string;
  parts: readonly Uint8Array[];
}

/** Versions by the names of their artifacts. */
type NamedVersions = ReadonlyMap<string, ReadonlySet<number>>;

/** The column does not take a larger one. */
const MAX_VERSION = 2 ** 31 - 1;

/** The statements of artifacts. The text of each is built once for the tables of one ORM and schema. */
export class ArtifactStore {
  static readonly #all = new WeakMap<Stores, ArtifactStore>();

  readonly #stores: Stores;
  readonly #text: ReturnType<typeof texts>;

  static of(stores: Stores): ArtifactStore {
    const store = ArtifactStore.#all.get(stores) ?? new ArtifactStore(stores);
    ArtifactStore.#all.set(stores, store);
    return store;
  }

  private constructor(stores: Stores) {
    this.#stores = stores;
    this.#text = texts(stores.dialect.sql.now, stores.tables);
  }

  /**
   * Saves a version under the lock of the artifact's row, which numbers it.
   *
   * @returns the number.
   */
  async save(sql: Sql, key: ArtifactKey, given: NewVersion): Promise<number> {
    const { dialect, tables } = this.#stores;
    const values = valuesOf(key);
    const version = await dialect.operations.nextVersion(sql, tables.artifacts, values, dialect.sql.now);
    // What is encoded is bound to the number.
    const { info, parts } = sql.texts.codec.isNone
      ? given
      : sql.texts.all(() => encoded(sql.texts, key, version, given));
    await dialect.limits?.refuseTooLarge(sql, info);
    await this.#insert(sql, this.#text.insertVersion, [...values, version], { info, parts });
    return version;
  }

  /** @param id the values of the version's primary key. */
  async #insert(sql: Sql, text: string, id: unknown[], { info, parts }: EncodedVersion, ...time: number[]) {
    const isInRow = parts.length < 2;
    await sql.run(text, [...id, info, isInRow ? (parts[0] ?? null) : null, ...time]);
    if (!isInRow) for (const [part, data] of parts.entries()) await sql.run(this.#text.insertPart, [...id, part, data]);
  }

  /**
   * Copies versions of a session's artifacts into a new session, where they keep their numbers.
   *
   * @param named the versions of each artifact; those that are not there are left out.
   * @throws DamagedArtifactError where a version has to be decoded, and cannot be.
   */
  async copy(sql: Sql, from: SessionKey, to: SessionKey, named: NamedVersions): Promise<void> {
    if (named.size === 0) return;
    // While there was no session of this id, somebody may have saved artifacts under it.
    await sql.run(this.#text.deleteOfSession, sessionValues(to));
    for (const [filename, versions] of named) {
      const source = { ...from, filename };
      const list = `(${placeholders(versions.size)})`;
      const values = [...sessionValues(to), ...valuesOf(source), ...versions];
      const { affectedRows } = await sql.run(this.#text.copyArtifact(list), values);
      if (affectedRows === 0) continue;
      if (sql.texts.codec.isNone) {
        for (const copy of this.#text.copyVersions) await sql.run(copy(list), values);
      } else for (const version of versions) await this.#copyDecoded(sql, source, { ...to, filename }, version);
    }
  }

  /** What is encoded is bound to its session. */
  async #copyDecoded(sql: Sql, from: ArtifactKey, to: ArtifactKey, version: number): Promise<void> {
    const row = await this.#row(sql, this.#text.withData, from, version);
    if (!row) return;
    const { info, createTime } = this.#stored(sql, from, row);
    const content = info instanceof Damaged ? info : await this.#contentOf(sql, from, version, info, row.data);
    if (content instanceof Damaged) throw new DamagedArtifactError(from.filename, version, content.what);
    const { texts } = sql;
    const copied = texts.all(() => encoded(texts, to, version, withEncoding(content)));
    await this.#insert(sql, this.#text.insertVersionAt, [...valuesOf(to), version], copied, createTime);
  }

  /**
   * @param version undefined for the newest.
   * @returns undefined when there is none.
   */
  async load(
    sql: Sql,
    key: ArtifactKey,
    version?: number,
  ): Promise<{ version: number; part: Part | Damaged } | undefined> {
    for (;;) {
      const row = await this.#row(sql, this.#text.withData, key, version);
      if (!row) return undefined;
      const { info, version: found } = this.#stored(sql, key, row);
      const content = info instanceof Damaged ? info : await this.#contentOf(sql, key, found, info, row.data);
      const part = content instanceof Damaged ? content : (partOf(content.info, content.parts) ?? CHANGED);
      if (!(part instanceof Damaged)) return { version: found, part };
      // Between two statements somebody may have deleted it, and saved another one.
      const again = await this.#row(sql, this.#text.one, key, found);
      if (again && numberOf(again.create_time) === numberOf(row.create_time)) return { version: found, part };
    }
  }

  /** @param data of the version's row. */
  async #contentOf(
    sql: Sql,
    key: ArtifactKey,
    version: number,
    info: ArtifactInfo,
    data: unknown,
  ): Promise<Content | Damaged> {
    const stored = data === null ? await this.#parts(sql, key, version) : [bytesOf(data)];
    const known = { ...key, origin: '' };
    const { texts } = sql;
    const isEncoded = info.content?.isEncoded ?? false;
    if (!isEncoded && stored.length > 0 && texts.codec.required.length > 0)
      return new Damaged(`its content is not encoded with ${texts.codec.required.join(', ')}`);
    const parts: readonly (Uint8Array | Undecodable)[] = isEncoded
      ? texts.all(() => stored.map((each, part) => texts.decodeBytes(each, ofArtifact(known, version, part))))
      : stored;
    const undecodable = parts.find((each) => each instanceof Undecodable);
    if (undecodable) return new Damaged(`its content is ${undecodable.encoding}`);
    return { info, parts: parts.map((each) => bytesOf(each)) };
  }

  async #parts(sql: Sql, key: ArtifactKey, version: number): Promise<Buffer[]> {
    const rows = await sql.all<{ data: unknown }>(this.#text.parts, [...valuesOf(key), version]);
    return rows.map((row) => bytesOf(row.data));
  }

  /** @param version undefined for the newest. */
  async find(sql: Sql, key: ArtifactKey, version?: number): Promise<StoredVersion | undefined> {
    const row = await this.#row(sql, this.#text.one, key, version);
    return row && this.#stored(sql, key, row);
  }

  /** All versions of an artifact, in order. */
  async versions(sql: Sql, key: ArtifactKey): Promise<StoredVersion[]> {
    const rows = await sql.all<VersionRow>(this.#text.all, valuesOf(key));
    return sql.texts.all(() => rows.map((row) => this.#stored(sql, key, row)));
  }

  async numbers(sql: Sql, key: ArtifactKey): Promise<number[]> {
    const rows = await sql.all<{ version: number }>(this.#text.numbers, valuesOf(key));
    return rows.map(({ version }) => numberOf(version));
  }

  /** The names of a session's artifacts, and those of its user; in the order of their bytes. */
  async names(sql: Sql, session: SessionKey): Promise<{ ofSession: string[]; ofUser: string[] }> {
    const rows = await sql.all<{ session_id: string; filename: string }>(this.#text.names, sessionValues(session));
    const of = (sessionId: string) =>
      rows.filter((row) => textOf(row.session_id) === sessionId).map((row) => textOf(row.filename));
    return { ofSession: of(session.sessionId), ofUser: of('') };
  }

  async delete(sql: Sql, key: ArtifactKey): Promise<void> {
    await sql.run(this.#text.delete, valuesOf(key));
  }

  /** @returns the keys of a user's artifacts, in sessions and not, so many of them. */
  async ofUser(sql: Sql, appName: string, userId: string, limit: number): Promise<ArtifactKey[]> {
    const values = [appName, userId, limit];
    const rows = await sql.all<{ session_id: string; filename: string }>(this.#text.ofUser, values);
    return rows.map((row) => ({
      appName,
      userId,
      sessionId: textOf(row.session_id),
      filename: textOf(row.filename),
    }));
  }

  async countOfUser(sql: Sql, appName: string, userId: string): Promise<number> {
    const [row] = await sql.all<{ total: number | string }>(this.#text.countOfUser, [appName, userId]);
    return numberOf(row?.total);
  }

  async #row(sql: Sql, { of, newest }: OneVersion, key: ArtifactKey, version?: number) {
    if (version !== undefined && !isVersion(version)) return undefined;
    const values = valuesOf(key);
    const rows =
      version === undefined ? sql.all<VersionRow>(newest, values) : sql.all<VersionRow>(of, [...values, version]);
    return (await rows)[0];
  }

  #stored(sql: Sql, key: ArtifactKey, row: VersionRow): StoredVersion {
    const version = numberOf(row.version);
    const known = { ...key, origin: '' };
    const { texts } = sql;
    const info = texts.all(() => texts.decode(textOf(row.info), () => ofArtifact(known, version, 'info')));
    return { version, info: infoOf(info), createTime: numberOf(row.create_time) };
  }
}

const isVersion = (version: number) => Number.isInteger(version) && version >= 0 && version <= MAX_VERSION;

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

/** A version as a codec is to encode it. */
const withEncoding = ({ info, parts }: Content): NewVersion => ({
  info: JSON.stringify({ ...info, ...(info.content && { content: { ...info.content, isEncoded: true } }) }),
  parts,
});

const valuesOf = ({ appName, userId, sessionId, filename }: ArtifactKey) => [appName, userId, sessionId, filename];

function infoOf(text: string | Undecodable): ArtifactInfo | Damaged {
  if (text instanceof Undecodable) return new Damaged(`what is stored of it is ${text.encoding}`);
  const info = decode(text)?.value;
  return isRecord(info) && isRecord(info['artifact'])
    ? (info as unknown as ArtifactInfo)
    : new Damaged('what is stored of it cannot be read');
}

/** Within `texts.all`. */
function encoded(texts: StoredTexts, key: ArtifactKey, version: number, { info, parts }: NewVersion): EncodedVersion {
  const known = { ...key, origin: '' };
  return {
    info: texts.encode(info, () => ofArtifact(known, version, 'info')),
    parts: parts.map((bytes, part) => texts.encodeBytes(bytes, ofArtifact(known, version, part))),
  };
}

interface VersionRow {
  version: number;
  info: string;
  create_time: number | string;
  /** Selected where the content is asked for. */
  data?: unknown;
}

/** Selects a version by its number, and the newest. */
interface OneVersion {
  of: string;
  newest: string;
}

function texts(now: string, { artifacts, artifactVersions, artifactParts, select }: Tables) {
  const where = `${SESSION_WHERE} and filename = ?`;
  const insertVersion = `insert into ${artifactVersions} (${ARTIFACT_COLUMNS}, version, info, data, create_time)
    values (?, ?, ?, ?, ?, ?, ?,`;
  const copy =
    (into: string, selected: string, from: string, columns = selected) =>
    (versions: string) =>
      `insert into ${into} (${ARTIFACT_COLUMNS}, ${columns})
      select ?, ?, ?, filename, ${selected} from ${from} where ${where} and version in ${versions}`;
  const copyArtifact = copy(artifacts, 'max(version), max(create_time)', artifactVersions, 'last_version, update_time');
  const ofUser = `from ${artifacts} where app_name = ? and user_id = ?`;
  const selectVersion = (columns: string): OneVersion => {
    const from = `select version, ${select.info} as info, create_time${columns} from ${artifactVersions} where ${where}`;
    return { of: `${from} and version = ?`, newest: `${from} order by version desc limit 1` };
  };
  return {
    insertVersion: `${insertVersion} ${now})`,
    insertVersionAt: `${insertVersion} ?)`,
    insertPart: `insert into ${artifactParts} (${ARTIFACT_COLUMNS}, version, part, data) values (?, ?, ?, ?, ?, ?, ?)`,
    withData: selectVersion(`, ${select.bytes} as data`),
    one: selectVersion(''),
    all: `select version, ${select.info} as info, create_time from ${artifactVersions} where ${where} order by version`,
    numbers: `select version from ${artifactVersions} where ${where} order by version`,
    parts: `select ${select.bytes} as data from ${artifactParts} where ${where} and version = ? order by part`,
    names: `select session_id, filename from ${artifacts} where app_name = ? and user_id = ? and session_id in (?, '')
      order by filename`,
    delete: `delete from ${artifacts} where ${where}`,
    deleteOfSession: `delete from ${artifacts} where ${SESSION_WHERE}`,
    copyArtifact: (versions: string) => `${copyArtifact(versions)} group by filename`,
    copyVersions: [
      copy(artifactVersions, 'version, info, data, create_time', artifactVersions),
      copy(artifactParts, 'version, part, data', artifactParts),
    ],
    ofUser: `select session_id, filename ${ofUser} order by session_id, filename limit ?`,
    countOfUser: `select count(*) as total ${ofUser}`,
  };
}
