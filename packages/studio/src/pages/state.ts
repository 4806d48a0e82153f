import { decode } from '../../../../src/model/json.js';
import { SCOPES, scopeOf, type Scope } from '../../../../src/model/state.js';
import { number, shortened } from '../operations/words.js';
import { fieldValue, html, upToSize, type Content, type Html } from '../html.js';
import { MOST_REPLAYED, type Conversation, type ShownState, type ShownValue } from '../reading.js';
import type { StateChange } from '../state-changes.js';
import { namesField, notFound, type Visit } from '../visit.js';
import { changeText } from './change-view.js';
import { ago, codeOf, empty, page, table } from './layout.js';
import { huesOf, sessionBar, timeLine } from './session-head.js';

/** How much markup the state, and the list of its changes, have at most, in bytes. */
const LARGEST = 40_000;
const LARGEST_LIST = 60_000;

/** How many characters of a value are shown: beside the talk, beside the list of changes, and in it. */
const SHOWN = 200;
const SHOWN_ALONE = 2_000;
const SHOWN_CHANGED = 160;

const LACKS: Readonly<Record<NonNullable<ShownState['lacks']>, string>> = {
  tooMany: `The state is not computed here: more than ${number(MOST_REPLAYED)} events come before it. forkSession computes it.`,
  damaged: 'This state may be incomplete or wrong: some earlier rows cannot be read.',
};

const SCOPE_NAMES: Readonly<Record<Scope, string>> = { session: 'Session', user: 'User', app: 'App' };

type Key = Conversation['session']['key'];

/** What changed in the state of a session, by which event, beside the state of the session, its user and its app. */
export async function statePage(visit: Visit): Promise<Response> {
  const { links, reading, scope, session: key } = visit;
  const at = visit.number('at');
  const conversation = await reading.conversation(key, scope, { at });
  if (!conversation) throw notFound();
  const { session } = conversation;
  const hues = huesOf(conversation);
  const body = html`${await sessionBar(visit, session, '/state')} ${timeLine(visit, conversation, { at, hues })}
    <div class="columns">
      <section aria-label="Changes">${await changeList(visit, conversation, at)}</section>
      <aside id="state" class="whole" aria-label="State">${statePanel(visit, conversation, at, SHOWN_ALONE)}</aside>
    </div>`;
  const crumbs = [{ text: key.userId, href: links.sessions(key.appName, key.userId) }];
  const title = `State of ${session.title ?? key.sessionId}`;
  return page(visit, { title, appName: key.appName, crumbs, body });
}

/** What each event changed, the newest first. */
async function changeList(visit: Visit, { session, state }: Conversation, at: number | undefined): Promise<Html> {
  const { links, reading } = visit;
  const { key, firstSeq, deletedAt } = session;
  const before = visit.number('before');
  const name = visit.params.get('key') || undefined;
  const upTo = before === undefined ? at : Math.max(0, before - 1);
  const { from, found } =
    deletedAt === undefined ? await reading.stateChanges(session, upTo) : { from: firstSeq, found: [] };
  const all = found.filter((change) => name === undefined || change.key === name).reverse();
  const columns = {
    Key: ({ key: each }: StateChange) =>
      html`<a href="${links.ofSession('/state', key, { key: each })}"
        ><code><bdi>${each}</bdi></code></a
      >`,
    Change: (change: StateChange) => changeText(change, SHOWN_CHANGED),
    Event: ({ seq, author }: StateChange) =>
      author === undefined
        ? 'the application'
        : html`<a href="${links.ofSession('/session', key, { at: seq })}#e${seq}">#${seq}</a>
            <bdi>${shortened(author, SHOWN_CHANGED / 4)}</bdi>`,
    When: ({ time }: StateChange) => ago(time),
  };
  const { rows, next } = firstRows(all, (change) => Object.values(columns).map((of) => of(change)));
  const earlier = next ?? (from > firstSeq ? from : undefined);
  const names = new Set([
    ...found.map((change) => change.key),
    ...SCOPES.flatMap((each) => state.values[each].map((value) => value.key)),
  ]);
  const isShared = [...names].some((each) => scopeOf(each).scope !== 'session');
  const kept = {
    app: key.appName,
    user: key.userId,
    session: key.sessionId,
    ...(at !== undefined && { at: String(at) }),
  };
  return html`<div class="heading">
      <h2>
        ${name === undefined ? 'Changes' : html`Changes of <code><bdi>${name}</bdi></code>`}
        <span class="dim">${number(all.length)}${from > firstSeq && ' or more'}, the newest first</span>
      </h2>
      <form class="actions" action="${links.to('/state')}">
        ${namesField(kept)}
        <label
          ><span class="hidden">Key</span
          ><input name="key" list="keys" placeholder="Key" size="16" value="${fieldValue(name ?? '')}"
        /></label>
        <datalist id="keys">
          ${upToSize(
            [...names].map((each) => html`<option value="${each}"></option>`),
            LARGEST / 8,
          )}
        </datalist>
        <button>Filter</button>
        ${name !== undefined && html`<a class="button" href="${links.ofSession('/state', key, { at })}">All keys</a>`}
      </form>
    </div>
    ${table(rows, columns, empty('No changes', 'Nothing was written to the state in the events that were read.'), 'dense changes')}
    ${
      earlier !== undefined &&
      html`<p class="pager">
        <a class="button" href="${links.ofSession('/state', key, { key: name, before: earlier })}" rel="next"
          >Earlier changes</a
        >
      </p>`
    }
    ${isShared && html`<p class="note">Other sessions also write <code>user:</code> and <code>app:</code> keys. Their changes are not listed, and a value before this session’s first one is not known (?).</p>`}`;
}

/** How many changes a page has. */
const MOST_CHANGES = 100;

/** @returns the first changes, those of one event together, and before which event the next ones are. */
function firstRows(
  all: readonly StateChange[],
  view: (change: StateChange) => Content,
): { rows: readonly StateChange[]; next: number | undefined } {
  const count = upToSize(
    all.slice(0, MOST_CHANGES).map((change) => html`${view(change)}`),
    LARGEST_LIST,
  ).length;
  const following = all[count];
  if (!following) return { rows: all, next: undefined };
  const rows = all.slice(0, count);
  const whole = rows.filter(({ seq }) => seq !== following.seq);
  return whole.length > 0 ? { rows: whole, next: following.seq + 1 } : { rows, next: following.seq };
}

/** The state, to stand beside something else. @param length how many characters of a value are shown. */
export function statePanel(
  visit: Visit,
  { session, state }: Conversation,
  at: number | undefined,
  length = SHOWN,
): Html {
  const { key } = session;
  const groups = SCOPES.map((each) => {
    const { shown, count, more } = upTo(state, each, (value) => entry(visit, key, value, { at, length }));
    return html`<h3>${SCOPE_NAMES[each]} <span class="dim">${number(count)}</span></h3>
      ${count === 0 && html`<p class="dim">Nothing is set.</p>`}
      <dl class="state">${shown}</dl>
      ${more}`;
  });
  return html`<details class="panel" open>
    <summary><h2>State</h2></summary>
    ${asOf(visit, key, state, at)}${groups}
  </details>`;
}

/** Of which time the state is, and what it lacks. */
const asOf = ({ links, path }: Visit, key: Key, { lacks }: ShownState, at: number | undefined): Content => [
  at !== undefined &&
    html`<p class="note">
      The session’s own state as of event #${at}; of user and app as it is now.
      <a href="${links.ofSession(path, key)}">Now</a>
    </p>`,
  lacks && html`<p class="note">${LACKS[lacks]}</p>`,
];

/** The first values of a scope that are small enough together. */
function upTo(state: ShownState, scope: Scope, view: (value: ShownValue) => Html) {
  const values = state.values[scope];
  const shown = upToSize(values.map(view), LARGEST / SCOPES.length);
  const count = values.length + state.more[scope];
  const more = count > shown.length && html`<p class="dim">and ${number(count - shown.length)} more</p>`;
  return { shown, count, more };
}

const entry = (
  visit: Visit,
  key: Key,
  value: ShownValue,
  { at, length }: { at: number | undefined; length: number },
): Html =>
  html`<div class="${isOf(value, key, at) && 'current'}">
    <dt>
      <a class="quiet" href="${visit.links.ofSession('/state', key, { key: value.key })}"><bdi>${value.key}</bdi></a>
    </dt>
    <dd>${valueOf(visit, key, value, length)}<span class="by">${writtenBy(visit, key, value)}</span></dd>
  </div>`;

const valueOf = ({ links }: Visit, key: Key, { json }: ShownValue, length: number): Html =>
  decode(json)
    ? codeOf(shortened(json, length))
    : html`<a class="chip bad" href="${links.ofSession('/repair', key)}">cannot be read</a>`;

const isOwn = ({ writer }: ShownValue, { sessionId, userId }: Key) =>
  writer?.session.sessionId === sessionId && writer.session.userId === userId;

/** Whether the event whose state is shown has written the value. */
const isOf = (value: ShownValue, key: Key, at: number | undefined) => isOwn(value, key) && value.writer?.seq === at;

function writtenBy({ links }: Visit, key: Key, value: ShownValue): Html {
  const { writer, isFromElsewhere, setAt } = value;
  if (writer)
    return html`<a href="${links.ofSession('/session', writer.session, { at: writer.seq })}#e${writer.seq}"
        >${isOwn(value, key) ? '' : 'another session, '}#${writer.seq}</a
      >
      by <bdi>${writer.author}</bdi>, ${ago(writer.timestamp)}`;
  if (isFromElsewhere) return html`by an event of another session`;
  return html`by the application${setAt !== undefined && html`, ${ago(setAt)}`}`;
}
