/** @type {import('jest').Config} */
module.exports = {
  transform: {
    // Like TypeScript with `experimentalDecorators` and `emitDecoratorMetadata`, for entities with decorators.
    '\\.[jt]s$': [
      '@swc/jest',
      {
        jsc: {
          parser: { syntax: 'typescript', decorators: true },
          transform: { legacyDecorator: true, decoratorMetadata: true },
        },
      },
    ],
  },
  // With `"module": "nodenext"` an import of agent.ts names agent.js.
  moduleNameMapper: { '^(\\.{1,2}/.*)\\.js$': '$1' },
  // These have ES modules only, which jest compiles like your own sources: lodash-es, which @google/adk requires, and
  // MikroORM 7.
  transformIgnorePatterns: ['/node_modules/(?!.*(lodash-es|@mikro-orm|kysely)/)'],
};
