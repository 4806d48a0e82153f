import { createEvent } from '@google/adk';
import type { EntityManager } from '@mikro-orm/core';
import { readFile, readdir } from 'node:fs/promises';
import { loadavg } from 'node:os';
import { performance } from 'node:perf_hooks';
import { encryption } from '../../src/codecs/index.js';
import { MikroOrmSessionService } from '../../src/index.js';
import { MikroOrmMemoryService } from '../../src/memory/memory-service.js';
import { wordList, wordsOf } from '../../src/memory/words.js';
import type { DatabaseName } from '../../test/support/servers.js';
import { duration, number, printHeading, printTable, showProgress } from '../report.js';

interface User {
  userId: string;
  memories: number;
}

/** How many memories each user has: 100,000 in all. */
const USERS: readonly User[] = [
  { userId: 'some', memories: 2_000 },
  { userId: 'many', memories: 10_000 },
  ...Array.from({ length: 440 }, (_, i) => ({ userId: `user ${i}`, memories: 200 })),
];
const SEARCHED = USERS.slice(0, 2);

/** The users who have memories with vectors. */
const WITH_VECTORS: readonly User[] = [2_000, 10_000, 50_000].map((memories) => ({ userId: `${memories}`, memories }));
const DIMENSIONS = 768;

const AT_ONCE = 200;
const QUESTIONS = 60;
const WORDS = 30_000;

/** Times in ms by the number of memories, and the factor for encryption; memories a second; and the size of lists of words relative to the text. */
const TARGETS = {
  search: new Map([
    [2_000, 10],
    [10_000, 40],
  ]),
  encrypted: 3,
  ingest: { sqlite: 5_000, server: 3_000 },
  words: 0.6,
};

/** Numbers from 0 to 1. */
function randomFrom(seed: number): () => number {
  let state = seed;
  return () => (state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0) / 2 ** 32;
}

/** Texts of so many words, by Zipf's law. */
const wordsFrom = (random: () => number) => (count: number) =>
  Array.from({ length: count }, () => `w${Math.floor(WORDS ** random()).toString(36)}x`).join(' ');

/** How many sessions a projection follows, and how many events each has. */
const FOLLOWED = { sessions: 40, events: 100 };

/** @returns how many memories a projection adds in a second. */
async function projected(em: EntityManager): Promise<number> {
  const words = wordsFrom(randomFrom(1));
  const sessions = new MikroOrmSessionService(em);
  for (let i = 0; i < FOLLOWED.sessions; i++) {
    const session = await sessions.createSession({
      appName: 'projected',
      userId: `user ${i % 20}`,
      sessionId: `s${i}`,
    });
    const events = Array.from({ length: FOLLOWED.events }, (_, j) =>
      createEvent({ author: 'agent', content: { parts: [{ text: words(8 + ((i + j * 7) % 64)) }] } }),
    );
    await sessions.appendEvents({ session, events });
  }
  const projection = new MikroOrmMemoryService(em).projection({ filter: { appName: 'projected' } });
  const began = performance.now();
  await projection.catchUp();
  return (FOLLOWED.sessions * FOLLOWED.events) / ((performance.now() - began) / 1_000);
}

/** The relative size of lists of words, for the paragraphs of the docs: generated words are too short, and repeat too rarely. */
async function shareOfLists(): Promise<number> {
  let [lists, bytes] = [0, 0];
  for (const page of (await readdir('docs')).filter((name) => name.endsWith('.md')))
    for (const paragraph of (await readFile(`docs/${page}`, 'utf8')).split('\n\n')) {
      if (!/^[A-Z]/.test(paragraph)) continue;
      lists += wordList(wordsOf(paragraph)).length;
      bytes += Buffer.byteLength(paragraph);
    }
  return lists / bytes;
}

/** Adds 100,000 memories, and searches those of two users; then the same with vectors. */
export async function runSpeed(database: DatabaseName, em: EntityManager): Promise<void> {
  const random = randomFrom(1);
  const words = wordsFrom(random);
  const service = new MikroOrmMemoryService(em);
  const codec = encryption({ currentKey: 'k', key: () => Buffer.alloc(32, 1) });
  const encrypted = new MikroOrmMemoryService(em, { codec });
  const vectors = async (texts: readonly string[]) =>
    texts.map(() => Float32Array.from({ length: DIMENSIONS }, () => random() - 0.5));
  const embed = { model: 'random', vectors };
  const withVectors = new MikroOrmMemoryService(em, { embed });
  const add = async (to: MikroOrmMemoryService, appName: string, { userId, memories }: User) => {
    for (let first = 0; first < memories; first += AT_ONCE) {
      const events = Array.from({ length: Math.min(AT_ONCE, memories - first) }, (_, i) => {
        const text = words(8 + ((first + i * 7) % 64));
        return createEvent({ id: `e${first + i}`, timestamp: first + i, content: { parts: [{ text }] } });
      });
      await to.addEventsToMemory({ appName, userId, sessionId: 's', events });
    }
  };
  showProgress(`${database}: adding memories by a projection`);
  const projectedPerSecond = await projected(em);
  showProgress(`${database}: adding 100,000 memories`);
  const begin = performance.now();
  for (const user of USERS) await add(service, 'plain', user);
  const perSecond = 100_000 / ((performance.now() - begin) / 1_000);
  showProgress(`${database}: adding those that are encrypted, and those with vectors`);
  for (const user of SEARCHED) await add(encrypted, 'encrypted', user);
  for (const user of WITH_VECTORS) await add(withVectors, 'vectors', user);

  const rows: string[][] = [];
  const search = async (of: MikroOrmMemoryService, appName: string, { userId, memories }: User, most?: number) => {
    showProgress(`${database}: searching ${number(memories)} memories, ${appName}`);
    const times: number[] = [];
    const cpu: number[] = [];
    for (let i = 0; i <= QUESTIONS; i++) {
      const query = words(3 + (i % 5));
      const [began, before] = [performance.now(), process.cpuUsage()];
      await of.searchMemory({ appName, userId, query });
      if (i === 0) continue;
      times.push(performance.now() - began);
      const { user, system } = process.cpuUsage(before);
      cpu.push((user + system) / 1_000);
    }
    const at = (values: number[], share: number) =>
      values.toSorted((a, b) => a - b)[Math.floor(share * values.length)] ?? NaN;
    const median = at(times, 0.5);
    const mark = most === undefined ? '' : median <= most ? '✓' : '✗';
    const name = `search ${number(memories)} memories, ${appName}`;
    rows.push([mark, name, ...[median, at(times, 0.95), at(cpu, 0.5)].map((ms) => duration(ms * 1_000))]);
    return median;
  };
  for (const user of SEARCHED) {
    const median = await search(service, 'plain', user, TARGETS.search.get(user.memories));
    await search(encrypted, 'encrypted', user, median * TARGETS.encrypted);
  }
  for (const user of WITH_VECTORS) await search(withVectors, 'vectors', user);
  showProgress('');
  printHeading(`${database}, load ${loadavg()[0]?.toFixed(1)}`);
  const share = await shareOfLists();
  const target = /sqlite/.test(database) ? TARGETS.ingest.sqlite : TARGETS.ingest.server;
  const added = (name: string, perSecond: number) => [
    perSecond >= target ? '✓' : '✗',
    name,
    `${number(perSecond)} a second`,
    '',
    '',
  ];
  printTable([
    ['', '', 'median', '95th percentile', 'CPU of the process'],
    ...rows,
    added('add memories, 200 at once', perSecond),
    added('remember events by a projection', projectedPerSecond),
    [share <= TARGETS.words ? '✓' : '✗', 'lists of words', `${Math.round(100 * share)} % of English text`, '', ''],
  ]);
}
