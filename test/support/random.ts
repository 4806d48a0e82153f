import { appendFileSync } from 'node:fs';
import fc from 'fast-check';
import { SEED } from './random-numbers.js';
import { FAILED_SEEDS, type PropertyName, type Seed } from './seeds.js';

/** The file to which failures are appended for `scripts/explore.js`. */
const found = process.env['ADK_TEST_EXPLORE'];

/** In ms, from the first failure: shortening a counterexample has taken a quarter of an hour. */
const SHRINK_MS = found ? 120_000 : 20_000;

export interface RandomOptions {
  /** How many cases of a sequence are drawn. */
  runs?: number;
  /** Whether to search for a shorter case that also fails. */
  shrinks?: boolean;
}

/**
 * Runs `expectation` with random cases: the same ones on every machine, or new ones if `npm run explore` runs the test.
 */
export async function expectOfRandom<T>(
  name: PropertyName,
  cases: fc.Arbitrary<T>,
  expectation: (value: T) => unknown,
  { runs = 100, shrinks = true }: RandomOptions = {},
): Promise<void> {
  const failed: readonly Seed[] = found ? [] : FAILED_SEEDS[name];
  for (const { seed, run } of [...failed, { seed: SEED, run: undefined }]) {
    const details = await fc.check(fc.asyncProperty(cases, whileItMayShrink(expectation)), {
      seed,
      endOnFailure: !shrinks,
      ...(run === undefined ? { numRuns: runs } : { path: `${run}`, numRuns: 1 }),
    });
    if (!details.failed) continue;
    const index = Number(details.counterexamplePath?.split(':')[0]);
    const line = `'${name}': { seed: ${seed}, run: ${index} }`;
    if (found) appendFileSync(found, `${line}\n`);
    throw new Error(`${line} fails\n${await fc.asyncDefaultReportMessage(details)}`, { cause: details.errorInstance });
  }
}

/** When the time is up, shorter cases count as passed, so that the shortest failure so far is reported. */
function whileItMayShrink<T>(expectation: (value: T) => unknown): (value: T) => Promise<void> {
  let end = Infinity;
  return async (value) => {
    if (performance.now() > end) return;
    try {
      await expectation(value);
    } catch (error) {
      end = Math.min(end, performance.now() + SHRINK_MS);
      throw error;
    }
  };
}
