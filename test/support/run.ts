import { randomBytes } from 'node:crypto';
import { tmpdir } from 'node:os';

/** Settings of a run of tests from the environment; CONTRIBUTING.md has its variables. */

export const urlVariable = (name: string) => `ADK_TEST_${name.toUpperCase()}_URL`;

export const serverUrl = (name: string) => process.env[urlVariable(name)];

/** `ADK_TEST_DATABASES=sqlite,mysql` leaves the others out. */
export const areChosen = () => Boolean(process.env['ADK_TEST_DATABASES']);

export const isChosen = (name: string) =>
  !areChosen() || process.env['ADK_TEST_DATABASES']?.split(',').includes(name) === true;

/** Whether this is a run of the tests that `selection.js` lists. */
export const isFirstRun = () => process.env['ADK_TEST_FIRST'] === '1';

/** Whether everything must run, as before a merge. */
export const areAllRequired = () => process.env['ADK_TEST_REQUIRE'] === 'all';

/** The beginning of the names of a run's databases, so that its end removes what failed tests left, and nothing else. */
export const runPrefix = () => `adk_test_${process.env['ADK_TEST_RUN'] ?? process.pid}_`;

/** A name for a database, or for the folder of a database that is a file. */
export const newName = () => runPrefix() + randomBytes(5).toString('hex');

/** The folder of databases that are files. Benchmarks keep the default, since they measure the disk. */
export const databaseFolder = () => process.env['ADK_TEST_FOLDER'] ?? tmpdir();
