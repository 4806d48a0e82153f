/** One case of a sequence of random cases, by its index. */
export interface Seed {
  seed: number;
  run: number;
}

/**
 * The random properties, each with every seed that ever failed it; `npm run explore` prints lines for this list. A run of tests
 * draws these cases, and for each property the first cases of a fixed sequence.
 */
export const FAILED_SEEDS = {
  operations: [],
  pasts: [
    { seed: 936113353, run: 5 },
    { seed: 909726451, run: 116 },
  ],
  'complete log': [],
  'times in tables': [],
  'texts through every call': [],
  'JSON that comes back': [],
  'values that come back': [],
  'handles that catch up': [],
  'handles that are behind': [],
  'texts of UTF-8': [],
  'ranges of numbers': [],
  'gaps of numbers': [],
  'names of scopes': [],
  'keys of scopes': [],
  'entries by scope': [],
  'order of entries': [],
  'calls that wait': [],
  'rows of open calls': [],
  'calls of bounded histories': [],
  'shapes of events': [],
} satisfies Record<string, Seed[]>;

export type PropertyName = keyof typeof FAILED_SEEDS;
