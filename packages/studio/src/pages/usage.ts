import { InvalidArgumentError } from '../../../../src/index.js';
import { dayBars, sumOf, type Series } from '../chart.js';
import { html, type Content, type Html } from '../html.js';
import { DAY_MS, dayOf } from '../operations/days.js';
import { sumUp, tokenSum, type Sum } from '../operations/prices.js';
import { UsageRows, type UsageOptions } from '../operations/usage.js';
import { counted, money, number } from '../operations/words.js';
import { DAYS, PAGE } from '../reading.js';
import type { Visit } from '../visit.js';
import { card, empty, lasted, page, table } from './layout.js';
import { unpricedText } from './now.js';

const BY: Readonly<Record<UsageOptions['by'], string>> = {
  ...{ app: 'App', user: 'User', model: 'Model', agent: 'Agent', day: 'Day' },
};

const isBy = (text: string): text is UsageOptions['by'] => Object.hasOwn(BY, text);

type Row = UsageRows['rows'][number];

/** Tokens of the last days and what they cost, as the command `usage` counts them. */
export async function usagePage(visit: Visit): Promise<Response> {
  const { links, reading, params, prices } = visit;
  const [appName, userId] = [params.has('app') ? visit.appName : visit.scope.appName, visit.userId];
  const by = params.get('by') ?? 'app';
  if (!isBy(by)) throw new InvalidArgumentError(`by must be one of ${Object.keys(BY).join(', ')}.`);
  const isWhole = await reading.lastMonth.update();
  const isDaily = by !== 'day' && params.has('daily');
  const used = new UsageRows(by, isDaily);
  const byDay = new UsageRows('day');
  for (const { counted: each } of reading.lastMonth.counts({
    ...(appName !== undefined && { appName }),
    ...(userId !== undefined && { userId }),
  })) {
    used.add(each);
    byDay.add(each);
  }
  const { rows } = used;
  const total = sumUp(byDay.rows, prices);
  const sums = rows.map((row) => ({ ...row, sum: sumUp([row], prices) }));
  const order = (one: Sum, other: Sum) =>
    (other.cost ?? 0) - (one.cost ?? 0) || tokenSum(other) - tokenSum(one) || other.events - one.events;
  const newest = (one: Row, other: Row) => (other.day ?? other.group).localeCompare(one.day ?? one.group);
  sums.sort((one, other) => ((by === 'day' || isDaily) && newest(one, other)) || order(one.sum, other.sum));
  const shown: ((typeof sums)[number] & { isGone: boolean })[] = [];
  for (const row of sums.slice(0, PAGE))
    // The counts outlive an erased user; the name must not.
    shown.push({ ...row, isGone: by === 'user' && !(await reading.hasSessions(row.appName, row.group)) });
  const of = { app: appName, user: userId, daily: isDaily ? 1 : undefined };
  const tabs = Object.entries(BY).map(
    ([each, name]) =>
      html`<a
        class="button"
        href="${links.to('/usage', { ...of, by: each })}"
        ${each === by && html`aria-current="page"`}
        >${name}</a
      >`,
  );
  const daily =
    by !== 'day' &&
    html`<a
      class="button"
      href="${links.to('/usage', { ...of, by, daily: isDaily ? undefined : 1 })}"
      ${isDaily && html`aria-current="true"`}
      >Each day</a
    >`;
  const all = tokenSum(total);
  const list = table(
    shown,
    {
      [BY[by]]: (row) => (row.isGone ? html`<span class="dim">a user without sessions</span>` : nameOf(visit, by, row)),
      ...(by !== 'app' && {
        App: ({ appName: app }) =>
          html`<a class="quiet" href="${links.to('/usage', { by, user: userId, app, daily: of.daily })}"
            ><bdi>${app}</bdi></a
          >`,
      }),
      ...(isDaily && {
        Day: ({ appName: app, day }: Row) =>
          html`<a class="quiet" href="${links.to('/sessions', { app, from: day, to: day })}">${day}</a>`,
      }),
      '#Input': ({ inputTokens }) => number(inputTokens),
      '#Cached': ({ cachedTokens }) => number(cachedTokens),
      '#Output': ({ outputTokens }) => number(outputTokens),
      '#Thoughts': ({ thoughtsTokens }) => number(thoughtsTokens),
      '#Share': (row) => all > 0 && `${number((100 * tokenSum(row)) / all)} %`,
      '#Tools': ({ toolCalls }) => number(toolCalls),
      '#Model time': ({ modelMs }) => lasted(modelMs),
      '#Cost': prices !== undefined && (({ sum }) => html`${money(sum.cost ?? 0)} ${note(unpricedText(sum))}`),
    },
    empty('Nothing was used', `No event is of the last ${DAYS} days.`),
    'dense',
  );
  const { missing } = reading.lastMonth;
  const body = html`<h1>
      Usage of
      ${userId !== undefined && html`<bdi>${userId}</bdi> in `}${appName === undefined ? 'all apps' : html`<bdi>${appName}</bdi>`}
    </h1>
    <div id="now" ${!isWhole && html`data-refresh="1"`}>
      <p class="dim">
        ${DAYS - missing} days until today, in UTC. An event that forks have copied counts once.
        ${missing > 0 && ' There are too many users to keep the counts of more days.'}
        ${!isWhole && ' Older events are being counted: the numbers still grow.'}
        ${(appName ?? userId) !== undefined && html`<a href="${links.to('/usage', { by })}">See all</a>`}
      </p>
      <dl class="cards">
        ${prices && card('Cost', html`${money(total.cost ?? 0)} ${note(unpricedText(total))}`)}
        ${card('Input', html`${number(total.inputTokens)} ${note(total.cachedTokens > 0 && `${number(total.cachedTokens)} cached`)}`)}
        ${card('Output', number(total.outputTokens))} ${card('Thoughts', number(total.thoughtsTokens))}
        ${card('Calls of tools', number(total.toolCalls))}
      </dl>
      ${total.events > 0 && charts(byDay.rows, visit, total)}
      <nav class="tabs" aria-label="Usage by">${tabs} ${daily}</nav>
      ${list}
      ${sums.length > PAGE && html`<p class="dim">and ${counted(sums.length - PAGE, 'more', 'more')}, in the sum above</p>`}
    </div>`;
  return page(visit, { title: 'Usage', section: 'usage', body });
}

const note = (text: string | false): Content => text && html`<span class="id">${text}</span>`;

/** Leads to the sessions; models and agents to their apps' users. */
function nameOf({ links }: Visit, by: UsageOptions['by'], { appName, group }: Row): Html {
  const hrefs = {
    app: () => links.sessions(appName),
    user: () => links.sessions(appName, group),
    day: () => links.to('/sessions', { app: appName, from: group, to: group }),
    model: () => links.to('/usage', { by: 'user', app: appName }),
    agent: () => links.to('/usage', { by: 'user', app: appName }),
  };
  return html`<a href="${hrefs[by]()}"><bdi>${group || '(no name)'}</bdi></a>`;
}

/** Tokens and cost of each day, by app. */
function charts(rows: readonly Row[], { prices }: Visit, total: Sum): Html {
  const now = Date.now();
  const days = Array.from({ length: DAYS }, (_, i) => dayOf(now - (DAYS - 1 - i) * DAY_MS));
  const seriesOf = (valueOf: (row: Row) => number): Series[] =>
    [...new Set(rows.map(({ appName }) => appName))].map((name) => {
      const ofApp = rows.filter(({ appName }) => appName === name);
      return { name, values: new Map(ofApp.map((row) => [row.group, valueOf(row)])) };
    });
  const tokens = seriesOf(tokenSum).sort((one, other) => sumOf(other) - sumOf(one));
  // In the same order, so that an app has the same color in both charts.
  const costs = prices && seriesOf((row) => sumUp([row], prices).cost ?? 0);
  const inOrder = tokens.flatMap(({ name }) => costs?.filter((each) => each.name === name) ?? []);
  return html`${costs && dayBars(['Cost a day', unpricedText(total)].filter(Boolean).join(', '), days, inOrder, money)}
  ${dayBars('Tokens a day', days, tokens)}`;
}
