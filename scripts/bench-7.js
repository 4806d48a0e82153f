// Runs the benchmark on MikroORM 7, with its own options.
import path from 'node:path';
import { copy, prepareCopy, repository, runOn7 } from './mikro-orm-7.js';

prepareCopy();
// Runs in the repository, where results are written: the next run removes the copy.
runOn7(path.join(copy, 'scripts/bench.js'), process.argv.slice(2), repository);
