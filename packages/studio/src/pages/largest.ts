import type { SessionKey, SessionSummary } from '../../../../src/index.js';
import { withoutUndefined } from '../../../../src/model/json.js';
import type { Size } from '../browsing.js';
import type { StudioScope } from '../guard.js';
import { html, type Content } from '../html.js';
import { tokenSum } from '../operations/prices.js';
import { number } from '../operations/words.js';
import { PAGE, type Reading } from '../reading.js';
import type { Visit } from '../visit.js';
import { ago, empty, firstOf, page, size, table } from './layout.js';

/** How many sessions are measured, in all apps together. */
const MEASURED = 1_000;

/** How many sessions the first page lists. */
const MOST_NOW = 5;

/** How many events are read at most for a page to count the tokens of these. */
const MOST_READ = 3_000;

/** For how many times as long as it took to measure them the largest sessions are kept for the first page. */
const KEPT_FOR = 50;

interface Measured {
  /** The largest first. */
  sessions: (SessionSummary & { size: Size | undefined })[];
  /** How many sessions of each app were measured, if it has others. */
  limit: number | undefined;
  /** Whether there are other apps. */
  isCut: boolean;
}

/** No index has sizes: of each app the sessions that were updated last are measured. */
async function measured(reading: Reading, scope: StudioScope): Promise<Measured> {
  const { rows: apps, last } = firstOf(await reading.apps(scope, ''));
  const limit = Math.floor(MEASURED / Math.max(1, apps.length));
  const found: SessionSummary[] = [];
  let isWhole = true;
  for (const { name } of apps) {
    const { userId } = scope;
    const { sessions, next } = await reading.service.findSessions({
      appName: name,
      ...withoutUndefined({ userId }),
      limit,
    });
    found.push(...sessions);
    isWhole &&= next === undefined;
  }
  const sizeOf = await reading.sizes(found);
  const sessions = found.map((session) => ({ ...session, size: sizeOf(session) }));
  return { sessions: sessions.sort(bySize), limit: isWhole ? undefined : limit, isCut: last !== undefined };
}

type Sized = Readonly<{ size: Size | undefined }>;

const bySize = (one: Sized, other: Sized) => (other.size?.bytes ?? 0) - (one.size?.bytes ?? 0);

/** The largest sessions of all apps. */
export async function largestPage(visit: Visit): Promise<Response> {
  const { sessions, limit, isCut } = await measured(visit.reading, visit.scope);
  const body = html`<h1>Largest sessions</h1>
    ${limit !== undefined && html`<p class="note">Of the ${number(limit)} sessions of each app that were updated last.</p>`}
    ${isCut && html`<p class="note">Of the first ${number(PAGE)} apps by name.</p>`}
    ${list(visit, sessions.slice(0, PAGE)) ?? empty('No sessions', 'There is nothing to show here.')}`;
  return page(visit, { title: 'Largest sessions', crumbs: [], body });
}

interface Listed extends SessionKey, Sized {
  title?: string | undefined;
  eventCount: number;
  lastUpdateTime: number;
  tokens?: string;
}

/** @returns undefined if there are none. */
function list({ links }: Visit, sessions: readonly Listed[]): Content {
  const to = (session: Listed, text: Content, path = '/session', kind = 'quiet') =>
    html`<a class="${kind}" href="${links.ofSession(path, session)}">${text}</a>`;
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
    },
    undefined,
    'dense',
  );
}

const kept = new WeakMap<Reading, Map<string, { until: number; keys: SessionKey[] }>>();

/** The largest sessions, with their tokens, for the first page: which ones they are is kept, since it is loaded often. */
export async function largestNow({ reading, scope }: Visit): Promise<Listed[]> {
  const ofReading = kept.get(reading) ?? new Map<string, { until: number; keys: SessionKey[] }>();
  kept.set(reading, ofReading);
  const id = JSON.stringify([scope.appName, scope.userId]);
  let known = ofReading.get(id);
  const begin = Date.now();
  if (!known || known.until < begin) {
    const { sessions } = await measured(reading, scope);
    const keys = sessions.slice(0, MOST_NOW).map(({ appName, userId, sessionId }) => ({ appName, userId, sessionId }));
    known = { until: Date.now() + KEPT_FOR * (Date.now() - begin), keys };
    if (ofReading.size > MEASURED) ofReading.clear();
    ofReading.set(id, known);
  }
  const found: Listed[] = [];
  let left = MOST_READ;
  for (const each of known.keys) {
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
      <h2>Largest sessions <a class="dim" href="${visit.links.to('/largest')}">More</a></h2>
      ${list(visit, sessions)}
    </section>`
  );
}
