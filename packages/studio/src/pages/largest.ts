import type { SessionKey } from '../../../../src/index.js';
import { withoutUndefined } from '../../../../src/model/json.js';
import type { Size } from '../browsing.js';
import { html, type Content } from '../html.js';
import { tokenSum } from '../operations/prices.js';
import { number } from '../operations/words.js';
import { sortSessions } from '../ordered.js';
import type { Reading } from '../reading.js';
import type { Visit } from '../visit.js';
import { ago, shortcuts, size, table } from './layout.js';

/** How many sessions the first page lists. */
const MOST_NOW = 5;

/** How many events are read at most for a page to count the tokens of these. */
const MOST_READ = 3_000;

/** For how many times as long as it took to measure them the largest sessions are kept for the first page. */
const KEPT_FOR = 50;

type Sized = Readonly<{ size: Size | undefined }>;

const bySize = (one: Sized, other: Sized) => (other.size?.bytes ?? 0) - (one.size?.bytes ?? 0);

interface Listed extends SessionKey, Sized {
  title?: string | undefined;
  eventCount: number;
  lastUpdateTime: number;
  tokens?: string;
}

/** @returns undefined if there are none. */
function list(visit: Visit, sessions: readonly Listed[]): Content {
  const to = (session: Listed, text: Content, path = '/session', kind = 'quiet') =>
    html`<a class="${kind}" href="${visit.links.ofSession(path, session)}">${text}</a>`;
  return table(
    sessions,
    {
      Session: (session) =>
        html`${to(session, html`<bdi>${session.title ?? session.sessionId}</bdi>`, '/session', '')}
          <span class="id"><bdi>${session.appName}</bdi> / <bdi>${session.userId}</bdi></span>`,
      '#Size': (session) => to(session, size(session.size)),
      '#Events': (session) => to(session, number(session.eventCount)),
      '#Tokens': sessions[0]?.tokens !== undefined && ((session) => to(session, session.tokens, '/time')),
      '#Last update': (session) => to(session, ago(session.lastUpdateTime)),
      '>Go to': (session) => shortcuts(visit, session),
    },
    undefined,
    'dense',
  );
}

/** For how many scopes of visitors they are kept. */
const MOST_SCOPES = 1_000;

interface Kept {
  until: number;
  keys: Promise<SessionKey[]>;
}

/** By scope. */
const kept = new WeakMap<Reading, Map<string, Kept>>();

/** Which sessions are the largest: that is kept, since the first page is loaded often. */
function largestKeys({ reading, scope }: Visit): Promise<SessionKey[]> {
  const ofReading = kept.get(reading) ?? new Map<string, Kept>();
  kept.set(reading, ofReading);
  const id = JSON.stringify([scope.appName, scope.userId]);
  const known = ofReading.get(id);
  const begin = Date.now();
  if (known && known.until >= begin) return known.keys;
  const find = async () => {
    const apps = await reading.allApps(scope);
    const { found } = await sortSessions(reading, apps, withoutUndefined({ userId: scope.userId }), { name: 'size' });
    return found.slice(0, MOST_NOW).map(({ appName, userId, sessionId }) => ({ appName, userId, sessionId }));
  };
  const finding = find();
  // The last ones are shown until then.
  const keys = known?.keys ?? finding;
  if (ofReading.size > MOST_SCOPES) ofReading.clear();
  ofReading.set(id, { until: Infinity, keys });
  const end = () => ofReading.set(id, { until: Date.now() + KEPT_FOR * (Date.now() - begin), keys: finding });
  finding.then(end, () => ofReading.delete(id));
  return keys;
}

/** The largest sessions, with their tokens, for the first page. */
export async function largestNow(visit: Visit): Promise<Listed[]> {
  const { reading } = visit;
  const found: Listed[] = [];
  let left = MOST_READ;
  for (const each of await largestKeys(visit)) {
    const session = await reading.session(each);
    if (!session || session.deletedAt !== undefined) continue;
    const { title, firstSeq, lastSeq, lastUpdateTime } = session;
    const { tokens, isWhole, read } = await reading.used(each, left);
    left -= Math.min(read, left - 1);
    const counted = `${number(tokenSum(tokens))}${isWhole ? '' : ' or more'}`;
    const eventCount = lastSeq - firstSeq + 1;
    found.push({ ...each, title: title ?? undefined, eventCount, lastUpdateTime, size: undefined, tokens: counted });
  }
  const sizeOf = await reading.sizes(found);
  return found.map((session) => ({ ...session, size: sizeOf(session) })).sort(bySize);
}

/** A short list of the largest sessions, for the first page. */
export function largestBlock(visit: Visit, sessions: readonly Listed[]): Content {
  return (
    sessions.length > 0 &&
    html`<section class="block" id="largest">
      <h2>Largest sessions <a class="dim" href="${visit.links.to('/sessions', { order: 'size' })}">More</a></h2>
      ${list(visit, sessions)}
    </section>`
  );
}
