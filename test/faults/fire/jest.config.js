import base from '../../../jest.config.js';

// `npm run test:fire -- ha` runs the tests with clusters, which they start. `npx jest test/faults/fire` runs the others.
/** @type {import('jest').Config} */
export default {
  ...base,
  displayName: 'ha',
  rootDir: '../../..',
  testMatch: ['<rootDir>/test/faults/fire/ha/**/*.test.ts'],
  testPathIgnorePatterns: [],
  maxWorkers: 1,
};
