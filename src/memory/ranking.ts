import { memoryIdentity, type MemoryKey } from '../transfer/stored-memories.js';
import { countsIn, lengthOf, questionOf, wordsOf, type Question } from './words.js';

/** The usual constants of BM25: how soon more of a word counts no more, and how much long texts lose. */
const K1 = 1.2;
const B = 0.75;

/** What decides between memories of one score. */
export interface Ranked extends MemoryKey {
  time: number;
}

/** A memory that has a word of the question, or another form of it. */
interface Match<Memory> {
  memory: Memory;
  /** As `countsIn` gives them. */
  counts: Uint16Array;
  length: number;
}

/** How much less the first places of two orders count than their difference: the usual constant of reciprocal rank fusion. */
const FUSION = 60;

/**
 * The rank of memories for a question, by BM25 over those that it is given and no others (contract Q6). Each word counts twice: by
 * itself, and by its stem. If vectors are compared, their order and that of the words are fused.
 */
export class Ranking<Memory extends Ranked> {
  readonly #question: Question;
  readonly #matches: Match<Memory>[] = [];
  readonly #similar: (Memory & { score: number })[] = [];
  /** How many memories have each word, and each stem. */
  readonly #having: Uint32Array;
  #memories = 0;
  #words = 0;

  constructor(question: string) {
    this.#question = questionOf(wordsOf(question));
    this.#having = new Uint32Array(2 * this.#question.words.length);
  }

  /** Whether the question has no word, so that it finds nothing. */
  get isEmpty(): boolean {
    return this.#question.words.length === 0;
  }

  /** @param list the words of the memory. @param cosine of its vector and the question's, if that is to count. */
  add(memory: Memory, list: Buffer, cosine?: number): void {
    // It is the question itself, or as good as that (contract Q7).
    if (list.equals(this.#question.list)) return;
    if (cosine !== undefined) this.#similar.push({ ...memory, score: cosine });
    const length = lengthOf(list);
    this.#memories++;
    this.#words += length;
    const counts = countsIn(list, this.#question);
    if (!counts) return;
    this.#matches.push({ memory, counts, length });
    for (const [i, count] of counts.entries()) if (count > 0) this.#having[i] = (this.#having[i] ?? 0) + 1;
  }

  /** @returns those that have a word of the question, or a vector like its own, the best first; of equal scores the newer, then by id. */
  ranked(): (Memory & { score: number })[] {
    const average = this.#words / this.#memories;
    const rarity = Array.from(this.#having, (having) => Math.log(1 + (this.#memories - having + 0.5) / (having + 0.5)));
    const scoreOf = ({ counts, length }: Match<Memory>) => {
      const share = K1 * (1 - B + (B * length) / average);
      let score = 0;
      for (const [i, count] of counts.entries()) score += ((rarity[i] ?? 0) * count * (K1 + 1)) / (count + share);
      return score;
    };
    const byWords = inOrder(this.#matches.map((match) => ({ ...match.memory, score: scoreOf(match) })));
    return this.#similar.length === 0 ? byWords : fused([byWords, inOrder(this.#similar)]);
  }
}

type Scored = Ranked & { score: number };

/** By reciprocal ranks, since scores of words and cosines cannot be compared. */
function fused<Memory extends Scored>(orders: readonly (readonly Memory[])[]): Memory[] {
  const all = new Map<string, Memory>();
  for (const order of orders)
    for (const [i, memory] of order.entries()) {
      const identity = memoryIdentity(memory);
      const score = (all.get(identity)?.score ?? 0) + 1 / (FUSION + i + 1);
      all.set(identity, { ...memory, score });
    }
  return inOrder([...all.values()]);
}

const inOrder = <Memory extends Scored>(memories: Memory[]) =>
  memories.sort((a, b) => b.score - a.score || byAge(a, b));

function byAge(a: Ranked, b: Ranked): number {
  return b.time - a.time || compared(a.memoryId, b.memoryId) || compared(a.sessionId, b.sessionId);
}

const compared = (a: string, b: string) => (a < b ? -1 : Number(a > b));
