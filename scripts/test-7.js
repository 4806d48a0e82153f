// Runs the tests on MikroORM 7, with jest's own arguments.
import path from 'node:path';
import { copy, folder, prepareCopy, runOn7 } from './mikro-orm-7.js';

prepareCopy();
// The sources fit the types of MikroORM 7 as well.
runOn7('typescript/bin/tsc', ['--noEmit', '-p', 'tsconfig.build.json'], copy);
runOn7('jest/bin/jest.js', ['--config', path.join(folder, 'jest.config.js'), ...process.argv.slice(2)], copy);
