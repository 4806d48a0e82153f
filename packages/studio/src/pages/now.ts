import { DAY_MS, dayOf } from '../operations/days.js';
import { sumUp, tokenSum, type Sum } from '../operations/prices.js';
import { UsageRows } from '../operations/usage.js';
import { InvalidArgumentError, type SessionKey } from '../../../../src/index.js';
import type { Call } from '../../../../src/conversation/calls.js';
import { sessionIdentity } from '../../../../src/model/keys.js';
import { counted, lasted, money, number, shownTime } from '../operations/words.js';
import { html, upToSize, type Content } from '../html.js';
import { HOURS } from '../reading.js';
import type { Usage } from '../operations/usage.js';
import { findForm } from './lists.js';
import { firstOf, ago, card, codeOf, empty, lasting, nextLink, page, shortcuts, size, table, time } from './layout.js';
import { HOW_TO_ANSWER, callsTable } from './answer.js';
import { inLine, tokensText } from './event-view.js';
import { doingOf } from './session-head.js';
import { largestBlock, largestNow } from './largest.js';
import { latestBlock, latestNow } from './latest.js';
import { soon } from '../patience.js';
import { groupOf, newestOfGroups, type Failure, type FailureGroup } from '../recent.js';
import type { Visit } from '../visit.js';

/** How many rows each list has at most. Its number leads to a page with all of them. */
const MOST = 12;

/** How many rows a list has at most that is alone on its page. */
const MOST_OF_ONE = 200;

/** How many bytes of markup the rows of failures have at most. */
const LARGEST_LIST = 200_000;

/** For how many failures the events are read at once. */
const AT_ONCE = 10;

/** How often the page is loaded again, in seconds: the log has no entries of leases. */
const LEASES_S = 30;

/** How long the first page waits for what is counted, in ms: it says the rest at once. */
const PATIENCE_MS = 100;

/** How often it is loaded again while something is still counted, in seconds. */
const COUNTING_S = 1;

/** The first page: what waits for a person, what runs, what failed, and the apps with what they did within a day. */
export async function nowPage(visit: Visit): Promise<Response> {
  const { links, reading, scope, params, prices } = visit;
  const only = params.get('all');
  const most = only === null ? MOST : MOST_OF_ONE;
  const { rows: apps, last } = firstOf(await reading.apps(scope, params.get('after') ?? ''));
  const names = apps.map(({ name }) => name);
  const isShown = (id: string) => only === null || only === id;
  const limit = most + 1;
  const waiting = isShown('waits') ? await reading.waiting(names, scope, { waitsFor: 'person', limit }) : [];
  const answered = isShown('answered') ? await reading.waiting(names, scope, { waitsFor: 'agent', limit }) : [];
  const leases = isShown('runs') ? await reading.heldLeases(scope, limit) : [];
  const doing: Content[] = [];
  for (const lease of leases.slice(0, most)) doing.push(await doingOf(visit, lease));
  const shownCalls = [...waiting.slice(0, most), ...answered.slice(0, most)];
  const titles = await titlesOf(visit, [...shownCalls, ...leases.slice(0, most)]);
  // What may take seconds comes last.
  const isAll = only === null && !params.has('after');
  const [latest, isWhole = false, largest] = await soon(
    PATIENCE_MS,
    isAll ? latestNow(visit, apps) : Promise.resolve([]),
    reading.lastDay.update(),
    isAll ? largestNow(visit) : Promise.resolve([]),
  );
  const isCounting = !isWhole || !largest || !latest;
  const hours = new Map<string, number[]>();
  const [used, usedToday] = [new UsageRows('app'), new UsageRows('app')];
  const today = dayOf(Date.now());
  for (const { at, counted } of reading.lastDay.counts(scope)) {
    const ofApp = hours.get(counted.appName) ?? Array.from({ length: HOURS }, () => 0);
    hours.set(counted.appName, ofApp);
    ofApp[at] = (ofApp[at] ?? 0) + counted.events;
    used.add(counted);
    if (counted.day === today) usedToday.add(counted);
  }
  const { rows } = used;
  const total = sumUp(rows, prices);
  const group = only === 'failed' ? failureGroup(visit) : undefined;
  const kept = isShown('failed') ? reading.lastDay.failures(scope) : [];
  const found: readonly (Failure & { times?: number })[] =
    only === null ? newestOfGroups(kept) : kept.filter((each) => !group || groupOf(each) === groupOf(group));
  const failures: (Failure & { why: string; times?: number; call: Call | undefined })[] = [];
  const gone = new Set<Failure>();
  for (let i = 0; i < Math.min(most, found.length); i += AT_ONCE) {
    const read = found.slice(i, Math.min(most, i + AT_ONCE)).map(async (failure) => {
      const known = await reading.whyFailed(failure);
      if (!known) gone.add(failure);
      return known ? [{ ...failure, ...known }] : [];
    });
    failures.push(...(await Promise.all(read)).flat());
  }
  const titlesOfFailures = await titlesOf(
    visit,
    failures.map(({ session }) => session),
  );
  const link = (key: SessionKey) => {
    const title = titles(key) ?? titlesOfFailures(key);
    return html`<a href="${links.ofSession('/session', key)}"><bdi>${title ?? key.sessionId}</bdi></a>
      <span class="id"
        ><bdi>${key.appName}</bdi> /
        <bdi>${key.userId}</bdi>${typeof title === 'string' && html` / <bdi>${key.sessionId}</bdi>`}</span
      >`;
  };

  const at = (key: SessionKey, seq: number, text: Content, kind = 'quiet') =>
    html`<a class="${kind}" href="${links.ofSession('/session', key, { at: seq })}#e${seq}">${text}</a>`;
  const runs = table(
    leases.slice(0, most).map((lease, i) => ({ ...lease, does: doing[i] })),
    {
      Session: (lease) => html`${link(lease)} <span class="ways">${shortcuts(visit, lease)}</span>`,
      Does: ({ does, holder }) =>
        html`<div class="does">${does}</div>
          <span class="id">held by <bdi>${holder}</bdi></span>`,
      '#For': ({ since, ...key }) =>
        html`<a class="quiet" href="${links.ofSession('/time', key)}">${lasting(since)}</a>`,
    },
    none('No session runs with a lease.'),
    'dense fixed',
  );
  const argsOf = ({ call, why }: (typeof failures)[number]) =>
    html`${call && html`${inLine(call.args)} –`} <span class="args"><bdi>${why}</bdi></span>`;
  const rowsOfFailures = failures.map((failure) => {
    const { session, seq, kind, what, call, times, time: then } = failure;
    const to = (text: Content, look?: string) => at(session, call?.seq ?? seq, text, look);
    const ofGroup = { all: 'failed', kind, what };
    return {
      what: html`<span class="legend ${kind}">${KINDS[kind]}</span> ${to(codeOf(what), '')} ${argsOf(failure)}
        ${times !== undefined && times > 1 && html`<a class="chip bad" href="${links.ofSession('/', session, ofGroup)}">newest of ${number(times)}</a>`}`,
      session: link(session),
      // On the whole list, those of the same hour must differ.
      when: to(only === null ? ago(then) : time(then, shownTime(then).slice('2026-'.length))),
    };
  });
  const sizes = rowsOfFailures.map(({ what, session, when }) => html`${what}${session}${when}`);
  const shownFailures = rowsOfFailures.slice(0, upToSize(sizes, LARGEST_LIST).length);
  const failed = [
    group &&
      html`<p>
        <span class="chip filter"
          >Only ${codeOf(group.what)} in <bdi>${group.session.sessionId}</bdi>
          <a href="${links.to('/', { all: 'failed' })}">Show all</a></span
        >
      </p>`,
    only !== null &&
      shownFailures.length + gone.size < found.length &&
      html`<p class="note">The newest ${number(shownFailures.length)}.</p>`,
    table(
      shownFailures,
      {
        What: ({ what }) => what,
        Session: ({ session }) => session,
        [only === null ? '#When' : '#When (UTC)']: ({ when }) => when,
      },
      isWhole ? none('No tool and no model has failed.') : undefined,
      'dense fixed',
    ),
  ];
  const appsBlock = html`<section class="block" id="apps">
    <h2>
      Apps
      ${usedText(total) && html`<a class="dim" href="${links.to('/usage')}">${HOURS} hours: ${usedText(total)}</a>`}
    </h2>
    ${appsTable(visit, apps, hours, rows)} ${nextLink(last && links.to('/', { after: last.name }))}
  </section>`;
  // It is above what it is about, and in a page that is loaded again.
  const stillCounted =
    !isWhole && html`<p class="note">Still counting the last ${HOURS} hours: these numbers grow.</p>`;
  const shownCount = (count: number) => (count > most ? `${number(most)} or more` : number(count));
  const counts = {
    runs: [shownCount(leases.length)],
    waits: [
      shownCount(waiting.length),
      ...waiting.slice(0, 1).map((oldest) => `for up to ${lasted(Math.max(0, Date.now() - oldest.timestamp))}`),
    ],
    answered: [shownCount(answered.length)],
    failed: countOfFailures(
      found.filter((failure) => !gone.has(failure)),
      reading.lastDay.areFailuresCut(scope) || !isWhole,
    ),
  };
  const section = (id: keyof typeof counts, title: string, list: Content) =>
    isShown(id) &&
    html`<section class="block" id="${id}">
      <h2>
        ${title}
        <a class="dim" href="${links.to('/', { all: id })}">${counts[id].join(' ')}</a>
      </h2>
      ${list}
    </section>`;
  const failedTitle = `Failed in ${HOURS} hours`;
  const cardOf = (id: keyof typeof counts, title: string, ...more: Content[]) => {
    const toAll = (text: string) => html`<a class="quiet" href="${links.to('/', { all: id })}">${text}</a>`;
    const [count = '', where] = counts[id];
    return card(title, [
      toAll(count),
      where !== undefined && html` <span class="id">${toAll(where)}</span>`,
      more.map((each) => html`<span class="id">${each}</span>`),
    ]);
  };
  const sum = sumUp(usedToday.rows, prices);
  const ofUsers = (text: string) => html`<a class="quiet" href="${links.to('/usage')}">${text}</a>`;
  const tokens = number(tokenSum(sum));
  const isUnknown = total.events === 0 && !isWhole;
  const [first] = largest ?? [];
  const summary = html`<dl class="cards">
    ${cardOf('waits', 'Waits for a person')} ${cardOf('runs', 'Runs')} ${cardOf('failed', failedTitle)}
    ${card(
      `${prices ? 'Cost' : 'Tokens'} today, by user and day`,
      html`${ofUsers(isUnknown ? '…' : sum.cost === undefined ? tokens : money(sum.cost))}
      ${!isUnknown && sum.cost !== undefined && html`<span class="id">${ofUsers([`${tokens} tokens`, unpricedText(sum)].filter(Boolean).join(', '))}</span>`}`,
    )}
    ${
      (first ?? !largest) &&
      card(
        'Largest session',
        first
          ? html`<a class="quiet" href="#largest">${size(first.size)}</a>
              <span class="id"
                ><a class="quiet" href="${links.ofSession('/session', first)}"
                  ><bdi>${first.title ?? first.sessionId}</bdi></a
                ></span
              >`
          : '…',
      )
    }
  </dl>`;
  const sections = [
    html`<div>
      ${section('waits', 'Waits for a person', [
        callsTable(visit, waiting.slice(0, most), link) ?? none('Nothing waits for a person.'),
        waiting.length > 0 && !visit.mayChange && HOW_TO_ANSWER,
      ])}
      ${
        answered.length > 0 &&
        section(
          'answered',
          'Answered, not yet run',
          callsTable(visit, answered.slice(0, most), link, { areAnswered: true }),
        )
      }
    </div>`,
    html`<div>${section('runs', 'Runs', runs)} ${section('failed', failedTitle, failed)}</div>`,
  ];
  const body = html`<div class="heading">
      <h1>Now</h1>
      ${findForm(visit)}
      <p class="live" id="live" role="status" hidden></p>
    </div>
    <div id="now" data-refresh="${isCounting ? COUNTING_S : LEASES_S}" data-live="${links.to('/live-now')}">
      ${
        !params.has('after') && [
          only === null && summary,
          stillCounted,
          only === null ? html`<div class="board">${sections}</div>` : sections,
          latestBlock(visit, latest ?? []),
          largestBlock(visit, largest ?? []),
        ]
      }
      ${only === null ? appsBlock : html`<p><a href="${links.to('/')}">All that happens now</a></p>`}
    </div>`;
  return page(visit, { title: 'Now', section: 'now', body });
}

/** The tool or the model whose failures in one session are asked for; undefined for all. */
function failureGroup(visit: Visit): FailureGroup | undefined {
  const [kind, what] = [visit.params.get('kind'), visit.params.get('what')];
  if (kind === null && what === null && !visit.params.has('session')) return undefined;
  if ((kind !== 'tool' && kind !== 'model') || what === null)
    throw new InvalidArgumentError(
      'The address must name an app, a user, a session, what failed, and its kind: tool or model.',
    );
  return { session: visit.session, kind, what };
}

/** How many failures there are, and where. */
function countOfFailures(found: readonly (Failure & { times?: number })[], isCut: boolean): string[] {
  if (found.length === 0) return [isCut ? '…' : '0'];
  const count = number(found.reduce((sum, { times = 1 }) => sum + times, 0));
  const sessions = new Set(found.map(({ session }) => sessionIdentity(session)));
  return [isCut ? `${count} or more` : count, `in ${counted(sessions.size, 'session')}`];
}

/** What is said of a failure before its name: of a model, the name is that of its agent. */
const KINDS: Readonly<Record<Failure['kind'], string>> = { tool: 'tool', model: 'model of' };

const none = (text: string) => html`<p class="dim">${text}</p>`;

function appsTable(
  { links, prices }: Visit,
  apps: readonly { name: string; lastUpdateTime: number | undefined }[],
  hours: ReadonlyMap<string, readonly number[]>,
  rows: Usage['rows'],
): Content {
  const yesterday = dayOf(Date.now() - DAY_MS);
  const service = html`<code>MikroOrmSessionService</code>`;
  return table(
    apps,
    {
      App: ({ name }) => html`<a href="${links.sessions(name)}"><bdi>${name}</bdi></a>`,
      [`Events of ${HOURS} hours`]: ({ name }) =>
        sparkline(hours.get(name), links.to('/sessions', { app: name, from: yesterday })),
      [`Tokens${prices ? ' and cost' : ''} of ${HOURS} hours`]: ({ name }) =>
        html`<a class="quiet" href="${links.to('/usage', { app: name, by: 'user' })}"
          >${usedText(
            sumUp(
              rows.filter(({ appName }) => appName === name),
              prices,
            ),
          )}</a
        >`,
      '#Last update': ({ name, lastUpdateTime }) =>
        html`<a class="quiet" href="${links.sessions(name)}">${ago(lastUpdateTime)}</a>`,
      '>Largest': ({ name }) => html`<a href="${links.to('/sessions', { app: name, order: 'size' })}">Largest</a>`,
      '>Waiting': ({ name }) => html`<a href="${links.to('/waiting', { app: name })}">Waiting</a>`,
      '>Users': ({ name }) => html`<a href="${links.to('/users', { app: name })}">Users</a>`,
    },
    empty('No sessions yet', 'Sessions appear here when an agent has created them with ', service, '.'),
    'dense',
  );
}

/** Tokens, and what they cost; models without a price are named, since their tokens are not in the cost. */
const usedText = (sum: Sum): string =>
  [tokensText(sum), sum.cost !== undefined && `cost ${money(sum.cost)}`, unpricedText(sum)].filter(Boolean).join(', ');

export const unpricedText = ({ unpriced }: Sum): string =>
  unpriced.length > 0 ? `without ${unpriced.map((model) => model || 'unnamed models').join(', ')}` : '';

const BARS = '▁▂▃▄▅▆▇█';

/** Numbers as a line of text, and their sum. */
function sparkline(counts: readonly number[] = [], href: string): Content {
  const sum = counts.reduce((total, each) => total + each, 0);
  if (sum === 0) return undefined;
  const most = Math.max(...counts);
  const bars = counts.map((each) => (each === 0 ? ' ' : BARS[Math.ceil((each / most) * BARS.length) - 1]));
  return html`<span class="spark" aria-hidden="true">${bars.join('')}</span>
    <a class="quiet" href="${href}">${number(sum)}</a>`;
}

/** @returns a function that gives the title of each of these sessions. */
export async function titlesOf({ reading }: Visit, keys: readonly SessionKey[]) {
  const each = new Map(keys.map((key) => [sessionIdentity(key), key]));
  const titles = new Map(
    await Promise.all([...each].map(async ([id, key]) => [id, (await reading.session(key))?.title] as const)),
  );
  return (key: SessionKey) => titles.get(sessionIdentity(key));
}
