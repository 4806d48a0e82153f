import type { Finder } from './finders.js';
import type { LabelledSet } from './labelled-set.js';

/** How well a finder answers questions, in percent. */
export interface Quality {
  /** How often the answer is among the first ten: recall@10. */
  recall: number;
  /** The mean of 1 / the rank of the answer. */
  mrr: number;
  /** `mrr` of the questions of each language. */
  ofLanguages: ReadonlyMap<string, number>;
}

export async function qualityOf({ find }: Finder, questions: LabelledSet['questions']): Promise<Quality> {
  const ranks = new Map<string, number[]>();
  for (const { language, text, answer } of questions) {
    const rank = (await find(text)).indexOf(answer);
    ranks.set(language, [...(ranks.get(language) ?? []), rank]);
  }
  const all = [...ranks.values()].flat();
  return {
    recall: (100 * all.filter((rank) => rank >= 0).length) / all.length,
    mrr: mrrOf(all),
    ofLanguages: new Map([...ranks].map(([language, of]) => [language, mrrOf(of)])),
  };
}

const mrrOf = (ranks: readonly number[]) =>
  (100 * ranks.reduce((sum, rank) => sum + (rank < 0 ? 0 : 1 / (rank + 1)), 0)) / ranks.length;
