import { Context, InvocationContext, PluginManager, type Event, type Session } from '@google/adk';
import fc from 'fast-check';
import { eventLines } from '../../packages/cli/src/conversation.js';
import { countedOf } from '../../packages/studio/src/operations/usage.js';
import { Terminal } from '../../packages/cli/src/terminal.js';
import { Links } from '../../packages/studio/src/links.js';
import { eventList } from '../../packages/studio/src/pages/event-view.js';
import { turnsOf } from '../../packages/studio/src/waterfall.js';
import { Hues } from '../../packages/studio/src/pages/layout.js';
import { callsIn, concernsCalls } from '../../src/conversation/calls.js';
import { toMessages } from '../../src/conversation/messages.js';
import {
  interruptedToolResponses,
  openLongRunningCalls,
  responsesBeforeRun,
  runningCall,
  unansweredFunctionCalls,
  unfinishedTurn,
  unrunAnswers,
} from '../../src/conversation/recovery.js';
import { isShared, ownCall } from '../../src/conversation/own-call.js';
import { toolJournal } from '../../src/conversation/tool-journal.js';
import { memoryOfEvent, saidByEvent } from '../../src/memory/memory-content.js';
import { decodeEvent } from '../../src/model/json.js';
import { messageOf } from '../../src/sessions/resumed.js';
import { sessionMatchers } from '../../src/testing/matchers.js';
import { expectOfRandom } from '../support/random.js';

type Arb = fc.Arbitrary<unknown>;

/** Of every type of JSON. The last object has no text: `String` throws for it. */
const odd: Arb = fc.constantFrom(
  null,
  true,
  0,
  -1.5,
  1e300,
  '',
  'x',
  [],
  [null],
  ['x'],
  {},
  { toString: null, x: [null] },
);

/** Mostly the value, so that what is within is reached. */
const mostly = (value: Arb): Arb => fc.oneof({ weight: 6, arbitrary: value }, { weight: 1, arbitrary: odd });

/** An object that may lack each of these properties, or have an odd value for it. */
const oddly = (values: Record<string, Arb>): Arb =>
  mostly(
    fc.record(Object.fromEntries(Object.entries(values).map(([name, value]) => [name, mostly(value)])), {
      requiredKeys: ['id', 'name', 'parts', 'content'].filter((name) => name in values),
    }),
  );

const listOf = (value: Arb): Arb => fc.array(mostly(value), { maxLength: 3 });

const id = fc.constantFrom('c1', 'q1');
const name = fc.constantFrom(...['pay', 'adk_request_confirmation', 'adk_request_credential', 'adk_request_input']);
const text = fc.constantFrom('Tea?', '{"confirmed":true}', '3');
const credential = oddly({ oauth2: oddly({ authUri: text, authCode: text }) });
const schema = oddly({
  type: fc.constantFrom('object', 'string', ['string']),
  properties: odd,
  $ref: text,
  $defs: odd,
  anyOf: listOf(odd),
});
const args = oddly({
  originalFunctionCall: oddly({ id }),
  function_call_id: id,
  auth_config: oddly({ exchangedAuthCredential: credential }),
  response_schema: schema,
});
const response = oddly({
  result: text,
  response: text,
  error: odd,
  exchangedAuthCredential: credential,
  authScheme: odd,
  credentialKey: odd,
});
const file = { mimeType: text, displayName: text };
const part = oddly({
  ...{ text, thought: fc.boolean() },
  functionCall: oddly({ id, name, args }),
  functionResponse: oddly({ id, name, response }),
  inlineData: oddly({ ...file, data: text }),
  fileData: oddly({ ...file, fileUri: text }),
  executableCode: oddly({ language: text, code: text }),
  codeExecutionResult: oddly({ outcome: text, output: text }),
});
const content = oddly({ role: text, parts: listOf(part) });
const compaction = oddly({ startTimestamp: odd, endTimestamp: odd, compactedContent: content });
const named = fc.dictionary(id, odd);
const actions = oddly({
  ...{ stateDelta: named, artifactDelta: named, transferToAgent: text, compaction },
  ...{ requestedAuthConfigs: named, requestedToolConfirmations: named, rewindBeforeInvocationId: text },
});
const result = oddly({ id, result: odd, stateDelta: named, artifactDelta: named });

const event = fc.record(
  {
    ...{ id: mostly(fc.uuid()), invocationId: mostly(id), timestamp: mostly(fc.constant(1)), actions },
    author: mostly(fc.constantFrom('user', 'agent')),
    branch: mostly(fc.constantFrom('x', 'pay@c1')),
    longRunningToolIds: mostly(fc.constant(['c1', 'q1'])),
    content,
    customMetadata: oddly({ adk_mikro_orm_tool_result: result, adk_mikro_orm_exactly_once: listOf(id) }),
    nodeInfo: oddly({ path: text }),
    ...{
      inputTranscription: oddly({ text }),
      outputTranscription: oddly({ text }),
      usageMetadata: oddly({ promptTokenCount: odd }),
    },
    ...{
      errorCode: fc.constantFrom('INVOCATION_ABORTED', 'x'),
      errorMessage: odd,
      interrupted: odd,
      isolationScope: odd,
    },
    ...{ partial: odd, isCompacted: odd, startTime: odd, endTime: odd, compactedContent: odd },
  },
  { requiredKeys: ['id', 'author', 'content', 'longRunningToolIds'] },
);

const answer = fc.oneof(response, fc.record({ response: odd }), fc.record({ result: odd }));

/** A call of a long-running tool and its answer. */
const answered = fc.record({ name, args, answer }).map(({ name, args, answer: response }) => [
  {
    id: 'a',
    author: 'agent',
    longRunningToolIds: ['c1'],
    content: { parts: [{ functionCall: { id: 'c1', name, args } }] },
  },
  { id: 'b', author: 'user', content: { parts: [{ functionResponse: { id: 'c1', name, response } }] } },
]);

/** As a store returns it. */
const stored = (value: unknown): Event => decodeEvent(JSON.stringify(value))!;

/** A tool that runs for the call `c1` in a run of the session, whose events are still being stored. */
function runningTool(session: Session) {
  const invocationContext = new InvocationContext({
    ...{ invocationId: 'c1', session, pluginManager: new PluginManager() },
  });
  Object.assign(invocationContext, { eventQueue: {} });
  return { invocationContext, toolContext: new Context({ invocationContext, functionCallId: 'c1' }) };
}

const ENTRY = { seq: 1, appendTime: 1 };

const journal = toolJournal({ exactlyOnce: ['pay'] });

const key = { appName: 'app', userId: 'ada', sessionId: 's' };

test('H5 no reader of events throws for an event of any shape', () =>
  expectOfRandom(
    'shapes of events',
    fc.array(fc.oneof(fc.tuple(event), answered), { maxLength: 4 }),
    async (values) => {
      const events = values.flat().map(stored);
      const session = { id: 's', appName: 'app', userId: 'ada', state: {}, events, lastUpdateTime: 1 };
      messageOf(unfinishedTurn(session));
      const { toolContext, invocationContext } = runningTool(session);
      runningCall(toolContext);
      // Each run that stores the call has a queue.
      await ownCall(toolContext, 0);
      for (const event of events) {
        countedOf({ ...key, event, ...ENTRY });
        isShared(event, 'c1');
        await journal.onEventCallback({ invocationContext, event });
      }
      const numbered = events.map((event, i) => ({ seq: i + 1, event }));
      toMessages(events);
      toMessages({ events: numbered, firstSeq: 1, lastSeq: events.length + 1 });
      unansweredFunctionCalls(session);
      interruptedToolResponses(session);
      openLongRunningCalls(session);
      responsesBeforeRun(session);
      unrunAnswers(session);
      unfinishedTurn(session);
      callsIn(numbered);
      events.forEach(concernsCalls);
      for (const event of events) memoryOfEvent(event, saidByEvent(event), { ...key, ttlMs: undefined });
      eventList(numbered, { links: new Links(''), session: key, hues: new Hues([]), isNewest: true, mayAnswer: true });
      turnsOf(numbered, 0);
      for (const { seq, event } of numbered) eventLines(new Terminal(false), seq, event);
      sessionMatchers.toHaveEvents.call({ equals: () => true, utils: { diff: () => '' } }, session, []);
    },
    { runs: 2_000 },
  ));
