// Its types are those of CommonJS alone.
// eslint-disable-next-line @typescript-eslint/no-require-imports
const { default: TestSequencer } = require('@jest/test-sequencer');

const isContract = (/** @type {string} */ file) => /[\\/]contract[\\/][^\\/]+\.test\.ts$/.test(file);

/**
 * Begins with the contract's files: each runs all suites of a database, which takes minutes, in two lines. Jest takes large
 * files for long ones where it has not run them before, as in CI, and the last workers would end long after the others.
 */
module.exports = class ContractFirst extends TestSequencer {
  /**
   * @override
   * @param {import('@jest/test-result').Test[]} tests
   */
  async sort(tests) {
    const rank = (/** @type {import('@jest/test-result').Test} */ { path, duration }) =>
      duration === undefined && isContract(path) ? 0 : 1;
    return [...(await super.sort(tests))].sort((a, b) => rank(a) - rank(b));
  }
};
