import { execFileSync } from 'node:child_process';

const RULE = 'import-x/no-restricted-paths';

/** In a process of its own, since ESLint's config is an ES module. Only this rule, which needs no types, runs. */
const LINT = `
  import { ESLint } from 'eslint';
  const eslint = new ESLint({
    ruleFilter: ({ ruleId }) => ruleId === '${RULE}',
    overrideConfig: { languageOptions: { parserOptions: { projectService: false } } },
  });
  const found = [];
  for (const [file, imported] of JSON.parse(process.argv[1])) {
    const [{ messages }] = await eslint.lintText("export * from '" + imported + "';", { filePath: file });
    found.push(messages.map(({ ruleId }) => ruleId));
  }
  console.log(JSON.stringify(found));
`;

function rulesBroken(imports: readonly (readonly [file: string, imported: string])[]): string[][] {
  const args = ['--input-type=module', '--eval', LINT, JSON.stringify(imports)];
  return JSON.parse(execFileSync(process.execPath, args, { encoding: 'utf8' })) as string[][];
}

test('the linter refuses an import of a room above, and of nothing else', () => {
  const upward = [
    ['src/model/keys.ts', '../database/sql/tables.js'],
    ['src/database/drivers/sqlite.ts', '../orm/orm-connection.js'],
    ['src/database/sql/tables.ts', '../dialects/dialect.js'],
    ['src/database/dialects/sqlite.ts', '../stores/session-store.js'],
    ['src/database/stores/session-store.ts', '../calls/database.js'],
    ['src/database/calls/transaction.ts', '../../sessions/session-service.js'],
    ['src/log/watch/poller.ts', '../../../migrations/migrate.js'],
    ['src/maintenance/repair.ts', '../sessions/damage.js'],
    ['src/index.ts', './cli/program.js'],
    ['src/studio/studio.ts', '../cli/run.js'],
    ['src/operations/doctor.ts', '../studio/html.js'],
    ['entities/columns.ts', '../src/index.js'],
  ] as const;
  const downward = [
    ['src/cli/run.ts', '../model/errors.js'],
    ['src/sessions/session-service.ts', '../model/keys.js'],
    ['entities/columns.ts', '../src/model/keys.js'],
  ] as const;
  expect(rulesBroken(upward)).toEqual(upward.map(() => [RULE]));
  expect(rulesBroken(downward)).toEqual(downward.map(() => []));
});
