import type { Event } from '@google/adk';
import type { SessionSummary } from '../../../../src/index.js';
import { callsOf } from '../../../../src/conversation/calls.js';
import { saidIn } from '../../../../src/conversation/said.js';
import { recordOf, withoutUndefined } from '../../../../src/model/json.js';
import type { NamedUpdate } from '../browsing.js';
import { html, type Content } from '../html.js';
import { shortened, textOrJson } from '../operations/words.js';
import type { Reading } from '../reading.js';
import { failuresIn } from '../recent.js';
import type { Visit } from '../visit.js';
import { isQuestion, question } from './answer.js';
import { Pairs, answerInLine, newestOfModels, whyInLine } from './event-view.js';
import { ago, table } from './layout.js';

/** Of how many sessions the newest event of a model is shown. */
const MOST = 6;

/** Among how many of the newest events of a session it is looked for. */
const LOOKED_AT = 8;

/** How many characters are shown of a text. */
const SHOWN = 80;

/** What a model did last in a session. */
interface Latest {
  session: SessionSummary;
  /** The number of its event. */
  seq: number;
  time: number;
  said: Content;
  why: Content;
  /** What a tool has answered last. */
  answer: Content;
}

/**
 * What the models did last in the sessions that were updated last, for the first page.
 *
 * @param apps those that the visitor may see.
 */
export async function latestNow({ reading, scope }: Visit, apps: readonly NamedUpdate[]): Promise<Latest[]> {
  // The six sessions that were updated last belong to the six apps that were updated last.
  const names = apps
    .toSorted((one, other) => (other.lastUpdateTime ?? 0) - (one.lastUpdateTime ?? 0))
    .slice(0, MOST)
    .map(({ name }) => name);
  const { userId } = scope;
  const page = { after: undefined, limit: MOST };
  const found = await Promise.all(
    names.map((appName) => reading.summaries({ appName, ...withoutUndefined({ userId }) }, page)),
  );
  const sessions = found.flat().sort((one, other) => other.lastUpdateTime - one.lastUpdateTime);
  return (await latestOf(reading, sessions)).sort((one, other) => other.time - one.time);
}

/** @returns what the models did last in the first few of some sessions. */
export async function latestOf(reading: Reading, sessions: readonly SessionSummary[]): Promise<Latest[]> {
  const latest = sessions.slice(0, MOST).map(async (session): Promise<Latest[]> => {
    const events = await reading.newestEvents(session, { limit: LOOKED_AT });
    const [seq] = newestOfModels(events);
    const newest = events.find((each) => each.seq === seq);
    if (seq === undefined || !newest) return [];
    const pairs = new Pairs();
    pairs.add(events);
    const { event, appendTime: time = event.timestamp } = newest;
    const { newestAnswer } = pairs;
    const answer = newestAnswer && answerInLine(newestAnswer, SHOWN);
    return [{ session, seq, time, said: whatSaid(event), why: whyInLine(event, seq, pairs), answer }];
  });
  return (await Promise.all(latest)).flat();
}

/** What a model said; otherwise how it failed, or what it called. */
function whatSaid(event: Event): Content {
  const text = shortened(saidIn(event.content).join('\n').trim(), SHOWN);
  if (text !== '') return html`<bdi>${text}</bdi>`;
  const [failure] = failuresIn(recordOf(event));
  if (failure) return html`<span class="bad"><bdi>${failure.why}</bdi></span>`;
  const [call] = callsOf(event);
  if (!call) return 'no text';
  const name = textOrJson(call['name']);
  return html`${!isQuestion(name) && 'calls '}${question(name, recordOf(call['args']))}`;
}

/** A short list of what models did last, for the first page. */
export function latestBlock({ links }: Visit, rows: readonly Latest[]): Content {
  const to = ({ session, seq }: Latest, text: Content, kind = 'quiet') =>
    html`<a class="${kind}" href="${links.ofSession('/session', session, { at: seq })}#e${seq}">${text}</a>`;
  return (
    rows.length > 0 &&
    html`<section class="block" id="latest">
      <h2>Latest</h2>
      ${table(
        rows,
        {
          What: (row) => to(row, html`<span class="line">${row.said}</span> <span class="by line">${row.why}</span>`),
          Session: ({ session }) =>
            html`<a href="${links.ofSession('/session', session)}"><bdi>${session.title ?? session.sessionId}</bdi></a>
              <span class="id"><bdi>${session.appName}</bdi> / <bdi>${session.userId}</bdi></span>`,
          '#When': (row) => to(row, ago(row.time)),
          '>Why': (row) => to(row, 'Why', 'way'),
        },
        undefined,
        'dense fixed',
      )}
    </section>`
  );
}

/** Three lines below a session's title in a list: what its model said last, why, and the newest answer of a tool. */
export const latestLines = ({ said, why, answer }: Latest): Content =>
  [said, why, answer].map((line) => line && html`<span class="by">${line}</span>`);
