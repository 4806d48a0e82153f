import type { BaseMemoryService, Event, Session } from '@google/adk';
import type { EntityManager } from '@mikro-orm/core';
import { randomUUID } from 'node:crypto';
import { Database } from '../database/calls/database.js';
import { onceOnRows } from '../database/calls/once.js';
import { SessionProjection } from '../log/session-projection.js';
import { aSession } from '../model/arguments.js';
import { InvalidArgumentError } from '../model/errors.js';
import { callHost } from '../model/host-callbacks.js';
import { decodeEvent, encode } from '../model/json.js';
import { checkKeys, partialKey, type SessionKey } from '../model/keys.js';
import { LISTENING_OPTIONS, type CommonOptions, type ErrorContext } from '../model/options.js';
import { mapTexts, type StoredTexts } from '../model/stored-texts.js';
import { Embedder, storedVectors } from './embedding.js';
import {
  memoryOfEvent,
  newMemory,
  saidByEvent,
  saidByHost,
  type MemoryData,
  type MemoryOwner,
  type NewMemory,
} from './memory-content.js';
import { memoryProjection, type MemoryProjectionOptions } from './memory-projection.js';
import {
  addMemories,
  countMemories,
  deleteMemories,
  dropForgotten,
  lockOwners,
  rememberedElsewhere,
  removeMarks,
  withoutForgotten,
} from './memory-store.js';
import { listMemories, searchMemory } from './reading.js';
import { rebuildVectors } from './rebuild-vectors.js';
import {
  checkOptions,
  checkRequest,
  scopeOf,
  type AddEventsToMemoryRequest,
  type AddMemoryRequest,
  type ForgetRequest,
  type ListMemoriesRequest,
  type MikroOrmMemoryServiceOptions,
  type SearchMemoriesRequest,
  type StoredMemory,
} from './requests.js';
import { checkedMemoryKey, encodedMemory } from './stored-memories.js';

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
  readonly #database: Database;
  readonly #options: MikroOrmMemoryServiceOptions;
  readonly #embedder: Embedder | undefined;

  /**
   * @param em the host's `EntityManager`, as for `MikroOrmSessionService`.
   * @throws InvalidArgumentError if an option is unknown or its value is invalid.
   * @throws SchemaError if the ORM has no supported driver, or does not list `adkEntities()`.
   */
  constructor(em: EntityManager, options?: MikroOrmMemoryServiceOptions);
  /** @internal @param database joins the caller's transaction. */
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

  get #reader() {
    return { database: this.#database, options: this.#options, embedder: this.#embedder };
  }

  /**
   * This service inside the caller's transaction, so that a memory and the caller's own rows commit or roll back together.
   *
   * @param tx the `EntityManager` from `em.transactional`.
   * @throws InvalidArgumentError if `tx` has other tables than this service: those of another schema or another ORM.
   */
  withEntityManager(tx: EntityManager): MikroOrmMemoryService {
    return new MikroOrmMemoryService(tx, this.#options, this.#database.join(tx));
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
    return searchMemory(this.#reader, checked);
  }

  /** @returns a page of the memories of a user, or of the app, session by session. */
  async listMemories(request: ListMemoriesRequest): Promise<StoredMemory[]> {
    return listMemories(this.#reader, checkRequest.list(request, 'The request of listMemories'));
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
    const { text, ttlMs } = this.#options;
    const common: CommonOptions = Object.fromEntries(
      Object.entries(this.#options).filter(([name]) => name in LISTENING_OPTIONS),
    );
    const prepared = this.#prepared.bind(this);
    const projection = memoryProjection(this.#database, options, { text, ttlMs, prepared });
    return new SessionProjection(this.#em, { ...common, ...projection.options }, projection.prepare);
  }
}

const encodedMemories = (texts: StoredTexts, memories: readonly NewMemory[]) =>
  mapTexts(memories, (memory) => encodedMemory(texts, memory));

/** @throws UnserializableValueError. */
const copyOfEvent = (event: Event, path: string) => decodeEvent(encode(event, path).json) ?? event;
