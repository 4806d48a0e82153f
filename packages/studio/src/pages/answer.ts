import {
  REQUEST_CONFIRMATION_FUNCTION_CALL_NAME as CONFIRMATION,
  REQUEST_CREDENTIAL_FUNCTION_CALL_NAME as CREDENTIAL,
  REQUEST_INPUT_FUNCTION_CALL_NAME as INPUT,
} from '@google/adk';
import { InvalidArgumentError } from '../../../../src/index.js';
import { field } from '../../../../src/conversation/answers.js';
import { callsOf } from '../../../../src/conversation/calls.js';
import { decode, decodeEvent, recordOf } from '../../../../src/model/json.js';
import { partsOf } from '../../../../src/model/turn.js';
import { askedAbout, isConfirmation, responseIn, storeAnswer, type Asked } from '../operations/answer.js';
import { textOrJson } from '../operations/words.js';
import { Refusal } from '../guard.js';
import { fieldValue, html, type Content, type Html } from '../html.js';
import { EVENTS } from '../reading.js';
import type { Visit } from '../visit.js';
import { inLine } from './event-view.js';
import { codeOf } from './layout.js';

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

/** @returns who can answer a call. */
export const answererOf = (name: string): string => ANSWERERS[name] ?? 'a person or a service, with the result';

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

/** The form of an answer: what is asked, fields for the answer, and what happens next. */
export async function answerFields(visit: Visit): Promise<Html> {
  const { id, name, args } = await askedCall(visit);
  const isQuestion = isConfirmation({ name });
  const fields = await fieldsOf(visit, { id, name, args });
  const buttons = isQuestion
    ? html`<button name="confirm" value="approve">Approve</button
        ><button name="confirm" value="reject" formnovalidate>Reject</button>`
    : html`<button class="primary" name="confirm" value="answer">Answer</button>`;
  const next = isQuestion
    ? 'If you approve, the tool runs with these arguments. If you reject, it does not, and the agent learns that. '
    : name === CREDENTIAL
      ? 'A login is best answered by your application. '
      : 'The agent gets this as what the tool has returned. ';
  return html`<p class="question" dir="auto">${question(name, args)}</p>
    ${fields.map(fieldOf)}
    ${name !== CREDENTIAL && html`<label>Note, stored with the answer<textarea name="note" rows="2"></textarea></label>`}
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
    </details>
    <p class="note">
      ${next}The answer is stored as an event of the user, and cannot be changed. The agent continues when your
      application runs this session next; it may do so at once.
    </p>
    <div class="actions">
      ${buttons}<a class="button" href="${visit.links.ofSession('/session', visit.session)}">Cancel</a>
    </div>`;
}

/** Stores the answer of a form. @returns the page to show next. */
export async function storeForm(visit: Visit, form: URLSearchParams): Promise<string> {
  const { reading, session, links } = visit;
  const asked = await askedCall(visit);
  const isApproved = form.get('confirm') === 'approve';
  await storeAnswer(reading.service, session, asked, { response: await responseOf(visit, asked, form), isApproved });
  reading.answered(session);
  return links.ofSession('/session', session);
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

/** @returns the call that the page is about. @throws Refusal of 404 if the event has no such call. */
async function askedCall(visit: Visit): Promise<Asked> {
  const { reading, session, params } = visit;
  const event = decodeEvent(await reading.eventJson(session, visit.number('at') ?? 0));
  const found = (event ? callsOf(event) : []).find(({ id }) => id === params.get('call'));
  if (!found) throw new Refusal(404, 'There is no such call. It was answered, or its event is gone.');
  return { id: String(found['id']), name: textOrJson(found['name']), args: recordOf(found['args']) };
}
