import { withoutUndefined } from '../../../../src/model/json.js';
import { html } from '../html.js';
import { PAGE } from '../reading.js';
import type { Visit } from '../visit.js';
import { HOW_TO_ANSWER, answererOf, question } from './answer.js';
import { empty, field, lasting, nextLink, page, searchForm, table } from './layout.js';
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
  const titleOf = await titlesOf(visit, calls);
  const none = empty('Nothing waits', 'No call of a long-running tool is open, and no question of ADK.');
  const list = table(
    calls,
    {
      Question: ({ name, args, seq, ...call }) =>
        html`<a href="${links.ofSession('/session', call, { at: seq })}#e${seq}">${question(name, args)}</a>`,
      Session: (call) =>
        html`<a class="quiet" href="${links.ofSession('/session', call)}"
          ><bdi>${titleOf(call) ?? call.sessionId}</bdi></a
        >`,
      User: (call) =>
        html`<a class="quiet" href="${links.sessions(appName, call.userId)}"><bdi>${call.userId}</bdi></a>`,
      'Who answers': ({ name }) => answererOf(name),
      '#Waits': ({ timestamp }) => lasting(timestamp),
      '>Answer':
        visit.mayChange &&
        (({ seq, id, ...call }) =>
          html`<a class="button" href="${links.ofSession('/answer', call, { at: seq, call: id })}">Answer</a>`),
    },
    none,
  );
  const fields = [field(visit, 'name', 'Tool'), scope.userId === undefined && field(visit, 'user', 'User')];
  const body = html`<h1>Calls of <bdi>${appName}</bdi> that wait for a person</h1>
    ${searchForm(links.to('/waiting'), { app: appName }, fields)} ${list}
    ${calls.length > 0 && !visit.mayChange && HOW_TO_ANSWER}
    ${nextLink(next === undefined ? undefined : links.to('/waiting', { ...filters, after: next }))}`;
  return page(visit, { title: 'Waiting for a person', appName, crumbs: [], body });
}
