// Runs the tests on MikroORM 7, with jest's own arguments.
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { copy, folder, prepareCopy, repository, runOn7 } from './mikro-orm-7.js';

const packages = path.join(repository, 'node_modules');

prepareCopy();
// The sources must also fit the types of MikroORM 7. `@google/adk-devtools` would find the repository's ADK, whose classes differ.
const project = path.join(copy, 'tsconfig.7.json');
const adk = path.join(folder, 'node_modules/@google/adk/dist/types/index.d.ts');
const compilerOptions = { paths: { '@google/adk': [adk] } };
writeFileSync(project, JSON.stringify({ extends: './tsconfig.build.json', compilerOptions }));
runOn7(path.join(packages, 'typescript/bin/tsc'), ['--noEmit', '-p', project], copy);
runOn7(
  path.join(packages, 'jest/bin/jest.js'),
  ['--config', path.join(folder, 'jest.config.js'), ...process.argv.slice(2)],
  copy,
);
