import type { FindSessionsRequest, SessionSummary } from '../../sessions/summaries.js';
import { InvalidArgumentError } from '../../model/errors.js';
import { decode } from '../../model/event-codec.js';
import { given } from '../../model/objects.js';
import { number } from '../../operations/words.js';
import { fieldValue, html, type Html } from '../html.js';
import { PAGE, type Size } from '../reading.js';
import { namesField, type Visit } from '../visit.js';
import { ago, chip, empty, page, size, table } from './layout.js';

/** All apps. */
export async function appsPage(visit: Visit): Promise<Response> {
  const { links, reading, scope } = visit;
  const found = await reading.apps(scope, visit.params.get('after') ?? '');
  const apps = found.slice(0, PAGE);
  const more = found.length > PAGE ? apps.at(-1)?.name : undefined;
  const rows = apps.map(
    ({ name, lastUpdateTime }) =>
      html`<tr>
        <th scope="row">
          <a href="${links.sessions(name)}"><bdi>${name}</bdi></a>
        </th>
        <td><a href="${links.to('/users', { app: name })}">Users</a></td>
        <td class="number">${ago(lastUpdateTime)}</td>
      </tr>`,
  );
  const body = html`<h1>Apps</h1>
    ${
      apps.length > 0
        ? table(['App', 'Users', '#Last update'], rows)
        : empty(
            'No sessions yet',
            'Sessions appear here when an agent has created them with ',
            code('MikroOrmSessionService'),
            '.',
          )
    }
    ${more !== undefined && nextLink(links.to('/', { after: more }))}`;
  return page(visit, { title: 'Apps', body });
}

/** The users of an app. */
export async function usersPage(visit: Visit): Promise<Response> {
  const { links, reading, scope, appName } = visit;
  const found = await reading.users(appName, scope, visit.params.get('after') ?? '');
  const users = found.slice(0, PAGE);
  const more = found.length > PAGE ? users.at(-1)?.name : undefined;
  const rows = users.map(
    ({ name, lastUpdateTime }) =>
      html`<tr>
        <th scope="row">
          <a href="${links.sessions(appName, name)}"><bdi>${name}</bdi></a>
        </th>
        <td><a href="${links.to('/memory', { app: appName, user: name })}">Memory</a></td>
        <td class="number">${ago(lastUpdateTime)}</td>
      </tr>`,
  );
  const body = html`<h1>Users of <bdi>${appName}</bdi></h1>
    ${users.length > 0 ? table(['User', 'Memory', '#Last update'], rows) : empty('No users', 'Nobody has sessions in this app.')}
    ${more !== undefined && nextLink(links.to('/users', { app: appName, after: more }))}`;
  const crumbs = [
    { text: 'Apps', href: links.to('/') },
    { text: appName, href: links.sessions(appName) },
  ];
  return page(visit, { title: `Users of ${appName}`, crumbs, body });
}

/** The sessions of an app that fit the form's fields. */
export async function sessionsPage(visit: Visit): Promise<Response> {
  const { links, reading, appName, userId, params } = visit;
  const request: FindSessionsRequest = given({
    appName,
    userId,
    // An empty field of the form asks for nothing.
    title: params.get('title') || undefined,
    labels: labelsOf((params.get('labels') ?? '').split(',').filter((pair) => pair.trim() !== '')),
    status: params.get('status') === 'deleted' ? 'deleted' : 'active',
    order: params.get('order') === 'asc' ? 'asc' : 'desc',
    updatedAfter: dayOf(params.get('from')),
    updatedBefore: dayOf(params.get('to'), 1),
    after: params.get('after') || undefined,
    limit: PAGE,
  });
  const { sessions, next } = await reading.service.findSessions(request);
  const sizeOf = await reading.sizes(sessions);
  const filters = Object.fromEntries(FIELDS.map((name) => [name, params.get(name) ?? undefined]));
  const isFiltered = FIELDS.some((name) => name !== 'order' && name !== 'status' && params.get(name));
  const more = next !== undefined && nextLink(links.to('/sessions', { app: appName, ...filters, after: next }));
  const none = isFiltered
    ? empty(
        'No session fits',
        'Try fewer or other words, or ',
        html`<a href="${links.sessions(appName)}">see all sessions</a>`,
        '.',
      )
    : empty('No sessions', 'There is nothing to show here.');
  const body = html`<div class="heading">
      <h1>Sessions of <bdi>${appName}</bdi></h1>
      <div class="actions">
        <a class="button" href="${links.to('/users', { app: appName })}">Users</a>
        <a class="button" href="${links.to('/waiting', { app: appName, user: params.get('user') ?? undefined })}"
          >Waiting</a
        >
        <a class="button" href="${links.to('/memory', { app: appName, user: params.get('user') ?? undefined })}"
          >Memory</a
        >
      </div>
    </div>
    ${searchForm(visit, appName)} ${sessions.length > 0 ? sessionsTable(visit, sessions, sizeOf) : none}
    <div class="pages">
      ${params.has('after') && html`<a class="button" href="${links.to('/sessions', { app: appName, ...filters })}">First page</a>`}
      ${more}
    </div>`;
  return page(visit, { title: `Sessions of ${appName}`, crumbs: [{ text: 'Apps', href: links.to('/') }], body });
}

const FIELDS = ['user', 'title', 'labels', 'from', 'to', 'status', 'order'] as const;

function searchForm({ links, params, scope }: Visit, appName: string): Html {
  const field = (name: string, label: string, type = 'search', hint?: string) =>
    html`<label
      >${label}<input
        type="${type}"
        name="${name}"
        value="${fieldValue(params.get(name) ?? '')}"
        ${hint !== undefined && html`placeholder="${hint}"`}
    /></label>`;
  const option = (name: string, value: string, text: string) =>
    html`<option value="${value}" ${params.get(name) === value && html`selected`}>${text}</option>`;
  return html`<form class="search" action="${links.to('/sessions')}" role="search">
    ${namesField({ app: appName })} ${field('title', 'Title')} ${scope.userId === undefined && field('user', 'User')}
    ${field('labels', 'Labels', 'search', 'team=red, tier=gold')} ${field('from', 'Updated from (UTC)', 'date')}
    ${field('to', 'Until (UTC)', 'date')}
    <label
      >Show<select name="status">
        ${option('status', 'active', 'Active')}${option('status', 'deleted', 'Deleted')}
      </select></label
    >
    <label
      >Order<select name="order">
        ${option('order', 'desc', 'Newest first')}${option('order', 'asc', 'Oldest first')}
      </select></label
    >
    <button class="primary">Search</button>
  </form>`;
}

function sessionsTable(
  { links }: Visit,
  sessions: readonly SessionSummary[],
  sizeOf: (key: SessionSummary) => Size | undefined,
): Html {
  const rows = sessions.map((session) => {
    const { appName, userId, sessionId, title, labels, eventCount, lastUpdateTime, deletedAt } = session;
    const measured = sizeOf(session);
    return html`<tr>
      <th scope="row">
        <a href="${links.ofSession('/session', session)}"><bdi>${title ?? sessionId}</bdi></a>
        ${title !== undefined && html`<span class="id"><bdi>${sessionId}</bdi></span>`}
        ${Object.entries(labels).map(([name, value]) => chip(html`<bdi>${name}=${value}</bdi>`))}
        ${deletedAt !== undefined && chip(html`deleted ${ago(deletedAt)}`, 'warn')}
      </th>
      <td data-label="User">
        <a class="quiet" href="${links.sessions(appName, userId)}"><bdi>${userId}</bdi></a>
      </td>
      <td class="number" data-label="Events">${number(eventCount)}</td>
      <td class="number" data-label="Size">${measured ? size(measured.bytes, measured.isEstimate) : size(0)}</td>
      <td class="number" data-label="Updated">${ago(lastUpdateTime)}</td>
    </tr>`;
  });
  return table(['Session', 'User', '#Events', '#Size', '#Last update'], rows, 'sessions');
}

const nextLink = (href: string) => html`<a class="button" href="${href}" rel="next">Next page</a>`;

const code = (text: string) => html`<code>${text}</code>`;

/** @returns a day's beginning in UTC, in ms; undefined if none is named. */
function dayOf(text: string | null, later = 0): number | undefined {
  if (!text) return undefined;
  const ms = /^\d{4}-\d\d-\d\d$/.test(text) ? Date.parse(text) : NaN;
  if (Number.isNaN(ms)) throw new InvalidArgumentError('A day must be given as 2026-11-22.');
  return ms + later * 86_400_000;
}

/**
 * @param pairs such as `team=red`, and `note="a\nb"` as JSON has it.
 * @throws InvalidArgumentError for what is no label.
 */
export function labelsOf(pairs: readonly string[]): Record<string, string> {
  return Object.fromEntries(
    pairs.map((pair) => {
      const at = pair.indexOf('=');
      if (at < 1) throw new InvalidArgumentError('Labels must be given as name=value.');
      const text = pair.slice(at + 1).trim();
      const value = text.startsWith('"') ? decode(text)?.value : text;
      if (typeof value !== 'string')
        throw new InvalidArgumentError('A value in quotes must be a string as JSON has it.');
      return [pair.slice(0, at).trim(), value];
    }),
  );
}

/** A label as `labelsOf` reads it: in quotes if it would be another one without them. */
export function labelText(name: string, value: string): string {
  const isPlain = value === value.trim() && !/^"|[\r\n]/.test(value);
  return `${name}=${isPlain ? value : JSON.stringify(value)}`;
}
