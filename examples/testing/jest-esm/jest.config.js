/** @type {import('jest').Config} */
export default {
  transform: {
    // Like TypeScript with `experimentalDecorators` and `emitDecoratorMetadata`, for entities with decorators.
    '\\.ts$': [
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
  extensionsToTreatAsEsm: ['.ts'],
};
