import config from '../../jest.config.js';

// MikroORM 7 has ES modules alone, which jest on Node.js 22 can't require.
const esModules = ['@mikro-orm', 'kysely'];

/** @type {import('jest').Config} */
export default {
  ...config,
  rootDir: 'copy',
  testEnvironment: '<rootDir>/../environment.js',
  moduleNameMapper: { ...config.moduleNameMapper, '^@electric-sql/pglite$': '<rootDir>/../pglite.js' },
  testPathIgnorePatterns: [
    ...(config.testPathIgnorePatterns ?? []),
    // What is packed is the same; install.test.ts installs it beside MikroORM 7.
    '/test/hosts/package/package.test.ts',
    // ADK's development tools need the drivers of MikroORM 6.
    '/test/hosts/docs/dev-ui',
  ],
  // Of ADK's own MikroORM 6, nothing has to be transformed.
  transformIgnorePatterns: [`@google/adk/node_modules/`, `/node_modules/(?!(${esModules.join('|')})/)`],
};
