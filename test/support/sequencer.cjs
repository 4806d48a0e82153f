// The package has types for CommonJS only.
// eslint-disable-next-line @typescript-eslint/no-require-imports
const { default: TestSequencer } = require('@jest/test-sequencer');

/** Small files that take long, longest first: each of the first kind runs all suites of a database. */
const LONG = [/[\\/]contract[\\/][^\\/]+$/, /[\\/]contract[\\/](runner|differential)[\\/]/];

/**
 * Begins with the files that take longest. If jest has not run them before, as in CI, it expects large files to take longest,
 * and the last workers would end long after the others.
 */
module.exports = class LongestFirst extends TestSequencer {
  /**
   * @override
   * @param {import('@jest/test-result').Test[]} tests
   */
  async sort(tests) {
    const rank = (/** @type {import('@jest/test-result').Test} */ { path, duration }) => {
      const known = duration === undefined ? LONG.findIndex((files) => files.test(path)) : -1;
      return known === -1 ? LONG.length : known;
    };
    return [...(await super.sort(tests))].sort((a, b) => rank(a) - rank(b));
  }
};
