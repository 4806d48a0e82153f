import type {
  ArtifactVersion,
  BaseArtifactService,
  DeleteArtifactRequest,
  ListArtifactKeysRequest,
  ListVersionsRequest,
  LoadArtifactRequest,
  SaveArtifactRequest,
} from '@google/adk';
import type { EntityManager } from '@mikro-orm/core';
import { createHash } from 'node:crypto';
import { Database } from '../database/calls/database.js';
import { once } from '../database/calls/once.js';
import type { Sql } from '../database/dialects/dialect.js';
import {
  aCount,
  aFunction,
  aPlainObject,
  aRecord,
  aString,
  aWholeNumber,
  anything,
  condition,
  nullable,
  object,
  rule,
  type Checks,
} from '../model/arguments.js';
import { DamagedArtifactError, InvalidKeyError } from '../model/errors.js';
import { checkKeys, checkedSessionKey, type SessionKey } from '../model/keys.js';
import { isObject } from '../model/json.js';
import { COMMON_OPTIONS, type CommonOptions } from '../model/options.js';
import {
  PART_BYTES,
  fileOf,
  newVersion,
  partOf,
  refuseLong,
  versionOfStream,
  type ArtifactInfo,
} from './artifact-content.js';
import { isOfUser, nameOfUsers, storedName } from '../model/artifact-name.js';
import {
  allVersions,
  artifactNames,
  deleteArtifact,
  findVersion,
  listArtifacts,
  openVersion,
  readContent,
  readPart,
  saveVersion,
  versionNumbers,
  type OpenedVersion,
} from './artifact-store.js';
import { DamagedVersion, undamaged, type ArtifactKey, type StoredVersion } from './stored-version.js';

/** One version of an artifact. */
export interface ArtifactAddress extends SessionKey {
  /** Begins with `user:` if it is a file of the user. */
  filename: string;
  version: number;
}

export interface MikroOrmArtifactServiceOptions extends CommonOptions {
  /**
   * Returns the address at which the host serves a version, for `canonicalUri` of its metadata. ADK may send an address with `https:`
   * or `gs:` to a model. By default, and if it returns undefined, the address begins with `artifact:`, which is never sent.
   */
  canonicalUri?: (artifact: ArtifactAddress) => string | undefined | Promise<string | undefined>;
  /** How many bytes an artifact may have; 104,857,600 (100 MB) by default. Otherwise `ArtifactTooLargeError` is thrown. */
  maxBytes?: number;
}

/** The metadata of a version. */
export interface StoredArtifactVersion extends ArtifactVersion {
  canonicalUri: string;
  /** The size of the content, in bytes; undefined for a reference, which has no content. */
  size?: number;
  /** SHA-256 of the content, in hexadecimal digits. */
  sha256?: string;
  /** When it was saved, in ms since 1970, by the database's clock. */
  createTime: number;
}

/** A stream to save as a version of an artifact. */
export interface SaveStreamRequest {
  appName: string;
  userId: string;
  sessionId: string;
  /** Begins with `user:` for a file of the user. */
  filename: string;
  /** The type of the content, such as `image/png`. */
  mimeType: string;
  /** A Node.js `Readable`, a web `ReadableStream`, or any other async iterable of bytes. It is read once, without reading ahead. */
  content: AsyncIterable<Uint8Array>;
  /** Any JSON. */
  customMetadata?: Record<string, unknown>;
}

/** A version, to be read a part at a time. */
export interface ArtifactContent extends StoredArtifactVersion {
  /** The bytes of the file. */
  size: number;
  sha256: string;
  /**
   * Reads the bytes from `start` up to but not including `end`; all by default. Each part is one query. The hash of the whole
   * content is checked after the last part.
   *
   * @throws InvalidArgumentError if `start` or `end` is not a whole number, 0 or more.
   * @throws DamagedArtifactError from the loop, if a part was changed or is missing, also because it was deleted meanwhile.
   */
  bytes(range?: { start?: number; end?: number }): AsyncIterable<Uint8Array>;
}

type ByteRange = NonNullable<Parameters<ArtifactContent['bytes']>[0]>;

/** Whose artifacts to list. */
export interface FindArtifactsRequest {
  appName: string;
  userId: string;
  /** Only artifacts of the user and of this session. */
  sessionId?: string;
  /** How many artifacts a page has at most; 100 by default, up to 1,000. */
  limit?: number;
  /** The last artifact of the previous page. */
  after?: Pick<ArtifactSummary, 'sessionId' | 'filename'>;
}

/** An artifact in a list, with its newest version. */
export interface ArtifactSummary extends Omit<StoredArtifactVersion, 'canonicalUri'> {
  /** Absent for a file of the user. */
  sessionId?: string;
  /** Begins with `user:` for a file of the user. */
  filename: string;
}

/** The options of artifacts alone. */
export const ARTIFACT_OPTIONS: Checks<Omit<MikroOrmArtifactServiceOptions, keyof CommonOptions>> = {
  canonicalUri: aFunction,
  maxBytes: aWholeNumber,
};

const checkOptions = object<MikroOrmArtifactServiceOptions>({ ...COMMON_OPTIONS, ...ARTIFACT_OPTIONS });

const MAX_BYTES = 104_857_600;

/** The values are checked by `checkKeys`. */
const session = { appName: anything, userId: anything, sessionId: anything };
const file = { ...session, filename: aString };

const anAsyncIterable = rule(
  'a stream or another async iterable of bytes',
  (value) => isObject(value) && Symbol.asyncIterator in value,
);

const checkRequest = {
  saveArtifact: object<SaveArtifactRequest>(
    { ...file, artifact: aRecord, customMetadata: nullable(aPlainObject) },
    'filename',
    'artifact',
  ),
  save: object<SaveStreamRequest>(
    { ...file, mimeType: aString, content: anAsyncIterable, customMetadata: nullable(aPlainObject) },
    'filename',
    'mimeType',
    'content',
  ),
  // Any version: an impossible one does not exist.
  version: object<LoadArtifactRequest>({ ...file, version: anything }, 'filename'),
  file: object<DeleteArtifactRequest>(file, 'filename'),
  session: object<ListArtifactKeysRequest>(session),
  list: object<FindArtifactsRequest>({
    ...{ appName: anything, userId: anything, sessionId: condition(anything) },
    limit: aCount,
    after: condition(aRecord),
  }),
  range: object<ByteRange>({ start: aWholeNumber, end: aWholeNumber }),
  after: object<NonNullable<FindArtifactsRequest['after']>>(
    { sessionId: condition(aString), filename: aString },
    'filename',
  ),
};

const MAX_LISTED = 1_000;

/**
 * ADK's artifacts in the host's own database. Each version is saved completely or not at all, and numbered under a lock.
 *
 * ```ts
 * const runner = new Runner({ appName: 'support', agent, ...adkServices(orm.em) });
 * ```
 *
 * Every method may throw `InvalidArgumentError`, `InvalidKeyError`, `SchemaError`, `DatabaseError`, `CodecError` and
 * `InsideTransactionError`, as those of `MikroOrmSessionService` do.
 */
export class MikroOrmArtifactService implements BaseArtifactService {
  readonly #database: Database;
  readonly #options: MikroOrmArtifactServiceOptions;

  /**
   * @param em the host's `EntityManager`, as for `MikroOrmSessionService`.
   * @throws InvalidArgumentError if an option is unknown or its value is invalid.
   * @throws SchemaError if the ORM has no supported driver, or does not list `adkEntities()`.
   */
  constructor(em: EntityManager, options?: MikroOrmArtifactServiceOptions);
  /** @internal @param database joins the caller's transaction. */
  // eslint-disable-next-line @typescript-eslint/unified-signatures -- left out of the package's declarations
  constructor(em: EntityManager, options: MikroOrmArtifactServiceOptions, database: Database);
  constructor(em: EntityManager, options: MikroOrmArtifactServiceOptions = {}, database?: Database) {
    this.#options = checkOptions(options, 'The options of MikroOrmArtifactService');
    this.#database = database ?? new Database(em, this.#options);
  }

  /**
   * This service inside the caller's transaction, so that an artifact, the event that names it and the caller's own rows commit or
   * roll back together (contract P10).
   *
   * @param tx the `EntityManager` from `em.transactional`.
   * @throws InvalidArgumentError if `tx` has other tables than this service: those of another schema or another ORM.
   */
  withEntityManager(tx: EntityManager): MikroOrmArtifactService {
    return new MikroOrmArtifactService(tx, this.#options, this.#database.join(tx));
  }

  /**
   * Saves a new version.
   *
   * @param request `artifact`: a Part with `inlineData`, `text` or `fileData`, which comes back equal. `customMetadata`: any JSON.
   * @returns the version's number: 0, 1, 2 …
   * @throws UnserializableValueError if JSON cannot represent a value of the artifact or the metadata.
   * @throws ArtifactTooLargeError if the content is larger than `maxBytes`.
   */
  async saveArtifact(request: SaveArtifactRequest): Promise<number> {
    const { artifact, customMetadata, ...names } = checkRequest.saveArtifact(request, 'The request of saveArtifact');
    const key = keyOf(names);
    // Before the first await: later changes by the caller must not reach the database.
    const given = newVersion({ artifact, customMetadata }, this.#storage);
    return this.#write('saveArtifact', key, (sql) => saveVersion(sql, key, given));
  }

  /**
   * Saves a new version from a stream of at most `maxBytes`, which are in memory until they are written: a larger file belongs to
   * object storage, and a Part with `fileData` refers to it. `loadArtifact` returns the version as `inlineData`.
   *
   * @returns the version's number: 0, 1, 2 …
   * @throws UnserializableValueError if JSON cannot represent a value of the metadata.
   * @throws ArtifactTooLargeError as soon as the stream has given more than `maxBytes`; nothing was written.
   * @throws any error of the stream; nothing was written.
   */
  async saveArtifactStream(request: SaveStreamRequest): Promise<number> {
    const { mimeType, content, customMetadata, ...names } = checkRequest.save(
      request,
      'The request of saveArtifactStream',
    );
    const key = keyOf(names);
    // Before anything is read from the stream.
    this.#database.refuseTransaction();
    // Outside of the call: the stream may itself come from calls of this service, which must not wait for this one.
    const given = await versionOfStream(content, { mimeType, customMetadata }, this.#storage);
    return this.#write('saveArtifactStream', key, (sql) => saveVersion(sql, key, given));
  }

  /** How contents are stored. */
  get #storage(): { maxBytes: number; isEncoded: boolean } {
    const { maxBytes = MAX_BYTES } = this.#options;
    return { maxBytes, isEncoded: !this.#database.codec.isNone };
  }

  /**
   * Loads a version, by default the newest.
   *
   * @returns undefined if there is no such artifact or version. A failure of the database throws.
   * @throws ArtifactTooLargeError if it does not fit into a Part, which holds about 400 MB: use `openArtifact`.
   * @throws DamagedArtifactError if the version cannot be read as it was saved.
   */
  async loadArtifact(request: LoadArtifactRequest): Promise<SaveArtifactRequest['artifact'] | undefined> {
    const { names, version } = versionIn(request, 'loadArtifact');
    const found = await this.#readOf('loadArtifact', names, (sql, key) => readContent(sql, key, version, refuseLong));
    return found && partOf(undamaged(names.filename, found.version, found.content));
  }

  /** @returns the names of the session's artifacts and, with `user:`, the user's, each ordered by their bytes. No content is read. */
  async listArtifactKeys(request: ListArtifactKeysRequest): Promise<string[]> {
    const key = checkedSessionKey(checkRequest.session(request, 'The request of listArtifactKeys'));
    const { ofSession, ofUser } = await this.#read('listArtifactKeys', key, (sql) => artifactNames(sql, key));
    return [...ofSession, ...ofUser.map(nameOfUsers)];
  }

  /** Deletes all versions of an artifact. Does nothing if there is no such artifact. */
  async deleteArtifact(request: DeleteArtifactRequest): Promise<void> {
    const key = keyOf(checkRequest.file(request, 'The request of deleteArtifact'));
    await this.#write('deleteArtifact', key, (sql) => deleteArtifact(sql, key));
  }

  /** @returns the numbers of the versions, in order. */
  async listVersions(request: ListVersionsRequest): Promise<number[]> {
    const names = checkRequest.file(request, 'The request of listVersions');
    return (await this.#readOf('listVersions', names, versionNumbers)) ?? [];
  }

  /**
   * @returns the metadata of each version, in order. No content is read.
   * @throws DamagedArtifactError if the metadata of one of them cannot be read.
   */
  async listArtifactVersions(request: ListVersionsRequest): Promise<StoredArtifactVersion[]> {
    const names = checkRequest.file(request, 'The request of listArtifactVersions');
    const found = (await this.#readOf('listArtifactVersions', names, allVersions)) ?? [];
    return Promise.all(found.map((version) => this.#shown(names, version)));
  }

  /**
   * @returns the metadata of a version, by default of the newest; undefined if there is no such version. No content is read.
   * @throws DamagedArtifactError if the metadata cannot be read.
   */
  async getArtifactVersion(request: LoadArtifactRequest): Promise<StoredArtifactVersion | undefined> {
    const { names, version } = versionIn(request, 'getArtifactVersion');
    const found = await this.#readOf('getArtifactVersion', names, (sql, key) => findVersion(sql, key, version));
    return found && this.#shown(names, found);
  }

  /**
   * Opens a version, by default the newest, to read it a part at a time. Only one part is in memory.
   *
   * @returns its metadata, and `bytes`; undefined if there is no such version, or it is a reference, which has no content.
   * @throws DamagedArtifactError if its metadata cannot be read.
   */
  async openArtifact(request: LoadArtifactRequest): Promise<ArtifactContent | undefined> {
    const { names, version } = versionIn(request, 'openArtifact');
    const opened = await this.#readOf('openArtifact', names, (sql, key) => openVersion(sql, key, version));
    if (!opened) return undefined;
    const info = undamaged(names.filename, opened.version, opened.info);
    if (!info.content) return undefined;
    const about = await this.#shown(names, opened);
    const { size, sha256, json, of } = info.content;
    // The stored bytes are JSON of a text, and not the file.
    const only = json ? await this.#fileOf(names, opened.version, of) : opened.only;
    const source = { names, opened: { ...opened, only }, size, sha256 };
    const bytes: ArtifactContent['bytes'] = (range = {}) => {
      const { start = 0, end = size } = checkRequest.range(range, 'The range of bytes');
      return this.#bytes(source, start, end);
    };
    return { ...about, size, sha256, bytes };
  }

  async #fileOf(names: DeleteArtifactRequest, version: number, of: 'text' | 'inlineData'): Promise<Buffer> {
    const { text, inlineData } = (await this.loadArtifact({ ...names, version })) ?? {};
    return fileOf({ of, text: (of === 'text' ? text : inlineData?.data) ?? '' });
  }

  async *#bytes({ names, opened: found, size, sha256 }: Source, start: number, end: number) {
    let opened = found;
    const read = (part: number) => this.#readOf('openArtifact', names, (sql, key) => readPart(sql, key, opened, part));
    const damaged = (what: string) => new DamagedArtifactError(names.filename, opened.version, what);
    const upTo = Math.min(end, size);
    const hash = start === 0 && upTo === size ? createHash('sha256') : undefined;
    for (let part = Math.floor(start / PART_BYTES); part * PART_BYTES < upTo; part++) {
      const from = opened.only ? 0 : part * PART_BYTES;
      const expected = opened.only ? size : Math.min(PART_BYTES, size - from);
      let bytes = opened.only ?? (await read(part));
      if (bytes?.length !== expected) {
        // Somebody may have encoded it since it was opened.
        const again = await this.#readOf('openArtifact', names, (sql, key) => openVersion(sql, key, opened.version));
        if (again?.createTime === opened.createTime) {
          opened = again;
          bytes = await read(part);
        }
      }
      if (bytes?.length !== expected) throw damaged(`part ${part} of its content is missing, or was changed`);
      hash?.update(bytes);
      yield bytes.subarray(Math.max(0, start - from), upTo - from);
      if (opened.only) break;
    }
    if (hash && hash.digest('hex') !== sha256) throw damaged('a part of its content was changed');
  }

  /**
   * Lists the artifacts of a user with their newest versions: the user's own, then session by session, ordered by the bytes of
   * their names. This is one query, which reads no content. If the row of a version is damaged, only its number and time are listed.
   */
  async findArtifacts(request: FindArtifactsRequest): Promise<ArtifactSummary[]> {
    const { limit = 100, after, ...owner } = checkRequest.list(request, 'The request of findArtifacts');
    checkKeys(owner);
    const { appName, userId, sessionId } = owner;
    const last = after && lastOf(after);
    const found = await this.#read('findArtifacts', { appName, userId, sessionId: sessionId ?? '' }, (sql) =>
      listArtifacts(sql, { appName, userId, sessionId }, last, Math.min(limit, MAX_LISTED)),
    );
    return found.map(({ sessionId, filename, version, info, createTime }) => ({
      ...(sessionId === '' ? { filename: nameOfUsers(filename) } : { sessionId, filename }),
      version,
      ...(!(info instanceof DamagedVersion) && aboutOf(info)),
      createTime,
    }));
  }

  async #shown(
    names: DeleteArtifactRequest,
    { version, info, createTime }: StoredVersion,
  ): Promise<StoredArtifactVersion> {
    const about = aboutOf(undamaged(names.filename, version, info));
    const address = { ...names, version };
    const canonicalUri = (await this.#options.canonicalUri?.({ ...address })) ?? uriOf(address);
    return { version, canonicalUri, ...about, createTime };
  }

  /**
   * Reads what an artifact has. A model may ask for any filename, and an error would end its run.
   *
   * @returns undefined for a filename that no artifact can have.
   * @throws InvalidKeyError for an app, a user or a session that cannot exist.
   */
  async #readOf<T>(
    operation: string,
    names: DeleteArtifactRequest,
    work: (sql: Sql, key: ArtifactKey) => Promise<T>,
  ): Promise<T | undefined> {
    checkedSessionKey(names);
    const key = keyIfPossible(names);
    return key && this.#read(operation, key, (sql) => work(sql, key));
  }

  #read<T>(operation: string, key: SessionKey, work: (sql: Sql) => Promise<T>): Promise<T> {
    return this.#database.call({ operation, key: sessionOf(key) }, () => this.#database.run(work));
  }

  #write<T>(operation: string, key: SessionKey, work: (sql: Sql) => Promise<T>): Promise<T> {
    return this.#database.call({ operation, key: sessionOf(key) }, () => once(this.#database, work));
  }
}

function versionIn(request: LoadArtifactRequest, operation: string) {
  const { version, ...names } = checkRequest.version(request, `The request of ${operation}`);
  return { names, version: version ?? undefined };
}

function keyIfPossible(names: DeleteArtifactRequest): ArtifactKey | undefined {
  try {
    return keyOf(names);
  } catch (error) {
    if (error instanceof InvalidKeyError) return undefined;
    throw error;
  }
}

/** @throws InvalidKeyError for names that cannot be a row's key on every database. */
function keyOf({ filename, ...given }: DeleteArtifactRequest): ArtifactKey {
  const { appName, userId, sessionId } = given;
  const stored = storedName(filename);
  checkKeys({ appName, userId, sessionId, filename: stored });
  return { appName, userId, sessionId: isOfUser(filename) ? '' : sessionId, filename: stored };
}

const sessionOf = ({ appName, userId, sessionId }: SessionKey): SessionKey => ({ appName, userId, sessionId });

/** Callers may pass the whole item of a page: only its names are used. @throws InvalidKeyError. */
function lastOf({ sessionId, filename }: NonNullable<FindArtifactsRequest['after']>) {
  const last = checkRequest.after({ filename, ...(sessionId !== undefined && { sessionId }) }, 'after');
  const names = { ...last, filename: storedName(last.filename) };
  checkKeys(names);
  return { sessionId: '', ...names };
}

/** A version that `openArtifact` has opened. */
interface Source {
  names: DeleteArtifactRequest;
  opened: OpenedVersion;
  size: number;
  sha256: string;
}

const aboutOf = ({ customMetadata, mimeType, content }: ArtifactInfo) => ({
  ...(customMetadata && { customMetadata }),
  ...(mimeType !== undefined && { mimeType }),
  ...(content && { size: content.size, sha256: content.sha256 }),
});

/** An address within this database, which is never sent to a model (contract P13). */
function uriOf({ appName, userId, sessionId, filename, version }: ArtifactAddress): string {
  const owner = ['apps', appName, 'users', userId, ...(isOfUser(filename) ? [] : ['sessions', sessionId])];
  return `artifact://${[...owner, 'artifacts', storedName(filename), 'versions', String(version)].map(encodeURIComponent).join('/')}`;
}
