import type { OpenCall } from '../../../../src/index.js';
import { labelsIn } from '../../../../src/model/description.js';
import { beginsTurn } from '../../../../src/model/turn.js';
import { answerCommand, counted, number, shortened } from '../operations/words.js';
import type { TimedChange } from '../browsing.js';
import { html, upToSize, type Content, type Html } from '../html.js';
import { EVENTS, type Conversation, type ReadEvent } from '../reading.js';
import { markdown, type Markdown } from '../markdown.js';
import { notFound, type Visit } from '../visit.js';
import { isConfirmation } from '../operations/answer.js';
import { answererOf, question } from './answer.js';
import { parallelMs } from '../shares.js';
import type { StateChange } from '../state-changes.js';
import { turnsOf } from '../waterfall.js';
import { changeText } from './change-view.js';
import { branchCards, branchesText, saidIn } from './branches.js';
import { Pairs, eventList, newestOfModels } from './event-view.js';
import {
  ago,
  chip,
  codeOf,
  commandOf,
  definition,
  empty,
  labelChips,
  lasting,
  page,
  time,
  type Hues,
} from './layout.js';
import { huesOf, sessionBar, timeLine } from './session-head.js';
import { statePanel } from './state.js';

export async function conversationPage(visit: Visit): Promise<Response> {
  const { links, reading, scope, session: key } = visit;
  const branch = visit.params.get('branch') || undefined;
  const part: Shown = { before: visit.number('before'), after: visit.number('after'), at: visit.number('at'), branch };
  const conversation = await reading.conversation(key, scope, part);
  if (!conversation) throw notFound();
  const { session } = conversation;
  const formatted = visit.isRaw ? undefined : await markdown();
  const name = session.title ?? key.sessionId;
  const hues = huesOf(conversation);
  const isNewest = conversation.upTo >= session.lastSeq;
  const waits = isNewest && branch === undefined ? await reading.service.findOpenCalls(key) : undefined;
  const isLive = isNewest && part.at === undefined && session.deletedAt === undefined;
  const explained = part.at !== undefined ? [part.at] : isNewest ? newestOfModels(conversation.entries) : [];
  const earlier = await earlierOfTurn(visit, conversation, explained[0]);
  const body = html`${await sessionBar(visit, session, '/session', { isLive, branch })}
    ${heading(visit, conversation, part)}
    <div class="columns">
      <section class="conversation" aria-label="Conversation">
        ${timeLine(visit, conversation, { at: part.at, hues, branch })} ${pager(visit, conversation, 'older', branch)}
        ${eventsOf(visit, conversation, { part, formatted, hues, isLive, explained, earlier })}
        ${isNewest && html`<div id="branches">${branch === undefined && branchesOf(visit, conversation, earlier, hues)}</div>`}
        ${waits && html`<div id="waiting">${waitingCalls(visit, conversation, waits)}</div>`}
        ${pager(visit, conversation, 'newer', branch)}
      </section>
      <aside id="state" aria-label="State">${statePanel(visit, conversation, part.at)}</aside>
    </div>`;
  const crumbs = [{ text: key.userId, href: links.sessions(key.appName, key.userId) }];
  return page(visit, { title: name, appName: key.appName, crumbs, body });
}

/** How many events before a page are read at most for the turn in which it begins. */
const MOST_EARLIER = 2_100;

interface Shown {
  before: number | undefined;
  after: number | undefined;
  at: number | undefined;
  branch: string | undefined;
}

/**
 * @param explained an event whose reasons are shown.
 * @returns the events before the page of the turn in which it is: its question, and what its branches did before.
 */
async function earlierOfTurn(
  { reading, session }: Visit,
  { session: { firstSeq }, entries }: Conversation,
  explained: number | undefined,
): Promise<readonly ReadEvent[]> {
  const [first] = entries;
  const isAsked = entries.some(({ seq, event }) => seq <= (explained ?? 0) && event && beginsTurn(event));
  if (explained === undefined || isAsked || !first || first.seq <= firstSeq) return [];
  const events = await reading.newestEvents(session, { before: first.seq, limit: MOST_EARLIER });
  return events.slice(
    Math.max(
      0,
      events.findLastIndex(({ event }) => beginsTurn(event)),
    ),
  );
}

/** What the branches of the newest turn that has some did, side by side; open if they worked at the same time, and nothing came after. */
function branchesOf(visit: Visit, { entries }: Conversation, earlier: readonly ReadEvent[], hues: Hues): Content {
  const events = [...earlier, ...entries.filter((entry): entry is ReadEvent => entry.event !== undefined)];
  const turns = turnsOf(events, Date.now()).filter(({ lanes }) => lanes.length > 0);
  const turn = turns.findLast(({ lanes }) => lanes.length > 1);
  if (!turn) return undefined;
  const isOpen = turn === turns.at(-1) && parallelMs(turn) > 0;
  return html`<details class="panel" ${isOpen && html`open`}>
    <summary>
      <h2>
        ${branchesText(turn)} <span class="dim"><bdi>${saidIn(turn)}</bdi></span>
      </h2>
    </summary>
    ${branchCards(visit, turn, hues, { branches: 6, calls: 2 })}
    <a href="${visit.links.ofSession('/time', visit.session)}#t${turn.first.seq}">Where their time went</a>
  </details>`;
}

function heading(visit: Visit, { session, others }: Conversation, part: Shown): Html {
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
      <p class="facts" id="facts">
        ${title !== null && html`<span class="id"><bdi>${key.sessionId}</bdi></span>`} ${labelChips(labelsIn(labels))}
        <span>${counted(lastSeq - firstSeq + 1, 'event')}</span>
        <span>created ${ago(createTime)}</span> <span>updated ${ago(lastUpdateTime)}</span>
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

function pager(
  { links }: Visit,
  { session, from, upTo }: Conversation,
  which: 'older' | 'newer',
  branch: string | undefined,
): Content {
  const { key, firstSeq, lastSeq } = session;
  const to = (part: { before?: number; after?: number }) => links.ofSession('/session', key, { branch, ...part });
  if (which === 'older') {
    return (
      from > firstSeq &&
      html`<p class="pager">
        <a class="button" href="${to({ before: from })}" rel="prev">Older events</a>
        ${branch === undefined && html`<span class="dim">${number(from - firstSeq)} before these</span>`}
      </p>`
    );
  }
  return (
    upTo < lastSeq &&
    html`<p class="pager">
      <a class="button" href="${to({ after: upTo })}" rel="next">Newer events</a>
      <a class="button" href="${to({})}">Newest</a>
      ${branch === undefined && html`<span class="dim">${number(lastSeq - upTo)} after these</span>`}
    </p>`
  );
}

function eventsOf(
  visit: Visit,
  { session, entries, changes, written, upTo }: Conversation,
  {
    part: { at, branch },
    formatted,
    hues,
    isLive,
    explained,
    earlier,
  }: {
    part: Shown;
    formatted: Markdown | undefined;
    hues: Hues;
    isLive: boolean;
    explained: readonly number[];
    earlier: readonly ReadEvent[];
  },
): Html {
  const { links } = visit;
  const { key, lastSeq, incarnation, deletedAt } = session;
  const isNewest = upTo >= lastSeq;
  const pairs = new Pairs();
  // The question, and the calls that events of the page may answer.
  pairs.add([...earlier.slice(0, 1), ...earlier.slice(1).slice(-EVENTS * 3)]);
  const around = { links, session: key, hues, at, isNewest, explained, markdown: formatted, written };
  const views = eventList(entries, { ...around, mayAnswer: visit.mayChange }, pairs);
  // In the order of their numbers; a change comes after the event with its number.
  const rows: [seq: number, row: Content][] = [
    ...entries.map(({ seq }): [number, Content] => [seq, views.get(seq)]),
    ...upToSize(
      changes.map((change) =>
        changeView(change, written.get(change) ?? [], (name) => links.ofSession('/state', key, { key: name })),
      ),
      LARGEST,
    ).map((view, i): [number, Content] => [(changes[i]?.seq ?? 0) + 0.5, view]),
  ];
  rows.sort(([one], [other]) => one - other);
  const cursor = JSON.stringify({ seq: upTo, incarnation });
  const live =
    isLive &&
    html`data-live="${links.ofSession('/live', key, { branch })}" data-cursor="${cursor}" data-most="${EVENTS * 3}"`;
  return html`<ol class="events" id="events" ${live}>
      ${rows.map(([, row]) => row)}
    </ol>
    ${
      entries.length === 0 &&
      (branch !== undefined
        ? empty('No events of this branch', 'There are none among those that were read for this page.')
        : deletedAt === undefined
          ? empty('No events', 'This conversation has not begun. What is said appears here at once.')
          : empty('Deleted', 'Its events are shown when it has been restored.'))
    }`;
}

/** The calls that wait for a person, those that have waited longest first. */
function waitingCalls(
  { links, session, mayChange }: Visit,
  { from }: Conversation,
  { calls, next }: { calls: readonly OpenCall[]; next?: string },
): Content {
  if (calls.length === 0) return undefined;
  const { appName, userId, sessionId } = session;
  const names = calls.map(({ id, name, args, seq, timestamp }) => {
    const page = seq < from ? links.ofSession('/session', session, { at: seq }) : '';
    return html`<li>
      <span>${question(name, args)}</span> <a href="${page}#e${seq}">#${seq}</a>
      <span>waits ${lasting(timestamp)}, to be answered by ${answererOf(name)}</span>
      ${!mayChange && commandOf(answerCommand([appName, userId, sessionId, id], isConfirmation({ name })))}
      ${mayChange && html`<a class="button" href="${links.ofSession('/answer', session, { at: seq, call: id })}">Answer</a>`}
    </li>`;
  });
  return html`<section class="waiting">
    <h2>Waits for an answer</h2>
    <ul>
      ${names}
    </ul>
    ${next !== undefined && html`<a class="button" href="${links.to('/waiting', { app: appName, user: userId })}">More</a>`}
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

/** How much markup a page has at most for changes, in bytes. */
const LARGEST = 40_000;

function changeView(
  { kind, seq, eventSeq, time: at }: TimedChange,
  changed: readonly StateChange[],
  hrefOf: (key: string) => string,
): Html {
  const values = changed.slice(0, 40).map((each) => {
    const key = html`<a class="quiet" href="${hrefOf(each.key)}">${each.key}</a>`;
    // Before it was created there was nothing.
    return definition(key, kind === 'created' ? codeOf(shortened(each.json ?? '', SHOWN)) : changeText(each, SHOWN));
  });
  const which = kind === 'rewritten' && eventSeq !== null ? ` #${eventSeq}` : kind === 'rewound' ? ` to #${seq}` : '';
  return html`<li class="change">
    <p>${CHANGES[kind]}${which} ${time(at)}</p>
    ${values.length > 0 && html`<dl class="delta">${values}</dl>`}
  </li>`;
}

/** How many characters of a value of the state are shown. */
const SHOWN = 200;
