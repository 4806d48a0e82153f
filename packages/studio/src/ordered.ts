import type { SessionKey, SessionSummary } from '../../../src/index.js';
import { sessionIdentity } from '../../../src/model/keys.js';
import type { Size } from './browsing.js';
import type { Reading, SessionsRequest } from './reading.js';
import type { SessionCounts } from './recent.js';

/** How many sessions are looked at, the last updated first, for an order or a search that the database does not know. */
const LOOKED_AT = 5_000;

/** How many are measured, for the order of their sizes. */
const MEASURED = 1_000;

/** How many of them are read at once. */
const AT_ONCE = 1_000;

/** What is known of the sessions to be sorted beside their summaries, if the order needs it. */
interface Known {
  counts?: ReadonlyMap<string, SessionCounts> | undefined;
  sizeOf?: ((session: SessionKey) => Size | undefined) | undefined;
}

export interface Sorted extends Known {
  found: SessionSummary[];
  /** How many sessions of each app were looked at, if there are others. */
  lookedAt: number | undefined;
}

/**
 * Reads the last updated sessions of some apps and sorts them by what the database cannot sort by.
 *
 * @param name of the order; for `tokens` and `failures` the caller has updated `reading.lastMonth`.
 * @param findings only these sessions, by `sessionIdentity`.
 */
export async function sortSessions(
  reading: Reading,
  apps: readonly string[],
  request: SessionsRequest,
  { name, isReverse = false }: { name: string; isReverse?: boolean },
  findings?: ReadonlyMap<string, unknown>,
): Promise<Sorted> {
  const most = Math.ceil((name === 'size' ? MEASURED : LOOKED_AT) / Math.max(1, apps.length));
  const enough = findings?.size ?? Infinity;
  const found: SessionSummary[] = [];
  let isCut = false;
  for (const appName of apps) {
    let after: SessionSummary | undefined;
    let count = 0;
    do {
      const limit = Math.min(AT_ONCE, most - count);
      const page = await reading.summaries({ ...request, appName }, { after, limit });
      found.push(...page.filter((session) => findings?.has(sessionIdentity(session)) ?? true));
      after = page.length === limit ? page.at(-1) : undefined;
      count += page.length;
    } while (after && count < most && found.length < enough);
    isCut ||= after !== undefined && found.length < enough;
  }
  const counts = isCounted(name) ? reading.lastMonth.ofSessions() : undefined;
  const sizeOf = name === 'size' ? await reading.sizes(found) : undefined;
  const compare = COMPARE[name];
  if (compare) found.sort((one, other) => compare(one, other, { counts, sizeOf }) * (isReverse ? -1 : 1));
  return { found, lookedAt: isCut ? most : undefined, counts, sizeOf };
}

/** Whether an order is of what `lastMonth` counts. */
export const isCounted = (name: string): boolean => name === 'tokens' || name === 'failures';

export const durationOf = ({ createTime, lastUpdateTime }: SessionSummary): number =>
  Math.max(0, lastUpdateTime - createTime);

const highestFirst =
  (valueOf: (session: SessionSummary, known: Known) => number) =>
  (one: SessionSummary, other: SessionSummary, known: Known) =>
    valueOf(other, known) - valueOf(one, known);

const firstLetters = (textOf: (session: SessionSummary) => string) => (one: SessionSummary, other: SessionSummary) =>
  textOf(one).localeCompare(textOf(other), 'en');

/** How sessions are sorted, if the database cannot. */
const COMPARE: Readonly<Record<string, (one: SessionSummary, other: SessionSummary, known: Known) => number>> = {
  desc: highestFirst(({ lastUpdateTime }) => lastUpdateTime),
  asc: highestFirst(({ lastUpdateTime }) => -lastUpdateTime),
  events: highestFirst(({ eventCount }) => eventCount),
  size: highestFirst((session, { sizeOf }) => sizeOf?.(session)?.bytes ?? 0),
  tokens: highestFirst((session, { counts }) => counts?.get(sessionIdentity(session))?.tokens ?? 0),
  failures: highestFirst((session, { counts }) => counts?.get(sessionIdentity(session))?.failures ?? 0),
  duration: highestFirst(durationOf),
  title: firstLetters(({ title, sessionId }) => title ?? sessionId),
  user: firstLetters(({ userId }) => userId),
};
