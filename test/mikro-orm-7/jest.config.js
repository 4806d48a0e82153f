import config from '../../jest.config.js';

// MikroORM 7 has ES modules alone, which jest on Node.js 22 can't require.
const esModules = ['lodash-es', '@mikro-orm', 'kysely'];

/** @type {import('jest').Config} */
export default {
  ...config,
  rootDir: 'copy',
  // What is packed is the same; install.test.ts installs it beside MikroORM 7.
  testPathIgnorePatterns: ['/node_modules/', '/test/package/package.test.ts'],
  // Of ADK's own MikroORM 6, nothing has to be transformed.
  transformIgnorePatterns: [`@google/adk/node_modules/`, `/node_modules/(?!(${esModules.join('|')})/)`],
};
