import type { SessionKey } from '../../../../src/index.js';
import { withoutUndefined } from '../../../../src/model/json.js';
import { html } from '../html.js';
import { PAGE } from '../reading.js';
import type { Visit } from '../visit.js';
import { HOW_TO_ANSWER, callsTable } from './answer.js';
import { empty, field, nextLink, page, searchForm } from './layout.js';
import { titlesOf } from './now.js';

/** The calls of an app that wait for a person, the oldest first. */
export async function waitingPage(visit: Visit): Promise<Response> {
  const { links, reading, scope, appName, userId, params } = visit;
  const filters = { app: appName, user: userId, name: params.get('name') || undefined };
  const { calls, next } = await reading.service.findOpenCalls({
    appName,
    ...withoutUndefined({ userId, name: filters.name, after: params.get('after') || undefined }),
    limit: PAGE,
  });
  const isFirst = !params.has('after') && filters.name === undefined;
  const request = { waitsFor: 'agent', limit: PAGE } as const;
  const answered = isFirst ? await reading.waiting([appName], withoutUndefined({ userId }), request) : [];
  const titleOf = await titlesOf(visit, [...calls, ...answered]);
  const link = (key: SessionKey) =>
    html`<a class="quiet" href="${links.ofSession('/session', key)}"><bdi>${titleOf(key) ?? key.sessionId}</bdi></a>
      <a class="quiet" href="${links.sessions(appName, key.userId)}"><bdi>${key.userId}</bdi></a>`;
  const none = empty('Nothing waits', 'No call of a long-running tool is open, and no question of ADK.');
  const list = callsTable(visit, calls, link) ?? none;
  const fields = [field(visit, 'name', 'Tool'), scope.userId === undefined && field(visit, 'user', 'User')];
  const body = html`<h1>Calls of <bdi>${appName}</bdi> that wait for a person</h1>
    ${searchForm(links.to('/waiting'), { app: appName }, fields)} ${list}
    ${calls.length > 0 && !visit.mayChange && HOW_TO_ANSWER}
    ${
      answered.length > 0 &&
      html`<section class="block">
        <h2>Answered, not yet run</h2>
        ${callsTable(visit, answered, link, { areAnswered: true })}
      </section>`
    }
    ${nextLink(next === undefined ? undefined : links.to('/waiting', { ...filters, after: next }))}`;
  return page(visit, { title: 'Waiting for a person', appName, crumbs: [], body });
}
