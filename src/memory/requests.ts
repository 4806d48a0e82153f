import type { Event, MemoryEntry, SearchMemoryRequest } from '@google/adk';
import {
  aBoolean,
  aCount,
  aFunction,
  aPlainObject,
  aRecord,
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
import type { DamagedMemoryError } from '../model/errors.js';
import { encode } from '../model/json.js';
import { checkKeys, type SessionKey } from '../model/keys.js';
import { LISTENING_OPTIONS, type CommonOptions, type PostgresqlOptions } from '../model/options.js';
import { anEmbedding, type MemoryEmbedding } from './embedding.js';
import { aContent } from './stored-memories.js';

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

/** Which memories get missing vectors. */
interface RebuildVectorsRequest {
  appName?: string;
  userId?: string;
  dryRun?: boolean;
  signal?: AbortSignal;
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

export const checkOptions = object<MikroOrmMemoryServiceOptions>({ ...LISTENING_OPTIONS, ...MEMORY_OPTIONS });

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

export const checkRequest = {
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

/** @throws InvalidKeyError. */
export function scopeOf({ appName, userId, sessionId }: Pick<ForgetRequest, 'appName' | 'userId' | 'sessionId'>) {
  checkKeys({ appName, ...(userId !== undefined && { userId }), ...(sessionId !== undefined && { sessionId }) });
  return { owner: { appName, userId: userId ?? '' }, sessionId };
}
