import { counted, number, shortened } from '../operations/words.js';
import type { WaitingCalls } from '../browsing.js';
import type { SessionKey } from '../../../../src/index.js';
import { html, type Content, type Html } from '../html.js';
import type { Conversation, Entry, Reading } from '../reading.js';
import { namesField, type Visit } from '../visit.js';
import { authorOf, inLine, tokensText } from './event-view.js';
import { Hues, chip, codeOf, lasting } from './layout.js';

/** How many characters are shown of a branch. */
const MOST_NAME = 60;

/** The pages of a session. */
const TABS: readonly [path: string, text: string][] = [
  ['/session', 'Talk'],
  ['/time', 'Time'],
  ['/state', 'State'],
  ['/files', 'Files'],
];

/**
 * The bar that stays: which session it is, who runs it, what waits, and its pages.
 *
 * @param path of the page that it stands on.
 * @param isLive whether the page follows the session.
 * @param branch the only one that the page shows.
 * @param busy who holds the session and what waits, if the page has read that.
 */
export async function sessionBar(
  visit: Visit,
  { key, title, deletedAt }: Conversation['session'],
  path: string,
  {
    isLive = false,
    branch,
    busy,
  }: { isLive?: boolean; branch?: string | undefined; busy?: Awaited<ReturnType<Reading['busy']>> } = {},
): Promise<Html> {
  const { links, reading } = visit;
  const { lease, waits } = busy ?? (await reading.busy(key));
  const { tokens, branches, isWhole } = await reading.used(key);
  const waiting = (calls: WaitingCalls | undefined, text: string) =>
    calls &&
    html`<a class="chip warn" href="${links.ofSession('/session', key, { at: calls.first })}#e${calls.first}"
      >${number(calls.count)} ${text}</a
    >`;
  const tabs = TABS.map(
    ([to, text]) => html`<a href="${links.ofSession(to, key)}" ${to === path && html`aria-current="page"`}>${text}</a>`,
  );
  return html`<div class="bar">
    <div class="about">
      <h1 title="${title ?? key.sessionId}"><bdi>${title ?? key.sessionId}</bdi></h1>
      <span class="facts" id="busy"
        ><bdi>${key.userId}</bdi> ${
          lease?.isHeld && [
            chip(html`held by <bdi>${lease.holder}</bdi> for ${lasting(lease.since)}`, 'good'),
            html`<span>${await doingOf(visit, key, { isBrief: true })}</span>`,
          ]
        }
        ${waiting(waits.person, 'waiting')} ${waiting(waits.agent, 'answered, not yet run')}
        ${tokensText(tokens) !== '' && html`<span>${tokensText(tokens)}${!isWhole && ', and more'}</span>`}
        ${branches > 0 && html`<a href="${links.ofSession('/time', key)}#branches">${counted(branches, 'branch', 'branches')}</a>`}
        ${deletedAt !== undefined && chip('deleted', 'warn')}</span
      >
      ${
        branch !== undefined &&
        html`<span class="chip filter"
          >Only <bdi>${shortened(branch, MOST_NAME)}</bdi>
          <a href="${links.ofSession('/session', key)}">Show all</a></span
        >`
      }
      ${isLive && html`<p class="live" id="live" role="status" hidden></p>`}
    </div>
    <nav aria-label="Session">${tabs}</nav>
  </div>`;
}

/** What a session that is held does now: it waits for a tool, for its model, or has not begun. */
export async function doingOf(
  { reading, links }: Visit,
  session: SessionKey,
  { isBrief = false }: { isBrief?: boolean } = {},
): Promise<Html> {
  const doing = await reading.doing(session);
  if (!doing) return html`has no events`;
  const { call, seq: at, turnSince } = doing;
  const since = lasting(doing.since);
  const ofTurn =
    turnSince !== undefined &&
    html`<a class="dim" href="${links.ofSession('/time', session)}">in a turn of ${lasting(turnSince)}</a>`;
  const to = (text: Content, kind = '') =>
    html`<a class="${kind}" href="${links.ofSession('/session', session, { at })}#e${at}">${text}</a>`;
  if (!call) return html`${to(html`model or between steps, ${since}`, 'chip good')} ${ofTurn}`;
  return html`${to(codeOf(call.name))} ${!isBrief && inLine(call.args)}
  ${to(since, `chip ${call.isLongRunning ? 'warn' : 'good'}`)} ${ofTurn}`;
}

export const huesOf = ({ entries }: Conversation): Hues =>
  new Hues(entries.flatMap(({ event }) => (event ? authorOf(event) : [])));

/** The time line: a step for each event of the page, which leads to the state as of that event. */
export function timeLine(
  { links, path, isRaw }: Visit,
  { session, entries }: Conversation,
  { at, hues, branch }: { at: number | undefined; hues: Hues; branch?: string | undefined },
): Content {
  if (entries.length === 0) return undefined;
  const { key, firstSeq, lastSeq } = session;
  const to = (seq: number) =>
    `${links.ofSession(path, key, { branch, at: seq })}${path === '/session' ? `#e${seq}` : ''}`;
  const step = (seq: number, text: string, isThere: boolean) =>
    isThere
      ? html`<a class="button" href="${to(seq)}">${text}</a>`
      : html`<span class="button" aria-disabled="true">${text}</span>`;
  const shown = at ?? lastSeq;
  // Forty links would be forty stops of the Tab key. The page's script goes from one to the next by arrow keys.
  const stop = (entries.find(({ seq }) => seq === shown) ?? entries.at(-1))?.seq;
  const tick = ({ seq, event }: Entry) => {
    const author = event ? authorOf(event) : 'damaged';
    return html`<li>
      <a
        class="${hues.of(author)}"
        href="${to(seq)}"
        ${seq === at && html`aria-current="step"`}
        ${seq !== stop && html`tabindex="-1"`}
        ><span class="hidden">State as of event ${seq}, ${author}</span></a
      >
    </li>`;
  };
  return html`<nav class="timeline" aria-label="Time line">
    ${step(shown - 1, 'Previous', shown > firstSeq)}
    <ol>
      ${entries.map(tick)}
    </ol>
    ${step(shown + 1, 'Next', shown < lastSeq)}
    <form action="${links.to(path)}">
      ${namesField({ app: key.appName, user: key.userId, session: key.sessionId, ...(isRaw && { raw: '1' }), ...(branch !== undefined && { branch }) })}
      <label
        >Event <input type="number" name="at" min="${firstSeq}" max="${lastSeq}" value="${shown}" required
      /></label>
      <button>Go</button>
    </form>
  </nav>`;
}
