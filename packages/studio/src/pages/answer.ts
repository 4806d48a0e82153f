import {
  REQUEST_CONFIRMATION_FUNCTION_CALL_NAME as CONFIRMATION,
  REQUEST_CREDENTIAL_FUNCTION_CALL_NAME as CREDENTIAL,
  REQUEST_INPUT_FUNCTION_CALL_NAME as INPUT,
} from '@google/adk';
import { InvalidArgumentError, type OpenCall, type SessionKey } from '../../../../src/index.js';
import { field } from '../../../../src/conversation/answers.js';
import { callsOf } from '../../../../src/conversation/calls.js';
import { isFailedResponse } from '../../../../src/conversation/failed-response.js';
import { decode, decodeEvent, recordOf } from '../../../../src/model/json.js';
import { partsOf } from '../../../../src/model/turn.js';
import { askedAbout, isConfirmation, responseIn, storeAnswer, type Asked } from '../operations/answer.js';
import { shortened, textOrJson } from '../operations/words.js';
import { Refusal } from '../guard.js';
import { fieldValue, html, type Content, type Html } from '../html.js';
import { EVENTS } from '../reading.js';
import type { Visit } from '../visit.js';
import type { Links } from '../links.js';
import { reasonIn } from '../recent.js';
import { authorOf, inLine } from './event-view.js';
import { ago, chip, codeOf, lasting, table, time } from './layout.js';

/** @param args undefined if they cannot be read. @returns what a call asks, as a sentence. */
export function question(name: string, args: unknown): Html {
  const about = askedAbout(name, args);
  if (about) {
    const { tool, hint } = about;
    return html`${tool === undefined ? 'The agent asks for a confirmation.' : html`${called(tool, about.args)}?`}
    ${hint !== undefined && html`<bdi>${hint}</bdi>`}`;
  }
  if (name === INPUT)
    return html`<bdi>${textOrJson(recordOf(args)['message'] ?? 'The agent asks for an input.')}</bdi>`;
  if (name === CREDENTIAL) return html`The agent asks for a login.`;
  return args === undefined ? html`${codeOf(name)} cannot be read` : called(name, args);
}

/**
 * Calls that wait for a person or, answered, for the agent, each with the way to answer it.
 *
 * @param link of a session, with its app and user.
 */
export function callsTable(
  { links, mayChange }: Visit,
  calls: readonly OpenCall[],
  link: (key: SessionKey) => Content,
  { areAnswered = false } = {},
): Content {
  const said = (call: OpenCall) => `${links.ofSession('/session', call, { at: call.seq })}#e${call.seq}`;
  const to = (call: OpenCall, text: Content, kind = '') =>
    html`<a class="${kind}" href="${mayChange ? answerLink(links, call, call) : said(call)}">${text}</a>`;
  const answerers = areAnswered ? [] : calls.map(({ name }) => answererOf(name));
  const count = (of: string) => answerers.filter((each) => each === of).length;
  const [most] = answerers.toSorted((one, other) => count(other) - count(one));
  const list = table(
    calls,
    {
      Question: (call) =>
        html`<span class="asks">${to(call, question(call.name, call.args))}</span>
          <span class="by"
            >${link(call)} ${!areAnswered && answererOf(call.name) !== most && answererOf(call.name)}</span
          >`,
      [areAnswered ? '#Asked' : '#Waits']: (call) =>
        html`<a class="quiet" href="${said(call)}">${areAnswered ? ago(call.timestamp) : lasting(call.timestamp)}</a>`,
      '>Answer':
        !areAnswered &&
        mayChange &&
        ((call) => to(call, isConfirmation(call) ? 'Approve or reject' : 'Answer', 'button')),
    },
    undefined,
    'dense fixed',
  );
  if (most === undefined) return list;
  // What most rows would say is said once.
  const otherwise = count(most) < calls.length && ', unless the row says otherwise';
  return [html`<p class="note">To be answered by ${most}${otherwise}.</p>`, list];
}

/** The page on which a call is answered, or that says how it was. */
const answerLink = (links: Links, session: SessionKey, { seq, id }: Pick<OpenCall, 'seq' | 'id'>): string =>
  links.ofSession('/answer', session, { at: seq, call: id });

/** @returns who can answer a call. */
export const answererOf = (name: string): string => ANSWERERS[name] ?? 'a person or a service, with the result';

/** Whether a call is a question of ADK itself. */
export const isQuestion = (name: string): boolean => Object.hasOwn(ANSWERERS, name);

const ANSWERERS: Readonly<Record<string, string>> = {
  [CONFIRMATION]: 'whoever may approve it',
  [INPUT]: 'the user, or you for them',
  [CREDENTIAL]: 'the user, with a login',
};

/** How to answer calls if that is not allowed here. */
export const HOW_TO_ANSWER = html`<p class="note">
  To answer, use <code>npx adk-mikro-orm answer</code>, as each call's session shows, or allow changes here with
  <code>allowChanges</code> or <code>--allow-changes</code>.
</p>`;

const called = (name: string, args: unknown) => html`${codeOf(name)}(${inLine(args)})`;

/** A value that an answer needs. */
interface Field {
  name: string;
  type: 'text' | 'number' | 'boolean' | 'json';
  about: string;
  choices: readonly string[];
  isRequired: boolean;
}

/** The form of an answer: what is asked and by whom, what was said before it, fields for the answer, and what happens next. */
export async function answerFields(visit: Visit, title: string | null): Promise<Html> {
  const asked = await askedCall(visit);
  const { name, args } = asked;
  const isQuestion = isConfirmation(asked);
  const fields = await fieldsOf(visit, asked);
  const buttons = isQuestion
    ? html`<button name="confirm" value="approve">Approve</button
        ><button name="confirm" value="reject" formnovalidate>Reject</button>`
    : html`<button class="primary" name="confirm" value="answer">Answer</button>`;
  const next = isQuestion
    ? 'If you approve, the tool runs with these arguments. If you reject, it does not, and the agent learns that. '
    : name === CREDENTIAL
      ? 'A login is best answered by your application. '
      : 'The agent gets this as what the tool has returned. ';
  const { timestamp } = asked;
  const waits = html`${chip(html`waits ${timestamp !== undefined && lasting(timestamp)}`, 'warn')} to be answered by
  ${answererOf(name)}`;
  return html`${askedBy(visit, asked, title, waits)} ${await linesBefore(visit, asked)} ${fields.map(fieldOf)}
    ${name !== CREDENTIAL && html`<label>Note, stored with the answer<textarea name="note" rows="2"></textarea></label>`}
    <div class="actions">
      ${buttons}<a class="button" href="${visit.links.ofSession('/session', visit.session)}">Cancel</a>
    </div>
    <p class="note">
      ${next}The answer is stored as an event of the user, and cannot be changed.
      ${CONTINUES[`${visit.reading.tellsHost}`]}
    </p>
    <details class="more">
      <summary>More: as JSON</summary>
      <h4>The call</h4>
      <pre tabindex="0">${JSON.stringify({ name, args }, undefined, 2)}</pre>
      <label
        >Answer as a JSON object, added to what is above<textarea
          name="response"
          rows="4"
          placeholder="${isQuestion ? '{"payload":{}}' : '{"answer":""}'}"
        ></textarea>
      </label>
    </details>`;
}

/** When the agent continues, by whether the host has `onAnswer`. */
export const CONTINUES: Readonly<Record<string, string>> = {
  true: 'Your application learns of it at once, and can run the agent.',
  false: 'The agent continues when your application runs this session next.',
};

/** What is asked, by whom and in which session. @param waits how long the call waits, and for whom. */
export function askedBy(
  { links, session }: Visit,
  { seq, name, args, author, timestamp }: AskedCall,
  title: string | null,
  waits?: Html,
): Html {
  return html`<p class="question" dir="auto">${question(name, args)}</p>
    <p class="asked">
      Asked by <strong><bdi>${author}</bdi></strong> ${timestamp !== undefined && html`at ${time(timestamp)}`} in
      <a href="${links.ofSession('/session', session, { at: seq })}#e${seq}"
        ><bdi>${title ?? session.sessionId}</bdi></a
      >
      <span class="id"><bdi>${session.appName}</bdi> / <bdi>${session.userId}</bdi></span>
      ${waits}
    </p>`;
}

/** How many lines of a conversation are shown before a question, and how many characters of each. */
const LINES = 8;
const OF_LINE = 400;

/** What was said and done just before a call, for whoever decides about it. */
async function linesBefore({ reading, session, links }: Visit, { seq, id }: AskedCall): Promise<Html> {
  const events = await reading.newestEvents(session, { before: seq + 1, limit: EVENTS_BEFORE });
  const lines = events.flatMap(({ event }) =>
    linesOf(event, id).map(
      (line) =>
        html`<li class="${event.author === 'user' ? 'user' : ''}">
          <span class="author"><bdi>${event.author ?? 'unknown'}</bdi></span> <span dir="auto">${line}</span>
        </li>`,
    ),
  );
  return html`<section class="before">
    <h2>Before it <a class="dim" href="${links.ofSession('/session', session, { at: seq })}#e${seq}">Read all</a></h2>
    ${
      lines.length === 0
        ? html`<p class="dim">Nothing was said.</p>`
        : html`<ol>
            ${lines.slice(-LINES)}
          </ol>`
    }
  </section>`;
}

/** How many events are read for these lines. */
const EVENTS_BEFORE = 20;

/** @param id of the call that is asked about, which is no line. */
const linesOf = (event: object, id: string): Content[] =>
  partsOf(event).flatMap(({ text, thought, functionCall, functionResponse }): Content[] => {
    if (typeof text === 'string' && text.trim() !== '' && thought !== true) return [shortened(text, OF_LINE)];
    const [call, answer] = [recordOf(functionCall), recordOf(functionResponse)];
    if (functionCall && call['id'] !== id) return [question(textOrJson(call['name']), recordOf(call['args']))];
    if (!functionResponse) return [];
    const response = recordOf(answer['response']);
    const mark = isFailedResponse(answer['response'])
      ? html`<span class="bad">✗ ${reasonIn(response)}</span>`
      : html`✓ ${inLine(response)}`;
    return [html`${codeOf(textOrJson(answer['name']))} ${mark}`];
  });

/** Stores the answer of a form. @returns the page to show next, which says what happens. */
export async function storeForm(visit: Visit, form: URLSearchParams): Promise<string> {
  const { reading, session, links } = visit;
  const asked = await askedCall(visit);
  const isApproved = form.get('confirm') === 'approve';
  await storeAnswer(reading.service, session, asked, { response: await responseOf(visit, asked, form), isApproved });
  reading.answered(session);
  return answerLink(links, session, asked);
}

/** @throws InvalidArgumentError if a field does not have its type, or nothing was answered. */
async function responseOf(visit: Visit, asked: Asked, form: URLSearchParams): Promise<Record<string, unknown>> {
  const response = responseIn(form.get('response') ?? '');
  for (const each of await fieldsOf(visit, asked)) {
    const given = form.get(`field-${each.name}`) ?? '';
    if (given !== '') response[each.name] = valueOf(each, given);
  }
  if (!isConfirmation(asked) && Object.keys(response).length === 0)
    throw new InvalidArgumentError('Nothing was answered. Fill in a field.');
  const note = form.get('note') ?? '';
  return note.trim() === '' ? response : { ...response, note };
}

function valueOf({ name, type }: Field, text: string): unknown {
  if (type === 'text') return text;
  const decoded = decode(type === 'number' ? text.trim() : text);
  if (!decoded || (type !== 'json' && typeof decoded.value !== type))
    throw new InvalidArgumentError(`${name} must be ${type === 'json' ? 'JSON' : `a ${type}`}.`);
  return decoded.value;
}

function fieldOf({ name, type, about, choices, isRequired }: Field): Html {
  const id = html`name="field-${fieldValue(name)}" ${isRequired && html`required`}`;
  const label: Content = [html`<bdi>${name}</bdi>`, about !== '' && html`<span class="dim">${about}</span>`];
  const options = type === 'boolean' ? ['true', 'false'] : choices;
  if (options.length > 0)
    return html`<label
      >${label}<select ${id}>
        <option value=""></option>
        ${options.map((each) => html`<option value="${fieldValue(each)}">${each}</option>`)}
      </select></label
    >`;
  if (type === 'json') return html`<label>${label} <textarea ${id} rows="2"></textarea></label>`;
  return html`<label>${label}<input ${id} type="${type}" ${type === 'number' && html`step="any"`} /></label>`;
}

/** The fields of the question's schema; otherwise those of the last answer to this tool in the session; otherwise one. */
async function fieldsOf({ reading, session }: Visit, { name, args }: Asked): Promise<Field[]> {
  if (name === CONFIRMATION || name === CREDENTIAL) return [];
  const schema = recordOf(field(args, 'responseSchema'));
  const properties = Object.entries(recordOf(schema['properties']));
  const required = Array.isArray(schema['required']) ? schema['required'] : [];
  if (properties.length > 0)
    return properties.slice(0, MOST_FIELDS).map(([key, of]) => fieldFor(key, recordOf(of), required.includes(key)));
  // ADK takes the only value `result` as the answer itself.
  if (name === INPUT) return [fieldFor('result', { type: 'string', ...schema }, true)];
  const { events } = await reading.service.readEvents(session, { limit: EVENTS * 3 });
  const last = events
    .flatMap(({ event }) => (event.author === 'user' ? partsOf(event) : []))
    .findLast(({ functionResponse }) => recordOf(functionResponse)['name'] === name);
  const answered = Object.entries(recordOf(recordOf(last?.['functionResponse'])['response']));
  const fields = answered.filter(([key]) => key !== 'note').slice(0, MOST_FIELDS);
  if (fields.length === 0) return [fieldFor('answer', { type: 'string' }, false)];
  return fields.map(([key, value]) => fieldFor(key, { type: value === null ? 'object' : typeof value }, false));
}

const MOST_FIELDS = 20;

const TYPES: Readonly<Record<string, Field['type']>> = {
  string: 'text',
  number: 'number',
  integer: 'number',
  boolean: 'boolean',
};

function fieldFor(name: string, schema: Readonly<Record<string, unknown>>, isRequired: boolean): Field {
  const { type, description, enum: values } = schema;
  const choices = Array.isArray(values) ? values.filter((each) => typeof each === 'string') : [];
  return {
    ...{ name, isRequired, choices },
    type: TYPES[String(type).toLowerCase()] ?? 'json',
    about: typeof description === 'string' ? description : '',
  };
}

/** A call, and which event has asked. */
interface AskedCall extends Asked {
  seq: number;
  author: string;
  /** In ms since 1970. */
  timestamp: number | undefined;
}

/** @returns the call that the page is about. @throws Refusal of 404 if the event has no such call. */
export async function askedCall(visit: Visit): Promise<AskedCall> {
  const { reading, session, params } = visit;
  const seq = visit.number('at') ?? 0;
  const event = decodeEvent(await reading.eventJson(session, seq));
  const found = (event ? callsOf(event) : []).find(({ id }) => id === params.get('call'));
  if (!event || !found) throw new Refusal(404, 'There is no such call. It was answered, or its event is gone.');
  const call = { id: String(found['id']), name: textOrJson(found['name']), args: recordOf(found['args']) };
  return { ...call, seq, author: authorOf(event), timestamp: event.timestamp };
}
