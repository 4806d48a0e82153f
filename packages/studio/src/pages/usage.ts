import { InvalidArgumentError } from '../../../../src/index.js';
import { MOST_SERIES, dayBars, sumOf, type Series } from '../chart.js';
import { html, type Content, type Html } from '../html.js';
import { withoutUndefined } from '../../../../src/model/json.js';
import { DAY_MS, dayOf } from '../operations/days.js';
import { sumUp, tokenSum, type Sum } from '../operations/prices.js';
import { UsageRows, type UsageOptions } from '../operations/usage.js';
import { counted, digitsOf, lasted, money, number } from '../operations/words.js';
import { soon } from '../patience.js';
import { DAYS, PAGE } from '../reading.js';
import type { Visit } from '../visit.js';
import { card, empty, page, table } from './layout.js';
import { unpricedText } from './now.js';

const BY: Readonly<Record<UsageOptions['by'], string>> = {
  ...{ app: 'App', user: 'User', model: 'Model', agent: 'Agent', day: 'Day' },
};

const isBy = (text: string): text is UsageOptions['by'] => Object.hasOwn(BY, text);

type Row = UsageRows['rows'][number];

/** A line of the table; the last one has the total. */
interface Line {
  row?: Row & { isGone: boolean };
  sum: Sum;
}

type Named = Pick<Row, 'appName' | 'group'>;

type Columns = Parameters<typeof table<Line>>[1];

/** How long the page waits for what is counted, in ms: it says nothing else. */
const PATIENCE_MS = 1_000;

/** Tokens of the last days and what they cost, as the command `usage` counts them. */
export async function usagePage(visit: Visit): Promise<Response> {
  const { links, reading, params, prices } = visit;
  const [appName, userId] = [visit.oneApp, visit.userId];
  const by = params.get('by') ?? 'user';
  if (!isBy(by)) throw new InvalidArgumentError(`by must be one of ${Object.keys(BY).join(', ')}.`);
  const [isWhole = false] = await soon(PATIENCE_MS, reading.lastMonth.update());
  const used = new UsageRows(by);
  const ofDays = new UsageRows(by === 'day' ? 'app' : by, true);
  const owner = withoutUndefined({ appName, userId });
  const unreadable = reading.lastMonth.unreadable(owner);
  // A user of several apps is one row: of each, the apps.
  const isOverApps = by === 'user' && appName === undefined;
  const appsOfUsers = new Map<string, Set<string>>();
  for (const { counted: each } of reading.lastMonth.counts(owner)) {
    const ofRow = isOverApps ? { ...each, appName: '' } : each;
    used.add(ofRow);
    ofDays.add(ofRow);
    if (isOverApps) appsOfUsers.set(each.userId, (appsOfUsers.get(each.userId) ?? new Set()).add(each.appName));
  }
  const { rows } = used;
  const total = sumUp(ofDays.rows, prices);
  const appsOf = (row: Named) => (isOverApps ? [...(appsOfUsers.get(row.group) ?? [])] : [row.appName]);
  // The counts outlive an erased user; the name must not.
  const isGone = async (row: Named) => {
    if (by !== 'user') return false;
    for (const app of appsOf(row)) if (await reading.hasSessions(app, row.group)) return false;
    return true;
  };
  const sums = rows.map((row) => ({ ...row, sum: sumUp([row], prices) }));
  const order = (one: Sum, other: Sum) =>
    (other.cost ?? 0) - (one.cost ?? 0) || tokenSum(other) - tokenSum(one) || other.events - one.events;
  sums.sort((one, other) => (by === 'day' && other.group.localeCompare(one.group)) || order(one.sum, other.sum));
  const shown: (Row & { sum: Sum; isGone: boolean })[] = [];
  for (const row of sums.slice(0, PAGE)) shown.push({ ...row, isGone: await isGone(row) });
  const of = { app: appName, user: userId };
  const tabs = Object.entries(BY).map(
    ([each, name]) =>
      html`<a
        class="button"
        href="${links.to('/usage', { ...of, by: each })}"
        ${each === by && html`aria-current="page"`}
        >${name}</a
      >`,
  );
  const all = tokenSum(total);
  const digits = digitsOf(total.cost ?? 0);
  const lines: Line[] = shown.map((row) => ({ row, sum: row.sum }));
  if (lines.length > 1) lines.push({ sum: total });
  const names: Columns = {
    [BY[by]]: ({ row }) =>
      !row
        ? html`<strong>Total</strong>`
        : row.isGone
          ? html`<span class="dim">${GONE}</span>`
          : nameOf(visit, by, { ...row, appNames: appsOf(row) }),
    ...(by !== 'app' && {
      App: ({ row }: Line) => {
        if (!row) return undefined;
        const [app = '', ...others] = appsOf(row);
        if (others.length === 0)
          return html`<a class="quiet" href="${links.to('/usage', { by, user: userId, app })}"><bdi>${app}</bdi></a>`;
        const apps = `${number(others.length + 1)} apps`;
        return row.isGone
          ? apps
          : html`<a class="quiet" href="${links.to('/usage', { by: 'app', user: row.group })}">${apps}</a>`;
      },
    }),
  };
  const amounts: Columns = {
    '#Input': ({ sum }) => number(sum.inputTokens),
    '#Cached': ({ sum }) => number(sum.cachedTokens),
    '#Output': ({ sum }) => number(sum.outputTokens),
    '#Thoughts': ({ sum }) => number(sum.thoughtsTokens),
    '#Share': ({ sum }) => all > 0 && `${number((100 * tokenSum(sum)) / all)} %`,
    '#Tools': ({ sum }) => number(sum.toolCalls),
    // Nobody knows it of events that came without the times of their appends.
    '#Model time': total.modelMs > 0 && (({ sum }) => (sum.modelMs > 0 ? lasted(sum.modelMs) : '–')),
    '#Cost': prices !== undefined && (({ sum }) => html`${money(sum.cost ?? 0, digits)} ${note(unpricedText(sum))}`),
  };
  const none = isWhole
    ? empty('Nothing was used', `No event is of the last ${DAYS} days.`)
    : html`<p class="note">Counting …</p>`;
  const ofEachDay =
    by !== 'day' &&
    lines.length > 0 &&
    html`<section class="block" id="daily">
      <h2>${prices ? 'Cost' : 'Tokens'} by ${by} and day</h2>
      ${table(lines, { ...names, ...byDay(ofDays.rows, prices) }, undefined, 'dense')}
    </section>`;
  const list = html`<section class="block">
    ${lines.length > 0 && html`<h2>Tokens, tools and time by ${by}</h2>`}
    ${table(lines, { ...names, ...amounts }, none, 'dense')}
  </section>`;
  const bars = total.events > 0 && (await charts(ofDays.rows, isGone, visit, total));
  const { missing } = reading.lastMonth;
  const ofSum = (shown: Content) => (total.events === 0 && !isWhole ? '…' : shown);
  const body = html`<h1>
      Usage of
      ${userId !== undefined && html`<bdi>${userId}</bdi> in `}${appName === undefined ? 'all apps' : html`<bdi>${appName}</bdi>`}
    </h1>
    <div id="now" ${!isWhole && html`data-refresh="1"`}>
      <p class="dim">
        ${DAYS - missing} days until today, in UTC. An event that forks have copied counts once.
        ${missing > 0 && ' There are too many users to keep the counts of more days.'}
        ${unreadable > 0 && ` Not counted: ${counted(unreadable, 'event')} that cannot be read.`}
        ${!isWhole && ' Older events are being counted: the numbers still grow.'}
        ${(appName ?? userId) !== undefined && html`<a href="${links.to('/usage', { by })}">See all</a>`}
      </p>
      <dl class="cards">
        ${prices && card(`Cost of ${DAYS - missing} days`, ofSum(html`${money(total.cost ?? 0)} ${note(unpricedText(total))}`))}
        ${card('Input', ofSum(html`${number(total.inputTokens)} ${note(total.cachedTokens > 0 && `${number(total.cachedTokens)} cached`)}`))}
        ${card('Output', ofSum(number(total.outputTokens)))} ${card('Thoughts', ofSum(number(total.thoughtsTokens)))}
        ${card('Calls of tools', ofSum(number(total.toolCalls)))}
      </dl>
      <nav class="tabs" aria-label="Usage by">${tabs}</nav>
      ${ofEachDay} ${bars} ${list}
      ${sums.length > PAGE && html`<p class="dim">and ${counted(sums.length - PAGE, 'more', 'more')}, in the sum above</p>`}
    </div>`;
  return page(visit, { title: 'Usage', section: 'usage', body });
}

const note = (text: string | false): Content => text && html`<span class="id">${text}</span>`;

/** How many days have a column of their own, the newest first. */
const DAYS_SHOWN = 7;

/** Columns with what was used on each of the last days, before them, and in all: its cost if there are prices, otherwise tokens. */
function byDay(rows: readonly Row[], prices: Visit['prices']): Columns {
  const ofRows = new Map<string, Row[]>();
  for (const row of rows) {
    const id = idOf(row);
    ofRows.set(id, [...(ofRows.get(id) ?? []), row]);
  }
  const amount = (row: Line['row'], isOf: (day: string) => boolean) => {
    const found = (row ? (ofRows.get(idOf(row)) ?? []) : rows).filter(({ day = '' }) => isOf(day));
    const sum = sumUp(found, prices);
    if (tokenSum(sum) === 0) return html`<span class="dim">–</span>`;
    return sum.cost === undefined ? number(tokenSum(sum)) : money(sum.cost, digits);
  };
  const digits = digitsOf(sumUp(rows, prices).cost ?? 0);
  const days = Array.from({ length: DAYS_SHOWN }, (_, i) => dayOf(Date.now() - i * DAY_MS));
  const oldest = days.at(-1) ?? '';
  return {
    [`#${prices ? 'Cost' : 'Tokens'} of ${DAYS} days`]: ({ row }) => html`<strong>${amount(row, () => true)}</strong>`,
    ...Object.fromEntries(
      days.map((day, i) => [
        `#${i === 0 ? 'Today' : day.slice(5)}`,
        ({ row }: Line) => amount(row, (each) => each === day),
      ]),
    ),
    '#Earlier': ({ row }) => amount(row, (each) => each < oldest),
  };
}

// A name has no NUL.
const idOf = ({ appName, group }: Named) => `${appName}\0${group}`;

/** Leads to the sessions; models and agents to their apps' users. */
function nameOf(
  { links, userId }: Visit,
  by: UsageOptions['by'],
  { appName, group, appNames }: Named & { appNames: readonly string[] },
): Html {
  const [only = '', ...others] = appNames;
  const hrefs = {
    app: () => links.sessions(appName, userId),
    user: () => (others.length > 0 ? links.to('/usage', { by: 'app', user: group }) : links.sessions(only, group)),
    day: () => links.to('/sessions', { app: appName, from: group, to: group }),
    model: () => links.to('/usage', { by: 'user', app: appName }),
    agent: () => links.to('/usage', { by: 'user', app: appName }),
  };
  return html`<a href="${hrefs[by]()}"><bdi>${group || NO_NAME}</bdi></a>`;
}

/**
 * Tokens and cost of each day, by what the table is by: the same name in several apps is one series.
 *
 * @param isGone of a user whose name must not be shown.
 */
async function charts(
  rows: readonly Row[],
  isGone: (row: Named) => Promise<boolean>,
  { prices }: Visit,
  total: Sum,
): Promise<Html> {
  const now = Date.now();
  const days = Array.from({ length: DAYS }, (_, i) => dayOf(now - (DAYS - 1 - i) * DAY_MS));
  const seriesOf = (valueOf: (row: Row) => number): Map<string, Map<string, number>> => {
    const byName = new Map<string, Map<string, number>>();
    for (const row of rows) {
      const [values, day] = [byName.get(row.group) ?? new Map<string, number>(), row.day ?? ''];
      byName.set(row.group, values.set(day, (values.get(day) ?? 0) + valueOf(row)));
    }
    return byName;
  };
  const tokens = [...seriesOf(tokenSum)].sort(([, one], [, other]) => sumOf(other) - sumOf(one));
  const names: string[] = [];
  for (const [group] of tokens.slice(0, MOST_SERIES)) {
    const apps = new Set(rows.flatMap((row) => (row.group === group ? row.appName : [])));
    let isKnown = false;
    for (const appName of apps) isKnown ||= !(await isGone({ appName, group }));
    names.push(isKnown ? group || NO_NAME : GONE);
  }
  const named = (values: ReadonlyMap<string, Series['values']>): Series[] =>
    tokens.map(([group], i) => ({ name: names[i] ?? group, values: values.get(group) ?? new Map() }));
  // In the same order, so that a name has the same color in both charts.
  const costs = prices && named(seriesOf((row) => sumUp([row], prices).cost ?? 0));
  return html`<div class="charts">
    ${(total.cost ?? 0) > 0 && costs && dayBars(['Cost a day', unpricedText(total)].filter(Boolean).join(', '), days, costs, money)}
    ${dayBars('Tokens a day', days, named(new Map(tokens)))}
  </div>`;
}

const GONE = 'a user without sessions';
const NO_NAME = '(no name)';
