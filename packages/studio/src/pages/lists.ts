import { type FindSessionsRequest, InvalidArgumentError } from '../../../../src/index.js';
import { decode, given } from '../../../../src/model/json.js';
import { number } from '../operations/words.js';
import { html, type Html } from '../html.js';
import { PAGE } from '../reading.js';
import type { Visit } from '../visit.js';
import { ago, chip, empty, field, firstOf, labelChips, nextLink, page, searchForm, size, table } from './layout.js';

export async function usersPage(visit: Visit): Promise<Response> {
  const { links, reading, scope, appName } = visit;
  const { rows, last } = firstOf(await reading.users(appName, scope, visit.params.get('after') ?? ''));
  const list = table(
    rows,
    {
      User: ({ name }) => html`<a href="${links.sessions(appName, name)}"><bdi>${name}</bdi></a>`,
      '>Memory': ({ name }) => html`<a href="${links.to('/memory', { app: appName, user: name })}">Memory</a>`,
      '#Last update': ({ lastUpdateTime }) => ago(lastUpdateTime),
    },
    empty('No users', 'Nobody has sessions in this app.'),
  );
  const body = html`<h1>Users of <bdi>${appName}</bdi></h1>
    ${list} ${nextLink(last && links.to('/users', { app: appName, after: last.name }))}`;
  return page(visit, { title: `Users of ${appName}`, appName, crumbs: [], body });
}

/** The sessions of an app that match the form. */
export async function sessionsPage(visit: Visit): Promise<Response> {
  const { links, reading, appName, userId, params } = visit;
  const request: FindSessionsRequest = given({
    appName,
    userId,
    // An empty field does not filter.
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
  const more = next === undefined ? undefined : links.to('/sessions', { app: appName, ...filters, after: next });
  const all = html`<a href="${links.sessions(appName)}">see all sessions</a>`;
  const none = isFiltered
    ? empty('No session fits', 'Try fewer or other words, or ', all, '.')
    : empty('No sessions', 'There is nothing to show here.');
  const list = table(
    sessions,
    {
      Session: ({ title, labels, deletedAt, forkedFrom, ...session }) =>
        html`<a href="${links.ofSession('/session', session)}"><bdi>${title ?? session.sessionId}</bdi></a>
          ${title !== undefined && html`<span class="id"><bdi>${session.sessionId}</bdi></span>`} ${labelChips(labels)}
          ${forkedFrom && chip(html`fork of <bdi>${forkedFrom.sessionId}</bdi>`)}
          ${deletedAt !== undefined && chip(html`deleted ${ago(deletedAt)}`, 'warn')}`,
      User: ({ userId }) => html`<a class="quiet" href="${links.sessions(appName, userId)}"><bdi>${userId}</bdi></a>`,
      '#Events': ({ eventCount }) => number(eventCount),
      '#Size': (session) => size(sizeOf(session)),
      '#Last update': ({ lastUpdateTime }) => ago(lastUpdateTime),
    },
    none,
  );
  const of = { app: appName, user: params.get('user') ?? undefined };
  const body = html`<div class="heading">
      <h1>Sessions of <bdi>${appName}</bdi></h1>
      <div class="actions">
        <a class="button" href="${links.to('/users', { app: appName })}">Users</a>
        <a class="button" href="${links.to('/waiting', of)}">Waiting</a>
        <a class="button" href="${links.to('/memory', of)}">Memory</a>
      </div>
    </div>
    ${search(visit, appName)} ${list}
    <div class="pages">
      ${params.has('after') && html`<a class="button" href="${links.to('/sessions', { app: appName, ...filters })}">First page</a>`}
      ${nextLink(more)}
    </div>`;
  return page(visit, { title: `Sessions of ${appName}`, crumbs: [], body });
}

const FIELDS = ['user', 'title', 'labels', 'from', 'to', 'status', 'order'] as const;

function search(visit: Visit, appName: string): Html {
  const { links, params, scope } = visit;
  const choice = (name: string, label: string, options: Readonly<Record<string, string>>) =>
    html`<label
      >${label}<select name="${name}">
        ${Object.entries(options).map(
          ([value, text]) =>
            html`<option value="${value}" ${params.get(name) === value && html`selected`}>${text}</option>`,
        )}
      </select></label
    >`;
  return searchForm(links.to('/sessions'), { app: appName }, [
    field(visit, 'title', 'Title'),
    scope.userId === undefined && field(visit, 'user', 'User'),
    field(visit, 'labels', 'Labels', 'search', 'team=red, tier=gold'),
    field(visit, 'from', 'Updated from (UTC)', 'date'),
    field(visit, 'to', 'Until (UTC)', 'date'),
    choice('status', 'Show', { active: 'Active', deleted: 'Deleted' }),
    choice('order', 'Order', { desc: 'Newest first', asc: 'Oldest first' }),
  ]);
}

/** @returns the beginning of a day in UTC, in ms; undefined for no text. */
function dayOf(text: string | null, later = 0): number | undefined {
  if (!text) return undefined;
  const ms = /^\d{4}-\d\d-\d\d$/.test(text) ? Date.parse(text) : NaN;
  if (Number.isNaN(ms)) throw new InvalidArgumentError('A day must be given as 2026-11-22.');
  return ms + later * 86_400_000;
}

/**
 * @param pairs such as `team=red`, or with a JSON string as in `note="a\nb"`.
 * @throws InvalidArgumentError if a pair has no name, or its quoted value is not a JSON string.
 */
export function labelsOf(pairs: readonly string[]): Record<string, string> {
  return Object.fromEntries(
    pairs.map((pair) => {
      const at = pair.indexOf('=');
      if (at < 1) throw new InvalidArgumentError('Labels must be given as name=value.');
      const text = pair.slice(at + 1).trim();
      const value = text.startsWith('"') ? decode(text)?.value : text;
      if (typeof value !== 'string') throw new InvalidArgumentError('A value in quotes must be a JSON string.');
      return [pair.slice(0, at).trim(), value];
    }),
  );
}

/** A label as `labelsOf` reads it: quoted if `labelsOf` would otherwise read another value. */
export function labelText(name: string, value: string): string {
  const isPlain = value === value.trim() && !/^"|[\r\n]/.test(value);
  return `${name}=${isPlain ? value : JSON.stringify(value)}`;
}
