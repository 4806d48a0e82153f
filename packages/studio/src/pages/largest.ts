import type { SessionSummary } from '../../../../src/index.js';
import { given } from '../../../../src/model/json.js';
import { html } from '../html.js';
import { number } from '../operations/words.js';
import { PAGE } from '../reading.js';
import type { Visit } from '../visit.js';
import { ago, empty, firstOf, page, size, table } from './layout.js';

/** How many sessions are measured for the page, in all apps together. */
const MEASURED = 1_000;

/** The largest sessions of all apps. No index has sizes: of each app those that were updated last are measured. */
export async function largestPage(visit: Visit): Promise<Response> {
  const { links, reading, scope } = visit;
  const { rows: apps, last } = firstOf(await reading.apps(scope, ''));
  const limit = Math.floor(MEASURED / Math.max(1, apps.length));
  const found: SessionSummary[] = [];
  let isWhole = true;
  for (const { name } of apps) {
    const { userId } = scope;
    const { sessions, next } = await reading.service.findSessions({ appName: name, ...given({ userId }), limit });
    found.push(...sessions);
    isWhole &&= next === undefined;
  }
  const sizeOf = await reading.sizes(found);
  const bytesOf = (session: SessionSummary) => sizeOf(session)?.bytes ?? 0;
  found.sort((one, other) => bytesOf(other) - bytesOf(one));
  const list = table(
    found.slice(0, PAGE),
    {
      Session: ({ title, ...session }) =>
        html`<a href="${links.ofSession('/session', session)}"><bdi>${title ?? session.sessionId}</bdi></a>
          <span class="id"><bdi>${session.appName}</bdi> / <bdi>${session.userId}</bdi></span>`,
      '#Size': (session) => size(sizeOf(session)),
      '#Events': ({ eventCount }) => number(eventCount),
      '#Last update': ({ lastUpdateTime }) => ago(lastUpdateTime),
    },
    empty('No sessions', 'There is nothing to show here.'),
    'dense',
  );
  const body = html`<h1>Largest sessions</h1>
    ${!isWhole && html`<p class="note">Of the ${number(limit)} sessions of each app that were updated last.</p>`}
    ${last && html`<p class="note">Of the first ${number(PAGE)} apps by name.</p>`} ${list}`;
  return page(visit, { title: 'Largest sessions', crumbs: [], body });
}
