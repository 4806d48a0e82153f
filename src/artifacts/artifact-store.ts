import type { Event } from '@google/adk';
import type { Database } from '../database/calls/database.js';
import { encodedFirst } from '../database/calls/encoded-first.js';
import type { Dialect, Sql } from '../database/dialects/dialect.js';
import { bytesOf, numberOf, textOf } from '../database/sql/row-values.js';
import {
  ARTIFACT_COLUMNS,
  ARTIFACT_WHERE as where,
  SESSION_WHERE,
  insertIntoArtifacts,
  isSameSession,
  placeholders,
  sessionValues,
  type Tables,
} from '../database/sql/tables.js';
import { keysetAfter } from '../database/sql/keyset.js';
import { Undecodable, encodingOf, encodingOfBytes, isEncoded, ofArtifact } from '../model/codec.js';
import { decode } from '../model/event-codec.js';
import { isRecord } from '../model/objects.js';
import { DamagedArtifactError, InvalidArgumentError } from '../model/errors.js';
import { isKey, type SessionKey } from '../model/keys.js';
import { AS_STORED, type StoredTexts, type Undecoded } from '../model/stored-texts.js';
import { isOfUser, nameOfUsers } from './artifact-name.js';
import { isWhole, partOf, refuseLong, type ArtifactInfo, type NewVersion, type Part } from './artifact-content.js';

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
  /** The upload that has its parts. */
  upload?: number;
}

/** A version that is read a part at a time. */
export interface OpenedVersion extends StoredVersion {
  /** The content, if it is in the row of the version. */
  only?: Buffer | undefined;
}

/** The newest version of an artifact, without its content. */
interface ListedVersion extends StoredVersion {
  sessionId: string;
  filename: string;
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
  /** The upload that has the parts. */
  upload?: number | undefined;
}

/** Gives a version as it is stored under its number. */
export type EncodedFor = (found: { version: number }) => EncodedVersion;

/** A version as it is stored in another session. */
export interface EncodedCopy {
  key: VersionKey;
  encoded: EncodedVersion;
  createTime: number;
}

/** A version with its content, and what that was read from. */
interface ReadVersion extends StoredVersion {
  content: Content | Damaged;
  row: VersionRow;
  parts: readonly Buffer[];
}

/** One version of an artifact. */
export interface VersionKey extends ArtifactKey {
  version: number;
}

/** A version in the encoding that the codecs have now. */
export interface RecodedVersion {
  key: VersionKey;
  /** What is stored of it without its content. It has the hash of that, so that an equal one has equal content. */
  read: string;
  encoded: EncodedVersion;
  /** In bytes. */
  size: number;
}

/** A version as it is exported and imported. */
interface TransferredVersion {
  /** JSON of `ArtifactInfo`, or that as a codec has stored it. */
  info: string;
  parts: readonly Buffer[];
  createTime: number;
  /** The upload that has its parts, to which a codec has bound them. */
  upload?: number | undefined;
}

/** Versions by the names of their artifacts. */
type NamedVersions = ReadonlyMap<string, ReadonlySet<number>>;

/** The column does not take a larger one. */
const MAX_VERSION = 2 ** 31 - 1;

/** The statements of artifacts. The text of each is built once for the tables of one ORM and schema. */
export class ArtifactStore {
  static readonly #all = new WeakMap<Tables, ArtifactStore>();

  readonly #dialect: Dialect;
  readonly #tables: Tables;
  readonly #text: ReturnType<typeof texts>;

  static of({ dialect, tables }: Pick<Sql, 'dialect' | 'tables'>): ArtifactStore {
    const store = ArtifactStore.#all.get(tables) ?? new ArtifactStore(dialect, tables);
    ArtifactStore.#all.set(tables, store);
    return store;
  }

  private constructor(dialect: Dialect, tables: Tables) {
    this.#dialect = dialect;
    this.#tables = tables;
    const { now, skipLocked = '' } = dialect.sql;
    this.#text = texts(now, skipLocked, tables);
  }

  /**
   * Saves a version. What is encoded is bound to its number, so it is encoded for the next one.
   *
   * @param upload that has its parts.
   * @param write saves it, in a transaction.
   * @returns the number.
   */
  saving(
    database: Database,
    key: ArtifactKey,
    { given, upload }: { given: NewVersion; upload?: number | undefined },
    write: (textsFor: EncodedFor) => Promise<number>,
  ): Promise<number> {
    const next = async (sql: Sql) => {
      const [head] = await sql.all<{ last_version: number }>(this.#text.head, valuesOf(key));
      return { version: head ? numberOf(head.last_version) + 1 : 0 };
    };
    const coding = {
      foresee: async (found?: { version: number }) => found ?? database.run(next),
      encode: (texts: StoredTexts, { version }: { version: number }) =>
        encodedVersion(texts, key, version, given, upload),
    };
    return encodedFirst(database, coding, write);
  }

  /** Saves a version under the lock of the artifact's row, which numbers it. @returns the number. */
  async save(sql: Sql, key: ArtifactKey, textsFor: EncodedFor): Promise<number> {
    const dialect = this.#dialect;
    const values = valuesOf(key);
    const version = await dialect.operations.nextVersion(sql, this.#tables.artifacts, values, dialect.sql.now);
    const encoded = textsFor({ version });
    await dialect.limits?.refuseTooLarge(sql, encoded.info);
    await this.#insert(sql, this.#text.insertVersion, [...values, version], encoded);
    return version;
  }

  /** @param id the values of the version's primary key. */
  async #insert(sql: Sql, text: string, id: unknown[], { info, parts, upload }: EncodedVersion, ...time: number[]) {
    const isInRow = parts.length < 2;
    await sql.run(text, [...id, info, isInRow ? (parts[0] ?? null) : null, upload ?? null, ...time]);
    if (!isInRow) await this.insertParts(sql, upload === undefined ? id : [...id.slice(0, -1), upload], 0, parts);
  }

  /**
   * @param id the values of the primary key of their version or upload.
   * @param first the number of the first of them.
   */
  async insertParts(sql: Sql, id: unknown[], first: number, parts: readonly Uint8Array[]): Promise<void> {
    for (const [part, data] of parts.entries()) await sql.run(this.#text.insertPart, [...id, first + part, data]);
  }

  /**
   * Copies versions of a session's artifacts into a new session of the same user, where they keep their numbers.
   *
   * @param named the versions of each artifact; those that are not there are left out.
   * @param copies those versions, encoded for the new session; undefined without a codec.
   */
  async copy(
    sql: Sql,
    from: SessionKey,
    to: SessionKey,
    named: NamedVersions,
    copies?: readonly EncodedCopy[],
  ): Promise<void> {
    if (named.size === 0) return;
    // While there was no session of this id, somebody may have saved artifacts under it.
    await sql.run(this.#text.deleteOfSession, sessionValues(to));
    for (const [filename, versions] of named) {
      const source = { ...from, filename };
      const list = `(${placeholders(versions.size)})`;
      const values = [to.sessionId, ...valuesOf(source), ...versions];
      const { affectedRows } = await sql.run(this.#text.copyArtifact(list), values);
      if (affectedRows === 0) continue;
      if (!copies) {
        const uploads = await sql.all<{ upload: number }>(this.#text.uploads(list), [...valuesOf(source), ...versions]);
        const all = [...versions, ...uploads.map(({ upload }) => numberOf(upload))];
        for (const copy of this.#text.copyVersions)
          await sql.run(copy(`(${placeholders(all.length)})`), [to.sessionId, ...valuesOf(source), ...all]);
      }
      for (const { key, encoded, createTime } of copies?.filter(({ key }) => key.filename === filename) ?? [])
        await this.#insert(sql, this.#text.insertVersionAt, [...valuesOf(key), key.version], encoded, createTime);
    }
  }

  /**
   * Encodes versions for another session, to which a codec binds them. All of them are in memory.
   *
   * @throws DamagedArtifactError if one cannot be decoded.
   */
  async encodedCopies(
    database: Database,
    from: SessionKey,
    to: SessionKey,
    named: NamedVersions,
  ): Promise<EncodedCopy[]> {
    const copies: EncodedCopy[] = [];
    for (const [filename, versions] of named) {
      for (const version of versions) {
        const found = await this.#content(database, { ...from, filename }, version);
        if (!found) continue;
        const { content, createTime } = found;
        if (content instanceof Damaged) throw new DamagedArtifactError(filename, version, content.what);
        const key = { ...to, filename, version };
        const copied = withEncoding(content, true);
        const encoded = await database.code((texts) => encodedVersion(texts, key, version, copied));
        copies.push({ key, encoded, createTime });
      }
    }
    return copies;
  }

  /**
   * @param version undefined for the newest.
   * @returns undefined when there is none.
   * @throws ArtifactTooLargeError if a Part cannot have its content.
   */
  async load(
    database: Database,
    key: ArtifactKey,
    version?: number,
  ): Promise<{ version: number; part: Part | Damaged } | undefined> {
    for (;;) {
      const loaded = await this.#content(database, key, version, { refuse: refuseLong });
      if (!loaded) return undefined;
      const { version: found, content, createTime } = loaded;
      const part = content instanceof Damaged ? content : isWhole(content) ? partOf(content) : CHANGED;
      if (!(part instanceof Damaged)) return { version: found, part };
      // Between two statements somebody may have deleted it, and saved another one.
      const again = await database.run((sql) => this.#row(sql, this.#text.one, key, found));
      if (again && numberOf(again.create_time) === createTime) return { version: found, part };
    }
  }

  /**
   * @param refuse throws for what is not to be read.
   * @returns a version with its content; undefined if there is none.
   */
  async #content(
    database: Database,
    key: ArtifactKey,
    version?: number,
    { isLenient = false, refuse = () => {} }: { isLenient?: boolean; refuse?: (info: ArtifactInfo) => void } = {},
  ): Promise<ReadVersion | undefined> {
    const row = await database.run((sql) => this.#row(sql, this.#text.withData, key, version));
    if (!row) return undefined;
    const stored = await database.code((texts) => this.#stored(texts, key, row, isLenient));
    const { info } = stored;
    if (info instanceof Damaged) return { ...stored, row, parts: [], content: info };
    refuse(info);
    const parts = await (row.data === null ? database.run((sql) => this.#parts(sql, key, row)) : [bytesOf(row.data)]);
    const content = await database.code((texts) => this.#decoded(texts, key, stored, info, parts, { isLenient }));
    return { ...stored, row, parts, content };
  }

  /**
   * @param isLenient whether content is read, too, that lacks a codec which is required: to give it that codec.
   * @param first the number of the first part that was read.
   */
  #decoded(
    texts: StoredTexts,
    key: ArtifactKey,
    version: StoredVersion,
    info: ArtifactInfo,
    stored: readonly Buffer[],
    { isLenient = false, first = 0 } = {},
  ): Content | Damaged {
    const known = { ...key, origin: '' };
    const isFramed = info.content?.isEncoded ?? false;
    if (!isFramed && stored.length > 0 && texts.codec.required.length > 0 && !isLenient)
      return new Damaged(`its content is not encoded with ${texts.codec.required.join(', ')}`);
    const parts: readonly (Uint8Array | Undecodable)[] = isFramed
      ? stored.map((each, part) =>
          texts.decodeBytes(each, ofArtifact(known, partsIn(version), first + part), isLenient),
        )
      : stored;
    const undecodable = parts.find((each) => each instanceof Undecodable);
    if (undecodable) return new Damaged(`its content is ${undecodable.encoding}`);
    return { info, parts: parts.map((each) => bytesOf(each)) };
  }

  /** Reads the next versions of an app, or of one user in it, by their keys; at most `limit`. */
  async page(
    sql: Sql,
    { appName, userId }: { appName: string; userId: string | undefined },
    after: VersionKey | undefined,
    limit: number,
  ): Promise<VersionKey[]> {
    const columns = ['session_id', 'filename', 'version'];
    const rest = after && [after.sessionId, after.filename, after.version];
    const keyset = !rest
      ? undefined
      : userId === undefined
        ? keysetAfter(['user_id', ...columns], [after.userId, ...rest])
        : keysetAfter(columns, rest);
    const owner = userId === undefined ? [appName] : [appName, userId];
    const rows = await sql.all<VersionKeyRow>(
      this.#text.page(
        `app_name = ?${userId === undefined ? '' : ' and user_id = ?'}${keyset ? ` and ${keyset.where}` : ''}`,
      ),
      [...owner, ...(keyset?.values ?? []), limit],
    );
    return rows.map((row) => ({
      appName,
      userId: textOf(row.user_id),
      sessionId: textOf(row.session_id),
      filename: textOf(row.filename),
      version: numberOf(row.version),
    }));
  }

  /**
   * @returns the version without its encoding, or with `AS_STORED` as it is; undefined if there is none.
   * @throws DamagedArtifactError if it cannot be read.
   */
  async transferred(sql: Sql, key: VersionKey): Promise<Undecoded<TransferredVersion | undefined>> {
    const { version } = key;
    const row = await this.#row(sql, this.#text.withData, key, version);
    if (!row) return () => undefined;
    const parts = row.data === null ? await this.#parts(sql, key, row) : [bytesOf(row.data)];
    return (texts) => {
      const stored = this.#stored(texts, key, row);
      const { info, createTime, upload } = stored;
      if (texts === AS_STORED) {
        const isBound = isEncoded(textOf(row.info)) || (!(info instanceof Damaged) && info.content?.isEncoded);
        return { info: textOf(row.info), parts, createTime, upload: isBound ? upload : undefined };
      }
      const content = info instanceof Damaged ? info : this.#decoded(texts, key, stored, info, parts);
      const { what } = content instanceof Damaged ? content : CHANGED;
      const filename = key.sessionId === '' ? nameOfUsers(key.filename) : key.filename;
      if (content instanceof Damaged || !isWhole(content)) throw new DamagedArtifactError(filename, version, what);
      return { info: withEncoding(content, false).info, parts: content.parts, createTime };
    };
  }

  /**
   * @returns a version of an export as it is to be stored.
   * @throws InvalidArgumentError if its content is not the one that its hash is of.
   */
  encodedImport(
    texts: StoredTexts,
    key: VersionKey,
    { info: text, parts, upload }: TransferredVersion,
  ): EncodedVersion {
    const { version } = key;
    // What is encoded is not looked into.
    const info = isEncoded(text) ? undefined : infoOf(text);
    if (info instanceof Damaged) throw new InvalidArgumentError(`${nameOf(key)} has no info of an artifact.`);
    if (info === undefined || info.content?.isEncoded === true) {
      const of = () => ofArtifact({ ...key, origin: '' }, version, 'info', upload);
      return { info: texts.encode(text, of), parts, upload };
    }
    if (!isWhole({ info, parts }))
      throw new InvalidArgumentError(`${nameOf(key)} has other content than its info says.`);
    return encodedVersion(texts, key, version, withEncoding({ info, parts }, !texts.codec.isNone));
  }

  /**
   * Writes a version of an export, for a transaction.
   *
   * @returns false if it is stored already.
   * @throws InvalidArgumentError if another one is here.
   */
  async import(sql: Sql, key: VersionKey, createTime: number, encoded: EncodedVersion): Promise<boolean> {
    const { version } = key;
    const here = await this.#row(sql, this.#text.one, key, version);
    if (here && numberOf(here.create_time) !== createTime)
      throw new InvalidArgumentError(`${nameOf(key)} is here, saved at another time.`);
    if (here) return false;
    await this.#dialect.limits?.refuseTooLarge(sql, encoded.info);
    const values = valuesOf(key);
    const [head] = await sql.all<{ last_version: number }>(this.#text.head, values);
    if (!head) await sql.run(this.#text.insertHead, [...values, version, createTime]);
    else if (numberOf(head.last_version) < version)
      await sql.run(this.#text.raise, [version, createTime, ...values, version]);
    if (encoded.upload !== undefined)
      await this.#insert(sql, this.#text.insertVersionAt, [...values, encoded.upload], NO_CONTENT, createTime);
    await this.#insert(sql, this.#text.insertVersionAt, [...values, version], encoded, createTime);
    return true;
  }

  /**
   * @param isLenient whether what lacks a codec that is required gets it.
   * @returns undefined if the version is stored as the codecs store it now, or is gone.
   */
  async recoded(
    database: Database,
    key: VersionKey,
    isLenient: boolean,
  ): Promise<RecodedVersion | Damaged | undefined> {
    const { version } = key;
    const found = await this.#content(database, key, version, { isLenient });
    if (!found) return undefined;
    const { content, row, upload } = found;
    if (content instanceof Damaged) return content;
    if (!isWhole(content)) return CHANGED;
    const isFramed = !database.codec.isNone;
    const asNow = withEncoding(content, isFramed);
    const encoded = await database.code((texts) => encodedVersion(texts, key, version, asNow, upload));
    const read = textOf(row.info);
    const { info } = content;
    const isSame =
      encodingOf(encoded.info) === encodingOf(read) &&
      (info.content?.isEncoded ?? isFramed) === isFramed &&
      (!isFramed || found.parts.every((each, i) => encodingOfBytes(each) === encodingOfBytes(encoded.parts[i])));
    return isSame ? undefined : { key, read, encoded, size: info.content?.size ?? 0 };
  }

  /**
   * Replaces a version by the same in another encoding, for a transaction.
   *
   * @returns false if it changed since it was read, or another transaction has locked its row.
   */
  async replace(sql: Sql, { key, read, encoded: { info, parts, upload } }: RecodedVersion): Promise<boolean> {
    const id = [...valuesOf(key), key.version];
    const [row] = await sql.all<{ info: string }>(this.#text.lock, id);
    if (row?.info !== read) return false;
    const isInRow = parts.length < 2;
    await sql.run(this.#text.update, [info, isInRow ? (parts[0] ?? null) : null, ...id]);
    if (isInRow) return true;
    const ofParts = [...valuesOf(key), upload ?? key.version];
    for (const [part, data] of parts.entries()) await sql.run(this.#text.updatePart, [data, ...ofParts, part]);
    return true;
  }

  async #parts(sql: Sql, key: ArtifactKey, { upload, version }: VersionRow): Promise<Buffer[]> {
    const rows = await sql.all<{ data: unknown }>(this.#text.parts, [...valuesOf(key), upload ?? version]);
    return rows.map((row) => bytesOf(row.data));
  }

  /**
   * Reads what is needed to read a version a part at a time, with the first part if there is no other.
   *
   * @param version undefined for the newest.
   */
  async open(sql: Sql, key: ArtifactKey, version?: number): Promise<Undecoded<OpenedVersion | undefined>> {
    const row = await this.#row(sql, this.#text.withData, key, version);
    if (!row) return () => undefined;
    return (texts) => {
      const stored = this.#stored(texts, key, row);
      const { info } = stored;
      if (info instanceof Damaged || row.data === null) return stored;
      const content = this.#decoded(texts, key, stored, info, [bytesOf(row.data)]);
      return content instanceof Damaged ? { ...stored, info: content } : { ...stored, only: content.parts[0] };
    };
  }

  /** @returns one part; undefined if it is missing, or cannot be read. */
  async part(sql: Sql, key: ArtifactKey, opened: OpenedVersion, part: number): Promise<Undecoded<Buffer | undefined>> {
    const { info } = opened;
    if (info instanceof Damaged) return () => undefined;
    const [row] = await sql.all<{ data: unknown }>(this.#text.part, [...valuesOf(key), partsIn(opened), part]);
    if (!row) return () => undefined;
    return (texts) => {
      const content = this.#decoded(texts, key, opened, info, [bytesOf(row.data)], { first: part });
      return content instanceof Damaged ? undefined : content.parts[0];
    };
  }

  /**
   * Lists artifacts of a user with their newest versions, the user's own first, then by session and name.
   *
   * @param sessionId of the one session whose artifacts are listed beside the user's; undefined for all.
   */
  async list(
    sql: Sql,
    { appName, userId, sessionId }: { appName: string; userId: string; sessionId: string | undefined },
    after: { sessionId: string; filename: string } | undefined,
    limit: number,
  ): Promise<Undecoded<ListedVersion[]>> {
    const keyset = after && keysetAfter(['a.session_id', 'a.filename'], [after.sessionId, after.filename]);
    const ofSession = sessionId === undefined ? '' : ` and a.session_id in ('', ?)`;
    const rows = await sql.all<VersionRow & { session_id: string; filename: string }>(
      this.#text.list(`${ofSession}${keyset ? ` and ${keyset.where}` : ''}`),
      [appName, userId, ...(sessionId === undefined ? [] : [sessionId]), ...(keyset?.values ?? []), limit],
    );
    return (texts) =>
      rows.map((row) => {
        const names = { sessionId: textOf(row.session_id), filename: textOf(row.filename) };
        return { ...names, ...this.#stored(texts, { appName, userId, ...names }, row) };
      });
  }

  /** @param version undefined for the newest. */
  async find(sql: Sql, key: ArtifactKey, version?: number): Promise<Undecoded<StoredVersion | undefined>> {
    const row = await this.#row(sql, this.#text.one, key, version);
    return (texts) => row && this.#stored(texts, key, row);
  }

  /** All versions of an artifact, in order. */
  async versions(sql: Sql, key: ArtifactKey): Promise<Undecoded<StoredVersion[]>> {
    const rows = await sql.all<VersionRow>(this.#text.all, valuesOf(key));
    return (texts) => rows.map((row) => this.#stored(texts, key, row));
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

  /** @returns the keys of a user's artifacts, in sessions and not; at most `limit`. */
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

  #stored(texts: StoredTexts, key: ArtifactKey, row: VersionRow, isLenient = false): StoredVersion {
    const version = numberOf(row.version);
    const upload = row.upload === null ? undefined : numberOf(row.upload);
    const known = { ...key, origin: '' };
    const of = () => ofArtifact(known, version, 'info', upload);
    const text = textOf(row.info);
    const info = isLenient ? texts.decodeLeniently(text, of()) : texts.decode(text, of);
    return {
      ...{ version, info: infoOf(info), createTime: numberOf(row.create_time) },
      ...(upload !== undefined && { upload }),
    };
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

const withEncoding = ({ info, parts }: Content, isEncoded: boolean): NewVersion => ({
  info: JSON.stringify({ ...info, ...(info.content && { content: { ...info.content, isEncoded } }) }),
  parts,
});

const nameOf = ({ filename, version }: VersionKey) => `Version ${version} of artifact ${filename}`;

/** What the row of an upload has of a version. */
const NO_CONTENT: EncodedVersion = { info: '{}', parts: [] };

/** @returns the number that the rows of its parts have. */
const partsIn = ({ version, upload }: StoredVersion) => upload ?? version;

export const valuesOf = ({ appName, userId, sessionId, filename }: ArtifactKey) => [
  appName,
  userId,
  sessionId,
  filename,
];

function infoOf(text: string | Undecodable): ArtifactInfo | Damaged {
  if (text instanceof Undecodable) return new Damaged(`what is stored of it is ${text.encoding}`);
  const info = decode(text)?.value;
  return isRecord(info) && isRecord(info['artifact'])
    ? (info as unknown as ArtifactInfo)
    : new Damaged('what is stored of it cannot be read');
}

/** @param upload that has the parts. */
function encodedVersion(
  texts: StoredTexts,
  key: ArtifactKey,
  version: number,
  { info, parts }: NewVersion,
  upload?: number,
): EncodedVersion {
  const known = { ...key, origin: '' };
  return {
    ...{ info: texts.encode(info, () => ofArtifact(known, version, 'info', upload)), upload },
    parts: encodedParts(texts, key, upload ?? version, parts),
  };
}

/**
 * @param version that of their rows, which may be an upload's.
 * @param first the number of the first of them.
 */
export function encodedParts(
  texts: StoredTexts,
  key: ArtifactKey,
  version: number,
  parts: readonly Buffer[],
  first = 0,
): readonly Uint8Array[] {
  if (texts.codec.isNone) return parts;
  const known = { ...key, origin: '' };
  return parts.map((bytes, part) => texts.encodeBytes(bytes, ofArtifact(known, version, first + part)));
}

interface VersionRow {
  version: number;
  info: string;
  upload: number | null;
  create_time: number | string;
  /** Selected where the content is asked for. */
  data?: unknown;
}

interface VersionKeyRow {
  user_id: string;
  session_id: string;
  filename: string;
  version: number | string;
}

/** Selects a version by its number, and the newest. */
interface OneVersion {
  of: string;
  newest: string;
}

function texts(now: string, skipLocked: string, { artifacts, artifactVersions, artifactParts, select }: Tables) {
  const insertVersion = `insert into ${artifactVersions} (${ARTIFACT_COLUMNS}, version, info, data, upload, create_time)
    values (?, ?, ?, ?, ?, ?, ?, ?,`;
  const copy =
    (into: string, selected: string, from: string, columns = selected) =>
    (versions: string) =>
      `insert into ${into} (${ARTIFACT_COLUMNS}, ${columns})
      select app_name, user_id, ?, filename, ${selected} from ${from} where ${where} and version in ${versions}`;
  const copyArtifact = copy(artifacts, 'max(version), max(create_time)', artifactVersions, 'last_version, update_time');
  const ofUser = `from ${artifacts} where app_name = ? and user_id = ?`;
  const selectVersion = (columns: string): OneVersion => {
    const from = `select version, ${select.info} as info, upload, create_time${columns} from ${artifactVersions} where ${where}`;
    return { of: `${from} and version = ?`, newest: `${from} and version >= 0 order by version desc limit 1` };
  };
  return {
    insertVersion: `${insertVersion} ${now})`,
    insertVersionAt: `${insertVersion} ?)`,
    insertPart: `insert into ${artifactParts} (${ARTIFACT_COLUMNS}, version, part, data) values (?, ?, ?, ?, ?, ?, ?)`,
    withData: selectVersion(`, ${select.bytes} as data`),
    one: selectVersion(''),
    all: `select version, ${select.info} as info, upload, create_time from ${artifactVersions} where ${where}
      and version >= 0 order by version`,
    numbers: `select version from ${artifactVersions} where ${where} and version >= 0 order by version`,
    parts: `select ${select.bytes} as data from ${artifactParts} where ${where} and version = ? order by part`,
    part: `select ${select.bytes} as data from ${artifactParts} where ${where} and version = ? and part = ?`,
    list: (more: string) => `select a.session_id as session_id, a.filename as filename, v.version as version,
      ${select.info.replace('info', 'v.info')} as info, v.upload as upload, v.create_time as create_time
      from ${artifacts} as a join ${artifactVersions} as v on ${isSameSession('v', 'a')}
        and v.filename = a.filename and v.version = a.last_version
      where a.app_name = ? and a.user_id = ?${more} order by a.session_id, a.filename limit ?`,
    page: (where: string) => `select user_id, session_id, filename, version from ${artifactVersions}
      where version >= 0 and ${where} order by user_id, session_id, filename, version limit ?`,
    head: `select last_version from ${artifacts} where ${where}`,
    insertHead: `${insertIntoArtifacts(artifacts)} values (?, ?, ?, ?, ?, ?)`,
    raise: `update ${artifacts} set last_version = ?, update_time = ? where ${where} and last_version < ?`,
    lock: `select ${select.info} as info from ${artifactVersions} where ${where} and version = ?${skipLocked}`,
    update: `update ${artifactVersions} set info = ?, data = ? where ${where} and version = ?`,
    updatePart: `update ${artifactParts} set data = ? where ${where} and version = ? and part = ?`,
    // One whose first version is under way has none.
    names: `select session_id, filename from ${artifacts} where app_name = ? and user_id = ? and session_id in (?, '')
      and last_version >= 0 order by filename`,
    delete: `delete from ${artifacts} where ${where}`,
    deleteOfSession: `delete from ${artifacts} where ${SESSION_WHERE}`,
    uploads: (versions: string) => `select upload from ${artifactVersions} where ${where} and version in ${versions}
      and upload is not null`,
    copyArtifact: (versions: string) => `${copyArtifact(versions)} group by app_name, user_id, filename`,
    copyVersions: [
      copy(artifactVersions, 'version, info, data, upload, create_time', artifactVersions),
      copy(artifactParts, 'version, part, data', artifactParts),
    ],
    ofUser: `select session_id, filename ${ofUser} order by session_id, filename limit ?`,
    countOfUser: `select count(*) as total ${ofUser}`,
  };
}
