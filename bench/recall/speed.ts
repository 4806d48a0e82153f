import { createEvent } from '@google/adk';
import type { EntityManager } from '@mikro-orm/core';
import { performance } from 'node:perf_hooks';
import { encryption } from '../../src/codecs/index.js';
import { MikroOrmMemoryService } from '../../src/memory/memory-service.js';
import type { DatabaseName } from '../../test/support/servers.js';
import { duration, number, printHeading, printTable, showProgress } from '../report.js';

/** How many memories whom has: 100,000 in all. */
const USERS = [
  { userId: 'many', memories: 10_000 },
  { userId: 'some', memories: 2_000 },
  ...Array.from({ length: 440 }, (_, i) => ({ userId: `user ${i}`, memories: 200 })),
];

const AT_ONCE = 200;
const QUESTIONS = 60;
const WORDS = 30_000;

/** Of a user with 2,000 and with 10,000 memories, in ms; and memories a second. */
const TARGETS = { some: 10, many: 40, ingest: { sqlite: 5_000, server: 3_000 } };

/** Words by Zipf's law. */
function wordsFrom(seed: number): (count: number) => string {
  let state = seed;
  const random = () => (state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0) / 2 ** 32;
  return (count) => Array.from({ length: count }, () => `w${Math.floor(WORDS ** random()).toString(36)}x`).join(' ');
}

/** Adds 100,000 memories, and searches those of two users. */
export async function runSpeed(database: DatabaseName, em: EntityManager): Promise<void> {
  const words = wordsFrom(1);
  const service = new MikroOrmMemoryService(em);
  const codec = encryption({ currentKey: 'k', key: () => Buffer.alloc(32, 1) });
  const encrypted = new MikroOrmMemoryService(em, { codec });
  const add = async (to: MikroOrmMemoryService, appName: string, { userId, memories }: (typeof USERS)[number]) => {
    for (let first = 0; first < memories; first += AT_ONCE) {
      const events = Array.from({ length: Math.min(AT_ONCE, memories - first) }, (_, i) =>
        createEvent({
          id: `e${first + i}`,
          timestamp: first + i,
          content: { parts: [{ text: words(8 + ((first + i * 7) % 64)) }] },
        }),
      );
      await to.addEventsToMemory({ appName, userId, sessionId: 's', events });
    }
  };
  showProgress(`${database}: adding 100,000 memories`);
  const begin = performance.now();
  for (const user of USERS) await add(service, 'plain', user);
  const perSecond = 100_000 / ((performance.now() - begin) / 1_000);
  for (const user of USERS.slice(0, 2)) await add(encrypted, 'encrypted', user);

  const rows: string[][] = [];
  for (const [appName, of] of [
    ['plain', service],
    ['encrypted', encrypted],
  ] as const) {
    for (const userId of ['some', 'many'] as const) {
      const times: number[] = [];
      for (let i = 0; i <= QUESTIONS; i++) {
        const query = words(3 + (i % 5));
        const began = performance.now();
        await of.searchMemory({ appName, userId, query });
        if (i > 0) times.push(performance.now() - began);
      }
      times.sort((a, b) => a - b);
      const [median, slow] = [0.5, 0.95].map((share) => times[Math.floor(share * times.length)] ?? NaN);
      const target = TARGETS[userId] * (appName === 'encrypted' ? 3 : 1);
      rows.push([
        (median ?? NaN) <= target ? '✓' : '✗',
        `search ${userId === 'some' ? '2,000' : '10,000'} memories, ${appName}`,
        duration((median ?? NaN) * 1_000),
        duration((slow ?? NaN) * 1_000),
      ]);
    }
  }
  showProgress('');
  printHeading(database);
  const target = /sqlite/.test(database) ? TARGETS.ingest.sqlite : TARGETS.ingest.server;
  printTable([
    ['', '', 'median', '95th percentile'],
    ...rows,
    [perSecond >= target ? '✓' : '✗', 'add memories, 200 at once', `${number(perSecond)} a second`, ''],
  ]);
}
