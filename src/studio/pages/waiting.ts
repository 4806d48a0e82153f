import { given } from '../../model/objects.js';
import { fieldValue, html, type Html } from '../html.js';
import { PAGE } from '../reading.js';
import { namesField, type Visit } from '../visit.js';
import { inLine } from './event-view.js';
import { ago, empty, page, table } from './layout.js';

/** The calls of an app that wait for a person, the oldest first. */
export async function waitingPage(visit: Visit): Promise<Response> {
  const { links, reading, appName, userId, params } = visit;
  const filters = { app: appName, user: userId, name: params.get('name') || undefined };
  const { calls, next } = await reading.service.findOpenCalls({
    appName,
    ...given({ userId, name: filters.name, after: params.get('after') || undefined }),
    limit: PAGE,
  });
  const rows = calls.map((call) => {
    const { id, name, args, seq, timestamp } = call;
    return html`<tr>
      <th scope="row">
        <a href="${links.ofSession('/session', call, { at: seq })}#e${seq}"
          ><code><bdi>${name}</bdi></code></a
        >
        ${args ? inLine(args) : 'cannot be read'}
      </th>
      <td data-label="User">
        <a class="quiet" href="${links.sessions(appName, call.userId)}"><bdi>${call.userId}</bdi></a>
      </td>
      <td class="number" data-label="Open since">${ago(timestamp)}</td>
      ${visit.mayChange && html`<td><a class="button" href="${links.ofSession('/answer', call, { at: seq, call: id })}">Answer</a></td>`}
    </tr>`;
  });
  const head = ['Call', 'User', '#Open since', ...(visit.mayChange ? ['Answer'] : [])];
  const body = html`<h1>Calls of <bdi>${appName}</bdi> that wait for a person</h1>
    ${searchForm(visit, appName)}
    ${rows.length > 0 ? table(head, rows) : empty('Nothing waits', 'No call of a long-running tool, and no question of ADK’s, is open.')}
    ${next !== undefined && html`<a class="button" href="${links.to('/waiting', { ...filters, after: next })}" rel="next">Next page</a>`}`;
  const crumbs = [
    { text: 'Apps', href: links.to('/') },
    { text: appName, href: links.sessions(appName) },
  ];
  return page(visit, { title: 'Waiting for a person', crumbs, body });
}

function searchForm({ links, params, scope }: Visit, appName: string): Html {
  const field = (name: string, label: string) =>
    html`<label>${label}<input type="search" name="${name}" value="${fieldValue(params.get(name) ?? '')}" /></label>`;
  return html`<form class="search" action="${links.to('/waiting')}" role="search">
    ${namesField({ app: appName })} ${field('name', 'Tool')} ${scope.userId === undefined && field('user', 'User')}
    <button class="primary">Search</button>
  </form>`;
}
