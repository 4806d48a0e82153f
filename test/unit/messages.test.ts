import { createEvent, isCompactedEvent, type CreateEventParams, type Event } from '@google/adk';
import type { Part } from '../contract/tools.js';
import { isFailedResponse } from '../../src/conversation/failed-response.js';
import { toMessages } from '../../src/conversation/messages.js';
import { ABORTED, abortEvents } from '../support/newer-runner.js';

const text = (words: string): Part[] => [{ text: words }];

const eventOf = (parts: Part[], params: CreateEventParams = {}) =>
  createEvent({ author: 'clerk', content: { role: 'model', parts }, ...params });

const responding = (id: string, response: Record<string, unknown>, params?: CreateEventParams) =>
  eventOf([{ functionResponse: { id, name: 'order', response } }], params);

const calling = (...ids: string[]): Part[] => ids.map((id) => ({ functionCall: { id, name: 'order', args: { id } } }));

test('a message has the id, author, time and text of its event', () => {
  const events = [
    createEvent({ id: 'e1', author: 'user', timestamp: 1.5, content: { role: 'user', parts: text('Tea.') } }),
    createEvent({ id: 'e2', author: 'clerk', timestamp: 2.5, content: { role: 'model', parts: text('Green?') } }),
  ];
  expect(toMessages(events)).toEqual([
    { id: 'e1', role: 'user', author: 'user', timestamp: 1.5, text: 'Tea.', toolCalls: [], attachments: [] },
    { id: 'e2', role: 'agent', author: 'clerk', timestamp: 2.5, text: 'Green?', toolCalls: [], attachments: [] },
  ]);
});

test('the author says whose a message is, not the role of the content', () => {
  const asUser = eventOf(text('?'), { content: { role: 'user', parts: text('For context.') } });
  const unnamed = eventOf(text('?'), { author: undefined });
  expect(toMessages([asUser, unnamed])).toMatchObject([
    { role: 'agent', author: 'clerk' },
    { role: 'agent', author: 'agent' },
  ]);
});

test('text is that of all parts, and thoughts are apart from it', () => {
  const parts: Part[] = [{ thought: true, text: 'Which ' }, { text: 'Green ' }, { thought: true, text: 'tea?' }];
  const [message] = toMessages([eventOf([...parts, { text: 'tea.' }])]);
  expect(message).toMatchObject({ text: 'Green tea.', thoughts: 'Which tea?' });

  const [thinking] = toMessages([eventOf([{ thought: true, text: 'Hm.' }])]);
  expect(thinking).toMatchObject({ text: '', thoughts: 'Hm.' });
});

test('partial events and compacted events make no message', () => {
  const compacted = {
    ...eventOf(text('They talked about tea.'), { author: 'system' }),
    isCompacted: true,
    startTime: 0,
    endTime: 1,
    compactedContent: 'They talked about tea.',
  };
  expect(isCompactedEvent(compacted)).toBe(true);
  const events = [eventOf(text('Gre'), { partial: true }), eventOf(text('Green.')), compacted];
  expect(toMessages(events).map((message) => message.text)).toEqual(['Green.']);
});

test('an event with nothing to show makes no message', () => {
  const bare: Event = { ...createEvent(), actions: createEvent().actions, longRunningToolIds: undefined };
  const events = [
    bare,
    createEvent({ author: 'clerk', actions: { stateDelta: { step: 1 } } }),
    eventOf([]),
    eventOf([{ text: '', thoughtSignature: 'c2ln' }]),
    createEvent({ author: 'node', output: { done: true } }),
  ];
  expect(toMessages(events)).toEqual([]);
});

describe('tool calls', () => {
  test('a response is with its call and no message of its own', () => {
    const messages = toMessages([eventOf(calling('a', 'b')), responding('b', { ok: true })]);
    expect(messages).toHaveLength(1);
    expect(messages[0]!.toolCalls).toEqual([
      { id: 'a', name: 'order', args: { id: 'a' }, isLongRunning: false },
      { id: 'b', name: 'order', args: { id: 'b' }, isLongRunning: false, response: { ok: true } },
    ]);
  });

  test('of several responses the last counts, and partial ones never', () => {
    const events = [
      eventOf(calling('a'), { longRunningToolIds: ['a'] }),
      responding('a', { status: 'pending' }),
      responding('a', { status: 'done' }, { author: 'user' }),
      responding('a', { status: 'half' }, { partial: true }),
    ];
    const [message, ...others] = toMessages(events);
    expect(message!.toolCalls).toEqual([
      { id: 'a', name: 'order', args: { id: 'a' }, isLongRunning: true, response: { status: 'done' } },
    ]);
    expect(others).toEqual([]);
  });

  test('an id that is used again has the response that follows', () => {
    const events = [
      eventOf(calling('a')),
      responding('a', { turn: 1 }),
      eventOf(calling('a')),
      responding('a', { turn: 2 }),
    ];
    expect(toMessages(events).map(({ toolCalls }) => toolCalls[0]!.response)).toEqual([{ turn: 1 }, { turn: 2 }]);
  });

  test('of several calls those are long-running whose ids the event names', () => {
    const isLongRunning = (longRunningToolIds?: string[]) =>
      toMessages([{ ...eventOf(calling('a', 'b')), longRunningToolIds }])[0]!.toolCalls.map(
        (call) => call.isLongRunning,
      );
    expect(isLongRunning(['b', 'c'])).toEqual([false, true]);
    expect(isLongRunning([])).toEqual([false, false]);
    // As in a bare event.
    expect(isLongRunning(undefined)).toEqual([false, false]);
  });

  test('a response without content is empty, apart from none', () => {
    const empty = eventOf([{ functionResponse: { id: 'a', name: 'order' } }]);
    const [message] = toMessages([eventOf(calling('a', 'b')), empty]);
    expect(message!.toolCalls.map(({ response }) => response)).toEqual([{}, undefined]);
  });

  const missing = { name: 'order', args: {}, isLongRunning: false, isCallMissing: true };

  test('a response whose call is not among the events is a message of its own that says so', () => {
    const gone = responding('gone', { ok: true }, { author: 'clerk' });
    expect(toMessages([gone])).toEqual([
      {
        id: gone.id,
        role: 'agent',
        author: 'clerk',
        timestamp: gone.timestamp,
        text: '',
        toolCalls: [{ ...missing, id: 'gone', response: { ok: true } }],
        attachments: [],
      },
    ]);
    // As when the newest events of a session are read: the first response's call is older.
    const page = [responding('a', { n: 1 }), eventOf(calling('b')), responding('b', { n: 2 })];
    expect(toMessages(page).map(({ toolCalls }) => toolCalls[0])).toEqual([
      { ...missing, id: 'a', response: { n: 1 } },
      { id: 'b', name: 'order', args: { id: 'b' }, isLongRunning: false, response: { n: 2 } },
    ]);
  });

  test('of several responses without their call the last counts', () => {
    const events = [responding('a', { status: 'pending' }), responding('a', { status: 'done' })];
    expect(toMessages(events).map(({ toolCalls }) => toolCalls)).toEqual([
      [{ ...missing, id: 'a', response: { status: 'done' } }],
    ]);
  });

  test('without an id a call and a response are not paired', () => {
    const unnamed = eventOf([{ functionCall: { name: 'order' } }]);
    const response = eventOf([{ functionResponse: { name: 'order', response: { ok: true } } }]);
    expect(toMessages([unnamed, response]).map(({ toolCalls }) => toolCalls)).toEqual([
      [{ name: 'order', args: {}, isLongRunning: false }],
      [{ ...missing, response: { ok: true } }],
    ]);
  });

  test('text beside a response is a message', () => {
    const answer = eventOf([
      ...text('Green.'),
      { functionResponse: { id: 'a', name: 'order', response: { ok: true } } },
    ]);
    const messages = toMessages([eventOf(calling('a')), answer]);
    expect(messages.map((message) => message.text)).toEqual(['', 'Green.']);
    expect(messages[0]!.toolCalls[0]!.response).toEqual({ ok: true });
  });
});

test('files, code and its results are attachments, as they are', () => {
  const parts: Part[] = [
    { inlineData: { mimeType: 'image/png', data: 'aGk=' } },
    { fileData: { mimeType: 'image/png', fileUri: 'gs://shop/tea.png' } },
    { executableCode: { code: 'print(1)' } },
    { codeExecutionResult: { output: '1' } },
  ];
  const [message] = toMessages([eventOf([...text('Look:'), ...parts])]);
  expect(message).toMatchObject({ text: 'Look:', attachments: parts });
  expect(toMessages([eventOf(parts.slice(0, 1), { author: 'user' })])).toHaveLength(1);
});

test('a file among the thoughts is no attachment', () => {
  const image = { inlineData: { mimeType: 'image/png', data: 'aGk=' } };
  expect(toMessages([eventOf([{ ...image, thought: true }])])).toEqual([]);
  const [message] = toMessages([eventOf([{ ...image, thought: true }, image])]);
  expect(message!.attachments).toEqual([image]);
});

test('an error shows its message, or else its code', () => {
  const events = [
    createEvent({ author: 'clerk', errorCode: 'SAFETY', errorMessage: 'Blocked.' }),
    createEvent({ author: 'clerk', errorCode: 'MAX_TOKENS' }),
  ];
  expect(toMessages(events).map(({ error }) => error)).toEqual(['Blocked.', 'MAX_TOKENS']);
});

test('a run that was aborted shows once, and its open calls have an answer', () => {
  const invocationId = 'i';
  const calls = [
    eventOf(calling('1'), { invocationId, branch: 'a' }),
    eventOf(calling('2'), { invocationId, branch: 'b', longRunningToolIds: ['2'] }),
  ];
  const response = { error: ABORTED.errorMessage };
  expect(toMessages([...calls, ...abortEvents(calls, 'root')])).toMatchObject([
    { toolCalls: [{ id: '1', response }] },
    { toolCalls: [{ id: '2', response, isLongRunning: true }] },
    { author: 'clerk', text: '', toolCalls: [], isAborted: true },
  ]);

  const said = [eventOf(text('Tea.'), { invocationId: 'j' })];
  const [, end, ...rest] = toMessages([...said, ...abortEvents(said, 'root')]);
  expect([end, rest]).toMatchObject([{ author: 'root', isAborted: true }, []]);
  expect(end).not.toHaveProperty('error');
});

test('a live turn shows what was transcribed', () => {
  const events = [
    createEvent({ author: 'user', inputTranscription: { text: 'Tea, please.', finished: true } }),
    createEvent({ author: 'clerk', outputTranscription: { text: 'Green?', finished: true } }),
  ];
  expect(toMessages(events)).toMatchObject([
    { role: 'user', text: 'Tea, please.' },
    { role: 'agent', text: 'Green?' },
  ]);
});

test('agents that number their calls alike have their own responses, by branch', () => {
  const events = [
    eventOf(calling('call_0'), { id: 'a', branch: 'team.a' }),
    eventOf(calling('call_0'), { id: 'b', branch: 'team.b' }),
    responding('call_0', { of: 'a' }, { branch: 'team.a' }),
    responding('call_0', { of: 'b' }, { branch: 'team.b' }),
  ];
  const orders = [events, [events[0]!, events[1]!, events[3]!, events[2]!]];
  for (const order of orders)
    expect(toMessages(order).map(({ id, toolCalls }) => [id, toolCalls.map(({ response }) => response)])).toEqual([
      ['a', [{ of: 'a' }]],
      ['b', [{ of: 'b' }]],
    ]);
});

test('a response of another branch is no answer', () => {
  const events = [eventOf(calling('call_0'), { branch: 'team.a' }), responding('call_0', {}, { branch: 'team.b' })];
  const [own, others] = toMessages(events).map(({ toolCalls: [call] }) => call);
  expect(own!.response).toBeUndefined();
  expect(others).toMatchObject({ id: 'call_0', isCallMissing: true });
});

test('two calls of one event with the same id have their responses in order', () => {
  const events = [
    eventOf(calling('call_0', 'call_0')),
    eventOf([
      { functionResponse: { id: 'call_0', name: 'order', response: { n: 1 } } },
      { functionResponse: { id: 'call_0', name: 'order', response: { n: 2 } } },
    ]),
  ];
  expect(toMessages(events)[0]!.toolCalls.map(({ response }) => response)).toEqual([{ n: 1 }, { n: 2 }]);
});

test.each<[response: Record<string, unknown>, isFailed: boolean]>([
  [{}, false],
  [{ error: null }, false],
  [{ error: '' }, false],
  [{ error: false }, false],
  [{ error: {} }, false],
  [{ error: [] }, false],
  [{ isError: false }, false],
  [{ status: 'ok' }, false],
  [{ success: true }, false],
  [{ result: 'error' }, false],
  [{ error: 'x' }, true],
  [{ error: { code: 5 } }, true],
  [{ isError: true, content: [] }, true],
  [{ status: 'error', error: null }, true],
  [{ success: false }, true],
])('a tool that returns %j has failed: %p', (response, isFailed) => {
  const [message] = toMessages([eventOf(calling('c')), responding('c', response)]);
  expect(message?.toolCalls).toEqual([
    { id: 'c', name: 'order', args: { id: 'c' }, isLongRunning: false, response, ...(isFailed && { isFailed }) },
  ]);
});

test('a response that is not an object has not failed', () => {
  for (const response of [undefined, null, 'error', ['error'], 5]) expect(isFailedResponse(response)).toBe(false);
});
