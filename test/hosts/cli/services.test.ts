import { execFile } from 'node:child_process';
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { promisify } from 'node:util';
import { MikroORM } from '@mikro-orm/core';
import { AdkArtifact, AdkEvent, AdkMemory, adkEntities } from '../../../entities/index.js';
import { createMigrated } from '../../support/migrated.js';
import { databasesOfUrls } from '../../support/servers.js';
import { installPackage } from '../schema/host-folder.js';

const run = promisify(execFile);

/**
 * Does with a folder of agents what ADK's registry of services does, and then uses the services. Their classes get what the
 * registry gives them: options, or the URI itself.
 */
const PROGRAM = `
import { createEvent } from '@google/adk';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { pathToFileURL } from 'node:url';

const [, , work, uri] = process.argv;
const require = createRequire(path.resolve('agents/package.json'));
const yaml = readFileSync('agents/services.yaml', 'utf8');
const services = {};
let closeServices;
for (const [, scheme, type, from, name] of yaml.matchAll(/- scheme: (.*)\\n *type: (.*)\\n *class: '(.*)#(.*)'/g)) {
  if (!uri.startsWith(scheme + ':')) throw new Error(scheme);
  const { [name]: Service, ...others } = await import(pathToFileURL(require.resolve(from)));
  ({ closeServices } = others);
  services[type] = new Service(work === 'write' ? { uri, agentsDir: 'agents' } : uri);
}
const { session: sessions, artifact: artifacts, memory: memories } = services;
const key = { appName: 'app', userId: 'ada', sessionId: 's' };
if (work === 'write') {
  const session = await sessions.createSession(key);
  const content = { role: 'user', parts: [{ text: 'My dog is called Rex.' }] };
  await sessions.appendEvent({ session, event: createEvent({ author: 'user', content }) });
  await artifacts.saveArtifact({ ...key, filename: 'f', artifact: { text: 'of a file' } });
  await memories.addSessionToMemory(session);
}
const session = await sessions.getSession(key);
const { memories: found } = await memories.searchMemory({ ...key, query: 'dog' });
const file = await artifacts.loadArtifact({ ...key, filename: 'f' });
console.log(JSON.stringify({ said: session.events[0].content.parts[0].text, file: file.text, found: found.length }));
// A pool that is left open would keep the process alive.
await closeServices();
`;

/** Constructs each service with what it must refuse. */
const REFUSED = `
import { InvalidArgumentError } from 'adk-mikro-orm';
import { ArtifactService, MemoryService, SessionService } from 'adk-mikro-orm-cli/services';

const uri = 'sqlite:none.db';
const codec = { name: 'x', encode: String, decode: String };
const messages = [];
for (const Service of [ArtifactService, MemoryService, SessionService])
  for (const given of [undefined, null, 5, {}, { uri: 5 }, { uri, codec }, { uri, agentsDir: 'agents', sessions: {} }])
    try {
      new Service(given);
      messages.push('not refused');
    } catch (error) {
      messages.push(error instanceof InvalidArgumentError ? error.message : String(error));
    }
console.log(JSON.stringify(messages));
`;

let root: string;

beforeAll(async () => {
  root = await installPackage();
  await mkdir(path.join(root, 'agents'));
  await writeFile(path.join(root, 'registry.mjs'), PROGRAM);
  await writeFile(path.join(root, 'refused.mjs'), REFUSED);
}, 900_000);

afterAll(() => rm(root, { recursive: true }));

/** Writes the file of docs/dev-ui.md, for another database. */
async function writeServices(scheme: string): Promise<void> {
  const [, yaml = ''] = /^```yaml\n(.*?)^```$/ms.exec(await readFile('docs/dev-ui.md', 'utf8')) ?? [];
  await writeFile(path.join(root, 'agents/services.yaml'), yaml.replaceAll('postgresql', scheme));
}

const program = (work: string, url: string) =>
  run(process.execPath, ['registry.mjs', work, url], { cwd: root, timeout: 100_000 });

test.each(databasesOfUrls())(
  'U2 services.yaml makes the three services by their URI, on %s',
  async (name) => {
    const { options, url, drop } = await createMigrated(name);
    await writeServices(url.slice(0, url.indexOf(':')));
    try {
      const kept = { said: 'My dog is called Rex.', file: 'of a file', found: 1 };
      for (const work of ['write', 'read']) {
        const { stdout, stderr } = await program(work, url);
        expect([JSON.parse(stdout), stderr]).toEqual([kept, '']);
      }
      const orm = await MikroORM.init({ ...options, entities: adkEntities() });
      const em = orm.em.fork();
      const rows = [em.count(AdkEvent, {}), em.count(AdkArtifact, {}), em.count(AdkMemory, {})];
      expect(await Promise.all(rows)).toEqual([1, 1, 1]);
      await orm.close(true);
    } finally {
      await drop();
    }
  },
  240_000,
);

test('a service refuses a URI without a driver, without a file and without tables, and shows no password', async () => {
  const refused = (url: string, message: RegExp) =>
    expect(program('read', url)).rejects.toMatchObject({ stderr: expect.stringMatching(message) });
  await writeServices('oracle');
  await refused('oracle://ada:secret@localhost/db', /^(?!.*secret).*The database URL has to begin with sqlite:, /s);
  await writeServices('sqlite');
  await refused('sqlite:none.db', /none\.db/);
  await refused('sqlite::memory:', /adk-mikro-orm migrate/);
}, 240_000);

test('a service refuses what is no URI, and options that it would ignore', async () => {
  const { stdout } = await run(process.execPath, ['refused.mjs'], { cwd: root });
  const messages = [
    ...Array<string>(3).fill('The argument must be a URI, or an object with one.'),
    ...Array<string>(2).fill('uri must be a string.'),
    "The argument may not have 'codec'; known are uri, agentsDir.",
    "The argument may not have 'sessions'; known are uri, agentsDir.",
  ];
  expect(JSON.parse(stdout)).toEqual([...messages, ...messages, ...messages]);
}, 240_000);
