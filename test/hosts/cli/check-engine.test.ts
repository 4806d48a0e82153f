import { once } from 'node:events';
import { DATABASES } from '../../support/harnesses/databases.js';
import { availableServers, createDatabase, executeOnServer, type ServerName } from '../../support/servers.js';
import { Proxy } from '../../faults/fire/proxy.js';
import { prepare, remove, run, runAlone, start } from './command.js';

beforeAll(prepare);
afterAll(remove);

/** The bytes of a text, as the proxy sees them. */
const bytes = (text: string) => Buffer.from(text).toString('latin1');

const checkDatabases = async (name: ServerName) =>
  (await executeOnServer<{ name: string }>(name, DATABASES[name].server.databases)).filter((row) =>
    row.name.startsWith('adk_check_'),
  );

// One server is enough: test/contract runs the rules themselves on each.
const name = availableServers().at(-1);

(name ? test : test.skip)('check-engine finds that a server of ours keeps all, and leaves nothing', async () => {
  const { url, drop } = await createDatabase(name!);
  const { code, out } = await runAlone(['check-engine', '--json', '--url', url]);
  const verdicts = JSON.parse(out) as { rule: string; result: string }[];
  expect(verdicts.filter(({ result }) => result !== 'held')).toEqual([]);
  expect(verdicts.map(({ rule }) => rule)).toEqual(expect.arrayContaining(['A1', 'E2', 'O9', 'P2', 'Q1']));
  expect(code).toBe(0);
  expect(await checkDatabases(name!)).toEqual([]);
  await drop();
});

const onPostgresql = availableServers().includes('postgresql') ? test : test.skip;

onPostgresql('check-engine tests a server that all else refuses, and says what does not hold', async () => {
  const { url, drop } = await createDatabase('postgresql');
  const proxy = await Proxy.before(url);
  try {
    proxy.rewrite = (answer) =>
      answer.replace(/(PostgreSQL [\d.]+[^\0]* on )..../, '$1-YB-').replaceAll(bytes('😀'), bytes('😁'));
    expect(await run(['stats', '--url', proxy.url])).toMatchObject({
      code: 1,
      err: expect.stringContaining('This server is YugabyteDB'),
    });
    const { code, out, err } = await runAlone(['check-engine', '--url', proxy.url]);
    const broken = out.split('\n').filter((line) => /^\w+ +broken /.test(line));
    expect(new Set(broken.map((line) => line.split(' ')[0]))).toEqual(new Set(['C1', 'P4']));
    expect(out).toMatch(/^C1 +broken +.*text.*😁/m);
    expect(out).toMatch(/^A1 +held /m);
    expect(err).toContain(`${broken.length} of `);
    expect(code).toBe(1);
    expect(await checkDatabases('postgresql')).toEqual([]);
  } finally {
    await proxy.close();
    await drop();
  }
});

(name ? test : test.skip)('check-engine ends with Ctrl-C, and leaves nothing', async () => {
  const { url, drop } = await createDatabase(name!);
  const child = start(['check-engine', '--url', url]);
  const exited = once(child, 'exit');
  await once(child.stderr, 'data');
  expect(await checkDatabases(name!)).toHaveLength(1);
  child.kill('SIGINT');
  expect(await exited).toEqual([null, 'SIGINT']);
  expect(await checkDatabases(name!)).toEqual([]);
  await drop();
});

test('check-engine needs the URL of a server', async () => {
  expect(await run(['check-engine', '--url', 'sqlite::memory:'])).toMatchObject({
    code: 2,
    err: expect.stringContaining('--url postgresql://'),
  });
});
