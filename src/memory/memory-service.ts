import type { BaseMemoryService, Event, MemoryEntry, SearchMemoryRequest, Session } from '@google/adk';
import type { EntityManager } from '@mikro-orm/core';
import { randomUUID } from 'node:crypto';
import { Database } from '../database/calls/database.js';
import { once } from '../database/calls/once.js';
import type { Sql } from '../database/dialects/dialect.js';
import {
  aBoolean,
  aCount,
  aFunction,
  aPlainObject,
  aRecord,
  aSession,
  aString,
  aTime,
  aWait,
  anAbortSignal,
  anything,
  condition,
  nullable,
  object,
  objects,
  rule,
} from '../model/arguments.js';
import { SessionProjection } from '../log/session-projection.js';
import { Undecodable } from '../model/codec.js';
import { DamagedMemoryError, InvalidArgumentError } from '../model/errors.js';
import { decodeEvent, encode } from '../model/event-codec.js';
import { callHost } from '../model/host-callbacks.js';
import { checkKeys, givenKey, type SessionKey } from '../model/keys.js';
import { COMMON_OPTIONS, type CommonOptions, type ErrorContext } from '../model/options.js';
import { pagesOf } from '../model/pages.js';
import { aContent, encodedMemory, memoryIdentity, type MemoryKey } from '../transfer/stored-memories.js';
import { Embedder, anEmbedding, withStoredVectors, type MemoryEmbedding } from './embedding.js';
import {
  memoryOfEvent,
  newMemory,
  saidByEvent,
  saidByHost,
  textOf,
  type MemoryData,
  type MemoryOwner,
  type NewMemory,
  type TextOfEvent,
} from './memory-content.js';
import {
  addMemories,
  countMemories,
  deleteMemories,
  listMemories,
  readCompared,
  readMemories,
  type Compared,
  type Read,
} from './memory-store.js';
import { memoryProjection, type MemoryProjectionOptions } from './memory-projection.js';
import { Ranking, type Ranked } from './ranking.js';
import { rebuildVectors, type RebuildVectorsRequest } from './rebuild-vectors.js';
import { cosine } from './vectors.js';

export interface MikroOrmMemoryServiceOptions extends CommonOptions {
  /** The most memories of a search; 10 by default. ADK puts all of them into the model's instructions. */
  limit?: number;
  /** The most characters of all texts of a search together; no limit by default. */
  maxCharacters?: number;
  /** How long a memory can be found, in ms; for ever by default. */
  ttlMs?: number;
  /**
   * Gives the text to remember of an event; undefined for nothing. By default the event's texts, without thoughts, calls, responses
   * and files.
   */
  text?: TextOfEvent;
  /**
   * Finds memories by their meaning, too; by default by their words alone. All processes that add memories need it. When it fails,
   * memories are stored and found all the same, by their words, and the error goes to `onError`; without that the process emits a
   * warning. `rebuildVectors` makes up for it.
   */
  embed?: MemoryEmbedding;
  /** Called with a damaged memory that a search has left out. By default the process emits a warning. */
  onDamage?: (error: DamagedMemoryError) => void;
}

/** A memory, as it is stored. */
export interface StoredMemory extends MemoryEntry {
  /** The id of its event, or the id that it was added with. */
  id: string;
  /** Absent if it belongs to no session. */
  sessionId?: string;
  customMetadata?: Record<string, unknown>;
}

/** A memory that a search has found. */
export interface FoundMemory extends StoredMemory {
  /** How well it matches, comparable within one search. */
  score: number;
}

export interface AddEventsToMemoryRequest extends Pick<SessionKey, 'appName' | 'userId'> {
  sessionId?: string;
  events: readonly Event[];
  customMetadata?: Record<string, unknown>;
  /** How long they can be found, in ms; by default the service's option. */
  ttlMs?: number;
}

export interface AddMemoryRequest {
  appName: string;
  /** Leave it out for a memory that all users of the app share. */
  userId?: string;
  sessionId?: string;
  /** Each may have an `id`, by which it can be replaced; otherwise it gets a new one. */
  memories: readonly (MemoryEntry & Partial<Pick<StoredMemory, 'id' | 'customMetadata'>>)[];
  customMetadata?: Record<string, unknown>;
  ttlMs?: number;
}

export interface SearchMemoriesRequest extends SearchMemoryRequest {
  limit?: number;
  maxCharacters?: number;
  /** Only memories of this session. */
  sessionId?: string;
  /** Only memories from this time on, in ms since 1970. */
  since?: number;
  /** Only memories that have these values in their `customMetadata`. */
  metadata?: Record<string, unknown>;
  /** Whether to search the memories of the app, too; true by default. */
  includeApp?: boolean;
}

/** Which memories to forget: one, those of a session, those from before a time, or all. */
export interface ForgetRequest {
  appName: string;
  /** Left out for those of the app. */
  userId?: string;
  memoryId?: string;
  sessionId?: string;
  /** In ms since 1970. */
  before?: number;
  all?: true;
  /** Whether to count them alone. */
  dryRun?: boolean;
}

export interface ListMemoriesRequest {
  appName: string;
  /** Left out for those of the app. */
  userId?: string;
  sessionId?: string;
  /** The last memory of the page before. */
  after?: Pick<StoredMemory, 'id' | 'sessionId'>;
  limit: number;
}

const checkOptions = object<MikroOrmMemoryServiceOptions>({
  ...COMMON_OPTIONS,
  limit: aCount,
  maxCharacters: aCount,
  ttlMs: aWait,
  text: aFunction,
  embed: anEmbedding,
  onDamage: aFunction,
});

/** `checkKeys` checks the values. */
const owner = { appName: anything, userId: condition(anything) };
const metadata = nullable(aPlainObject);

const aJsonValue = rule('a value that JSON can carry', (value) => {
  try {
    return encode(value, '').json !== '';
  } catch {
    return false;
  }
});

/** `{ tenant: request.tenant }` of a request without one would find the memories that have none. */
const wantedMetadata = condition((value, name) => {
  const wanted = aPlainObject(value, name);
  for (const [key, each] of Object.entries(wanted)) condition(aJsonValue)(each, `${name}.${key}`);
  return wanted;
});

const checkRequest = {
  addEvents: object<AddEventsToMemoryRequest>(
    {
      appName: anything,
      userId: anything,
      sessionId: condition(anything),
      events: objects,
      customMetadata: metadata,
      ttlMs: aWait,
    },
    'events',
  ),
  add: object<AddMemoryRequest>(
    { ...owner, sessionId: condition(anything), memories: objects, customMetadata: metadata, ttlMs: aWait },
    'memories',
  ),
  entry: object<AddMemoryRequest['memories'][number]>(
    {
      content: aContent,
      author: nullable(aString),
      timestamp: nullable(aString),
      id: anything,
      customMetadata: metadata,
    },
    'content',
  ),
  search: object<SearchMemoriesRequest>(
    {
      ...{ appName: anything, userId: anything, query: aString, limit: aCount, maxCharacters: aCount },
      ...{ sessionId: condition(anything), since: condition(aTime), metadata: wantedMetadata },
      includeApp: aBoolean,
    },
    'query',
  ),
  forget: object<ForgetRequest>({
    ...owner,
    ...{ memoryId: condition(anything), sessionId: condition(anything), before: condition(aTime) },
    ...{ all: aBoolean, dryRun: aBoolean },
  }),
  rebuildVectors: object<RebuildVectorsRequest>({
    ...{ appName: condition(anything), userId: condition(anything), dryRun: aBoolean, signal: anAbortSignal },
  }),
  list: object<ListMemoriesRequest>(
    { ...owner, sessionId: condition(anything), after: aRecord, limit: aCount },
    'limit',
  ),
};

/** How many memories one statement reads the words of. */
const PAGE = 5_000;

/** How many memories one statement of a search reads: conditions on metadata may discard many, and SQLite refuses a longer one. */
const [LEAST_READ, MOST_READ] = [20, 500];

/**
 * ADK's memory in the host's own database. Memories are found by their words, in any script, best match first. The process ranks
 * them, so every database gives the same memories in the same order.
 *
 * ```ts
 * const memoryService = new MikroOrmMemoryService(orm.em, { maxCharacters: 4_000 });
 * const runner = new Runner({ appName: 'support', agent, ...adkServices(orm.em), memoryService });
 * ```
 *
 * Every method may throw `InvalidArgumentError`, `InvalidKeyError`, `SchemaError`, `DatabaseError` and `InsideTransactionError`, as
 * those of `MikroOrmSessionService` do.
 */
export class MikroOrmMemoryService implements BaseMemoryService {
  readonly #em: EntityManager;
  readonly #database: Database;
  readonly #options: MikroOrmMemoryServiceOptions;
  readonly #embedder: Embedder | undefined;

  /**
   * @param em the host's `EntityManager`, as for `MikroOrmSessionService`.
   * @throws InvalidArgumentError when an option is not known, or has a value that it cannot have.
   * @throws SchemaError when the ORM has no supported driver, or does not list `adkEntities()`.
   */
  constructor(em: EntityManager, options?: MikroOrmMemoryServiceOptions);
  /** @internal @param database with the host's transaction that the calls join. */
  // eslint-disable-next-line @typescript-eslint/unified-signatures -- left out of the package's declarations
  constructor(em: EntityManager, options: MikroOrmMemoryServiceOptions, database: Database);
  constructor(em: EntityManager, options: MikroOrmMemoryServiceOptions = {}, database?: Database) {
    this.#em = em;
    this.#options = checkOptions(options, 'The options of MikroOrmMemoryService');
    this.#database = database ?? new Database(em, this.#options);
    const { embed } = this.#options;
    this.#embedder =
      embed && new Embedder(embed, this.#database, (error, context) => this.#embedFailed(error, context));
  }

  /**
   * The same service inside the caller's transaction, so that a memory and the caller's own rows commit or roll back together.
   *
   * @param tx the `EntityManager` that `em.transactional` hands out.
   * @throws InvalidArgumentError when `tx` has other tables than this service: of another schema or another ORM.
   */
  withEntityManager(tx: EntityManager): MikroOrmMemoryService {
    return new MikroOrmMemoryService(tx, this.#options, this.#database.join(tx));
  }

  /**
   * Remembers what is said in a session, each event once: what is there already is replaced by the same, and a `Session` that was
   * read with its newest events alone removes none of the older ones (contract Q2).
   */
  async addSessionToMemory(session: Session): Promise<void> {
    aSession(session, 'session');
    const { appName, userId, id: sessionId, events } = session;
    await this.addEventsToMemory({ appName, userId, sessionId, events });
  }

  /** Remembers events, as `addSessionToMemory` does. */
  async addEventsToMemory(request: AddEventsToMemoryRequest): Promise<void> {
    const { events, ...rest } = checkRequest.addEvents(request, 'The request of addEventsToMemory');
    const { customMetadata, ttlMs = this.#options.ttlMs } = rest;
    const { owner, sessionId = '' } = scopeOf(rest);
    checkKeys({ userId: rest.userId });
    for (const { id } of events) checkMemoryKey({ ...owner, sessionId, memoryId: id });
    const { text } = this.#options;
    // Now, since the host's function may take long: what the caller does to them later does not reach the database.
    const copies = text ? events.map(copyOfEvent) : events;
    const metadata =
      customMetadata && (JSON.parse(encode(customMetadata, 'customMetadata').json) as MemoryData['customMetadata']);
    const added = { ...owner, sessionId, ttlMs, ...(metadata && { customMetadata: metadata }) };
    const memories: NewMemory[] = [];
    for (const event of copies) {
      const said = text ? await saidByHost(event, text) : saidByEvent(event);
      const memory = memoryOfEvent(event, said, added);
      if (memory) memories.push(memory);
    }
    await this.#add('addEventsToMemory', owner, memories);
  }

  /**
   * Remembers what no event says, such as a fact that the host knows.
   *
   * @returns the ids of the memories, in their order.
   * @throws InvalidArgumentError also for a memory without a word: nobody could find it.
   */
  async addMemory(request: AddMemoryRequest): Promise<string[]> {
    const given = checkRequest.add(request, 'The request of addMemory');
    const { memories, customMetadata, ttlMs = this.#options.ttlMs } = given;
    const { owner, sessionId = '' } = scopeOf(given);
    const added = memories.map((entry, i): NewMemory => {
      const name = `memories[${i}]`;
      const checked = checkRequest.entry(entry, name);
      const { content, author, timestamp, id: memoryId = randomUUID(), customMetadata: own } = checked;
      checkMemoryKey({ ...owner, sessionId, memoryId });
      const time = timestamp ? Date.parse(timestamp) : Date.now();
      if (Number.isNaN(time)) throw new InvalidArgumentError(`${name}.timestamp must be a date, as in ISO 8601.`);
      const data: MemoryData = {
        content,
        ...(author && { author }),
        ...((customMetadata ?? own) && { customMetadata: { ...customMetadata, ...own } }),
      };
      const memory = newMemory(data, { ...owner, sessionId, memoryId, time, ttlMs });
      if (!memory) throw new InvalidArgumentError(`${name} has no word to be found by. Nothing was written.`);
      return memory;
    });
    await this.#add('addMemory', owner, added);
    return added.map(({ memoryId }) => memoryId);
  }

  async #add(operation: string, owner: MemoryOwner, memories: readonly NewMemory[]): Promise<void> {
    if (memories.length === 0) return;
    const context = { operation, key: owner };
    await this.#database.call(context, async () => {
      const stored = await this.#prepared(memories, context);
      await this.#once((sql) => addMemories(sql, stored));
    });
  }

  /** @returns memories as they are stored. */
  async #prepared(memories: readonly NewMemory[], context: ErrorContext): Promise<NewMemory[]> {
    const embedded = this.#embedder
      ? await this.#embedder.embedded(memories, context)
      : await withStoredVectors(this.#database, memories);
    return this.#database.code((texts) =>
      embedded.map((memory) => ({ ...memory, ...encodedMemory(texts, memory, memory) })),
    );
  }

  #embedFailed(error: unknown, context: ErrorContext): void {
    const { onError } = this.#options;
    if (onError) callHost(onError, error, context);
    else process.emitWarning('embed has failed, so memories are found by their words alone. onError gets the reason.');
  }

  /**
   * Finds memories of a user, and of the app, that have words of the question, or with `embed` mean something like it: the best match
   * first, rare words before frequent ones; of equal matches the newer. What only repeats the question is left out: with a projection
   * the question itself is a memory, too.
   */
  async searchMemory(request: SearchMemoriesRequest): Promise<{ memories: FoundMemory[] }> {
    const checked = checkRequest.search(request, 'The request of searchMemory');
    const { appName, userId, query, sessionId, since, includeApp = true } = checked;
    checkKeys({ appName, userId, ...(sessionId !== undefined && { sessionId }) });
    // Now: what the caller does to them later does not count.
    const wanted = Object.entries(checked.metadata ?? {}).map(
      ([name, value]) => [name, JSON.stringify(value)] as const,
    );
    const ranking = new Ranking(query);
    if (ranking.isEmpty) return { memories: [] };
    const context = { operation: 'searchMemory', key: { appName, userId } };
    return this.#database.call(context, async () => {
      const unit = await this.#embedder?.question(query, context);
      const scope = { sessionId, since, model: unit && this.#embedder?.model };
      const { leastCosine = 0 } = this.#options.embed ?? {};
      for (const owner of includeApp ? [userId, ''] : [userId]) {
        const whose = { appName, userId: owner };
        const pages = pagesOf<Read<Compared>>(PAGE, (last) =>
          this.#database.read((sql) => readCompared(sql, whose, scope, last?.memory, PAGE)),
        );
        for await (const page of pages)
          for (const { memory, value } of this.#readable(page)) {
            const similarity = unit && value.vector && cosine(unit, value.vector);
            const isSimilar = similarity !== undefined && similarity > leastCosine;
            ranking.add(memory, value.words, isSimilar ? similarity : undefined);
          }
      }
      return { memories: await this.#best(ranking, wanted, checked) };
    });
  }

  /** The contents of the best ones that meet the conditions. */
  async #best(
    ranking: Ranking,
    wanted: readonly (readonly [name: string, json: string])[],
    request: SearchMemoriesRequest,
  ): Promise<FoundMemory[]> {
    const { limit = this.#options.limit ?? 10, maxCharacters = this.#options.maxCharacters ?? Infinity } = request;
    const found: FoundMemory[] = [];
    let characters = 0;
    for (const part of ranking.ranked(Math.min(Math.max(limit, LEAST_READ), MOST_READ))) {
      if (part.length === 0) break;
      const contents = new Map<string, MemoryData>();
      const keys = part.map(({ memory }) => memory);
      const read = await this.#database.read((sql) => readMemories(sql, keys));
      for (const { memory, value } of this.#readable(read)) contents.set(memoryIdentity(memory), value);
      for (const { memory, score } of part) {
        const data = contents.get(memoryIdentity(memory));
        if (!data || found.length === limit) continue;
        const length = textOf(data.content).length;
        const has = data.customMetadata ?? {};
        const isMeant = wanted.every(([name, json]) => Object.hasOwn(has, name) && JSON.stringify(has[name]) === json);
        if (!isMeant || characters + length > maxCharacters) continue;
        characters += length;
        found.push({ ...storedMemory(memory, data), score });
      }
      if (found.length === limit) break;
    }
    return found;
  }

  /** @returns what is remembered, of a user or of the app, session by session; a page at a time. */
  async listMemories(request: ListMemoriesRequest): Promise<StoredMemory[]> {
    const checked = checkRequest.list(request, 'The request of listMemories');
    const { owner, sessionId } = scopeOf(checked);
    const { limit, after } = checked;
    let last: MemoryKey | undefined = after && { ...owner, sessionId: after.sessionId ?? '', memoryId: after.id };
    if (last) checkMemoryKey(last);
    return this.#database.call({ operation: 'listMemories', key: owner }, async () => {
      const found: StoredMemory[] = [];
      // Only the last page may be shorter, also if there are memories that cannot be read.
      for (;;) {
        const size = limit - found.length;
        const read = await this.#database.read((sql) => listMemories(sql, owner, { sessionId }, last, size));
        for (const { memory, value } of this.#readable(read)) found.push(storedMemory(memory, value));
        if (found.length === limit || read.length < size) return found;
        last = read.at(-1)?.memory;
      }
    });
  }

  /**
   * Forgets memories for good: nothing of them is left in the tables.
   *
   * @returns how many there were, or are with `dryRun`.
   * @throws InvalidArgumentError also when nothing says which.
   */
  async forget(request: ForgetRequest): Promise<number> {
    const checked = checkRequest.forget(request, 'The request of forget');
    const { owner, sessionId } = scopeOf(checked);
    const { memoryId, before, all, dryRun } = checked;
    if (memoryId !== undefined) checkKeys({ memoryId });
    const isRestricted = memoryId !== undefined || sessionId !== undefined || before !== undefined;
    if (isRestricted === (all === true))
      throw new InvalidArgumentError(
        'forget needs memoryId, sessionId or before, or all: true. Nothing was forgotten.',
      );
    const context = { operation: 'forget', key: owner };
    const which = { memoryId, sessionId, before };
    return this.#database.call(context, () =>
      dryRun
        ? this.#database.run((sql) => countMemories(sql, owner, which))
        : this.#once((sql) => deleteMemories(sql, owner, which)),
    );
  }

  /**
   * Gives memories the vectors that they lack, since `embed` had failed, or had another model. It calls `embed` for 100 of them at a time,
   * and ends with what that throws; what it did until then stays.
   *
   * @returns how many got a vector, or would with `dryRun`.
   * @throws InvalidArgumentError also without the option `embed`, and when its vectors are none.
   */
  async rebuildVectors(request: RebuildVectorsRequest = {}): Promise<number> {
    const checked = checkRequest.rebuildVectors(request, 'The request of rebuildVectors');
    checkKeys(givenKey(checked));
    if (!this.#embedder) throw new InvalidArgumentError('rebuildVectors needs the option embed. Nothing was written.');
    return rebuildVectors(this.#database, this.#embedder, checked);
  }

  /**
   * Remembers what is said by itself: in the background, each event once, with its place in the log kept in the same transaction. Run
   * `watch` of what it returns in one process or several.
   *
   * @throws InvalidArgumentError, InvalidKeyError as `SessionProjection`.
   */
  projection(options: MemoryProjectionOptions = {}): SessionProjection {
    const { text, ttlMs, onError, telemetry, codec, maxDecodedBytes, retry, timeoutMs, postgresql } = this.#options;
    const common = { onError, telemetry, codec, maxDecodedBytes, retry, timeoutMs, postgresql };
    const prepared = this.#prepared.bind(this);
    const projection = memoryProjection(this.#database, options, { text, ttlMs, prepared });
    return new SessionProjection(this.#em, { ...common, ...projection.options }, projection.prepare);
  }

  *#readable<T>(read: readonly Read<T>[]): Generator<{ memory: Ranked; value: T }> {
    for (const { memory, value } of read) {
      if (!(value instanceof Undecodable)) {
        yield { memory, value };
        continue;
      }
      const error = new DamagedMemoryError(memory.memoryId, memory.sessionId || undefined, `it is ${value.encoding}`);
      if (this.#options.onDamage) callHost(this.#options.onDamage, error);
      else process.emitWarning(error);
    }
  }

  #once<T>(work: (sql: Sql) => Promise<T>): Promise<T> {
    return once(this.#database, work, { locksRowsOnly: true });
  }
}

/** @throws InvalidKeyError if it cannot be a row's key on every database. */
function checkMemoryKey({ appName, userId, sessionId, memoryId }: MemoryKey): void {
  checkKeys({ appName, ...(userId && { userId }), ...(sessionId && { sessionId }), memoryId });
}

/** @throws InvalidKeyError. */
function scopeOf({ appName, userId, sessionId }: Pick<ForgetRequest, 'appName' | 'userId' | 'sessionId'>) {
  checkKeys({ appName, ...(userId !== undefined && { userId }), ...(sessionId !== undefined && { sessionId }) });
  return { owner: { appName, userId: userId ?? '' }, sessionId };
}

/** @throws UnserializableValueError. */
const copyOfEvent = (event: Event) => decodeEvent(encode(event, 'event').json) ?? event;

const storedMemory = (
  { memoryId, sessionId, time }: Ranked,
  { content, author, customMetadata }: MemoryData,
): StoredMemory => ({
  id: memoryId,
  ...(sessionId && { sessionId }),
  content,
  ...(author !== undefined && { author }),
  timestamp: new Date(time).toISOString(),
  ...(customMetadata && { customMetadata }),
});
