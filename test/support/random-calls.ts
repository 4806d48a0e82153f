import { createEvent, type Event } from '@google/adk';
import fc from 'fast-check';

/** Few of everything, so that calls, questions and answers meet. */
const IDS = ['c1', 'c2', 'q1', 'q2'];
const NAMES = ['pay', 'tool', 'adk_request_confirmation', 'adk_request_credential', 'adk_request_input'];
const SCHEMA = { type: 'object', properties: { n: { type: 'number' } }, required: ['n'] };

const id = fc.constantFrom(...IDS);

const part = fc.oneof(
  fc.record({ text: fc.constant('yes') }),
  fc.record({
    functionCall: fc.record({
      id,
      name: fc.constantFrom(...NAMES),
      args: fc.oneof(
        fc.constant({}),
        fc.record({ originalFunctionCall: fc.record({ id, name: fc.constant('pay') }) }),
        fc.record({ function_call_id: id, auth_config: fc.constant({ authScheme: {}, credentialKey: 'k' }) }),
        fc.constant({ response_schema: SCHEMA }),
      ),
    }),
  }),
  fc.record({
    functionResponse: fc.record({
      id,
      name: fc.constantFrom(...NAMES),
      response: fc.constantFrom({}, { n: 1 }, { confirmed: true }, { exchangedAuthCredential: {} }, { response: '{' }),
    }),
  }),
);

const text = fc.constant([{ text: 'yes' }]);

/** The content of an event that has to do with calls, likely or not. */
export const callEvents: fc.Arbitrary<Partial<Event>> = fc
  .record({
    author: fc.constantFrom('user', 'agent'),
    branch: fc.constantFrom(undefined, undefined, 'x', 'y', 'tool@c1', 'x.tool@c1'),
    invocationId: fc.constantFrom('', 'i1', 'i2', 'i3'),
    nodeInfo: fc.constantFrom(undefined, { path: 'flow' }),
    errorCode: fc.constantFrom(undefined, undefined, undefined, 'INVOCATION_ABORTED'),
    parts: fc.oneof(fc.array(part, { maxLength: 3 }), text),
    longRunningToolIds: fc.subarray(IDS),
  })
  .map(({ parts, ...event }) => ({ ...event, content: { role: 'model', parts } }) as Partial<Event>);

export const eventWith = (content: Partial<Event>, id: string): Event =>
  createEvent({ ...structuredClone(content), id, timestamp: 1 });
