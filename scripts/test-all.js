// Runs every test and the checks of CI, and prints how long each part took: for the scheduled run, and before a release. Needs
// Chromium, and what CONTRIBUTING.md names for `test:fire`.
import { spawnSync } from 'node:child_process';

const PARTS = [
  'lint',
  'typecheck',
  'api',
  'check:licences',
  'build',
  'check:package',
  'test:unit',
  'test',
  'test:7',
  'test:fire -- ha',
];

const env = { ...process.env, ADK_TEST_REQUIRE: 'all', ADK_TEST_LONG: '1', ADK_TEST_FULL: '1' };
const servers = spawnSync('bash', ['scripts/test-servers.sh', 'mariadb', 'mysql', 'pgbouncer'], {
  env,
  encoding: 'utf8',
  stdio: ['ignore', 'pipe', 'inherit'],
});
if (servers.status !== 0) process.exit(servers.status ?? 1);
for (const [, name = '', url = ''] of servers.stdout.matchAll(/^export (\w+)=(.*)$/gm))
  Object.assign(env, { [name]: url });

const results = PARTS.map((part) => {
  console.log(`=== npm run ${part}`);
  const start = performance.now();
  // Not on the other major: long runs search for faults that do not depend on MikroORM.
  const { ADK_TEST_LONG: _, ...short } = env;
  const { status } = spawnSync('npm', ['run', ...part.split(' ')], {
    env: part === 'test:7' ? short : env,
    stdio: 'inherit',
  });
  return { part, passed: status === 0, seconds: Math.round((performance.now() - start) / 1000) };
});
console.table(results);
if (results.some(({ passed }) => !passed)) process.exitCode = 1;
