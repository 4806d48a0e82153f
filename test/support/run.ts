import { randomBytes } from 'node:crypto';
import { tmpdir } from 'node:os';

/** Settings of a run of tests from the environment; CONTRIBUTING.md has its variables. */

export const urlVariable = (name: string) => `ADK_TEST_${name.toUpperCase()}_URL`;

export const serverUrl = (name: string) => process.env[urlVariable(name)];

/** `ADK_TEST_DATABASES=sqlite,mysql` leaves the others out. */
export const areChosen = () => Boolean(process.env['ADK_TEST_DATABASES']);

export const isChosen = (name: string) =>
  !areChosen() || process.env['ADK_TEST_DATABASES']?.split(',').includes(name) === true;

/** As before a merge. */
export const areAllRequired = () => process.env['ADK_TEST_REQUIRE'] === 'all';

/** Begins the names of one run's databases, so that its end can sweep what failed tests left and nothing else. */
export const runPrefix = () => `adk_test_${process.env['ADK_TEST_RUN'] ?? process.pid}_`;

/** Of a database, or of the folder of one that is a file. */
export const newName = () => runPrefix() + randomBytes(5).toString('hex');

/** Where databases are that are files. Benchmarks set no other: they measure the disk. */
export const databaseFolder = () => process.env['ADK_TEST_FOLDER'] ?? tmpdir();
