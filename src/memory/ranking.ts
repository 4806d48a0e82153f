import type { MemoryKey } from './stored-memories.js';
import { countWords, lengthOf, questionOf, type SearchQuestion } from './words.js';

/** The usual constants of BM25: how soon repetitions of a word stop counting, and how much longer texts lose. */
const K1 = 1.2;
const B = 0.75;

/** Decides the order of memories with equal scores. */
export interface Ranked extends MemoryKey {
  time: number;
  /** Its content as it is stored, if that was read with the words. */
  data?: string | undefined;
}

interface ScoredMemory {
  memory: Ranked;
  score: number;
}

/** The usual constant of reciprocal rank fusion. */
const FUSION = 60;

/** How many memories are found only by their vectors: the ranks of more would hardly count. */
const MOST_SIMILAR = 1_000;

/**
 * Ranks memories for a question by BM25 over the memories that it is given (contract Q6). Each word counts twice: itself, and its
 * stem. If there are vectors, their ranking and that of the words are fused.
 */
export class Ranking {
  readonly #question: SearchQuestion;
  /** Memories that have a word of the question, or another form of it. */
  readonly #matches: Ranked[] = [];
  readonly #lengths: number[] = [];
  /** The results of `countWords`, match by match. */
  #counts = new Uint8Array(2 ** 12);
  /** How many memories have each word, and each stem. */
  readonly #having: Uint32Array;
  readonly #similar: ScoredMemory[] = [];
  readonly #withItsWords = new Set<Ranked>();
  #memories = 0;
  #words = 0;

  constructor(question: string) {
    this.#question = questionOf(question);
    this.#having = new Uint32Array(2 * this.#question.words.length);
  }

  /** Whether the question has no words, and so finds nothing. */
  get isEmpty(): boolean {
    return this.#question.words.length === 0;
  }

  /** Whether a memory has the words of the question and no others, so that it may be the question itself (contract Q7). */
  hasWordsOf(memory: Ranked): boolean {
    return this.#withItsWords.has(memory);
  }

  /** @param list the words of the memory. @param cosine of its vector and the question's, if it counts. */
  add(memory: Ranked, list: Buffer, cosine?: number): void {
    if (list.equals(this.#question.list)) this.#withItsWords.add(memory);
    if (cosine !== undefined) this.#similar.push({ memory, score: cosine });
    const length = lengthOf(list);
    this.#memories++;
    this.#words += length;
    const width = this.#having.length;
    const at = this.#matches.length * width;
    if (at + width > this.#counts.length) this.#grow(at + width);
    if (!countWords(list, this.#question, this.#counts, at)) return;
    this.#matches.push(memory);
    this.#lengths.push(length);
    for (let i = 0; i < width; i++) if (this.#counts[at + i]) this.#having[i] = (this.#having[i] ?? 0) + 1;
  }

  #grow(least: number): void {
    const counts = new Uint8Array(2 * least);
    counts.set(this.#counts);
    this.#counts = counts;
  }

  /**
   * @param size how many memories a part has. A search rarely needs more than one part, and ordering all would take longer.
   * @returns the memories with a word of the question or a similar vector, the best first; with equal scores the newer, then by id.
   */
  *ranked(size: number): Generator<readonly ScoredMemory[]> {
    const byWords = this.#byWords();
    const scored =
      this.#similar.length === 0 ? byWords : fused([best(byWords, byWords.length), best(this.#similar, MOST_SIMILAR)]);
    yield best(scored, size);
    const all = best(scored, scored.length);
    for (let start = size; start < all.length; start += size) yield all.slice(start, start + size);
  }

  #byWords(): ScoredMemory[] {
    const width = this.#having.length;
    const average = this.#words / this.#memories;
    const rarity = Array.from(this.#having, (having) => Math.log(1 + (this.#memories - having + 0.5) / (having + 0.5)));
    return this.#matches.map((memory, match) => {
      const share = K1 * (1 - B + (B * (this.#lengths[match] ?? 0)) / average);
      let score = 0;
      for (let i = 0; i < width; i++) {
        const count = this.#counts[match * width + i] ?? 0;
        score += ((rarity[i] ?? 0) * count * (K1 + 1)) / (count + share);
      }
      return { memory, score };
    });
  }
}

/** Combines rankings by reciprocal ranks, since scores of words cannot be compared with cosines. */
function fused(orders: readonly (readonly ScoredMemory[])[]): ScoredMemory[] {
  const all = new Map<Ranked, ScoredMemory>();
  for (const order of orders)
    for (const [i, { memory }] of order.entries())
      all.set(memory, { memory, score: (all.get(memory)?.score ?? 0) + 1 / (FUSION + i + 1) });
  return [...all.values()];
}

/** @returns the best ones in order, without sorting the others. */
function best(scored: ScoredMemory[], most: number): ScoredMemory[] {
  const inOrder = (a: ScoredMemory, b: ScoredMemory) => b.score - a.score || byAge(a.memory, b.memory);
  if (scored.length <= most) return scored.sort(inOrder);
  const least = Float64Array.from(scored, ({ score }) => score).sort()[scored.length - most] ?? 0;
  return scored
    .filter(({ score }) => score >= least)
    .sort(inOrder)
    .slice(0, most);
}

function byAge(a: Ranked, b: Ranked): number {
  return b.time - a.time || compared(a.memoryId, b.memoryId) || compared(a.sessionId, b.sessionId);
}

const compared = (a: string, b: string) => (a < b ? -1 : Number(a > b));
