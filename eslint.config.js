import { fileURLToPath } from 'node:url';
import { defineConfig } from 'eslint/config';
import { createNodeResolver, importX } from 'eslint-plugin-import-x';
import tseslint from 'typescript-eslint';

/** The rooms of the house, from the top down: a room imports those below it. docs/architecture.md has the picture. */
const ROOMS = [
  ['packages/cli'],
  ['packages/studio', 'packages/import'],
  ['packages/http'],
  ['src/testing'],
  ['src/index.ts', 'src/run-turn.ts', 'src/services.ts'],
  ['src/maintenance'],
  ['src/transfer'],
  ['src/credentials', 'src/leases', 'src/memory'],
  ['src/sessions'],
  ['migrations'],
  ['src/log'],
  ['src/artifacts'],
  ['src/owned'],
  ['src/database/calls'],
  ['src/database/statements'],
  ['src/database/dialects'],
  ['src/database/sql', 'src/database/orm'],
  ['src/database/drivers'],
  ['src/telemetry'],
  ['entities', 'src/conversation', 'src/codecs'],
  ['src/model'],
];

const noArrowUp = ROOMS.slice(1).flatMap((room, i) =>
  room.map((target) => ({
    target,
    from: ROOMS.slice(0, i + 1).flat(),
    message: 'A room imports those below it only.',
  })),
);

/** What a package may use of others: what they export, and the pure functions of scripts/packages.js, which its build includes. */
const EXPORTED = {
  src: ['index.ts', 'internal.ts', 'model', 'conversation', 'database/sql'],
  entities: ['dialect-name.ts'],
  migrations: ['index.ts'],
  'packages/studio': [
    'index.ts',
    'internal.ts',
    ...['days', 'prices', 'words'].map((name) => `operations/${name}.ts`),
  ].map((name) => `src/${name}`),
  'packages/http': ['index.ts', 'file-response.ts', 'file.ts', 'listener.ts'].map((name) => `src/${name}`),
  'packages/import': ['src/index.ts', 'src/exact-json.ts'],
  'packages/session-contract': ['src/index.ts'],
};

const notExported = Object.entries(EXPORTED).flatMap(([from, except]) =>
  ['packages/cli', 'packages/http', 'packages/import', 'packages/studio']
    .filter((target) => target !== from)
    .map((target) => ({ target, from, except, message: 'A package uses what others export, and pure functions.' })),
);

const judgeOfAll = {
  target: 'packages/session-contract',
  from: ['src', 'entities', 'migrations'],
  message: 'The contract judges any session service, so it uses none.',
};

export default defineConfig(
  {
    ignores: [
      '**/dist',
      'coverage',
      'examples/testing',
      'examples/frameworks',
      'test/mikro-orm-7/copy',
      'site/.vitepress',
      'site/pages',
    ],
  },
  tseslint.configs.strictTypeChecked,
  {
    languageOptions: {
      parserOptions: { projectService: true, tsconfigRootDir: fileURLToPath(new URL('.', import.meta.url)) },
    },
    linterOptions: { reportUnusedDisableDirectives: 'error' },
    plugins: { 'import-x': importX },
    settings: {
      'import-x/parsers': { '@typescript-eslint/parser': ['.ts'] },
      'import-x/extensions': ['.ts', '.js'],
      // Sources are TypeScript and import each other with the extension of what they become.
      'import-x/resolver-next': [
        createNodeResolver({ extensions: ['.ts', '.js'], extensionAlias: { '.js': ['.ts', '.js'] } }),
      ],
    },
    rules: {
      'import-x/no-restricted-paths': ['error', { zones: [...noArrowUp, ...notExported, judgeOfAll] }],
      '@typescript-eslint/no-unnecessary-condition': 'off', // handles made by hand lack what the ADK's types promise
      '@typescript-eslint/no-dynamic-delete': 'off', // what state keys are for
      '@typescript-eslint/no-unsafe-class-instance-assignment': 'off', // entity managers are known by their base class only
      '@typescript-eslint/consistent-type-imports': [
        'error',
        { fixStyle: 'inline-type-imports', disallowTypeAnnotations: false },
      ],
      '@typescript-eslint/restrict-template-expressions': ['error', { allowNumber: true }],
      '@typescript-eslint/no-confusing-void-expression': ['error', { ignoreArrowShorthand: true }],
      '@typescript-eslint/no-unused-vars': ['error', { argsIgnorePattern: '^_', varsIgnorePattern: '^_' }],
      '@typescript-eslint/no-invalid-void-type': ['error', { allowAsThisParameter: true }],
      eqeqeq: 'error',
      'no-restricted-syntax': [
        'error',
        {
          selector:
            ':matches(TSParameterProperty, PropertyDefinition, MethodDefinition[kind="method"])[accessibility="private"]',
          message: 'Write #name.',
        },
      ],
    },
  },
  {
    files: ['src/**', 'packages/*/src/**'],
    // A page has the clock of its browser; rules are judged by the clock of the host that runs them.
    ignores: ['src/model/clock.ts', 'packages/studio/src/{browser,assets}/**', 'packages/session-contract/**'],
    rules: {
      'no-restricted-globals': [
        'error',
        ...['setTimeout', 'clearTimeout', 'setInterval', 'clearInterval', 'setImmediate', 'performance'].map(
          (name) => ({
            name,
            message: 'Import it from src/model/clock.ts: tests of a host may replace the global one.',
          }),
        ),
      ],
    },
  },
  {
    // MikroORM's property builders are functions, typed as methods.
    files: ['entities/**'],
    rules: { '@typescript-eslint/unbound-method': 'off' },
  },
  {
    // A test may reach into what it tests, a mock need not wait, and Jest's matchers are `any`.
    files: ['test/**', 'bench/**'],
    rules: {
      '@typescript-eslint/no-non-null-assertion': 'off',
      '@typescript-eslint/no-unsafe-argument': 'off',
      '@typescript-eslint/no-unsafe-assignment': 'off',
      '@typescript-eslint/no-unsafe-return': 'off',
      '@typescript-eslint/require-await': 'off',
      '@typescript-eslint/unbound-method': 'off',
    },
  },
);
