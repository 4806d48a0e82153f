import { decode } from '../../../../src/model/json.js';
import { SCOPES, type Scope } from '../../../../src/model/state.js';
import { number, shortened } from '../operations/words.js';
import { html, upToSize, type Content, type Html } from '../html.js';
import { MOST_REPLAYED, type Conversation, type ShownState, type ShownValue } from '../reading.js';
import { notFound, type Visit } from '../visit.js';
import { ago, codeOf, page } from './layout.js';
import { huesOf, sessionBar, timeLine } from './session-head.js';

/** How much markup the state has at most, in bytes: beside the talk, and on its own page. */
const LARGEST = 40_000;
const LARGEST_ALONE = 100_000;

/** How many characters of a value are shown. */
const SHOWN = 200;
const SHOWN_ALONE = 2_000;

const LACKS: Readonly<Record<NonNullable<ShownState['lacks']>, string>> = {
  tooMany: `The state is not computed here: more than ${number(MOST_REPLAYED)} events come before it. forkSession computes it.`,
  damaged: 'This state may be incomplete or wrong: some earlier rows cannot be read.',
};

const SCOPE_NAMES: Readonly<Record<Scope, string>> = { session: 'Session', user: 'User', app: 'App' };

type Key = Conversation['session']['key'];

/** The state of a session, its user and its app: each key with its value, and the event that wrote it. */
export async function statePage(visit: Visit): Promise<Response> {
  const { links, reading, scope, session: key } = visit;
  const at = visit.number('at');
  const conversation = await reading.conversation(key, scope, { at });
  if (!conversation) throw notFound();
  const { session, state } = conversation;
  const groups = SCOPES.map((each) => {
    const { shown, count, more } = upTo(state, each, LARGEST_ALONE, (value) => row(visit, key, value, at));
    return html`<section class="block">
      <h2>${SCOPE_NAMES[each]} <span class="dim">${number(count)}</span></h2>
      ${
        count === 0
          ? html`<p class="dim">Nothing is set.</p>`
          : html`<table class="list values">
              <thead>
                <tr>
                  <th scope="col">Key</th>
                  <th scope="col">Value</th>
                  <th scope="col">Written</th>
                </tr>
              </thead>
              <tbody>
                ${shown}
              </tbody>
            </table>`
      }
      ${more}
    </section>`;
  });
  const hues = huesOf(conversation);
  const body = html`${await sessionBar(visit, session, '/state')} ${timeLine(visit, conversation, { at, hues })}
    <div id="state">${asOf(visit, key, state, at)} ${groups}</div>`;
  const crumbs = [{ text: key.userId, href: links.sessions(key.appName, key.userId) }];
  const title = `State of ${session.title ?? key.sessionId}`;
  return page(visit, { title, appName: key.appName, crumbs, body });
}

/** The state, to stand beside the talk. */
export function statePanel(visit: Visit, { session, state }: Conversation, at: number | undefined): Html {
  const { key } = session;
  const groups = SCOPES.map((each) => {
    const { shown, count, more } = upTo(state, each, LARGEST, (value) => entry(visit, key, value, at));
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
function upTo(state: ShownState, scope: Scope, largest: number, view: (value: ShownValue) => Html) {
  const values = state.values[scope];
  const shown = upToSize(values.map(view), largest / SCOPES.length);
  const count = values.length + state.more[scope];
  const more = count > shown.length && html`<p class="dim">and ${number(count - shown.length)} more</p>`;
  return { shown, count, more };
}

function row(visit: Visit, key: Key, value: ShownValue, at: number | undefined): Html {
  return html`<tr class="${isOf(value, key, at) && 'current'}">
    <th scope="row">${codeOf(value.key)}</th>
    <td data-label="Value">${valueOf(visit, key, value, SHOWN_ALONE)}</td>
    <td data-label="Written">${writtenBy(visit, key, value)}</td>
  </tr>`;
}

const entry = (visit: Visit, key: Key, value: ShownValue, at: number | undefined): Html =>
  html`<div class="${isOf(value, key, at) && 'current'}">
    <dt><bdi>${value.key}</bdi></dt>
    <dd>${valueOf(visit, key, value, SHOWN)}<span class="by">${writtenBy(visit, key, value)}</span></dd>
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
