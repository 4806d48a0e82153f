import { range } from './events.js';

/** A whole number, at least 0 and below n. */
export type Random = (n: number) => number;

/** @returns the same numbers for the same seed, so that a rule that is broken is broken again. */
export function randomNumbers(seed = 1): Random {
  let last = seed;
  return (n) => {
    // Constants of Numerical Recipes.
    last = (last * 1_664_525 + 1_013_904_223) % 2 ** 32;
    return Math.floor((last / 2 ** 32) * n);
  };
}

/** Of UTF-16: NUL, what SQL reads otherwise, and halves of pairs. */
const ODD_UNITS = [0, 0x27, 0x3f, 0x5c, 0xd800, 0xdfff];

const NUMBERS = [0, -7, 0.1, 1e21, -1e-7, 5e-324, Number.MAX_VALUE, Number.MAX_SAFE_INTEGER, Number.MIN_SAFE_INTEGER];

export const oneOf = <T>(random: Random, values: readonly T[]) => values[random(values.length)] as T;

/** At most 11 UTF-16 units, of which half are odd. */
export const randomText = (random: Random): string =>
  String.fromCharCode(...range(random(12)).map(() => (random(2) ? random(0x10000) : oneOf(random, ODD_UNITS))));

/** A value that JSON can carry. */
export function randomValue(random: Random, depth = 3): unknown {
  const inner = () => randomValue(random, depth - 1);
  const leaves = [
    () => null,
    () => random(2) === 1,
    () => oneOf(random, NUMBERS),
    () => (random(2 ** 32) - 2 ** 31) * 2 ** (random(200) - 100),
    () => randomText(random),
  ];
  const branches = [
    () => range(random(4)).map(inner),
    () => Object.fromEntries(range(random(4)).map(() => [randomText(random), inner()])),
  ];
  return oneOf(random, depth > 0 ? [...leaves, ...branches] : leaves)();
}

/** Of each alphabet the first character, and how many follow it. */
const ALPHABETS = { ascii: [0x61, 26], bmp: [0x4e00, 0x5000], emoji: [0x1f300, 0x2ff] } as const;

export type Alphabet = keyof typeof ALPHABETS;

/** A text of n characters that no compression shortens: PostgreSQL compresses what it indexes. */
export function randomName(random: Random, length: number, alphabet: Alphabet): string {
  const [first, size] = ALPHABETS[alphabet];
  return String.fromCodePoint(...range(length).map(() => first + random(size)));
}
