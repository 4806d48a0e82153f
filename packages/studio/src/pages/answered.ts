import { recordOf } from '../../../../src/model/json.js';
import { partsOf } from '../../../../src/model/turn.js';
import { html, type Content, type Html } from '../html.js';
import { isConfirmation } from '../operations/answer.js';
import { EVENTS } from '../reading.js';
import type { Visit } from '../visit.js';
import { CONTINUES, askedBy, askedCall } from './answer.js';
import { inLine } from './event-view.js';
import { ago } from './layout.js';

/** @returns what became of a call that has its answer; undefined if it still waits. */
export async function answeredPage(visit: Visit, title: string | null): Promise<Html | undefined> {
  const { reading, session, links } = visit;
  const asked = await askedCall(visit);
  const { calls, next } = await reading.service.findOpenCalls({ ...session, name: asked.name, limit: MOST_OPEN });
  if (next !== undefined || calls.some(({ id, seq }) => id === asked.id && seq === asked.seq)) return undefined;
  const { events } = await reading.service.readEvents(session, { after: asked.seq, limit: EVENTS * 3 });
  const given = events.find(({ event }) => event.author === 'user' && responseTo(event, asked.id));
  const then = given && events.find(({ seq, event }) => seq > given.seq && event.author !== 'user');
  const { lease } = await reading.busy(session);
  const at = (seq: number, text: Content) =>
    html`<a href="${links.ofSession('/session', session, { at: seq })}#e${seq}">${text}</a>`;
  const response = given && recordOf(recordOf(responseTo(given.event, asked.id))['response']);
  const { confirmed, ...others } = response ?? {};
  const verb = !isConfirmation(asked) ? 'Answered' : confirmed === true ? 'Approved' : 'Rejected';
  const goesOn = then
    ? html`The agent has continued: ${at(then.seq, html`event #${then.seq}`)}.`
    : lease?.isHeld
      ? html`The agent runs now: <bdi>${lease.holder}</bdi> holds the session.`
      : html`The answer is stored, and the agent has not continued yet. ${CONTINUES[`${reading.tellsHost}`]}`;
  return html`<div id="now" class="form" data-refresh="2">
    ${askedBy(visit, asked, title)}
    <p>
      ${
        given
          ? html`<strong class="good">${verb}</strong> ${ago(given.event.timestamp)} ${inLine(others)}
              ${at(given.seq, `#${given.seq}`)}`
          : 'It waits no more: it was answered, or the agent has gone on without an answer.'
      }
    </p>
    <p role="status">${goesOn}</p>
    <div class="actions">
      <a class="button" href="${links.ofSession('/session', session)}">To the conversation</a>
      <a class="button" href="${links.to('/', { all: 'waits' })}">What else waits</a>
    </div>
  </div>`;
}

/** How many open calls of a session are looked at for one. */
const MOST_OPEN = 200;

/** @returns the answer in an event to a call, or undefined. */
const responseTo = (event: object, id: string): unknown =>
  partsOf(event).find(({ functionResponse }) => recordOf(functionResponse)['id'] === id)?.['functionResponse'];
