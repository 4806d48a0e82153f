import type { Event } from '@google/adk';
import { holds, plain, refuses, remember, same } from './checks.js';
import { range } from './events.js';
import { randomNumbers, randomText, randomValue } from './random.js';
import { keyOf, type EventParams, type RuleContext, type ServiceRule } from './rule.js';

/** Appends an event, and holds that it comes back equal. */
async function roundTrip({ create, append, fresh }: RuleContext, params: EventParams): Promise<Event> {
  const session = await create();
  const appended = await append(session, params);
  const [loaded] = (await fresh(session, { numRecentEvents: 1 })).events;
  same(loaded, appended, 'The event that is read');
  holds(loaded !== undefined, 'The event should be read.');
  return loaded;
}

const TEXTS: [title: string, text: string][] = [
  ['NUL', 'a\0b'],
  ['lone surrogates', '\ud800 \udfff'],
  ['emoji and what SQL reads otherwise', "👩‍👩‍👧 é ? $1 :a ' \" ` \\ \\' {} -- /* %_\r\n\t"],
  ['nothing', ''],
];

const ODD_OUTPUT: unknown = JSON.parse(
  '{"z":1,"a":{"__proto__":{"x":1},"constructor":2,"user_id":3,"userId":4},"B":[],"2":1}',
);

/** An event with all that ADK puts into one. */
const FULL_EVENT: EventParams = {
  invocationId: 'i',
  author: 'agent',
  branch: 'root.child',
  turnComplete: true,
  interrupted: false,
  errorCode: 'E',
  errorMessage: 'm',
  longRunningToolIds: ['call-1'],
  customMetadata: { a: 1 },
  usageMetadata: { totalTokenCount: 7 },
  groundingMetadata: { webSearchQueries: ['q'] },
  output: { answer: 42 },
  route: ['x', 1, true],
  nodeInfo: { path: 'wf.child.0', outputFor: ['wf'] },
  isolationScope: 'scope',
  content: {
    role: 'model',
    parts: [
      { functionCall: { id: 'call-1', name: 'tool', args: { 'user key': 1, snake_key: { camelKey: 2 } } } },
      { functionResponse: { id: 'call-1', name: 'tool', response: { result: [1, 2] } } },
      { inlineData: { mimeType: 'image/png', data: Buffer.from(range(256)).toString('base64') } },
      { thought: true, text: 'hm' },
    ],
  },
  actions: {
    stateDelta: { a: { snake_key: 1, camelKey: 2 } },
    artifactDelta: { 'file name.txt': 3 },
    transferToAgent: 'other',
    escalate: true,
    skipSummarization: true,
    requestedAuthConfigs: {},
    requestedToolConfirmations: {},
    agentState: { step: 1 },
    endOfAgent: true,
  },
};

/** What `createEvent` of ADK puts on an event, and ADK's `isEvent` checks. */
const BRAND = Symbol.for('google.adk.event');

class Shape {
  readonly sides = new Set([1]);
}

const cycle: Record<string, unknown> = {};
cycle['self'] = { cycle };

/** What JSON would damage. */
export const DAMAGED_BY_JSON: readonly (readonly [title: string, value: unknown])[] = [
  ['BigInt', 1n],
  ['NaN', NaN],
  ['Infinity', -Infinity],
  ['Map', new Map([[1, 2]])],
  ['Set', new Set([1])],
  ['a function', () => 1],
  ['a symbol', Symbol('x')],
  ['a typed array', new Uint8Array([1])],
  ['a Set in a class', new Shape()],
  ['a cycle', cycle],
  ['a toJSON that gives NaN', { toJSON: () => ({ a: NaN }) }],
];

/** Tests of section C: values, and JSON. */
export const JSON_RULES: readonly ServiceRule[] = [
  {
    rule: 'C1',
    title: 'what JSON can carry comes back equal',
    level: 'every',
    async test(context) {
      const random = randomNumbers();
      for (const _ of range(60)) {
        const text = randomText(random);
        const content = { parts: [{ text }] };
        await roundTrip(context, {
          ...{ output: randomValue(random), invocationId: text, author: text, branch: text, content },
        });
      }
    },
  },
  {
    rule: 'C1',
    title: 'state values come back equal',
    level: 'every',
    async test({ create, append, fresh }) {
      const random = randomNumbers(2);
      for (const _ of range(30)) {
        const [first, second] = [randomValue(random), randomValue(random)];
        const session = await create({ state: { first } });
        await append(session, { delta: { second } });
        same((await fresh(session)).state, { first, second }, 'The state that is read');
      }
    },
  },
  ...TEXTS.map(([title, text]): ServiceRule => ({
    rule: 'C1',
    title: `strings with ${title} come back`,
    level: 'every',
    async test(context) {
      const output = { [text]: text };
      const content = { parts: [{ text }] };
      await roundTrip(context, { content, author: text, branch: text, invocationId: text, output });
    },
  })),
  {
    rule: 'C1',
    title: 'unknown fields and odd keys come back',
    level: 'every',
    async test(context) {
      const unknown = { inventedField: { nested_key: 1 } };
      const loaded = await roundTrip(context, { ...unknown, output: ODD_OUTPUT });
      same({ ...loaded, ...unknown }, loaded, 'The event with its unknown field');
      same(loaded.output, ODD_OUTPUT, 'The output that is read');
    },
  },
  {
    rule: 'C1',
    title: 'the order of keys comes back',
    level: 'every',
    async test({ create, append, fresh }) {
      const ordered = { z: 1, a: { y: 1, b: 2 }, B: [] };
      const session = await create({ state: { ordered } });
      const event = await append(session, { output: ordered, delta: { second: ordered } });
      const { events, state } = await fresh(session);
      same(JSON.stringify(events[0]), JSON.stringify(event), 'The text of the event that is read');
      const [is, shouldBe] = [
        [state['ordered'], state['second']],
        [ordered, ordered],
      ].map((each) => JSON.stringify(each));
      same(is, shouldBe, 'The text of the state values that are read');
    },
  },
  {
    rule: 'C1',
    title: 'all fields of an event come back',
    level: 'every',
    async test(context) {
      await roundTrip(context, FULL_EVENT);
    },
  },
  {
    rule: 'C1',
    title: 'an output of null is apart from an absent one',
    level: 'every',
    async test(context) {
      holds((await roundTrip(context, { output: null })).output === null, 'The output should be null.');
      holds(!('output' in (await roundTrip(context, {}))), 'There should be no output.');
    },
  },
  {
    rule: 'C1',
    title: 'invocationId, author and branch may have any length',
    level: 'every',
    async test(context) {
      const long = 'é'.repeat(70_000);
      await roundTrip(context, { invocationId: long, author: long, branch: long });
    },
  },
  ...[64, 1024].map((kilobytes): ServiceRule => ({
    rule: 'C1',
    title: `a payload of ${kilobytes} KB comes back`,
    level: 'every',
    async test(context) {
      await roundTrip(context, { content: { parts: [{ text: 'ab\\"é😀'.repeat(kilobytes * 100) }] } });
    },
  })),
  {
    rule: 'C1',
    title: "loaded events carry ADK's brand",
    level: 'every',
    async test({ create, append, fresh }) {
      const session = await create();
      await append(session);
      const [event] = (await fresh(session)).events;
      holds(
        Reflect.get(event ?? {}, BRAND) === true,
        "The event that is read should have ADK's brand, Symbol.for('google.adk.event').",
      );
    },
  },
  ...DAMAGED_BY_JSON.map(([title, value]): ServiceRule => ({
    rule: 'C2',
    title: `${title} is refused before anything is written`,
    level: 'every',
    async test({ create, append, stored }) {
      const session = await create();
      const before = plain(await stored(keyOf(session)));
      const isUnchanged = remember(session);
      const cart = { cart: [1, 2, 3, { qty: value }] };
      await refuses(append(session, { delta: cart }), `appendEvent with ${title} in the state`);
      await refuses(append(session, { output: cart }), `appendEvent with ${title} in the output`);
      await refuses(create({ sessionId: 'refused', state: cart }), `createSession with ${title} in the state`);
      isUnchanged();
      same(await stored(keyOf(session)), before, 'The session in storage');
      same(await stored({ ...keyOf(session), sessionId: 'refused' }), undefined, 'The session that was refused');
    },
  })),
  {
    rule: 'C2',
    title: 'Date and other toJSON values are stored as what they give',
    level: 'every',
    async test({ create, append, stored }) {
      const [date, price] = [new Date(5), { amount: 5, toJSON: () => '5 EUR' }];
      const session = await create({ state: { date, price } });
      await append(session, { output: { date, price }, delta: { other: price } });
      const read = await stored(keyOf(session));
      const expected = { date: '1970-01-01T00:00:00.005Z', price: '5 EUR' };
      same(read?.state, { ...expected, other: '5 EUR' }, 'The state in storage');
      same(read?.events[0]?.output, expected, 'The output in storage');
    },
  },
  {
    rule: 'C2',
    title: 'the same object twice is no cycle',
    level: 'every',
    async test(context) {
      const shared = { a: 1 };
      await roundTrip(context, { output: [shared, shared, { shared }] });
    },
  },
];
