import { InMemoryMemoryService } from '@google/adk';
import { checkMemoryService, type MemoryHarness } from '../../packages/session-contract/src/index.js';
import { expectGenerated } from '../support/generated.js';
import type { Deviations } from '../support/harnesses/deviations.js';
import { nameOf } from './rule.js';
import { deviationsTable } from './tables.js';

const inMemory: MemoryHarness & { deviations: Deviations } = {
  name: 'InMemoryMemoryService',
  async open() {
    const service = new InMemoryMemoryService();
    return { service, another: service };
  },
  deviations: {
    'Q2 a session that was read with its newest events alone removes none of the older': 'forgets the older events',
    'Q2 what the caller does to an event later does not reach memory': 'keeps the very events that it was given',
    'Q4 the best match comes first: more words of the question, and rarer ones': 'gives what it finds as it was added',
    'Q5 numbers, case and punctuation do not hide a word': 'finds A to Z alone, and no word with a mark behind it',
    'Q5 marks on Latin letters do not count, whichever way they are written':
      'finds A to Z alone, and no word with a mark behind it',
    'Q5 words of scripts with blanks are found': 'finds A to Z alone, and no word with a mark behind it',
    'Q5 so are words of scripts without blanks, inside of a sentence':
      'finds A to Z alone, and no word with a mark behind it',
    'Q6 nothing of another user or another app is found, whatever their ids hold':
      'takes user `x/y` of app `a` for user `y` of app `a/x`',
    'Q13 calls, responses, thoughts and partial events are not remembered': 'remembers thoughts and partial events',
  },
};

test('the published contract finds the deviations of ADK’s own service', async () => {
  const verdicts = await checkMemoryService(inMemory);
  const broken = verdicts.filter(({ result }) => result === 'broken').map(nameOf);
  expect(broken.sort()).toEqual(Object.keys(inMemory.deviations).sort());
});

/** `ADK_TEST_UPDATE=1 npx jest test/contract/adk-memory-services` rewrites it. */
test('the table in docs/memory.md is what was found', async () => {
  const { name, deviations } = inMemory;
  await expectGenerated('docs/memory.md', 'deviations', deviationsTable([{ name, deviations }]));
});
