import { ago as agoText, bytes, counted, lasted, shownTime } from '../operations/words.js';
import { SCRIPT, STYLES } from '../assets/assets.js';
import { SECURITY_HEADERS, setFormCookie } from '../guard.js';
import { fieldValue, html, type Content, type Html } from '../html.js';
import type { SessionKey } from '../../../../src/index.js';
import type { Links } from '../links.js';
import type { Size } from '../browsing.js';
import { PAGE } from '../reading.js';
import { namesField, type Visit } from '../visit.js';

/** A link above the heading, to the page above this one. */
interface Crumb {
  text: string;
  href: string;
}

interface Page {
  title: string;
  /** The app that the page is about. */
  appName?: string;
  /** The pages between the list of apps, or the app, and this page. */
  crumbs?: readonly Crumb[];
  /** The part of the studio that the navigation marks. */
  section?: 'now' | 'usage' | 'operations';
  body: Html;
}

export function page(visit: Visit, { title, appName, crumbs, section, body }: Page): Response {
  const { links, cookie } = visit;
  const current = (name: Page['section']) => name === section && html` aria-current="true"`;
  const nav = html`<nav aria-label="Studio">
    <a href="${links.to('/')}" ${current('now')}>Now</a>
    <a href="${links.apps}">Apps</a>
    <a href="${links.to('/usage')}" ${current('usage')}>Usage</a>
    <a href="${links.to('/operations')}" ${current('operations')}>Operations</a>
  </nav>`;
  const all = [
    { text: 'Apps', href: links.apps },
    ...(appName === undefined ? [] : [{ text: appName, href: links.sessions(appName) }]),
    ...(crumbs ?? []),
  ];
  const path =
    crumbs &&
    html`<nav class="crumbs" aria-label="Breadcrumbs">
      <ol>
        ${all.map(
          ({ text, href }) =>
            html`<li>
              <a href="${href}"><bdi>${text}</bdi></a>
            </li>`,
        )}
      </ol>
    </nav>`;
  const response = documentOf(links, { title, status: 200, nav, main: html`${path}${body}` });
  if (cookie !== undefined) response.headers.append('set-cookie', setFormCookie(cookie, links.base));
  return response;
}

/** A page with an error. It needs no visit: the request may have been refused before there was one. */
export function errorPage(links: Links, status: number, title: string, message: string): Response {
  const main = html`<section class="empty" role="alert">
    <h1>${title}</h1>
    <p>${message}</p>
    ${status !== 401 && status !== 403 && html`<p><a class="button" href="${links.to('/')}">To the first page</a></p>`}
  </section>`;
  return documentOf(links, { title, status, main });
}

function documentOf(
  links: Links,
  { title, status, nav, main }: { title: string; status: number; nav?: Html; main: Html },
): Response {
  const text = html`<!doctype html>
    <html lang="en">
      <head>
        <meta charset="utf-8" />
        <meta name="viewport" content="width=device-width, initial-scale=1" />
        <meta name="color-scheme" content="light dark" />
        <title>${title} – adk-mikro-orm studio</title>
        <link rel="icon" href="${links.to('/assets/icon.svg')}" type="image/svg+xml" />
        <link rel="stylesheet" href="${links.to(STYLES.path)}" />
        <script src="${links.to(SCRIPT.path)}" defer></script>
      </head>
      <body>
        <a class="skip" href="#main">Skip to the content</a>
        <header class="top">
          <a class="brand" href="${links.to('/')}"><span aria-hidden="true"></span>Studio</a>${nav}
        </header>
        <main id="main" tabindex="-1">${main}</main>
      </body>
    </html> `.text;
  return new Response(text, { status, headers: { ...SECURITY_HEADERS, 'content-type': 'text/html; charset=utf-8' } });
}

/** A time for a person to read. Its title has the exact time. */
export function time(ms: number | undefined, text = `${shownTime(ms)} UTC`, attributes?: Html): Html {
  const date = new Date(ms ?? NaN);
  if (ms === undefined || Number.isNaN(date.getTime())) return html`<span class="dim">–</span>`;
  return html`<time datetime="${date.toISOString()}" title="${shownTime(ms)} UTC" ${attributes}>${text}</time>`;
}

/**
 * How long something has lasted that began at this time, and counts on while the page is open. The clocks of the database and of this
 * process may differ.
 */
export function lasting(since: number): Html {
  const ms = Math.max(0, Date.now() - since);
  return time(since, lasted(ms), html`data-lasted="${ms}"`);
}

/** How long ago something happened, which counts on while the page is open; after a month, the date. */
export function ago(ms: number | undefined): Html {
  const passed = Date.now() - (ms ?? NaN);
  // A stamp may be in the future.
  if (!(passed > -60_000 && passed <= 30 * 86_400_000)) return time(ms);
  return time(ms, agoText(passed), html`data-ago="${passed}"`);
}

export const size = ({ bytes: count, isEstimate }: Size = { bytes: 0, isEstimate: false }): Html =>
  html`${isEstimate && '≈ '}${bytes(count)}`;

/** What a page shows instead of an empty list. */
export function empty(title: string, ...text: readonly Content[]): Html {
  return html`<section class="empty">
    <h2>${title}</h2>
    <p>${text}</p>
  </section>`;
}

/** Up to how many characters of a session's address its row has shortcuts. */
const LONGEST_WAY = 1_000;

/** Short links from a row to what is asked most about its session: why it answered so, and where its time went. */
export function shortcuts({ links, reading }: Visit, session: SessionKey): Content {
  const branches = reading.knownBranches(session);
  const toTime = links.ofSession('/time', session);
  // Fifty rows with the longest keys would make a page of a megabyte.
  if (toTime.length > LONGEST_WAY) return undefined;
  // A session opens at its newest answer, with its reasons.
  return html`<a class="way" href="${links.ofSession('/session', session)}">Why</a>
    <a class="way" href="${toTime}">Time</a>
    ${branches > 1 && html`<a class="way" href="${toTime}#branches">${counted(branches, 'branch', 'branches')}</a>`}`;
}

export const chip = (text: Content, kind = ''): Html => html`<span class="chip ${kind}">${text}</span>`;

export const labelChips = (labels: Readonly<Record<string, string>>): Html[] =>
  Object.entries(labels).map(([name, value]) => chip(html`<bdi>${name}=${value}</bdi>`));

const HUES = 8;

/** The colors of the names on a page: no two of the first eight names have the same, and on most pages a name keeps its own. */
export class Hues {
  readonly #byName = new Map<string, number>();

  /** @param authors those that are known from the beginning. */
  constructor(authors: readonly string[]) {
    // Sorted, so that the same names have the same colors on every page.
    for (const name of authors.toSorted()) this.of(name);
  }

  /** @returns classes of the style sheet. The user has none of the colors. */
  of(name: string): string {
    if (name === 'user') return name;
    let hue = this.#byName.get(name);
    if (hue === undefined) {
      const taken = new Set(this.#byName.values());
      hue = 0;
      for (const character of name) hue = (hue * 31 + (character.codePointAt(0) ?? 0)) % 9_973;
      hue %= HUES;
      while (taken.size < HUES && taken.has(hue)) hue = (hue + 1) % HUES;
      this.#byName.set(name, hue);
    }
    return `agent hue-${hue}`;
  }
}

/**
 * Columns by heading. A heading that begins with `#` is one of numbers, with `>` one of links that say it themselves; `false`
 * leaves the column out.
 */
type Columns<Row> = Readonly<Record<string, ((row: Row) => Content) | false>>;

/** What a click on the heading of a column sorts by, and how the rows are sorted now. */
interface Sorting {
  hrefOf: (heading: string) => string | undefined;
  directionOf: (heading: string) => 'ascending' | 'descending' | undefined;
}

/** @param none shown if there are no rows. @param kind a class of the style sheet. */
export function table<Row>(
  rows: readonly Row[],
  columns: Columns<Row>,
  none?: Html,
  kind = '',
  sorting?: Sorting,
): Content {
  if (rows.length === 0) return none;
  const shown = Object.entries(columns).flatMap(([heading, of]) => (of ? [{ heading, of }] : []));
  const kindOf = (heading: string) => {
    const kind = heading.startsWith('#') ? 'number' : heading.startsWith('>') && 'action';
    return kind && html`class="${kind}"`;
  };
  const name = (heading: string) => heading.replace(/^[#>]/, '');
  const head = shown.map(({ heading }) => {
    const [href, direction] = [sorting?.hrefOf(name(heading)), sorting?.directionOf(name(heading))];
    const text = href === undefined ? name(heading) : html`<a class="sort" href="${href}">${name(heading)}</a>`;
    return html`<th scope="col" ${kindOf(heading)} ${direction && html`aria-sort="${direction}"`}>${text}</th>`;
  });
  // On a phone each cell says its heading.
  const label = (heading: string) => !heading.startsWith('>') && html`data-label="${name(heading)}"`;
  const cells = (row: Row) =>
    shown.map(({ heading, of }, i) =>
      i === 0 ? html`<th scope="row">${of(row)}</th>` : html`<td ${kindOf(heading)} ${label(heading)}>${of(row)}</td>`,
    );
  return html`<table class="list ${kind}">
    <thead>
      <tr>
        ${head}
      </tr>
    </thead>
    <tbody>
      ${rows.map(
        (row) =>
          html`<tr>
            ${cells(row)}
          </tr>`,
      )}
    </tbody>
  </table>`;
}

/** @param found the rows of a page, and one more if another page follows. @returns `last` only if one does. */
export function firstOf<Row>(found: readonly Row[]): { rows: readonly Row[]; last: Row | undefined } {
  const rows = found.slice(0, PAGE);
  return { rows, last: found.length > PAGE ? rows.at(-1) : undefined };
}

/** @param href undefined on the last page. */
export const nextLink = (href: string | undefined): Content =>
  href !== undefined && html`<a class="button" href="${href}" rel="next">Next page</a>`;

/** A field that shows the value in the page's address. */
export const field = ({ params }: Visit, name: string, label: string, type = 'search', hint?: string): Html =>
  html`<label
    >${label}<input
      type="${type}"
      name="${name}"
      value="${fieldValue(params.get(name) ?? '')}"
      ${hint !== undefined && html`placeholder="${hint}"`}
  /></label>`;

/** A form that filters a list. @param names parameters that the form keeps. */
export const searchForm = (href: string, names: Readonly<Record<string, string>>, fields: Content): Html =>
  html`<form class="search" action="${href}" role="search">
    ${namesField(names)} ${fields}
    <button class="primary">Search</button>
  </form>`;

/** A name and its value in a list of definitions. */
export const definition = (name: Content, value: Content): Html =>
  html`<div>
    <dt><bdi>${name}</bdi></dt>
    <dd>${value}</dd>
  </div>`;

export const codeOf = (text: string): Html => html`<code><bdi>${text}</bdi></code>`;

/** A command of the command line, with a button that copies it. */
export const commandOf = (command: string): Html =>
  html`<div class="code">
    <pre tabindex="0"><code>npx adk-mikro-orm ${command}</code></pre>
  </div>`;

/** A number with its name, in a list of class `cards`. */
export const card = (name: string, value: Content) =>
  html`<div class="card">
    <dt>${name}</dt>
    <dd>${value}</dd>
  </div>`;
