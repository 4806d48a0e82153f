// Compares the public declarations with api.md, so that a review shows changed public types. With --update, writes api.md.
import { readFileSync, writeFileSync } from 'node:fs';
import { apiReport } from './api-report.js';

const FILE = 'api.md';

const report = apiReport();
if (process.argv.includes('--update')) writeFileSync(FILE, report);
const lines = readFileSync(FILE, 'utf8').split('\n');
const wanted = report.split('\n');
const [removed, added] = [
  lines.filter((line) => !wanted.includes(line)),
  wanted.filter((line) => !lines.includes(line)),
];
if (lines.join('\n') !== report) {
  for (const line of removed) console.error(`- ${line}`);
  for (const line of added) console.error(`+ ${line}`);
  console.error(`The public declarations are not those of ${FILE}. If that is meant: npm run api -- --update`);
  process.exitCode = 1;
}
