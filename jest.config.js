import { chosenTests, ignoredTests } from './test/support/selection.js';

/** @type {import('jest').Config} */
export default {
  testEnvironment: 'node',
  testMatch: chosenTests,
  moduleFileExtensions: ['js', 'ts', 'json', 'node'],
  // Sources are TypeScript and import each other with the extension of what they become.
  moduleNameMapper: {
    '^(\\.{1,2}/.*)\\.js$': '$1',
    // ADK's, the same in one file of CommonJS: Jest loads its 640 files anew for each test file, and must transform them.
    '^lodash-es$': 'lodash',
    // 250 files, which MikroORM's migrator would load for each test file.
    '^@rushstack/ts-command-line$': '<rootDir>/test/support/no-command-line.js',
  },
  transform: {
    '\\.[jt]s$': [
      '@swc/jest',
      {
        jsc: { parser: { syntax: 'typescript' }, target: 'es2022', keepClassNames: true },
        module: { type: 'commonjs' },
      },
    ],
  },
  modulePathIgnorePatterns: ['<rootDir>/dist/', '<rootDir>/test/mikro-orm-7/'],
  testPathIgnorePatterns: ['/node_modules/', ...ignoredTests],
  setupFiles: ['<rootDir>/test/support/async-storages.ts'],
  globalSetup: '<rootDir>/test/support/global-setup.mjs',
  globalTeardown: '<rootDir>/test/support/global-teardown.mjs',
  testSequencer: '<rootDir>/test/support/sequencer.cjs',
  testTimeout: 300_000,
  // Tests wait for servers, processes and clocks for half of their time.
  maxWorkers: 4,
};
