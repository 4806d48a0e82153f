import type { BaseMemoryService, Event, MemoryEntry, SearchMemoryRequest, Session } from '@google/adk';
import type { EntityManager } from '@mikro-orm/core';
import { randomUUID } from 'node:crypto';
import { isDeepStrictEqual } from 'node:util';
import { textSaidIn } from '../conversation/said.js';
import { Database } from '../database/calls/database.js';
import { onceOnRows } from '../database/calls/once.js';
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
  type Checks,
} from '../model/arguments.js';
import { SessionProjection } from '../log/session-projection.js';
import { mapTexts, Undecodable, type StoredTexts } from '../model/stored-texts.js';
import { DamagedMemoryError, InvalidArgumentError } from '../model/errors.js';
import { decodeEvent, encode } from '../model/json.js';
import { callHost } from '../model/host-callbacks.js';
import { checkKeys, partialKey, type SessionKey } from '../model/keys.js';
import { LISTENING_OPTIONS, type CommonOptions, type PostgresqlOptions, type ErrorContext } from '../model/options.js';
import { pagesOf } from '../model/pages.js';
import { aContent, checkedMemoryKey, encodedMemory, memoryIdentity } from './stored-memories.js';
import { Embedder, anEmbedding, storedVectors, type MemoryEmbedding } from './embedding.js';
import {
  memoryOfEvent,
  newMemory,
  repeatsQuestion,
  saidByEvent,
  saidByHost,
  type MemoryData,
  type MemoryOwner,
  type NewMemory,
} from './memory-content.js';
import {
  LEAST_READ,
  addMemories,
  countMemories,
  deleteMemories,
  dropForgotten,
  listMemories,
  lockOwners,
  rememberedElsewhere,
  readCompared,
  readMemories,
  removeMarks,
  withoutForgotten,
  type Compared,
  type Read,
} from './memory-store.js';
import { memoryProjection, type MemoryProjectionOptions } from './memory-projection.js';
import { Ranking, type Ranked } from './ranking.js';
import { rebuildVectors } from './rebuild-vectors.js';
import { cosine } from './vectors.js';

export interface MikroOrmMemoryServiceOptions extends CommonOptions {
  postgresql?: Omit<PostgresqlOptions, 'notify'>;
  /** How many memories a search returns at most; 10 by default. ADK sends all of them to the model. */
  limit?: number;
  /**
   * How many characters the texts of a search have together at most; 20,000 by default, about 5,000 tokens. A memory with more is not
   * found. `PRELOAD_MEMORY` puts all of them into the instructions of each model request.
   */
  maxCharacters?: number;
  /** How long a memory can be found, in ms; for ever by default. */
  ttlMs?: number;
  /**
   * Returns the text of an event to remember, or undefined. By default the event's texts or, if it has none, its transcriptions, without
   * thoughts, calls, responses and files.
   */
  text?: (event: Event) => string | undefined | Promise<string | undefined>;
  /**
   * Finds memories also by their meaning; by default only by their words. All processes that add memories need it. If it fails,
   * memories are stored and found by their words, and the error is reported to `onError`, or as a warning of the process.
   * `rebuildVectors` adds the missing vectors later.
   */
  embed?: MemoryEmbedding;
  /** Gets a damaged memory that a search has left out. By default the process emits a warning. */
  onDamage?: (error: DamagedMemoryError) => void;
}

/** A stored memory. */
export interface StoredMemory extends MemoryEntry {
  /** The id of its event, or the id that it was added with. */
  id: string;
  /** Absent if it belongs to no session. */
  sessionId?: string;
  customMetadata?: Record<string, unknown>;
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
  /** Leave it out for memories that all users of the app share. */
  userId?: string;
  sessionId?: string;
  /** Each may have an `id`, by which it can be replaced later; otherwise it gets a new one. */
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
  /** Whether to search also the memories of the app; true by default. */
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
  /** Only counts: nothing is forgotten. */
  dryRun?: boolean;
}

export interface ListMemoriesRequest {
  appName: string;
  /** Left out for those of the app. */
  userId?: string;
  sessionId?: string;
  /** The last memory of the previous page. */
  after?: Pick<StoredMemory, 'id' | 'sessionId'>;
  limit: number;
}

/** The options of memory alone. */
export const MEMORY_OPTIONS: Checks<Omit<MikroOrmMemoryServiceOptions, keyof CommonOptions>> = {
  limit: aCount,
  maxCharacters: aCount,
  ttlMs: aWait,
  text: aFunction,
  embed: anEmbedding,
  onDamage: aFunction,
};

const checkOptions = object<MikroOrmMemoryServiceOptions>({ ...LISTENING_OPTIONS, ...MEMORY_OPTIONS });

/** The values are checked by `checkKeys`. */
const owner = { appName: anything, userId: condition(anything) };
const metadata = nullable(aPlainObject);

const aJsonValue = rule('a value that JSON can carry', (value) => {
  try {
    return encode(value, '').json !== '';
  } catch {
    return false;
  }
});

/** Refuses undefined: for a request without a tenant, `{ tenant: request.tenant }` would find the memories that have none. */
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
  rebuildVectors: object<NonNullable<Parameters<MikroOrmMemoryService['rebuildVectors']>[0]>>({
    ...{ appName: condition(anything), userId: condition(anything), dryRun: aBoolean, signal: anAbortSignal },
  }),
  list: object<ListMemoriesRequest>(
    { ...owner, sessionId: condition(anything), after: aRecord, limit: aCount },
    'limit',
  ),
};

/** What fits a prompt: with 100,000 characters in each of ten memories, a model request would fail. */
const MOST_CHARACTERS = 20_000;

/** How many lists of words one statement reads. */
const PAGE = 5_000;

/** How many memories one statement reads at most, for what SQLite accepts. */
const MOST_READ = 500;

/**
 * ADK's memory in the host's own database. Memories are found by their words, in any script, the best match first. This process
 * ranks them, so the order is the same on every database.
 *
 * ```ts
 * const services = adkServices(orm.em, { memory: { maxCharacters: 4_000 } });
 * const runner = new Runner({ appName: 'support', agent, ...services });
 * ```
 *
 * Every method may throw `InvalidArgumentError`, `InvalidKeyError`, `SchemaError`, `DatabaseError`, `CodecError` and
 * `InsideTransactionError`, as those of `MikroOrmSessionService` do.
 */
export class MikroOrmMemoryService implements BaseMemoryService {
  readonly #em: EntityManager;
  #database: Database;
  readonly #options: MikroOrmMemoryServiceOptions;

  /**
   * @param em the host's `EntityManager`, as for `MikroOrmSessionService`.
   * @throws InvalidArgumentError if an option is unknown or its value is invalid.
   * @throws SchemaError if the ORM has no supported driver, or does not list `adkEntities()`.
   */
  constructor(em: EntityManager, options: MikroOrmMemoryServiceOptions = {}) {
    this.#em = em;
    this.#options = checkOptions(options, 'The options of MikroOrmMemoryService');
    this.#database = new Database(em, this.#options);
  }

  get #embedder(): Embedder | undefined {
    const { embed } = this.#options;
    return embed && new Embedder(embed, this.#database, (error, context) => this.#embedFailed(error, context));
  }

  /**
   * This service inside the caller's transaction, so that a memory and the caller's own rows commit or roll back together.
   *
   * @param tx the `EntityManager` from `em.transactional`.
   * @throws InvalidArgumentError if `tx` has other tables than this service: those of another schema or another ORM.
   */
  withEntityManager(tx: EntityManager): MikroOrmMemoryService {
    const database = this.#database.join(tx);
    const joined = new MikroOrmMemoryService(tx, this.#options);
    joined.#database = database;
    return joined;
  }

  /**
   * Remembers what was said in a session. Each event is remembered once, however often you call this, and a `Session` that was read
   * with only its newest events removes no memory of older ones (contract Q2). What a fork has copied is left out while the session
   * that it comes from has it: add that, too.
   *
   * @throws UnserializableValueError with the option `text`, if JSON cannot represent an event that is not partial: `text` gets the
   *   event as it would be stored. Nothing is remembered.
   */
  async addSessionToMemory(session: Session): Promise<void> {
    aSession(session, 'session');
    const { appName, userId, id: sessionId, events } = session;
    await this.addEventsToMemory({ appName, userId, sessionId, events });
  }

  /** @returns the ids of the events that are remembered with another session. */
  async #copiedIn(operation: string, session: SessionKey, events: readonly Event[]): Promise<ReadonlySet<string>> {
    if (session.sessionId === '' || events.length === 0) return new Set();
    const ids = events.map(({ id }) => id);
    return this.#database.unobserved({ operation, key: session }, () =>
      this.#database.run((sql) => rememberedElsewhere(sql, session, ids)),
    );
  }

  /** Remembers events, like `addSessionToMemory`. */
  async addEventsToMemory(request: AddEventsToMemoryRequest): Promise<void> {
    const { events, ...rest } = checkRequest.addEvents(request, 'The request of addEventsToMemory');
    const { customMetadata, ttlMs = this.#options.ttlMs } = rest;
    const { owner, sessionId = '' } = scopeOf(rest);
    checkKeys({ userId: rest.userId });
    for (const { id } of events) checkedMemoryKey({ ...owner, sessionId, memoryId: id });
    const { text } = this.#options;
    // Now, since the host's function may take long: what the caller does to them later does not reach the database.
    const copies = text
      ? events.flatMap((event, i) => (event.partial ? [] : copyOfEvent(event, `events[${i}]`)))
      : events;
    const metadata =
      customMetadata && (JSON.parse(encode(customMetadata, 'customMetadata').json) as MemoryData['customMetadata']);
    const added = { ...owner, sessionId, ttlMs, ...(metadata && { customMetadata: metadata }) };
    const operation = 'addEventsToMemory';
    const made = text ? [] : copies.map((event) => memoryOfEvent(event, saidByEvent(event), added));
    const session = { ...owner, sessionId };
    // Before the host's functions get them; otherwise the transaction that adds them finds out.
    const copied = text || this.#embedder ? await this.#copiedIn(operation, session, copies) : undefined;
    if (text)
      for (const event of copies)
        if (!copied?.has(event.id))
          made.push(memoryOfEvent(event, await saidByHost(this.#database, event, text), added));
    const memories = made.flatMap((memory) => (!memory || copied?.has(memory.memoryId) ? [] : memory));
    await this.#add(operation, owner, memories, { session: copied ? undefined : session });
  }

  /**
   * Remembers something that no event says, such as a fact that the host knows. A memory without an `id` gets one.
   *
   * @throws InvalidArgumentError also for a memory without words, which nobody could find.
   * @throws UnserializableValueError if JSON cannot represent a value of a memory.
   */
  async addMemory(request: AddMemoryRequest): Promise<void> {
    const given = checkRequest.add(request, 'The request of addMemory');
    const { memories, customMetadata, ttlMs = this.#options.ttlMs } = given;
    const { owner, sessionId = '' } = scopeOf(given);
    const added = memories.map((entry, i): NewMemory => {
      const name = `memories[${i}]`;
      const checked = checkRequest.entry(entry, name);
      const { content, author, timestamp, id: memoryId = randomUUID(), customMetadata: own } = checked;
      checkedMemoryKey({ ...owner, sessionId, memoryId });
      const time = timestamp ? Date.parse(timestamp) : Date.now();
      if (Number.isNaN(time)) throw new InvalidArgumentError(`${name}.timestamp must be a date, as in ISO 8601.`);
      const data: MemoryData = {
        content,
        ...(author && { author }),
        ...((customMetadata ?? own) && { customMetadata: { ...customMetadata, ...own } }),
        isAdded: true,
      };
      const memory = newMemory(data, { ...owner, sessionId, memoryId, time, ttlMs });
      if (!memory)
        throw new InvalidArgumentError(`${name} has no words, so nobody could find it. Nothing was written.`);
      return memory;
    });
    const named = added.filter((_, i) => memories[i]?.id !== undefined);
    await this.#add('addMemory', owner, added, { unmark: named });
  }

  /**
   * @param unmark lets these come back if they were forgotten; without it all that were forgotten are left out.
   * @param session the one that the memories are of, if what it has copied is not left out yet.
   */
  async #add(
    operation: string,
    owner: MemoryOwner,
    memories: readonly NewMemory[],
    { unmark, session }: { unmark?: readonly NewMemory[]; session?: SessionKey | undefined },
  ): Promise<void> {
    if (memories.length === 0) return;
    const context = { operation, key: owner };
    await this.#database.call(context, async () => {
      const prepared = this.#embedder ? await this.#prepared(memories, context) : undefined;
      await onceOnRows(this.#database, async (sql) => {
        const added = prepared ?? memories;
        lockOwners(sql, [owner]);
        const { wanted, embedded } = unmark
          ? { wanted: added, embedded: added }
          : await withoutForgotten(sql, added, session);
        const withVector = prepared ? undefined : await storedVectors(sql, embedded);
        await addMemories(sql, withVector ? encodedMemories(sql.texts, wanted.map(withVector)) : wanted);
        if (unmark) removeMarks(sql, unmark);
        else dropForgotten(sql, wanted);
      });
    });
  }

  /** @returns memories with their vectors, encoded. */
  async #prepared(memories: readonly NewMemory[], context: ErrorContext): Promise<NewMemory[]> {
    const embedded = this.#embedder
      ? await this.#embedder.embedded(memories, context)
      : memories.map(await this.#database.run((sql) => storedVectors(sql, memories)));
    return this.#database.code((texts) => encodedMemories(texts, embedded));
  }

  #embedFailed(error: unknown, context: ErrorContext): void {
    const { onError } = this.#options;
    if (onError) callHost(onError, error, context);
    else process.emitWarning('embed has failed, so memories are found only by their words. onError gets the reason.');
  }

  /**
   * Finds memories of a user and of the app that have words of the question or, with `embed`, a similar meaning. The best match comes
   * first; rare words count more than frequent ones; of equal matches, the newer one comes first. An event that only repeats the
   * question is left out, since a projection also remembers the question itself.
   *
   * @returns each with its `score`, which says how well it matches. Scores can be compared only within a search.
   */
  async searchMemory(request: SearchMemoriesRequest): Promise<{ memories: (StoredMemory & { score: number })[] }> {
    const checked = checkRequest.search(request, 'The request of searchMemory');
    const { appName, userId, query, sessionId, since, includeApp = true } = checked;
    checkKeys({ appName, userId, ...(sessionId !== undefined && { sessionId }) });
    // Now: what the caller does to them later does not count.
    const wanted = Object.entries(JSON.parse(JSON.stringify(checked.metadata ?? {})) as Record<string, unknown>);
    const ranking = new Ranking(query);
    if (ranking.isEmpty) return { memories: [] };
    const context = { operation: 'searchMemory', key: { appName, userId } };
    return this.#database.call(context, async () => {
      const unit = await this.#embedder?.question(query, context);
      const scope = { sessionId, since, model: unit && this.#embedder?.model };
      const { leastCosine = 0 } = this.#options.embed ?? {};
      const owners = (includeApp ? [userId, ''] : [userId]).map((owner) => ({ appName, userId: owner }));
      const first = await this.#database.run((sql) =>
        Promise.all(owners.map((owner) => readCompared(sql, owner, scope, undefined, PAGE))),
      );
      for (const [i, owner] of owners.entries()) {
        const pages = pagesOf<Read<Compared>>(PAGE, async (last) =>
          last ? this.#database.run((sql) => readCompared(sql, owner, scope, last.memory, PAGE)) : (first[i] ?? []),
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

  /** Reads the best memories that meet the conditions. */
  async #best(
    ranking: Ranking,
    wanted: readonly (readonly [name: string, value: unknown])[],
    request: SearchMemoriesRequest,
  ): Promise<(StoredMemory & { score: number })[]> {
    const { limit = this.#options.limit ?? 10 } = request;
    const { maxCharacters = this.#options.maxCharacters ?? MOST_CHARACTERS } = request;
    const found: (StoredMemory & { score: number })[] = [];
    const contents = new Set<string>();
    let characters = 0;
    let isSpent = false;
    for (const part of ranking.ranked(Math.min(Math.max(limit, LEAST_READ), MOST_READ))) {
      if (part.length === 0) break;
      const read = new Map<string, MemoryData>();
      const keys = part.map(({ memory }) => memory);
      const rows = await this.#database.run((sql) => readMemories(sql, keys));
      for (const { memory, value } of this.#readable(rows)) read.set(memoryIdentity(memory), value);
      for (const { memory, score } of part) {
        const data = read.get(memoryIdentity(memory));
        if (!data || found.length === limit) continue;
        const length = textSaidIn(data.content).length;
        const has = data.customMetadata ?? {};
        const isMeant = wanted.every(
          ([name, value]) => Object.hasOwn(has, name) && isDeepStrictEqual(has[name], value),
        );
        if (!isMeant || (ranking.hasWordsOf(memory) && repeatsQuestion(data, request.query))) continue;
        // What somebody says in several sessions is one result: the newest, since their ranks are equal.
        const content = JSON.stringify([data.content, data.author]);
        if (contents.has(content)) continue;
        if (characters + length > maxCharacters) {
          isSpent ||= length <= maxCharacters;
          continue;
        }
        contents.add(content);
        characters += length;
        found.push({ ...storedMemory(memory, data), score });
      }
      // Otherwise it would read all memories with a word of the question, to find one that is short enough for the rest.
      if (found.length === limit || isSpent) break;
    }
    return found;
  }

  /** @returns a page of the memories of a user, or of the app, session by session. */
  async listMemories(request: ListMemoriesRequest): Promise<StoredMemory[]> {
    const checked = checkRequest.list(request, 'The request of listMemories');
    const { owner, sessionId } = scopeOf(checked);
    const { limit, after } = checked;
    let last = after && checkedMemoryKey({ ...owner, sessionId: after.sessionId ?? '', memoryId: after.id });
    return this.#database.call({ operation: 'listMemories', key: owner }, async () => {
      const found: StoredMemory[] = [];
      // Fills the page even if some memories cannot be read: only the last page may be shorter.
      for (;;) {
        const size = limit - found.length;
        const read = await this.#database.run((sql) => listMemories(sql, owner, { sessionId }, last, size));
        for (const { memory, value } of this.#readable(read)) found.push(storedMemory(memory, value));
        if (found.length === limit || read.length < size) return found;
        last = read.at(-1)?.memory;
      }
    });
  }

  /**
   * Deletes memories permanently. Their events are not remembered again, unless `addMemory` adds them by their id.
   *
   * @returns how many were deleted, or would be with `dryRun`.
   * @throws InvalidArgumentError also if the request does not say which memories to forget.
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
        : onceOnRows(this.#database, (sql) => deleteMemories(sql, owner, which)),
    );
  }

  /**
   * Adds missing vectors to memories, after `embed` had failed or its model has changed. It calls `embed` for 100 memories at a time. If
   * that throws, the call fails with its error, and the vectors that were already added stay.
   *
   * @returns how many memories got a vector, or would with `dryRun`.
   * @throws InvalidArgumentError also without the option `embed`, or if it returns invalid vectors.
   */
  async rebuildVectors(
    request: { appName?: string; userId?: string; dryRun?: boolean; signal?: AbortSignal } = {},
  ): Promise<number> {
    const checked = checkRequest.rebuildVectors(request, 'The request of rebuildVectors');
    checkKeys(partialKey(checked));
    if (!this.#embedder) throw new InvalidArgumentError('rebuildVectors needs the option embed. Nothing was written.');
    return rebuildVectors(this.#database, this.#embedder, checked);
  }

  /**
   * Makes a projection that remembers what is said in the background, each event exactly once. Call its `watch` in one process or
   * several.
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
}

const encodedMemories = (texts: StoredTexts, memories: readonly NewMemory[]) =>
  mapTexts(memories, (memory) => encodedMemory(texts, memory));

/** @throws InvalidKeyError. */
function scopeOf({ appName, userId, sessionId }: Pick<ForgetRequest, 'appName' | 'userId' | 'sessionId'>) {
  checkKeys({ appName, ...(userId !== undefined && { userId }), ...(sessionId !== undefined && { sessionId }) });
  return { owner: { appName, userId: userId ?? '' }, sessionId };
}

/** @throws UnserializableValueError. */
const copyOfEvent = (event: Event, path: string) => decodeEvent(encode(event, path).json) ?? event;

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
