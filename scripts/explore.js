// Runs the random tests with new seeds on every database, until `--minutes` are over and the last seed is done. Prints failures
// as lines for test/support/seeds.ts. `ADK_TEST_DATABASES` chooses databases.
import { spawnSync } from 'node:child_process';
import { randomInt } from 'node:crypto';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { parseArgs } from 'node:util';

const { values } = parseArgs({ options: { minutes: { type: 'string', default: '30' } } });
const minutes = Number(values.minutes);
if (!(minutes > 0)) throw new Error('--minutes takes a number above 0');

/** The files with random tests, whose titles say so. */
const FILES = 'test/(unit|contract/differential|contract/[^/]+\\.test)';

const until = Date.now() + minutes * 60_000;
const folder = mkdtempSync(path.join(tmpdir(), 'adk-explore-'));
const found = path.join(folder, 'found');
const linesFound = () => (existsSync(found) ? [...new Set(readFileSync(found, 'utf8').trim().split('\n'))] : []);
let rounds = 0;
let isBroken = false;
while (Date.now() < until && !isBroken) {
  const seed = randomInt(2 ** 31);
  console.log(`=== ADK_TEST_SEED=${seed}`);
  const env = {
    ADK_TEST_REQUIRE: 'all',
    ...process.env,
    ADK_TEST_SEED: String(seed),
    ADK_TEST_EXPLORE: found,
  };
  const known = linesFound().length;
  const { status } = spawnSync('npx', ['jest', '--testPathPatterns', FILES, '-t', 'random'], { env, stdio: 'inherit' });
  rounds++;
  // No random case failed, so the next run would fail, too: a server is missing, or a test does not run.
  isBroken = status !== 0 && linesFound().length === known;
}
const lines = linesFound();
rmSync(folder, { recursive: true });
console.log(`${rounds} new seeds, ${lines.length} random cases that fail`);
if (lines.length > 0) console.log(`For test/support/seeds.ts:\n${lines.sort().join('\n')}`);
process.exitCode = isBroken || lines.length > 0 ? 1 : 0;
