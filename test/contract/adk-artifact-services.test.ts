import { FileArtifactService, InMemoryArtifactService, LogLevel, setLogLevel } from '@google/adk';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { checkArtifactService, type ArtifactHarness } from '../../packages/session-contract/src/index.js';
import { expectGenerated } from '../support/generated.js';
import type { Deviations } from '../support/harnesses/deviations.js';
import { nameOf } from './rule.js';
import { deviationsTable } from './tables.js';

const LOSES_FIELDS = 'gives back type and content, and loses the other fields';

const inMemory: ArtifactHarness & { deviations: Deviations } = {
  name: 'InMemoryArtifactService',
  async open() {
    const service = new InMemoryArtifactService();
    return { service, another: service };
  },
  deviations: {
    'P3 an empty text comes back equal': 'refuses an empty text',
    'P3 what the caller does to a Part later does not reach the stored one': 'keeps the very Part that it was given',
    'P7 metadata and types come back, of one version and of all': 'has no type of bytes',
  },
};

const inFiles: ArtifactHarness & { deviations: Deviations } = {
  name: 'FileArtifactService',
  async open() {
    const folder = await mkdtemp(path.join(tmpdir(), 'adk-artifacts-'));
    const service = new FileArtifactService(folder);
    return { service, another: new FileArtifactService(folder), close: () => rm(folder, { recursive: true }) };
  },
  deviations: {
    'P2 of ten saves at once each gets a version of its own': 'all ten get one version, and one content is left',
    'P2 of ten saves at once by two instances each gets a version of its own':
      'all ten get one version, and one content is left',
    'P3 an empty text comes back equal': 'refuses an empty text',
    'P3 half of a surrogate pair comes back equal': 'changes texts that are no UTF-8, and base64 in another form',
    'P3 base64 without padding comes back equal': 'changes texts that are no UTF-8, and base64 in another form',
    'P3 base64 for URLs comes back equal': 'changes texts that are no UTF-8, and base64 in another form',
    'P3 a file with a name comes back equal': LOSES_FIELDS,
    'P3 a reference comes back equal': LOSES_FIELDS,
    'P3 a thought comes back equal': LOSES_FIELDS,
    'P3 a video comes back equal': LOSES_FIELDS,
    'P3 what the caller does to a Part later does not reach the stored one': 'stores what the Part became meanwhile',
    'P4 names that differ by a byte are different artifacts': 'cuts off blanks, and takes names for paths',
    'P4 so are those of different apps, users and sessions':
      'refuses user ids with other characters than `A-Za-z0-9_.@-`',
    "P5 user: names are seen from all sessions of the user in the app, and nobody else's":
      'gives the files of other apps',
  },
};

const found = new Map<string, Deviations>();

// What they log of the failures that are expected of them is no result of these tests.
beforeAll(() => setLogLevel(LogLevel.ERROR));
beforeAll(() => jest.spyOn(console, 'error').mockReturnValue());
afterAll(() => jest.restoreAllMocks());

test.each([inMemory, inFiles])('the published contract finds the deviations of $name', async (reference) => {
  const verdicts = await checkArtifactService(reference);
  const broken = verdicts.filter(({ result }) => result === 'broken').map(nameOf);
  expect(broken.sort()).toEqual(Object.keys(reference.deviations).sort());
  found.set(reference.name, reference.deviations);
});

/** `ADK_TEST_UPDATE=1 npx jest test/contract/adk-artifact-services` rewrites it. */
test('the table in docs/artifacts.md is what was found', async () => {
  const services = Array.from(found, ([name, deviations]) => ({ name, deviations }));
  await expectGenerated('docs/artifacts.md', 'deviations', deviationsTable(services));
});
