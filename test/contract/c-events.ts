import type { Event } from '@google/adk';
import fc from 'fast-check';
import { isDeepStrictEqual } from 'node:util';
import { AdkSession, AdkSessionState } from '../../entities/index.js';
import { MikroOrmSessionService } from '../../src/index.js';
import { EVENT_RULES } from '../../src/testing/event-rules.js';
import { keyOf } from '../support/harnesses/harness.js';
import { Suite, type Context } from './rule.js';
import { eventOf, expectCode, idsOf, plain, range, remember, saying, textsOf } from './tools.js';

export const eventSuite = new Suite();
eventSuite.publish(EVENT_RULES);

/** Appends an event, expects it to come back equal, and returns what came back. */
async function roundTrip(
  { create, append, fresh }: Pick<Context, 'create' | 'append' | 'fresh'>,
  event: Partial<Event>,
) {
  const session = await create();
  const appended = await append(session, event);
  const read = await fresh(session, { numRecentEvents: 1 });
  const [loaded] = read.events;
  // Not toEqual, whose message takes minutes when the event is large.
  if (!isDeepStrictEqual(plain(loaded), plain(appended))) throw new Error('Another event came back');
  return loaded!;
}

const utf16 = fc
  .array(fc.oneof(fc.integer({ min: 0, max: 0xffff }), fc.constantFrom(0, 0x27, 0x3f, 0x5c, 0xd800, 0xdfff)), {
    maxLength: 12,
  })
  .map((units) => String.fromCharCode(...units));

const jsonValue = fc.anything({
  key: utf16,
  values: [
    utf16,
    fc.boolean(),
    fc.constant(null),
    fc.integer(),
    fc.double({ noNaN: true, noDefaultInfinity: true }).map((n) => (n === 0 ? 0 : n)),
  ],
});

eventSuite.shared('C1', 'what JSON can carry comes back equal', async (context) => {
  await fc.assert(
    fc.asyncProperty(jsonValue, utf16, async (output, text) => {
      await roundTrip(context, {
        output,
        invocationId: text,
        author: text,
        branch: text,
        content: { parts: [{ text }] },
      });
    }),
    { numRuns: 60 },
  );
});

eventSuite.shared('C1', 'state values come back equal', async ({ create, append, fresh }) => {
  await fc.assert(
    fc.asyncProperty(jsonValue, jsonValue, async (first, second) => {
      const session = await create({ state: { first } });
      await append(session, { delta: { second } });
      const { state } = await fresh(session);
      expect(isDeepStrictEqual(plain([state.first, state.second]), plain([first, second]))).toBe(true);
    }),
    { numRuns: 30 },
  );
});

for (const [title, text] of [
  ['NUL', 'a\0b'],
  ['lone surrogates', '\ud800 \udfff'],
  ['emoji and what SQL reads otherwise', "👩‍👩‍👧 é ? $1 :a ' \" ` \\ \\' {} -- /* %_\r\n\t"],
  ['nothing', ''],
] as const) {
  eventSuite.shared('C1', `strings with ${title} come back`, async (context) => {
    const loaded = await roundTrip(context, {
      content: { parts: [{ text }] },
      author: text,
      branch: text,
      invocationId: text,
      output: { [text]: text },
    });
    expect(loaded.content?.parts?.[0]?.text).toBe(text);
  });
}

eventSuite.shared('C1', 'unknown fields and odd keys come back', async (context) => {
  const output = JSON.parse('{"z":1,"a":{"__proto__":{"x":1},"constructor":2,"user_id":3,"userId":4},"B":[],"2":1}');
  const loaded = await roundTrip(context, { ...({ inventedField: { nested_key: 1 } } as object), output });
  expect(plain(loaded)).toMatchObject({ inventedField: { nested_key: 1 } });
  expect(Object.keys((loaded.output as { a: object }).a).sort()).toEqual([
    '__proto__',
    'constructor',
    'userId',
    'user_id',
  ]);
});

eventSuite.shared('C1', 'the order of keys comes back', async ({ create, append, fresh }) => {
  const ordered = { z: 1, a: { y: 1, b: 2 }, B: [] };
  const session = await create({ state: { ordered } });
  const event = await append(session, { output: ordered, delta: { second: ordered } });
  const { events, state } = await fresh(session);
  expect(JSON.stringify(events[0])).toBe(JSON.stringify(event));
  expect(JSON.stringify([state.ordered, state.second])).toBe(JSON.stringify([ordered, ordered]));
});

eventSuite.shared('C1', 'all fields of an event come back', async (context) => {
  await roundTrip(context, {
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
        // adk-go: bytes in content.
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
  });
});

eventSuite.shared('C1', 'an output of null is apart from an absent one', async (context) => {
  const withNull = await roundTrip(context, { output: null });
  expect('output' in withNull && withNull.output === null).toBe(true);
  expect('output' in (await roundTrip(context, {}))).toBe(false);
});

eventSuite.shared('C1', 'invocationId, author and branch may have any length', async (context) => {
  const long = 'é'.repeat(70_000);
  await roundTrip(context, { invocationId: long, author: long, branch: long });
});

for (const kilobytes of [64, 1024]) {
  eventSuite.shared('C1', `a payload of ${kilobytes} KB comes back`, async (context) => {
    await roundTrip(context, { content: { parts: [{ text: 'ab\\"é😀'.repeat(kilobytes * 100) }] } });
  });
}

eventSuite.own('C1', 'more values than a statement takes come back', async ({ create, service, fresh }) => {
  const session = await create();
  const ids = range(6_000).map((n) => `e${n}`);
  const stateDelta = Object.fromEntries(ids.map((id) => [id, 1]));
  const events = ids.map((id, i) => eventOf({ id, ...(i === 0 && { actions: { stateDelta } }) }));
  await service.appendEvents({ session, events });
  const read = await fresh(session);
  expect(idsOf(read)).toEqual(ids);
  expect(Object.keys(read.state)).toHaveLength(ids.length);
  await service.updateState({ ...keyOf(session), remove: ids });
  expect((await fresh(session)).state).toEqual({});
});

eventSuite.own('C1', 'a payload of 20 MB comes back', async ({ create, append, fresh }) => {
  // Odd, so that pieces begin in the middle of a pair.
  const text = `x${'😀é'.repeat(3_500_000)}`;
  const session = await create();
  await append(session, { content: { parts: [{ text }] } });
  const [loaded] = (await fresh(session)).events;
  expect(loaded?.content?.parts?.[0]?.text === text).toBe(true);
});

eventSuite.own('C1', 'appendEvents takes large and small events at once', async ({ service, create, fresh }) => {
  const session = await create();
  const events = range(8).map((i) => saying(`${i}`.repeat(i % 3 ? 100 : 2_400_000)));
  await service.appendEvents({ session, events });
  const read = await fresh(session);
  expect(textsOf(read).map((text) => [text?.charAt(0), text?.length])).toEqual(
    textsOf({ events }).map((text) => [text?.charAt(0), text?.length]),
  );
  expect(textsOf(await fresh(session, { numRecentEvents: 2 }))).toHaveLength(2);
});

eventSuite.shared('C1', "loaded events carry ADK's brand", async ({ create, append, fresh }) => {
  const session = await create();
  await append(session);
  expect((await fresh(session)).events[0]).toHaveProperty([Symbol.for('google.adk.event')], true);
});

class Shape {
  readonly sides = new Set([1]);
}

const cycle: Record<string, unknown> = {};
cycle.self = { cycle };

for (const [title, value, path] of [
  ['BigInt', 1n, 'cart[3].qty'],
  ['NaN', NaN, 'cart[3].qty'],
  ['Infinity', -Infinity, 'cart[3].qty'],
  ['Map', new Map([[1, 2]]), 'cart[3].qty'],
  ['Set', new Set([1]), 'cart[3].qty'],
  ['a function', () => 1, 'cart[3].qty'],
  ['a symbol', Symbol('x'), 'cart[3].qty'],
  ['a typed array', new Uint8Array([1]), 'cart[3].qty'],
  ['a Set in a class', new Shape(), 'cart[3].qty.sides'],
  ['a cycle', cycle, 'cart[3].qty.self.cycle'],
  ['a toJSON that gives NaN', { toJSON: () => ({ a: NaN }) }, 'cart[3].qty.a'],
] as const) {
  eventSuite.shared('C2', `${title} is refused before anything is written`, async ({ create, append, stored }) => {
    const session = await create();
    const before = await stored(keyOf(session));
    const unchanged = remember(session);
    const cart = { cart: [1, 2, 3, { qty: value }] };
    await expect(append(session, { delta: cart })).rejects.toThrow();
    await expect(append(session, { output: cart })).rejects.toThrow();
    await expect(create({ sessionId: 'refused', state: cart })).rejects.toThrow();
    unchanged();
    expect(await stored(keyOf(session))).toEqual(before);
    expect(await stored({ ...keyOf(session), sessionId: 'refused' })).toBeUndefined();
  });

  eventSuite.own('C2', `the error names the path of ${title}`, async ({ create, append }) => {
    const session = await create();
    const cart = { cart: [1, 2, 3, { qty: value }] };
    const starts = (name: string) =>
      expect.objectContaining({ path: name, message: expect.stringContaining(`${name} is `) });
    await expect(append(session, { delta: cart })).rejects.toEqual(starts(`actions.stateDelta.${path}`));
    await expect(append(session, { output: cart })).rejects.toEqual(starts(`output.${path}`));
    await expect(create({ state: cart })).rejects.toEqual(starts(`state.${path}`));
    await expectCode(append(session, { output: cart }), 'ADK_UNSERIALIZABLE_VALUE');
  });
}

eventSuite.shared(
  'C2',
  'Date and other toJSON values are stored as what they give',
  async ({ create, append, stored }) => {
    const date = new Date(5);
    const price = { amount: 5, toJSON: () => '5 EUR' };
    const session = await create({ state: { date, price } });
    await append(session, { output: { date, price }, delta: { other: price } });
    const { state, events } = (await stored(keyOf(session)))!;
    const [storedDate, storedPrice] = ['1970-01-01T00:00:00.005Z', '5 EUR'];
    expect(state).toEqual({ date: storedDate, price: storedPrice, other: storedPrice });
    expect(events[0]?.output).toEqual({ date: storedDate, price: storedPrice });
  },
);

eventSuite.shared('C2', 'the same object twice is no cycle', async (context) => {
  const shared = { a: 1 };
  await roundTrip(context, { output: [shared, shared, { shared }] });
});

eventSuite.own(
  'C2',
  'an event above maxEventBytes is refused before anything is written',
  async ({ orm, create, stored }) => {
    const session = await create();
    const service = new MikroOrmSessionService(orm.em, { maxEventBytes: 1_000 });
    const before = await stored(keyOf(session));
    const unchanged = remember(session);
    // 700 characters, but 1,400 bytes.
    await expectCode(service.appendEvent({ session, event: saying('é'.repeat(700)) }), 'ADK_EVENT_TOO_LARGE');
    unchanged();
    expect(await stored(keyOf(session))).toEqual(before);
    await service.appendEvent({ session, event: saying('e'.repeat(500)) });
  },
);

/** Within what a `Date` can hold. */
const time = fc.oneof(
  fc.double({ min: 1, max: 4e12, noNaN: true }),
  fc.double({ min: -8.64e15, max: 8.64e15, noNaN: true }).filter((n) => Math.abs(n) >= 1e-3),
  fc.integer({ min: 1, max: 2 ** 41 }).map((n) => n + 1 / 3),
  fc.integer({ min: 2 ** 40, max: 2 ** 41 }).map((n) => n + 2 ** -12),
);

eventSuite.shared('C3', 'whole milliseconds come back exactly', async ({ create, append, fresh }) => {
  const session = await create();
  for (const timestamp of [1, 999, 1_700_000_000_123, 4_102_444_800_001]) {
    await append(session, { timestamp });
    const read = await fresh(session);
    expect(read.events.at(-1)?.timestamp).toBe(timestamp);
    expect(read.lastUpdateTime).toBe(timestamp);
  }
});

eventSuite.shared('C3', 'any time comes back exactly, fractions included', async ({ create, append, fresh }) => {
  const session = await create();
  const times: number[] = [];
  await fc.assert(
    fc.asyncProperty(time, async (timestamp) => {
      times.push(timestamp);
      await append(session, { timestamp });
      expect(session.lastUpdateTime).toBe(timestamp);
      expect((await fresh(session, { numRecentEvents: 1 })).lastUpdateTime).toBe(timestamp);
    }),
    { numRuns: 100 },
  );
  expect((await fresh(session)).events.map(({ timestamp }) => timestamp)).toEqual(times);
});

eventSuite.own(
  'C3',
  'any time is exact in the tables, where filters read it',
  async ({ harness, app, service, create, query }) => {
    const session = await create();
    const times = [57.57842848181674, ...fc.sample(time, 300)];
    await service.appendEvents({ session, events: times.map((timestamp) => eventOf({ timestamp })) });
    const rows = await query<{ at: number | string }>(
      `select ${harness.columns.double('timestamp')} as at from adk_events where app_name = ? order by seq`,
      [app],
    );
    expect(rows.map(({ at }) => Number(at))).toEqual(times);
    const [row] = await query<{ create_time: number }>('select create_time from adk_sessions where app_name = ?', [
      app,
    ]);
    expect(row?.create_time).toBeGreaterThan(0);
  },
);

eventSuite.own('C1', 'the entities give JSON as it was stored', async ({ app, create, peer }) => {
  const values = { text: '5', number: 5, quoted: '"5"', nothing: null, list: ['5', 5], tiny: 1e-7 };
  await create({ state: values });
  const em = peer.em.fork();
  const rows = await em.find(AdkSessionState, { session: { appName: app } });
  expect(Object.fromEntries(rows.map(({ key, value }) => [key, value]))).toEqual(values);
  // A session without labels, and an event in parts, have no JSON.
  const [session] = await em.find(AdkSession, { appName: app });
  expect(session?.labels).toBeNull();
  em.getUnitOfWork().computeChangeSets();
  expect(em.getUnitOfWork().getChangeSets()).toEqual([]);
});

eventSuite.shared('C4', 'a filtered handle can be appended to', async ({ create, append, fresh, service }) => {
  const session = await create();
  for (const i of range(5)) await append(session, { id: String(i), delta: { n: i } });
  const recent = await fresh(session, { numRecentEvents: 2 });
  expect(recent.state).toEqual({ n: 4 });
  await service.appendEvent({ session: recent, event: eventOf({ id: '5' }) });
  expect(idsOf(recent).join('')).toBe('345');
  expect(idsOf(await fresh(session)).join('')).toBe('012345');
});

eventSuite.own('C4', 'numbers that are no count are refused', async ({ create, fresh }) => {
  const session = await create();
  for (const numRecentEvents of [-1, 1.5, Infinity]) {
    await expectCode(fresh(session, { numRecentEvents }), 'ADK_INVALID_ARGUMENT');
  }
});
