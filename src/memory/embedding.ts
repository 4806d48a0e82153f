import type { Database } from '../database/calls/database.js';
import type { Sql } from '../database/dialects/dialect.js';
import { aFunction, object, rule, someText } from '../model/arguments.js';
import { chunksOf } from '../model/pages.js';
import { mapTexts, Undecodable } from '../model/stored-texts.js';
import { InvalidArgumentError } from '../model/errors.js';
import type { ErrorContext } from '../model/options.js';
import {
  decodedMemory,
  memoriesWithVectors,
  memoryIdentity,
  type MemoryKey,
  type MemoryTexts,
} from './stored-memories.js';
import type { NewMemory } from './memory-content.js';
import { storedVector, unitVector } from './vectors.js';

/** A model that makes vectors of texts, so that memories are also found by their meaning. */
export interface MemoryEmbedding {
  /**
   * Names the model, and everything else that changes its vectors, such as their length. Each stored vector has this name; vectors
   * with other names are not compared.
   */
  model: string;
  /**
   * @param texts at most 100 different texts. Shorten those that are too long for your model: if the function throws, none of them
   *   gets a vector.
   * @param of what the texts are, which many models must know.
   * @returns a vector for each text, in the order of the texts. Only their directions count. An answer that takes longer than
   *   `timeoutMs` is a failure.
   */
  vectors: (texts: readonly string[], of: 'memories' | 'question') => Promise<readonly ArrayLike<number>[]>;
  /**
   * A memory is found only if the cosine of its vector and the question's is larger than this, from -1 to 1; 0 by default. Try your
   * model: with many, any two texts have more than 0.5, so that every question would find something.
   */
  leastCosine?: number;
}

export const anEmbedding = object<MemoryEmbedding>(
  {
    model: someText,
    vectors: aFunction,
    leastCosine: rule('a number from -1 to 1', (value) => typeof value === 'number' && Math.abs(value) <= 1),
  },
  'model',
  'vectors',
);

/** How many texts `vectors` gets at once. */
export const TEXTS_AT_ONCE = 100;

/** Calls the host's function, but not for texts whose vectors are already stored (contract Q14). */
export class Embedder {
  readonly #embedding: MemoryEmbedding;
  readonly #database: Database;
  readonly #failed: (error: unknown, context: ErrorContext) => void;

  /** @param failed gets the function's error if the call continues without vectors. */
  constructor(embedding: MemoryEmbedding, database: Database, failed: (error: unknown, context: ErrorContext) => void) {
    this.#embedding = embedding;
    this.#database = database;
    this.#failed = failed;
  }

  get model(): string {
    return this.#embedding.model;
  }

  /** @returns the question's vector; undefined if there is none: the search then uses only words. */
  async question(text: string, context: ErrorContext): Promise<Float64Array | undefined> {
    try {
      const [vector = []] = await this.#vectors([text], 'question');
      return unitVector(vector);
    } catch (error) {
      this.#failed(error, context);
      return undefined;
    }
  }

  /** Adds vectors to memories. If the function fails, the remaining memories get none. */
  async embedded(memories: readonly NewMemory[], context: ErrorContext): Promise<NewMemory[]> {
    const withVector = await this.#database.run((sql) => storedVectors(sql, memories));
    const known = memories.map(withVector);
    const lacking = known.filter(({ model }) => model !== this.model);
    const texts = [...new Set(lacking.map(({ text }) => text))];
    const made = new Map<string, Buffer>();
    try {
      for (const some of chunksOf(texts, TEXTS_AT_ONCE))
        for (const [text, vector] of await this.vectorsOf(some)) made.set(text, vector);
    } catch (error) {
      this.#failed(error, context);
    }
    return known.map((memory) => {
      const embedding = made.get(memory.text);
      return { ...memory, ...(embedding && { embedding, model: this.model }) };
    });
  }

  /** @returns vectors by their texts, to be stored. @throws the function's error; InvalidArgumentError for an invalid result. */
  async vectorsOf(texts: readonly string[]): Promise<Map<string, Buffer>> {
    const each = [...new Set(texts)];
    const vectors = each.length === 0 ? [] : await this.#vectors(each, 'memories');
    return new Map(
      each.flatMap((text, i) => {
        const stored = storedVector(vectors[i] ?? []);
        return stored ? [[text, stored]] : [];
      }),
    );
  }

  async #vectors(texts: readonly string[], of: 'memories' | 'question'): Promise<readonly ArrayLike<number>[]> {
    const late = (ms: number) => new Error(`embed.vectors did not answer within ${ms} ms.`);
    const vectors = await this.#database.within(this.#embedding.vectors(texts, of), late);
    const areVectors =
      vectors?.length === texts.length &&
      vectors.every((vector) => vector?.length > 0 && Array.prototype.every.call(vector, Number.isFinite));
    if (areVectors) return vectors;
    throw new InvalidArgumentError('embed.vectors must return one array of finite numbers for each text.');
  }
}

/** @returns what gives a memory the vector that it has in the tables, whatever made that, if its content is the same. */
export async function storedVectors(
  sql: Sql,
  memories: readonly NewMemory[],
): Promise<(memory: NewMemory) => NewMemory> {
  const known = new Map<string, Pick<NewMemory, 'model' | 'embedding'>>();
  for (const some of chunksOf(memories, TEXTS_AT_ONCE)) {
    const found = await memoriesWithVectors(sql, some);
    for (const plain of mapTexts(found, (memory) => decodedMemory(sql.texts, memory))) {
      if (plain instanceof Undecodable || plain.model === undefined) continue;
      known.set(contentIdentity(plain), { model: plain.model, embedding: plain.embedding });
    }
  }
  return (memory) => ({ ...memory, ...known.get(contentIdentity(memory)) });
}

const contentIdentity = (memory: MemoryKey & MemoryTexts) => `${memoryIdentity(memory)}\0${memory.data}`;
