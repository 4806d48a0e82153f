import type { Event } from '@google/adk';
import type { SessionSummary } from '../../../../src/index.js';
import { callsOf } from '../../../../src/conversation/calls.js';
import { saidIn } from '../../../../src/conversation/said.js';
import { recordOf, withoutUndefined } from '../../../../src/model/json.js';
import type { NamedUpdate } from '../browsing.js';
import { html, type Content } from '../html.js';
import { shortened, textOrJson } from '../operations/words.js';
import { failuresIn } from '../recent.js';
import type { Visit } from '../visit.js';
import { question } from './answer.js';
import { newestOfModels } from './event-view.js';
import { ago, table } from './layout.js';

/** How many answers the first page lists. */
const MOST = 6;

/** Among how many of the newest events of a session its newest answer is looked for. */
const LOOKED_AT = 8;

/** How many characters are shown of a text. */
const SHOWN = 80;

interface Answer {
  session: SessionSummary;
  /** The number of its event. */
  seq: number;
  time: number;
  said: Content;
}

/**
 * The newest answers of the models in the sessions that were updated last, for the first page.
 *
 * @param apps those that the visitor may see.
 */
export async function latestNow({ reading, scope }: Visit, apps: readonly NamedUpdate[]): Promise<Answer[]> {
  // An app that was updated before as many others has none of these sessions.
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
  const answers = await Promise.all(
    sessions.slice(0, MOST).map(async (session) => {
      const events = await reading.newestEvents(session, { limit: LOOKED_AT });
      const [seq] = newestOfModels(events);
      const answer = events.find((each) => each.seq === seq);
      if (seq === undefined || !answer) return [];
      const { event, appendTime = event.timestamp } = answer;
      return [{ session, seq, time: appendTime, said: whatSaid(event) }];
    }),
  );
  return answers.flat().sort((one, other) => other.time - one.time);
}

/** What a model said; otherwise what it called, or how it failed. */
function whatSaid(event: Event): Content {
  const text = shortened(saidIn(event.content).join('\n').trim(), SHOWN);
  if (text !== '') return html`<bdi>${text}</bdi>`;
  const [failure] = failuresIn(recordOf(event));
  if (failure) return html`<span class="bad"><bdi>${failure.why}</bdi></span>`;
  const [call] = callsOf(event);
  return call ? question(textOrJson(call['name']), recordOf(call['args'])) : 'no text';
}

/** A short list of the newest answers, for the first page. */
export function latestBlock({ links }: Visit, answers: readonly Answer[]): Content {
  const to = ({ session, seq }: Answer, text: Content, kind = 'quiet') =>
    html`<a class="${kind}" href="${links.ofSession('/session', session, { at: seq })}#e${seq}">${text}</a>`;
  return (
    answers.length > 0 &&
    html`<section class="block" id="latest">
      <h2>Latest answers</h2>
      ${table(
        answers,
        {
          Answer: (answer) => to(answer, answer.said, 'quiet line'),
          Session: ({ session }) =>
            html`<a href="${links.ofSession('/session', session)}"><bdi>${session.title ?? session.sessionId}</bdi></a>
              <span class="id"><bdi>${session.appName}</bdi> / <bdi>${session.userId}</bdi></span>`,
          '#When': (answer) => to(answer, ago(answer.time)),
          '>Why': (answer) => to(answer, 'Why', 'way'),
        },
        undefined,
        'dense fixed',
      )}
    </section>`
  );
}
