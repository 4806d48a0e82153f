import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { RESULTS_FOLDER } from './options.js';
import { printHeading, printVerdicts } from './report.js';
import type { Results } from './results.js';
import { verdicts } from './targets.js';

const file = path.resolve(process.argv[2] ?? path.join(RESULTS_FOLDER, 'results.json'));
const results = JSON.parse(await readFile(file, 'utf8')) as Results;
const list = verdicts(results);
const missed = list.filter(({ isMet }) => !isMet);

printHeading(`${file}, ${results.date}: ${results.command}`);
printVerdicts(list);
printHeading(
  missed.length === 0
    ? 'All targets are met.'
    : `${missed.length} of ${list.length} targets are missed or not measured.`,
);
if (missed.length > 0) process.exitCode = 1;
