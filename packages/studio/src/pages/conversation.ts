import { openLongRunningCalls } from '../../../../src/index.js';
import type { TokenCounts } from '../../../../src/conversation/tokens.js';
import { labelsIn } from '../../../../src/model/description.js';
import { decode, isRecord } from '../../../../src/model/json.js';
import { SCOPES, type Scope } from '../../../../src/model/state.js';
import { counted, number, shortened } from '../operations/words.js';
import type { TimedChange } from '../browsing.js';
import { html, type Content, type Html } from '../html.js';
import {
  EVENTS,
  MOST_REPLAYED,
  stateOf,
  type Conversation,
  type Entry,
  type ShownState,
  type ShownValue,
} from '../reading.js';
import { markdown, type Markdown } from '../markdown.js';
import { namesField, notFound, type Visit } from '../visit.js';
import { question } from './answer.js';
import { authorOf, eventList, tokensText } from './event-view.js';
import { Hues, ago, chip, codeOf, definition, empty, labelChips, page, time } from './layout.js';

export async function conversationPage(visit: Visit): Promise<Response> {
  const { links, reading, scope, session: key } = visit;
  const part = { before: visit.number('before'), after: visit.number('after'), at: visit.number('at') };
  const conversation = await reading.conversation(key, scope, part);
  if (!conversation) throw notFound();
  const { session } = conversation;
  const formatted = visit.isRaw ? undefined : await markdown();
  const tokens = await reading.tokens(conversation, { readsAll: visit.params.get('tokens') === '1' });
  const name = session.title ?? key.sessionId;
  const hues = new Hues(conversation.entries.flatMap(({ event }) => (event ? authorOf(event) : [])));
  const body = html`${await sessionBar(visit, session, '/session')} ${heading(visit, conversation, { ...part, tokens })}
    <div class="columns">
      <section class="conversation" aria-label="Conversation">
        ${timeLine(visit, conversation, { at: part.at, hues })} ${pager(visit, conversation, 'older')}
        ${eventsOf(visit, conversation, { at: part.at, formatted, hues })} ${pager(visit, conversation, 'newer')}
      </section>
      <aside id="state" aria-label="State">${statePanel(visit, conversation, part.at)}</aside>
    </div>`;
  const crumbs = [{ text: key.userId, href: links.sessions(key.appName, key.userId) }];
  return page(visit, { title: name, appName: key.appName, crumbs, body });
}

interface Shown {
  before: number | undefined;
  after: number | undefined;
  at: number | undefined;
  /** Undefined if they were not counted. */
  tokens: TokenCounts | undefined;
}

/** The pages of a session. The state stands beside the talk. */
const TABS: readonly [path: string, text: string][] = [
  ['/session', 'Talk'],
  ['/time', 'Time'],
  ['/state', 'State'],
  ['/files', 'Files'],
];

/** The bar that stays: which session it is, who runs it, what waits, and its pages. @param path of the page that it stands on. */
export async function sessionBar(
  { links, reading }: Visit,
  { key, title, deletedAt }: Conversation['session'],
  path: string,
): Promise<Html> {
  const { lease, waits } = await reading.busy(key);
  const tabs = TABS.map(([to, text]) => {
    const href = to === '/state' ? `${links.ofSession('/session', key)}#state` : links.ofSession(to, key);
    return html`<a href="${href}" ${to === path && html`aria-current="page"`}>${text}</a>`;
  });
  return html`<div class="bar">
    <strong><bdi>${title ?? key.sessionId}</bdi></strong>
    <span class="facts" id="busy"
      ><bdi>${key.userId}</bdi> ${lease?.isHeld && chip(html`held by <bdi>${lease.holder}</bdi>`, 'good')}
      ${waits > 0 && html`<a class="chip warn" href="${links.ofSession('/session', key)}#waiting">${number(waits)} waiting</a>`}
      ${deletedAt !== undefined && chip('deleted', 'warn')}</span
    >
    <nav aria-label="Session">${tabs}</nav>
  </div>`;
}

function heading(visit: Visit, { session, others }: Conversation, { tokens, ...part }: Shown): Html {
  const { links, isRaw } = visit;
  const { at } = part;
  const { key, title, labels, firstSeq, lastSeq, createTime, lastUpdateTime, deletedAt, forkedFrom } = session;
  const action = (path: string, text: string, kind = '') =>
    html`<a class="button ${kind}" href="${links.ofSession(path, key, { at })}">${text}</a>`;
  const actions =
    deletedAt === undefined
      ? [
          action('/describe', 'Edit title'),
          action('/fork', 'Fork'),
          action('/rewind', 'Rewind'),
          action('/delete', 'Delete', 'danger'),
        ]
      : [action('/restore', 'Restore')];
  return html`<div class="heading">
    <div>
      <h1><bdi>${title ?? key.sessionId}</bdi></h1>
      <p class="facts" id="facts">
        ${title !== null && html`<span class="id"><bdi>${key.sessionId}</bdi></span>`} ${labelChips(labelsIn(labels))}
        <span>${counted(lastSeq - firstSeq + 1, 'event')}</span>
        <span>created ${ago(createTime)}</span> <span>updated ${ago(lastUpdateTime)}</span>
        ${
          tokens === undefined
            ? html`<a href="${links.ofSession('/session', key, { ...part, tokens: 1 })}">Count tokens</a>`
            : tokensText(tokens) !== '' && html`<span>${tokensText(tokens)}</span>`
        }
        <a href="${links.ofSession('/session', key, { ...part, raw: isRaw ? undefined : 1 })}"
          >${isRaw ? 'Show Markdown formatted' : 'Show texts as they are'}</a
        >
        <a href="${links.to('/memory', { app: key.appName, user: key.userId })}">Memory</a>
        ${firstSeq > 1 && html`<span>events before #${firstSeq} were trimmed</span>`}
        ${
          forkedFrom &&
          html`<span
            >forked from
            <a
              href="${links.ofSession('/session', { ...key, sessionId: forkedFrom.sessionId }, { at: forkedFrom.at || undefined })}"
              ><bdi>${forkedFrom.sessionId}</bdi></a
            >
            at #${forkedFrom.at}</span
          >`
        }
        ${toolsOf(visit, session, others)} ${deletedAt !== undefined && chip(html`deleted ${ago(deletedAt)}`, 'warn')}
      </p>
    </div>
    ${visit.mayChange && html`<div class="actions">${actions}</div>`}
  </div>`;
}

/** Links to the sessions of its tools, or to its caller. ADK's `AgentTool` uses a session with its caller's user and id. */
function toolsOf({ links }: Visit, { createTime }: Conversation['session'], others: Conversation['others']): Content {
  const [oldest] = others;
  const isTool = oldest && oldest.createTime < createTime;
  const link = ({ key }: Conversation['session']) =>
    html` <a href="${links.ofSession('/session', key)}"><bdi>${key.appName}</bdi></a>`;
  return oldest && html`<span>${isTool ? 'tool of' : 'tools:'}${(isTool ? [oldest] : others).map(link)}</span>`;
}

/** The time line: a step for each event of the page, which leads to the state as of that event. */
function timeLine(
  { links, isRaw }: Visit,
  { session, entries }: Conversation,
  { at, hues }: { at: number | undefined; hues: Hues },
): Content {
  if (entries.length === 0) return undefined;
  const { key, firstSeq, lastSeq } = session;
  const step = (seq: number, text: string, isThere: boolean) =>
    isThere
      ? html`<a class="button" href="${links.ofSession('/session', key, { at: seq })}#e${seq}">${text}</a>`
      : html`<span class="button" aria-disabled="true">${text}</span>`;
  const shown = at ?? lastSeq;
  // Forty links would be forty stops of the Tab key. The page's script goes from one to the next by arrow keys.
  const stop = (entries.find(({ seq }) => seq === shown) ?? entries.at(-1))?.seq;
  const tick = ({ seq, event }: Entry) => {
    const author = event ? authorOf(event) : 'damaged';
    return html`<li>
      <a
        class="${hues.of(author)}"
        href="${links.ofSession('/session', key, { at: seq })}#e${seq}"
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
    <form action="${links.to('/session')}">
      ${namesField({ app: key.appName, user: key.userId, session: key.sessionId, ...(isRaw && { raw: '1' }) })}
      <label
        >Event <input type="number" name="at" min="${firstSeq}" max="${lastSeq}" value="${shown}" required
      /></label>
      <button>Go</button>
    </form>
  </nav>`;
}

function pager({ links }: Visit, { session, from, upTo }: Conversation, which: 'older' | 'newer'): Content {
  const { key, firstSeq, lastSeq } = session;
  if (which === 'older') {
    return (
      from > firstSeq &&
      html`<p class="pager">
        <a class="button" href="${links.ofSession('/session', key, { before: from })}" rel="prev">Older events</a>
        <span class="dim">${number(from - firstSeq)} before these</span>
      </p>`
    );
  }
  return (
    upTo < lastSeq &&
    html`<p class="pager">
      <a class="button" href="${links.ofSession('/session', key, { after: upTo })}" rel="next">Newer events</a>
      <a class="button" href="${links.ofSession('/session', key)}">Newest</a>
      <span class="dim">${number(lastSeq - upTo)} after these</span>
    </p>`
  );
}

function eventsOf(
  visit: Visit,
  { session, entries, changes, upTo }: Conversation,
  { at, formatted, hues }: { at: number | undefined; formatted: Markdown | undefined; hues: Hues },
): Html {
  const { links } = visit;
  const { key, lastSeq, incarnation, deletedAt } = session;
  const isNewest = upTo >= lastSeq;
  const views = eventList(entries, {
    links,
    session: key,
    hues,
    at,
    isNewest,
    markdown: formatted,
    mayAnswer: visit.mayChange,
  });
  const isLive = isNewest && at === undefined && deletedAt === undefined;
  // In the order of their numbers; a change comes after the event with its number.
  const rows: [seq: number, row: Content][] = [
    ...entries.map(({ seq }): [number, Content] => [seq, views.get(seq)]),
    ...upToSize(changes.map(changeView), LARGEST).map((view, i): [number, Content] => [
      (changes[i]?.seq ?? 0) + 0.5,
      view,
    ]),
  ];
  rows.sort(([one], [other]) => one - other);
  const cursor = JSON.stringify({ seq: upTo, incarnation });
  const live =
    isLive && html`data-live="${links.ofSession('/live', key)}" data-cursor="${cursor}" data-most="${EVENTS * 3}"`;
  return html`${isLive && html`<p class="live" id="live" role="status" hidden></p>`}
    <ol class="events" id="events" ${live}>
      ${rows.map(([, row]) => row)}
    </ol>
    ${
      entries.length === 0 &&
      (deletedAt === undefined
        ? empty('No events', 'This conversation has not begun.')
        : empty('Deleted', 'Its events are shown when it has been restored.'))
    }
    ${isNewest && html`<div id="waiting">${waitingCalls(visit, entries)}</div>`}`;
}

/** The unanswered long-running calls of the page. */
function waitingCalls({ links, session, mayChange }: Visit, entries: readonly Entry[]): Content {
  const events = entries.flatMap(({ event }) => event ?? []);
  const open = openLongRunningCalls({ events } as Parameters<typeof openLongRunningCalls>[0]);
  if (open.length === 0) return undefined;
  const numbers = new Map(entries.map(({ seq, event }) => [event, seq]));
  const names = open.map(
    ({ id, name, args, event }) =>
      html`<li>
        <span>${question(name, args)}</span> <a href="#e${numbers.get(event)}">#${numbers.get(event)}</a>
        ${mayChange && html`<a class="button" href="${links.ofSession('/answer', session, { at: numbers.get(event), call: id })}">Answer</a>`}
      </li>`,
  );
  return html`<section class="waiting">
    <h2>Waits for an answer</h2>
    <ul>
      ${names}
    </ul>
  </section>`;
}

const CHANGES: Readonly<Record<TimedChange['kind'], string>> = {
  created: 'Session created',
  state: 'State set by the application',
  rewritten: 'Event rewritten',
  deleted: 'An earlier session with this id was deleted',
  ending: 'Deleted',
  'soft-deleted': 'Deleted; can be restored',
  imported: 'Imported',
  restored: 'Restored',
  trimmed: 'Older events trimmed',
  rewound: 'Rewound',
};

const LACKS: Readonly<Record<NonNullable<ShownState['lacks']>, string>> = {
  tooMany: `The state is not computed here: more than ${number(MOST_REPLAYED)} events come before it. forkSession computes it.`,
  damaged: 'This state may be incomplete or wrong: some earlier rows cannot be read.',
};

/** How much markup a page has at most for changes, and again for the state, in bytes. */
const LARGEST = 40_000;

/** @returns the first views that are at most this large together, in bytes. */
function upToSize(views: readonly Html[], most: number): Html[] {
  let length = 0;
  return views.filter(({ bytes }) => (length += bytes) <= most);
}

function changeView(change: TimedChange): Html {
  const { kind, seq, eventSeq, data } = change;
  const recorded = data === null ? undefined : decode(data)?.value;
  const removed =
    isRecord(recorded) && kind === 'state' && Array.isArray(recorded['removed']) ? recorded['removed'] : [];
  const set = Object.entries(stateOf(change)).slice(0, 20);
  const values = [
    ...set.map(([key, value]) => definition(key, codeOf(shortened(JSON.stringify(value), SHOWN)))),
    ...removed.slice(0, 20).map((key) => definition(String(key), 'removed')),
  ];
  const which = kind === 'rewritten' && eventSeq !== null ? ` #${eventSeq}` : kind === 'rewound' ? ` to #${seq}` : '';
  return html`<li class="change">
    <p>${CHANGES[kind]}${which} ${time(change.time)}</p>
    ${values.length > 0 && html`<dl class="delta">${values}</dl>`}
  </li>`;
}

/** How many characters of a value of the state are shown. */
const SHOWN = 200;

const SCOPE_NAMES: Readonly<Record<Scope, string>> = { session: 'Session', user: 'User', app: 'App' };

function statePanel(visit: Visit, { session, state }: Conversation, at: number | undefined): Html {
  const { links } = visit;
  const now =
    at !== undefined &&
    html`<p class="note">
      The session’s own state as of event #${at}; of user and app as it is now.
      <a href="${links.ofSession('/session', session.key)}">Now</a>
    </p>`;
  const groups = SCOPES.map((scope) => {
    const values = state.values[scope];
    const views = values.map((value) => stateValue(visit, session.key, value, at));
    const shown = upToSize(views, LARGEST / SCOPES.length);
    const more = values.length - shown.length + state.more[scope];
    return html`<h3>${SCOPE_NAMES[scope]} <span class="dim">${number(values.length + state.more[scope])}</span></h3>
      ${values.length === 0 && html`<p class="dim">Nothing is set.</p>`}
      <dl class="state">${shown}</dl>
      ${more > 0 && html`<p class="dim">and ${number(more)} more</p>`}`;
  });
  return html`<details class="panel" open>
    <summary><h2>State</h2></summary>
    ${now}${state.lacks && html`<p class="note">${LACKS[state.lacks]}</p>`}${groups}
  </details>`;
}

function stateValue(
  { links }: Visit,
  key: Conversation['session']['key'],
  { key: name, json, writer, isFromElsewhere, setAt }: ShownValue,
  at: number | undefined,
): Html {
  const isOwn = writer?.session.sessionId === key.sessionId && writer.session.userId === key.userId;
  const written = writer
    ? html`<a href="${links.ofSession('/session', writer.session, { at: writer.seq })}#e${writer.seq}"
          >${isOwn ? '' : 'another session, '}#${writer.seq}</a
        >
        by <bdi>${writer.author}</bdi>, ${ago(writer.timestamp)}`
    : isFromElsewhere
      ? 'by an event of another session'
      : html`by the application${setAt !== undefined && html`, ${ago(setAt)}`}`;
  return html`<div class="${isOwn && writer.seq === at && 'current'}">
    <dt><bdi>${name}</bdi></dt>
    <dd>
      ${
        decode(json)
          ? codeOf(shortened(json, SHOWN))
          : html`<a class="chip bad" href="${links.ofSession('/repair', key)}">cannot be read</a>`
      }<span class="by">${written}</span>
    </dd>
  </div>`;
}
