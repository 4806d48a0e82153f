import { LANGUAGES, TOPICS } from './languages.js';

/** Random numbers from 0 to 1: the same ones for the same seed (mulberry32). */
function randomFrom(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

export interface LabelledSet {
  memories: { id: string; text: string }[];
  /** Each question has one memory that answers it. */
  questions: { language: string; text: string; answer: string }[];
}

/** @returns 2,000 memories: ten of each of 25 people in eight languages; and 200 questions, 25 of each language. */
export function labelledSet(seed = 1): LabelledSet {
  const random = randomFrom(seed);
  const set: LabelledSet = { memories: [], questions: [] };
  for (const [language, { names, values, topics }] of Object.entries(LANGUAGES)) {
    const questions = names.split(',').flatMap((name) =>
      Object.entries(topics).map(([topic, [fact, question]]) => {
        const among = values[TOPICS[topic as keyof typeof TOPICS]].split(',');
        const value = among[Math.floor(random() * among.length)] ?? '';
        const id = `${language} ${name} ${topic}`;
        set.memories.push({ id, text: filled(fact, name, value) });
        return { language, text: filled(question, name, value), answer: id, order: random() };
      }),
    );
    questions.sort((a, b) => a.order - b.order);
    set.questions.push(...questions.slice(0, 25).map(({ order: _, ...question }) => question));
  }
  return set;
}

/** Replaces `N` by the name and `V` by the value, unless they are parts of words. */
const filled = (template: string, name: string, value: string) =>
  template.replace(/(?<![A-Za-zÀ-ÿ])[NV](?![A-Za-zÀ-ÿ])/g, (letter) => (letter === 'N' ? name : value));
