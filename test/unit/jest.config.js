import shared from '../../jest.config.js';

// No servers are started: these tests need no database.
const { globalSetup: _setup, globalTeardown: _teardown, ...config } = shared;

/** @type {import('jest').Config} */
export default {
  ...config,
  rootDir: '../..',
  testMatch: ['<rootDir>/test/unit/**/*.test.ts'],
  testTimeout: 30_000,
};
