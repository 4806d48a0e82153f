import { callsOf } from '../../../src/conversation/calls.js';
import { saidIn, textSaidIn } from '../../../src/conversation/said.js';
import type { EventLog, MikroOrmMemoryService } from '../../../src/index.js';
import type { SqlRunner } from '../../../src/internal.js';
import { recordOf } from '../../../src/model/json.js';
import { sessionIdentity } from '../../../src/model/keys.js';
import { DAY_MS } from './operations/days.js';
import { textOrJson } from './operations/words.js';
import { AT_ONCE, failuresIn, positionBefore } from './recent.js';

/** How many days back events are searched. */
export const SEARCHED_DAYS = 7;

/** How many memories are searched for sessions. */
const MEMORIES = 200;

/** How much is shown before and after a word that was found, in characters. */
const AROUND = 60;

/** What a search has found in a session. */
export interface Finding {
  /** The number of the event; undefined if a memory of the session says it. */
  seq: number | undefined;
  text: string;
}

/** Whose events are searched. */
interface Owner {
  appName?: string;
  userId?: string;
}

/**
 * Searches the newest events for all words of a text: in what was said, in the names of tools, and in what failed.
 *
 * @returns by `sessionIdentity` the newest that was found, and whether all events of these days were searched.
 */
export async function findInEvents(
  log: EventLog,
  owner: Owner,
  query: string,
  read: SqlRunner,
): Promise<{ found: Map<string, Finding>; isWhole: boolean }> {
  const words = wordsOf(query);
  const first = await positionBefore(log, Date.now() - SEARCHED_DAYS * DAY_MS, read);
  const { position } = await log.head();
  const found = new Map<string, Finding>();
  for await (const entry of log.since(Math.max(first, position - AT_ONCE), { ...owner })) {
    const { event } = entry;
    if (!event) continue;
    const text = [
      ...saidIn(event.content),
      ...callsOf(event).map(({ name }) => textOrJson(name)),
      ...failuresIn(recordOf(event)).map(({ what, why }) => `${what}: ${why}`),
    ].join('\n');
    if (hasAll(text, words)) found.set(sessionIdentity(entry), { seq: entry.seq, text: around(text, words) });
  }
  return { found, isWhole: position - AT_ONCE <= first };
}

/** Searches the memories of a user for the words of a text. @returns by `sessionIdentity` the best that was found. */
export async function findInMemories(
  service: MikroOrmMemoryService,
  owner: Required<Owner>,
  query: string,
): Promise<Map<string, Finding>> {
  const { memories } = await service.searchMemory({
    ...{ ...owner, query, limit: MEMORIES, includeApp: false },
    maxCharacters: Number.MAX_SAFE_INTEGER,
  });
  const found = new Map<string, Finding>();
  for (const { sessionId, content } of memories.toReversed())
    if (sessionId !== undefined)
      found.set(sessionIdentity({ ...owner, sessionId }), {
        seq: undefined,
        text: around(textSaidIn(content), wordsOf(query)),
      });
  return found;
}

const wordsOf = (text: string) => text.toLowerCase().split(/\s+/).filter(Boolean);

function hasAll(text: string, words: readonly string[]): boolean {
  const lower = text.toLowerCase();
  return words.every((word) => lower.includes(word));
}

/** @returns the text around the first word that it has. */
function around(text: string, words: readonly string[]): string {
  const lower = text.toLowerCase();
  const at = Math.max(0, lower.indexOf(words.find((word) => lower.includes(word)) ?? ''));
  const [from, to] = [Math.max(0, at - AROUND), at + AROUND * 2];
  return `${from > 0 ? '…' : ''}${text.slice(from, to)}${to < text.length ? '…' : ''}`;
}
