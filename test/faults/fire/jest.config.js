import base from '../../../jest.config.js';

// `npm run test:fire -- ha`: what needs clusters of servers, started here. `npx jest test/faults/fire` has the rest.
/** @type {import('jest').Config} */
export default {
  ...base,
  displayName: 'ha',
  rootDir: '../../..',
  testMatch: ['<rootDir>/test/faults/fire/ha/**/*.test.ts'],
  testPathIgnorePatterns: [],
  maxWorkers: 1,
};
