import {
  FunctionTool,
  LlmAgent,
  LongRunningFunctionTool,
  Runner,
  TokenBasedContextCompactor,
  TruncatingContextCompactor,
  createEvent,
  isCompactedEvent,
  requestInputTool,
  type BaseTool,
  type CompactedEvent,
  type Event,
  type LlmAgentConfig,
  type Session,
} from '@google/adk';
import type { Part } from '../tools.js';
import {
  MikroOrmSessionService,
  interruptedToolResponses,
  openLongRunningCalls,
  unansweredFunctionCalls,
} from '../../../src/index.js';
import { plain } from '../tools.js';
import { ABORTED, NewerRunner } from '../../support/newer-runner.js';
import { KEY, call, model, text, turn, useDatabase } from '../runner/support.js';

describe('openLongRunningCalls', () => {
  // Whatever happened to the session, its rows say the same as its events.
  afterEach(async () => {
    const { calls } = await host.service.findOpenCalls({ appName: KEY.appName });
    const open = openLongRunningCalls(await read()).map(({ event, id, name, args }) => ({
      eventId: event.id,
      id,
      name,
      args,
    }));
    expect(calls.map(({ eventId, id, name, args }) => ({ eventId, id, name, args }))).toEqual(open);
  });

  const host = useDatabase('better-sqlite');

  beforeEach(() => host.service.createSession(KEY));

  /** Reads the session as another process does. */
  const read = async (): Promise<Session> => (await new MikroOrmSessionService(host.orm.em).getSession(KEY))!;

  const open = async () => openLongRunningCalls(await read());
  const opened = async () => (await open()).map(({ name, args }) => [name, ...Object.values(args)].join(' '));

  /** Answers one of the open calls. */
  async function answer(agent: LlmAgent, which: number, response: Record<string, unknown> = { answer: 'yes' }) {
    const { id, name } = (await open())[which]!;
    return turn(host.service, agent, [{ functionResponse: { id, name, response } }]);
  }

  test('H4 an ordinary tool of the same turn, and a pending result, hide no call', async () => {
    const { agent } = clerk([...look(), ...approve('a'), ...ask('b')], text('Waiting.'));
    await turn(host.service, agent, 'Go.');

    const session = await read();
    const event = session.events[1]!;
    const ids = event.content!.parts!.map(({ functionCall }) => functionCall!.id!);
    expect(session.events.at(-1)!.longRunningToolIds).toEqual([]);
    expect(openLongRunningCalls(session)).toEqual([
      { id: ids[1], name: 'approve', args: { of: 'a' }, event, response: { status: 'pending' } },
      { id: ids[2], name: 'ask_user', args: { of: 'b' }, event },
    ]);
    expect(unansweredFunctionCalls(session)).toEqual([]);
  });

  test('H4 calls that a newer Runner answers since the run is aborted wait no more', async () => {
    const { agent, llm } = clerk([...look(), ...approve('a'), ...call('pay'), ...ask('b')], text('Never.'));
    const abort = new AbortController();
    const runner = new NewerRunner({ appName: KEY.appName, agent, sessionService: host.service });
    const newMessage = { role: 'user', parts: text('Go.') };
    let found: unknown;
    for await (const event of runner.runAsync({ ...KEY, newMessage, abortSignal: abort.signal })) {
      if (!event.longRunningToolIds?.length || event.errorCode !== undefined) continue;
      found ??= await opened();
      abort.abort();
    }

    const session = await read();
    expect([found, llm.shown.length]).toEqual([['approve a', 'ask_user b'], 1]);
    expect(session.events.at(-1)).toMatchObject({ author: 'clerk', ...ABORTED });
    expect(openLongRunningCalls(session)).toEqual([]);
    expect(unansweredFunctionCalls(session)).toEqual([]);
    expect(interruptedToolResponses(session)).toEqual([]);
  });

  test('H4 calls are answered one by one, in any order, and after other turns', async () => {
    const { agent, llm } = clerk([...approve('a'), ...ask('b')], ...['1', '2', '3', '4', '5'].map(text));
    await turn(host.service, agent, 'Go.');
    await turn(host.service, agent, 'Hello?');
    expect(await opened()).toEqual(['approve a', 'ask_user b']);

    await answer(agent, 1, { answer: 'b' });
    expect(await opened()).toEqual(['approve a']);
    await turn(host.service, agent, 'And?');
    expect(await opened()).toEqual(['approve a']);

    await answer(agent, 0, { answer: 'a' });
    expect(await opened()).toEqual([]);
    expect(llm.shown.at(-1)).toContain('user approve → {"answer":"a"}');
    expect(llm.shown.at(-1)).not.toContain('user approve → {"status":"pending"}');
  });

  test('H4 calls of several turns are found in their order, and one that is made again by its id once', async () => {
    const { agent } = clerk(
      ask('a'),
      approve('b'),
      text('Waiting.'),
      ask('c', 'same'),
      ask('d', 'same'),
      text('Done.'),
    );
    for (const message of ['1', '2', '3']) await turn(host.service, agent, message);
    expect(await opened()).toEqual(['ask_user a', 'approve b', 'ask_user c']);
    await turn(host.service, agent, '4');
    expect(await opened()).toEqual(['ask_user a', 'approve b', 'ask_user d']);
    await answer(agent, 2);
    expect(await opened()).toEqual(['ask_user a', 'approve b']);
    const both = (await open()).map(({ id, name }) => ({ functionResponse: { id, name, response: {} } }));
    await expect(turn(host.service, agent, both)).rejects.toThrow('the same function call event');
  });

  test('H4 what a crash left is distinguished from what waits', async () => {
    const { agent } = clerk([...ask('a'), ...look()], text('Done.'));
    const death = new Error('killed');
    const dying = turn(host.service, agent, 'Go.', () => {
      throw death;
    });
    await expect(dying).rejects.toBe(death);

    const session = await read();
    expect(unansweredFunctionCalls(session).map(({ name }) => name)).toEqual(['look_up']);
    expect(openLongRunningCalls(session).map(({ name }) => name)).toEqual(['ask_user']);
  });

  test('H4 a rewound session waits for what it waited for then', async () => {
    const { agent } = clerk(ask('a'), text('Done.'), ask('b'));
    await turn(host.service, agent, 'Go.');
    await answer(agent, 0);
    await turn(host.service, agent, 'More.');
    expect(await opened()).toEqual(['ask_user b']);

    await host.service.rewindSession(KEY, { at: 2 });
    expect(await opened()).toEqual(['ask_user a']);
    await host.service.rewindSession(KEY, { at: 1 });
    expect(await opened()).toEqual([]);
  });

  test.each([
    ['a summary', () => [new TokenBasedContextCompactor(COMPACTION)]],
    ['truncation', () => [new TruncatingContextCompactor({ threshold: 3 })]],
  ])('H4 a call stays open when the context is compacted by %s', async (name, contextCompactors) => {
    const { agent } = clerk({ contextCompactors: contextCompactors() }, ask('a'), ...'123456'.split('').map(text));
    for (const message of ['1', '2', '3', '4', '5']) await turn(host.service, agent, `${message} ${'x'.repeat(400)}`);
    if (name === 'a summary') expect((await read()).events.some(isCompactedEvent)).toBe(true);
    expect(await opened()).toEqual(['ask_user a']);
  });

  test('H4 a confirmation waits until somebody has said yes or no', async () => {
    const { agent, ran } = clerk(call('pay'), text('Paid.'), call('pay'), text('Not paid.'));
    await turn(host.service, agent, 'Pay.');
    expect((await open()).map(({ name, args }) => [name, plain(args['originalFunctionCall'])])).toEqual([
      ['adk_request_confirmation', expect.objectContaining({ name: 'pay' })],
    ]);
    // ADK stores no response of the tool, and would not run it any more if there were one.
    expect(unansweredFunctionCalls(await read())).toEqual([]);
    await host.service.appendEvents({ session: await read(), events: interruptedToolResponses(await read()) });

    await answer(agent, 0, { confirmed: true });
    expect(ran).toEqual(['pay']);
    expect(await opened()).toEqual([]);

    await turn(host.service, agent, 'Pay again.');
    expect(await opened()).toHaveLength(1);
    await answer(agent, 0, { confirmed: false });
    expect(ran).toEqual(['pay']);
    expect(await opened()).toEqual([]);
  });

  test('H4 a run that was killed after its confirmation has left its call', async () => {
    const { agent } = clerk(call('pay'));
    await turn(host.service, agent, 'Pay.');
    const { id, name } = (await open())[0]!;
    const content = { role: 'user', parts: [{ functionResponse: { id, name, response: { confirmed: true } } }] };
    await host.service.appendEvent({ session: await read(), event: createEvent({ author: 'user', content }) });
    expect(await opened()).toEqual([]);
    expect(unansweredFunctionCalls(await read()).map(({ name }) => name)).toEqual(['pay']);
  });

  test('H4 a confirmation in plain text answers, too; another text does not', async () => {
    const { agent, ran } = clerk(call('pay'), text('Three euros.'), call('pay'), text('Paid.'));
    const say = async (words: string) => {
      const runner = new Runner({ appName: KEY.appName, agent, sessionService: host.service });
      const newMessage = { role: 'user', parts: text(words) };
      const runConfig = { plainTextToolConfirmation: true };
      const run = runner.runAsync({ userId: KEY.userId, sessionId: KEY.sessionId, newMessage, runConfig });
      for await (const _event of run);
    };
    await say('Pay.');
    await say('How much?');
    expect(await opened()).toHaveLength(1);
    await say('Pay, I said.');
    expect(await opened()).toHaveLength(2);
    await say('yes');
    expect(ran).toEqual(['pay']);
    expect(await opened()).toHaveLength(1);
  });

  test('H4 a question of ADK for input waits for its answer', async () => {
    const { agent } = clerk(call('adk_request_input', { message: 'Which?' }), text('This one.'));
    await turn(host.service, agent, 'Choose.');
    expect(await opened()).toEqual(['adk_request_input Which?']);
    await answer(agent, 0, { result: 'this' });
    expect(await opened()).toEqual([]);
  });
});

describe('openLongRunningCalls of events', () => {
  const called: Part[] = [{ functionCall: { id: 'a', name: 'ask', args: {} } }];
  const responded: Part[] = [{ functionResponse: { id: 'a', name: 'ask', response: {} } }];
  const calling = createEvent({ author: 'clerk', content: { parts: called }, longRunningToolIds: ['a'] });
  const answering = createEvent({ author: 'user', content: { parts: responded } });

  const idsOpen = (...events: Event[]) =>
    openLongRunningCalls({ ...KEY, id: 's1', state: {}, events, lastUpdateTime: 0 }).map(({ id }) => id);

  test('H4 a partial event neither calls nor answers', () => {
    expect(idsOpen({ ...calling, partial: true })).toEqual([]);
    expect(idsOpen(calling, { ...answering, partial: true })).toEqual(['a']);
    expect(idsOpen(calling, answering)).toEqual([]);
  });

  test('H4 only a user answers, only a later event, and nobody but an agent calls', () => {
    expect(idsOpen(calling, { ...answering, author: 'clerk' })).toEqual(['a']);
    expect(idsOpen(answering, calling)).toEqual(['a']);
    expect(idsOpen(calling, answering, { ...calling, id: 'again' })).toEqual(['a']);
    expect(idsOpen({ ...calling, author: 'user' })).toEqual([]);
  });

  test('H4 two branches that wait with one id are two, and each has its own answer', () => {
    const [a, b] = ['team.a', 'team.b'].map((branch) => ({ ...calling, id: branch, branch }));
    const open = (...events: Event[]) =>
      openLongRunningCalls({ ...KEY, id: 's1', state: {}, events, lastUpdateTime: 0 }).map(({ event }) => event.id);
    expect(open(a!, b!)).toEqual(['team.a', 'team.b']);
    expect(open(a!, b!, { ...answering, branch: 'team.a' })).toEqual(['team.b']);
    expect(open(a!, b!, answering)).toEqual(['team.a']);
    expect(open(a!, b!, answering, answering)).toEqual([]);
  });

  test('H4 an ordinary call with the id of an open one has its own response, and leaves that one open', () => {
    const ordinary = { ...calling, id: 'ordinary', longRunningToolIds: [] };
    const result = { ...answering, author: 'clerk' };
    const session = (...events: Event[]) => ({ ...KEY, id: 's1', state: {}, events, lastUpdateTime: 0 });
    expect(openLongRunningCalls(session(calling, ordinary, result))).toEqual([
      { id: 'a', name: 'ask', args: {}, event: calling },
    ]);
    expect(unansweredFunctionCalls(session(calling, ordinary))).toMatchObject([{ event: ordinary }]);
    expect(unansweredFunctionCalls(session(calling, ordinary, result))).toEqual([]);
    expect(idsOpen(calling, ordinary, answering)).toEqual([]);
  });

  test('H4 a response of another branch, or of an earlier turn, answers no call with the same id', () => {
    const ordinary = { ...calling, id: 'ordinary', branch: 'team.a', longRunningToolIds: [] };
    const result = { ...answering, author: 'clerk', branch: 'team.b' };
    const unanswered = (...events: Event[]) =>
      unansweredFunctionCalls({ ...KEY, id: 's1', state: {}, events, lastUpdateTime: 0 }).map(({ event }) => event.id);
    expect(unanswered(ordinary, { ...ordinary, id: 'b', branch: 'team.b' }, result)).toEqual(['ordinary']);
    expect(unanswered(ordinary, { ...result, branch: 'team.a' }, { ...ordinary, id: 'later' })).toEqual(['later']);
  });

  test('H4 calls without an id, or that do not run long, and events without content are ignored', () => {
    expect(idsOpen({ ...calling, longRunningToolIds: undefined }, { ...calling, longRunningToolIds: [] })).toEqual([]);
    expect(idsOpen(createEvent(), { ...calling, content: { parts: [{ functionCall: { name: 'ask' } }] } })).toEqual([]);
  });
});

/** As ADK's summarizer makes it of the model's answer. */
const compacted = (events: Event[]): CompactedEvent => ({
  ...createEvent({ author: 'system' }),
  isCompacted: true,
  startTime: events[0]!.timestamp,
  endTime: events.at(-1)!.timestamp,
  compactedContent: 'They talked.',
});

const COMPACTION = {
  tokenThreshold: 200,
  eventRetentionSize: 2,
  summarizer: { summarize: (events: Event[]) => Promise.resolve(compacted(events)) },
};

const look = () => call('look_up');
const approve = (of: string) => call('approve', { of });
const ask = (of: string, id?: string): Part[] => [
  { functionCall: { name: 'ask_user', args: { of }, ...(id && { id }) } },
];

/** An agent with tools of all kinds, and what those have done that need a confirmation. */
function clerk(...given: [Partial<LlmAgentConfig>, ...Part[][]] | Part[][]) {
  const [config, answers] = Array.isArray(given[0]) ? [{}, given as Part[][]] : [given[0], given.slice(1) as Part[][]];
  const ran: string[] = [];
  const tools: BaseTool[] = [
    new FunctionTool({ name: 'look_up', description: 'Looks something up.', execute: () => ({ found: true }) }),
    new LongRunningFunctionTool({ name: 'ask_user', description: 'Asks the user.', execute: () => undefined }),
    new LongRunningFunctionTool({
      name: 'approve',
      description: 'Asks the manager.',
      execute: () => ({ status: 'pending' }),
    }),
    new FunctionTool({
      name: 'pay',
      description: 'Pays.',
      requireConfirmation: true,
      execute: () => {
        ran.push('pay');
        return { paid: true };
      },
    }),
    requestInputTool,
  ];
  const llm = model(...answers);
  return { agent: new LlmAgent({ name: 'clerk', model: llm, tools, ...config }), llm, ran };
}
