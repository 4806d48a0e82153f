// Compares the public declarations with the api.md of each package, so that a review shows changed public types. With --update, writes
// these files.
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { apiReport } from './api-report.js';

for (const [file, report] of Object.entries(apiReport())) {
  if (process.argv.includes('--update')) writeFileSync(file, report);
  const found = existsSync(file) ? readFileSync(file, 'utf8') : '';
  if (found === report) continue;
  const [lines, wanted] = [found.split('\n'), report.split('\n')];
  for (const line of lines.filter((each) => !wanted.includes(each))) console.error(`- ${line}`);
  for (const line of wanted.filter((each) => !lines.includes(each))) console.error(`+ ${line}`);
  console.error(`The public declarations are not those of ${file}. If that is meant: npm run api -- --update`);
  process.exitCode = 1;
}
