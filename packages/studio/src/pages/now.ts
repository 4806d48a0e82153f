import { callsIn } from '../../../../src/conversation/calls.js';
import { NO_TOKENS, addTokens } from '../../../../src/conversation/tokens.js';
import type { SessionKey } from '../../../../src/index.js';
import { sessionIdentity } from '../../../../src/model/keys.js';
import { beginsTurn } from '../../../../src/model/turn.js';
import { number } from '../operations/words.js';
import { html, type Content, type Html } from '../html.js';
import { HOURS, type Activity } from '../last-day.js';
import { firstOf, ago, chip, codeOf, empty, lastedSince, nextLink, page, table, time } from './layout.js';
import { question } from './answer.js';
import { inLine, tokensText } from './event-view.js';
import type { Visit } from '../visit.js';

/** How many rows each list has at most. The rest is a link away. */
const MOST = 12;

/** The first page: what waits for a person, what runs, what failed, and the apps with what they did within a day. */
export async function nowPage(visit: Visit): Promise<Response> {
  const { links, reading, scope, params } = visit;
  const { rows: apps, last } = firstOf(await reading.apps(scope, params.get('after') ?? ''));
  const isWhole = await reading.lastDay.update();
  const activity = new Map(reading.lastDay.activity(scope).map((each) => [each.appName, each]));
  const names = apps.map(({ name }) => name);
  const waiting = await reading.waiting(names, scope, MOST + 1);
  const leases = await reading.heldLeases(scope, MOST + 1);
  const failures = reading.lastDay.failures(scope);
  const titleOf = await titlesOf(visit, [
    ...waiting.slice(0, MOST),
    ...leases.slice(0, MOST),
    ...failures.slice(0, MOST).map(({ session }) => session),
  ]);
  const link = (key: SessionKey) =>
    html`<a href="${links.ofSession('/session', key)}"><bdi>${titleOf(key) ?? key.sessionId}</bdi></a>
      <span class="id"><bdi>${key.appName}</bdi> / <bdi>${key.userId}</bdi></span>`;

  const waits = table(
    waiting.slice(0, MOST),
    {
      Question: ({ name, args, seq, ...call }) =>
        html`<a href="${links.ofSession('/session', call, { at: seq })}#e${seq}">${question(name, args)}</a>`,
      Session: link,
      '#Waits': ({ timestamp }) => time(timestamp, lastedSince(timestamp)),
      '>Answer':
        visit.mayChange &&
        (({ seq, id, ...call }) =>
          html`<a class="button" href="${links.ofSession('/answer', call, { at: seq, call: id })}">Answer</a>`),
    },
    none('Nothing waits for a person.'),
  );
  const doing: Content[] = [];
  for (const lease of leases.slice(0, MOST)) doing.push(await doingOf(visit, lease));
  const runs = table(
    leases.slice(0, MOST).map((lease, i) => ({ ...lease, does: doing[i] })),
    {
      Session: link,
      Does: ({ does }) => does,
      'Held by': ({ holder }) => html`<bdi>${holder}</bdi>`,
      '#For': ({ since }) => time(since, lastedSince(since)),
    },
    none('No session runs with a lease.'),
  );
  const failed = table(
    failures.slice(0, MOST),
    {
      What: ({ session, seq, what, why, times }) =>
        html`<a href="${links.ofSession('/session', session, { at: seq })}#e${seq}">${codeOf(what)}</a>
          ${times > 1 && chip(`${number(times)} times`, 'bad')} <span class="args"><bdi>${why}</bdi></span>`,
      Session: ({ session }) => link(session),
      '#When': (failure) => ago(failure.time),
    },
    none('No tool and no model has failed.'),
  );
  const body = html`<h1>Now</h1>
    <div id="now" data-refresh="5">
      ${
        !params.has('after') && [
          section('waits', 'Waits for a person', waiting.length, waits),
          section('runs', 'Runs', leases.length, runs),
          section('failed', `Failed in ${HOURS} hours`, failures.length, failed),
        ]
      }
      <section class="block" id="apps">
        <h2>Apps <span class="dim">${tokensOfAll([...activity.values()])}</span></h2>
        ${appsTable(visit, apps, activity)}
        ${!isWhole && html`<p class="dim">Not all events of the last ${HOURS} hours are counted yet: load the page again.</p>`}
        ${nextLink(last && links.to('/', { after: last.name }))}
      </section>
    </div>`;
  return page(visit, { title: 'Now', section: 'now', body });
}

const none = (text: string) => html`<p class="dim">${text}</p>`;

const section = (id: string, title: string, count: number, list: Content) =>
  html`<section class="block" id="${id}">
    <h2>${title} <span class="dim">${count > MOST ? `${MOST} or more` : count}</span></h2>
    ${list}
  </section>`;

function appsTable(
  { links }: Visit,
  apps: readonly { name: string; lastUpdateTime: number | undefined }[],
  activity: ReadonlyMap<string, Activity>,
): Content {
  const service = html`<code>MikroOrmSessionService</code>`;
  return table(
    apps,
    {
      App: ({ name }) => html`<a href="${links.sessions(name)}"><bdi>${name}</bdi></a>`,
      [`Events of ${HOURS} hours`]: ({ name }) => sparkline(activity.get(name)?.byHour),
      '#Tokens': ({ name }) => tokensText(activity.get(name) ?? NO_TOKENS),
      '#Last update': ({ lastUpdateTime }) => ago(lastUpdateTime),
      '>Waiting': ({ name }) => html`<a href="${links.to('/waiting', { app: name })}">Waiting</a>`,
      '>Users': ({ name }) => html`<a href="${links.to('/users', { app: name })}">Users</a>`,
    },
    empty('No sessions yet', 'Sessions appear here when an agent has created them with ', service, '.'),
  );
}

function tokensOfAll(all: readonly Activity[]): string {
  const sum = { ...NO_TOKENS };
  for (const each of all) addTokens(sum, each);
  return tokensText(sum);
}

const BARS = '▁▂▃▄▅▆▇█';

/** Numbers as a line of text. */
function sparkline(counts: readonly number[] = []): Content {
  const sum = counts.reduce((total, each) => total + each, 0);
  if (sum === 0) return undefined;
  const most = Math.max(...counts);
  const bars = counts.map((each) => (each === 0 ? ' ' : BARS[Math.ceil((each / most) * BARS.length) - 1]));
  return html`<span class="spark" aria-hidden="true">${bars.join('')}</span> ${number(sum)}`;
}

/** @returns a function that gives the title of each of these sessions. */
async function titlesOf({ reading }: Visit, keys: readonly SessionKey[]) {
  const titles = new Map<string, string | null | undefined>();
  for (const key of keys) {
    const id = sessionIdentity(key);
    if (!titles.has(id)) titles.set(id, (await reading.session(key))?.title);
  }
  return (key: SessionKey) => titles.get(sessionIdentity(key));
}

/** What a session that is held does now: it waits for a tool, for its model, or has not begun. */
async function doingOf({ reading, links }: Visit, session: SessionKey): Promise<Html> {
  const events = await reading.newestEvents(session);
  const last = events.at(-1);
  if (!last) return html`has no events`;
  const since = (seq: number) => {
    const found = events.find((each) => each.seq === seq) ?? last;
    return lastedSince(found.appendTime ?? found.event.timestamp);
  };
  const call = callsIn(events).open.findLast(({ isMissing }) => !isMissing);
  const turn = events.findLast(({ event }) => beginsTurn(event));
  const ofTurn = turn && html`<span class="dim">in a turn of ${since(turn.seq)}</span>`;
  if (!call) return html`${chip(`model or between steps, ${since(last.seq)}`, 'good')} ${ofTurn}`;
  return html`<a href="${links.ofSession('/session', session, { at: call.seq })}#e${call.seq}">${codeOf(call.name)}</a>
    ${inLine(call.args)} ${chip(since(call.seq), call.isLongRunning ? 'warn' : 'good')} ${ofTurn}`;
}
