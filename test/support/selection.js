/**
 * What `npm test` runs if nothing else is asked for: whether the package works, in a few minutes on two cores. The contract runs on
 * SQLite whole, and on PostgreSQL without what differs little between databases (`coreSuites`).
 */
export const FIRST_TESTS = [
  'test/unit/**/*.test.ts',
  'test/contract/{better-sqlite,postgresql,coverage}.test.ts',
  'test/contract/runner/runner.test.ts',
  'test/contract/recovery/recovery.test.ts',
  'test/faults/processes/killed.test.ts',
  'test/hosts/schema/migrations.test.ts',
  'test/hosts/docs/docs.test.ts',
];

/** Tests that install packages or programs of others for minutes: with ADK_TEST_FULL, as in the scheduled run. */
const INSTALLING = ['hosts/package/(frameworks|install)\\.test\\.ts$', 'hosts/runtimes/'];

/** Clusters of servers, which `npm run test:fire -- ha` starts. */
const CLUSTERS = 'faults/fire/ha/';

const isFull = Boolean(process.env['ADK_TEST_FULL']);

const isBeforeMerge = process.env['ADK_TEST_REQUIRE'] === 'all';

/** The names of files, and other words that choose tests: `-t A10`, `--config path`. */
const words = process.argv.slice(2).filter((word) => !word.startsWith('-'));

const isFirst = !isFull && !isBeforeMerge && !process.env['ADK_TEST_DATABASES'] && words.length === 0;

// Jest's workers, which have other arguments, inherit it.
if (isFirst) process.env['ADK_TEST_FIRST'] = '1';

/** For jest's `testMatch`. */
export const chosenTests = (isFirst ? FIRST_TESTS : ['test/**/*.test.ts']).map((files) => `<rootDir>/${files}`);

/** For jest's `testPathIgnorePatterns`. */
export const ignoredTests = [CLUSTERS, ...(isFull ? [] : INSTALLING)].map((files) => `<rootDir>/test/${files}`);

/** What a run of everything that was chosen leaves out, for its last lines. */
export const leftOut = isFirst
  ? 'most suites on PostgreSQL, and all tests of several processes, faults, hosts, command line, studio and examples that ' +
    'test/support/selection.js does not list. `npx jest test/hosts`, for example, runs a folder; ADK_TEST_REQUIRE=all what CI runs.'
  : isFull
    ? undefined
    : 'what CONTRIBUTING.md leaves to the scheduled run. ADK_TEST_FULL=1 runs it, `npm run test:fire -- ha` the clusters.';
