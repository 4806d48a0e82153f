import { type SessionSummary, InvalidArgumentError } from '../../../../src/index.js';
import { decode, withoutUndefined } from '../../../../src/model/json.js';
import { sessionIdentity } from '../../../../src/model/keys.js';
import type { Waits } from '../browsing.js';
import type { Finding } from '../found.js';
import { seeOther } from '../guard.js';
import { html, type Content, type Html } from '../html.js';
import { lasted, number } from '../operations/words.js';
import { durationOf, isCounted, sortSessions, type Sorted } from '../ordered.js';
import { DAYS, PAGE, type SessionsRequest } from '../reading.js';
import { NAMES, type Visit } from '../visit.js';
import { latestLines, latestOf } from './latest.js';
import {
  ago,
  chip,
  empty,
  field,
  firstOf,
  labelChips,
  nextLink,
  page,
  searchForm,
  shortcuts,
  size,
  table,
} from './layout.js';

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

const waitChips = ({ person, agent }: Waits): Content => [
  person && chip(`${number(person.count)} waiting`, 'warn'),
  agent && chip(`${number(agent.count)} answered, not yet run`, 'warn'),
];

const ORDERS: Readonly<Record<string, string>> = {
  ...{ desc: 'Newest first', asc: 'Oldest first', events: 'Most events', size: 'Largest', tokens: 'Most tokens' },
  ...{ failures: 'Most failures', duration: 'Longest', title: 'By title', user: 'By user' },
};

/** An order that the database does not know. A minus before its name turns it round. */
interface Order {
  name: string;
  isReverse: boolean;
}

const orderOf = (text: string): Order => ({ name: text.replace(/^-/, ''), isReverse: text.startsWith('-') });

/** The order that a click on the heading of a column asks for, by the heading. */
const OF_COLUMN: Readonly<Record<string, string>> = {
  ...{ Session: 'title', User: 'user', Events: 'events', Size: 'size', Tokens: 'tokens', Failures: 'failures' },
  ...{ Lasted: 'duration', 'Last update': 'desc' },
};

interface Listed extends Pick<Sorted, 'counts' | 'sizeOf'> {
  sessions: readonly SessionSummary[];
  /** The parameters of the next page, if there is one. */
  next: Readonly<Record<string, string | number>> | undefined;
  /** What was searched, and how far. */
  notes: readonly (string | false)[];
  findings?: ReadonlyMap<string, Finding> | undefined;
}

/** The sessions that match the form, of an app or of all. */
export async function sessionsPage(visit: Visit): Promise<Response> {
  const { links, reading, oneApp: appName, params } = visit;
  const order = params.get('order') || 'desc';
  const { name: orderName, isReverse } = orderOf(order);
  if (!Object.hasOwn(ORDERS, orderName) || /^-(asc|desc)$/.test(order))
    throw new InvalidArgumentError(`order must be one of ${Object.keys(ORDERS).join(', ')}.`);
  const { sessions, next, notes, findings, counts, ...known } = await listed(visit, order);
  const [only, another] = sessions;
  if (only && !another && isFoundFromFirstPage(params)) return seeOther(links.ofSession('/session', only));
  const sizeOf = known.sizeOf ?? (await reading.sizes(sessions));
  const isSearched = [params.get('find'), params.get('q')].some((text) => text?.trim());
  const [waitsOf, latest] = await Promise.all([
    reading.waitsOf(sessions),
    isSearched ? latestOf(reading, sessions) : [],
  ]);
  const latestIn = new Map(latest.map((each) => [sessionIdentity(each.session), each]));
  const filters = Object.fromEntries(FIELDS.map((name) => [name, params.get(name) ?? undefined]));
  const isFiltered = FIELDS.some((name) => name !== 'order' && name !== 'status' && params.get(name));
  const more = next && links.to('/sessions', { app: appName, ...filters, ...next });
  const all = html`<a href="${links.to('/sessions', { app: appName })}">see all sessions</a>`;
  const none = isFiltered
    ? empty('No session fits', 'Try fewer or other words, or ', all, '.')
    : empty('No sessions', 'There is nothing to show here.');
  const list = table(
    sessions,
    {
      Session: ({ title, labels, deletedAt, forkedFrom, ...session }) => {
        const newest = latestIn.get(sessionIdentity(session));
        return html`<a href="${links.ofSession('/session', session)}"><bdi>${title ?? session.sessionId}</bdi></a>
          ${title !== undefined && html`<span class="id"><bdi>${session.sessionId}</bdi></span>`} ${labelChips(labels)}
          ${waitChips(waitsOf(session))}
          ${forkedFrom && chip(html`fork of <bdi>${forkedFrom.sessionId}</bdi> at ${forkedFrom.at}`)}
          ${deletedAt !== undefined && chip(html`deleted ${ago(deletedAt)}`, 'warn')} ${newest && latestLines(newest)}`;
      },
      Found: findings !== undefined && ((session) => finding(visit, session, findings.get(sessionIdentity(session)))),
      App:
        appName === undefined &&
        ((session) =>
          html`<a class="quiet" href="${links.sessions(session.appName)}"><bdi>${session.appName}</bdi></a>`),
      User: ({ userId, ...session }) =>
        html`<a class="quiet" href="${links.sessions(session.appName, userId)}"><bdi>${userId}</bdi></a>`,
      '#Events': ({ eventCount }) => number(eventCount),
      '#Size': (session) => size(sizeOf(session)),
      '#Tokens': counts !== undefined && ((session) => number(counts.get(sessionIdentity(session))?.tokens ?? 0)),
      '#Failures': counts !== undefined && ((session) => number(counts.get(sessionIdentity(session))?.failures ?? 0)),
      '#Lasted': orderName === 'duration' && ((session) => lasted(durationOf(session))),
      '#Last update': ({ lastUpdateTime }) => ago(lastUpdateTime),
      '>Go to': (session) => session.deletedAt === undefined && shortcuts(visit, session),
    },
    none,
    'dense',
    {
      hrefOf: (heading) => {
        const by = OF_COLUMN[heading];
        const turned = order === 'desc' ? 'asc' : `-${order}`;
        return by && links.to('/sessions', { app: appName, ...filters, order: by === order ? turned : by });
      },
      directionOf: (heading) => {
        if (OF_COLUMN[heading] !== (orderName === 'asc' ? 'desc' : orderName)) return undefined;
        return orderName === 'asc' || TEXTS.has(orderName) !== isReverse ? 'ascending' : 'descending';
      },
    },
  );
  const of = appName !== undefined && { app: appName, user: params.get('user') ?? undefined };
  const heading = appName === undefined ? 'Sessions of all apps' : html`Sessions of <bdi>${appName}</bdi>`;
  const body = html`<div class="heading">
      <h1>${heading}</h1>
      ${
        of &&
        html`<div class="actions">
          <a class="button" href="${links.to('/users', { app: of.app })}">Users</a>
          <a class="button" href="${links.to('/waiting', of)}">Waiting</a>
          <a class="button" href="${links.to('/memory', of)}">Memory</a>
        </div>`
      }
    </div>
    ${search(visit, appName)} ${notes.some(Boolean) && html`<p class="note">${notes.filter(Boolean).join(' ')}</p>`}
    ${list}
    <div class="pages">
      ${(params.has('after') || params.has('skip')) && html`<a class="button" href="${links.to('/sessions', { app: appName, ...filters })}">First page</a>`}
      ${nextLink(more)}
    </div>`;
  return page(visit, { title: `Sessions of ${appName ?? 'all apps'}`, crumbs: [], body });
}

/** Whether only the field of the first page was filled in: who finds one session there wants to see it. */
const isFoundFromFirstPage = (params: URLSearchParams): boolean =>
  (params.get('find') ?? '').trim() !== '' && [...params.keys()].every((name) => name === 'find' || name === NAMES);

/** Reads a page of the sessions that match the form: from the database, or from the last updated ones if it cannot sort so. */
async function listed(visit: Visit, order: string): Promise<Listed> {
  const { reading, oneApp: appName, scope, userId, params } = visit;
  const request: SessionsRequest = withoutUndefined({
    userId,
    // An empty field does not filter.
    named: params.get('find')?.trim() || undefined,
    labels: labelsOf((params.get('labels') ?? '').split(',').filter((pair) => pair.trim() !== '')),
    status: params.get('status') === 'deleted' ? 'deleted' : 'active',
    order: order === 'asc' ? 'asc' : 'desc',
    updatedAfter: dayOf(params.get('from')),
    updatedBefore: dayOf(params.get('to'), 1),
  });
  const query = (params.get('q') ?? '').trim();
  const isByTime = order === 'desc' || order === 'asc';
  if (query === '' && isByTime && appName !== undefined && request.named === undefined) {
    const { sessions, next } = await reading.service.findSessions({
      ...{ ...request, appName },
      ...withoutUndefined({ after: params.get('after') || undefined }),
      limit: PAGE,
    });
    return { sessions, next: next === undefined ? undefined : { after: next }, notes: [] };
  }
  const searched = query === '' ? undefined : await reading.find(withoutUndefined({ appName, userId }), query);
  const findings = searched?.found;
  const by = orderOf(order);
  const counts = isCounted(by.name);
  const isWhole = !counts || (await reading.lastMonth.update());
  const apps = appName === undefined ? await reading.allApps(scope) : [appName];
  const { found, lookedAt, ...known } = await sortSessions(reading, apps, request, by, findings);
  const skip = visit.number('skip') ?? 0;
  const last = skip + PAGE;
  const ofEach = appName === undefined ? ' of each app' : '';
  return {
    ...{ sessions: found.slice(skip, last), findings, ...known },
    next: found.length > last ? { skip: last } : undefined,
    notes: [
      searched !== undefined && searched.where,
      lookedAt !== undefined &&
        `Of the ${number(lookedAt)} sessions${ofEach} that were updated ${order === 'asc' ? 'first' : 'last'}.`,
      counts && `Tokens and failures of ${DAYS} days; copies of forks do not count.`,
      !isWhole && 'Older events are being counted: load the page again.',
    ],
  };
}

/** The orders that begin with the least. */
const TEXTS: ReadonlySet<string> = new Set(['title', 'user']);

function finding({ links }: Visit, session: SessionSummary, found: Finding | undefined): Content {
  if (!found) return undefined;
  const { seq, text } = found;
  return seq === undefined
    ? html`<bdi>${text}</bdi> <span class="id">from memory</span>`
    : html`<a class="quiet" href="${links.ofSession('/session', session, { at: seq })}#e${seq}">#${seq}</a>
        <bdi>${text}</bdi>`;
}

const FIELDS = ['find', 'q', 'user', 'labels', 'from', 'to', 'status', 'order'] as const;

/** Finds sessions of all apps, in one field. */
export const findForm = (visit: Visit): Html =>
  searchForm(visit.links.to('/sessions'), {}, field(visit, 'find', 'Find a session', 'search', 'id, title, user, app'));

function search(visit: Visit, appName: string | undefined): Html {
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
  const { name, isReverse } = orderOf(params.get('order') ?? '');
  const turned = isReverse ? { [`-${name}`]: `Reverse: ${ORDERS[name]}` } : {};
  return searchForm(links.to('/sessions'), { ...(appName !== undefined && { app: appName }) }, [
    field(visit, 'find', 'Id, title, user, app'),
    field(visit, 'q', 'Said, tool or error'),
    scope.userId === undefined && field(visit, 'user', 'User'),
    field(visit, 'labels', 'Labels', 'search', 'team=red'),
    field(visit, 'from', 'From (UTC)', 'date'),
    field(visit, 'to', 'Until (UTC)', 'date'),
    choice('status', 'Show', { active: 'Active', deleted: 'Deleted' }),
    choice('order', 'Order', { ...ORDERS, ...turned }),
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
