import {
  FunctionTool,
  LlmAgent,
  LongRunningFunctionTool,
  ParallelAgent,
  createEvent,
  getFunctionCalls,
  type BaseAgent,
  type CreateEventParams,
  type Event,
  type Session,
} from '@google/adk';
import type { Content, Part } from '../tools.js';
import { MikroOrmSessionService } from '../../../src/index.js';
import { interruptedToolResponses, unansweredFunctionCalls } from '../../../src/conversation/recovery.js';
import { plain } from '../tools.js';
import { KEY, model, text, turn, useDatabase } from '../runner/support.js';

describe('a run that was killed in a tool', () => {
  const host = useDatabase('better-sqlite');

  beforeEach(() => host.service.createSession(KEY));

  test('H4 one call: the next model call is refused, and with the repair it is not', async () => {
    const { agent, refusals } = scripted('clerk', calls('order'), text('Not sure.'), text('Asked.'));
    await killed(agent, 1, 'Order tea.');

    await turn(host.service, agent, 'And?');
    expect(refusals).toEqual([undefined, 'order: no response']);

    await repair();
    await turn(host.service, agent, 'And now?');
    expect(refusals.at(-1)).toBeUndefined();
  });

  test('H4 the model learns that the tool was interrupted and may have taken effect', async () => {
    const { agent, conversations } = scripted('clerk', calls('order'), text('Asked.'));
    await killed(agent, 1, 'Order tea.');
    await repair();
    await turn(host.service, agent, 'And?');

    expect(conversations.at(-1)!.map(({ role, parts }) => [role, parts![0]!.text ?? parts![0]])).toEqual([
      ['user', 'Order tea.'],
      ['model', { functionCall: { id: 'order', name: 'order', args: {} } }],
      [
        'user',
        {
          functionResponse: {
            id: 'order',
            name: 'order',
            response: { error: expect.stringMatching(/interrupted .* may or may not have taken effect/) },
          },
        },
      ],
      ['user', 'And?'],
    ]);
  });

  test('H4 parallel calls of one event are answered by one event', async () => {
    const { agent, refusals } = scripted('clerk', calls('order', 'pay'), text('Asked.'));
    await killed(agent, 1, 'Order tea.');

    expect(await repair()).toHaveLength(1);
    await turn(host.service, agent, 'And?');
    expect(refusals).toEqual([undefined, undefined]);
  });

  test('H4 parallel calls of which one is answered: the other is', async () => {
    const { agent, conversations, refusals } = scripted('clerk', calls('order', 'pay'), text('Asked.'));
    await killed(agent, 1, 'Order tea.');
    await append({ author: 'clerk', content: { role: 'user', parts: [responding('pay')] } });

    await repair();
    await turn(host.service, agent, 'And?');
    expect(refusals).toEqual([undefined, undefined]);
    const [order, pay] = [...conversations.at(-1)![2]!.parts!].sort(byId);
    expect(order!.functionResponse!.response).toHaveProperty('error');
    expect(pay).toEqual(responding('pay'));
  });

  test('H4 two killed runs of one agent: each call has its own response', async () => {
    const { agent, refusals } = scripted('clerk', calls('order'), calls('pay'), text('Asked.'));
    await killed(agent, 1, 'Order tea.');
    await killed(agent, 1, 'Go on.');

    expect(await repair()).toHaveLength(2);
    await turn(host.service, agent, 'And?');
    expect(refusals.at(-1)).toBeUndefined();
  });

  describe('ParallelAgent', () => {
    const branches = () => {
      const left = scripted('left', calls('order'), text('Asked.'), text('Asked again.'));
      const right = scripted('right', calls('pay', 'book'), text('Asked.'), text('Asked again.'));
      // eslint-disable-next-line @typescript-eslint/no-deprecated -- what its users have now instead of a Workflow
      const agent = new ParallelAgent({ name: 'both', subAgents: [left.agent, right.agent] });
      return { agent, refusals: () => [left.refusals.at(-1), right.refusals.at(-1)] };
    };

    test('H4 calls in two branches: both are refused, and with the repair neither is', async () => {
      const { agent, refusals } = branches();
      await killed(agent, 2, 'Go.');

      await turn(host.service, agent, 'And?');
      expect(refusals()).toEqual(['order: no response', 'pay, book: no response']);

      const events = await repair();
      expect(events.map(({ author, branch }) => [author, branch]).sort()).toEqual([
        ['left', 'both.left'],
        ['right', 'both.right'],
      ]);
      await turn(host.service, agent, 'And now?');
      expect(refusals()).toEqual([undefined, undefined]);
    });

    test('H4 an agent outside the branches is shown calls and responses as what others did', async () => {
      const { agent } = branches();
      await killed(agent, 2, 'Go.');
      await repair();

      const reader = scripted('reader', text('Seen.'));
      await turn(host.service, reader.agent, 'And?');
      expect(reader.refusals).toEqual([undefined]);
      expect(JSON.stringify(reader.conversations)).toMatch(/\[right\] tool `book` returned result: .*interrupted/);
    });

    // Why there is an event for each. Should this fail with another ADK, one may do.
    test.each([
      [{ author: 'left', branch: 'both.left' }, ['pay, book: no call', 'pay, book: no response']],
      [{ author: 'left' }, ['pay, book: no call', 'pay, book: no response']],
      [{ author: 'user', branch: 'both' }, ['pay, book: no call', 'order: no call']],
      [{ author: 'user' }, ['pay, book: no call', 'order: no call']],
    ])('H4 one event for the calls of both would be refused: %j', async (params, expected) => {
      const { agent, refusals } = branches();
      await killed(agent, 2, 'Go.');
      const parts = interruptedToolResponses(await read()).flatMap(({ content }) => content!.parts!);
      await append({ ...params, content: { role: 'user', parts } });

      await turn(host.service, agent, 'And?');
      expect(refusals()).toEqual(expected);
    });
  });

  test('H4 long-running calls are left alone, and their response still finds them', async () => {
    const { agent, conversations, refusals } = scripted('clerk', calls('ask_user', 'order'), text('Asked.'));
    await killed(agent, 1, 'Order tea.');

    const events = await repair();
    expect(events.flatMap(({ content }) => content!.parts!.map((part) => part.functionResponse!.id))).toEqual([
      'order',
    ]);

    await turn(host.service, agent, [responding('ask_user')]);
    expect(refusals).toEqual([undefined, undefined]);
    expect([...conversations.at(-1)!.at(-1)!.parts!].sort(byId)[0]).toEqual(responding('ask_user'));
  });

  test('H4 nothing is left to repair after a run that ended, or after the repair', async () => {
    const { agent } = scripted('clerk', calls('ask_user'), calls('order'), text('Asked.'));
    await turn(host.service, agent, 'Order tea.');
    expect(await repair()).toEqual([]);

    await killed(agent, 1, 'Go on.');
    expect(await repair()).toHaveLength(1);
    expect(await repair()).toEqual([]);
  });

  test('H4 the next turn goes to the agent whose tool was interrupted', async () => {
    const { agent: subagent, refusals } = scripted('cook', calls('order'), text('Asked.'));
    const root = scripted('host', [{ functionCall: { name: 'transfer_to_agent', args: { agentName: 'cook' } } }]);
    const agent = new LlmAgent({ name: 'host', model: root.agent.model, subAgents: [subagent] });
    await killed(agent, 2, 'Cook.');

    await repair();
    const events = await turn(host.service, agent, 'And?');
    expect(events.map(({ author }) => author)).toEqual(['cook']);
    expect(refusals.at(-1)).toBeUndefined();
  });

  /** Runs a turn until n events with calls have come, and ends as a process does. */
  async function killed(agent: BaseAgent, callEvents: number, message: string): Promise<void> {
    const death = new Error('killed');
    let seen = 0;
    const dying = turn(host.service, agent, message, (event) => {
      if (getFunctionCalls(event).length > 0 && ++seen === callEvents) throw death;
    });
    await expect(dying).rejects.toBe(death);
  }

  /** Repairs the session as another process does. */
  async function repair(): Promise<Event[]> {
    const session = await read();
    const events = interruptedToolResponses(session);
    await host.service.appendEvents({ session, events });
    return events;
  }

  async function append(params: CreateEventParams): Promise<void> {
    await host.service.appendEvent({ session: await read(), event: createEvent(params) });
  }

  async function read(): Promise<Session> {
    return (await new MikroOrmSessionService(host.orm.em).getSession(KEY))!;
  }
});

describe('unansweredFunctionCalls', () => {
  test('H4 finds calls in order, each with its event', () => {
    const [first, second] = [saying(...calls('a', 'b')), saying(...calls('c'))];
    expect(unansweredFunctionCalls(sessionOf(first, second))).toEqual([
      { event: first, id: 'a', name: 'a', args: {} },
      { event: first, id: 'b', name: 'b', args: {} },
      { event: second, id: 'c', name: 'c', args: {} },
    ]);
  });

  test('H4 only a later response answers, since models use ids again', () => {
    const again = saying(...calls('a'));
    const session = sessionOf(saying(...calls('a')), saying(responding('a')), again);
    expect(unansweredFunctionCalls(session).map(({ event }) => event)).toEqual([again]);
  });

  test('H4 a partial event neither calls nor answers', () => {
    const partial = createEvent({ partial: true, content: { parts: calls('a') } });
    const partialResponse = createEvent({ partial: true, content: { parts: [responding('b')] } });
    const whole = saying(...calls('b'));
    expect(unansweredFunctionCalls(sessionOf(partial, whole, partialResponse)).map(({ event }) => event)).toEqual([
      whole,
    ]);
  });

  test('H4 a call without an id is ignored, and an event without content is no obstacle', () => {
    const unnamed = saying({ functionCall: { name: 'a' } }, { functionResponse: { name: 'a' } });
    const bare: Event = { ...createEvent(), longRunningToolIds: undefined };
    const found = unansweredFunctionCalls(sessionOf(unnamed, bare, saying(...calls('b'))));
    expect(found.map(({ id }) => id)).toEqual(['b']);
  });
});

describe('interruptedToolResponses', () => {
  const call = createEvent({
    invocationId: 'e-1',
    author: 'clerk',
    branch: 'shop.clerk',
    isolationScope: 'shop@1',
    nodeInfo: { path: 'shop.clerk@1', messageAsOutput: true },
    // A host whose clock is ahead.
    timestamp: Date.now() + 60_000,
    content: { role: 'model', parts: calls('a') },
  });

  test('H4 a response goes where ADK would have put it, never before its call', () => {
    const [response] = interruptedToolResponses(sessionOf(call));
    expect(response).toMatchObject({
      invocationId: 'e-1',
      author: 'clerk',
      branch: 'shop.clerk',
      isolationScope: 'shop@1',
      timestamp: call.timestamp,
      content: { role: 'user', parts: [{ functionResponse: { id: 'a', name: 'a' } }] },
    });
    expect(response!.nodeInfo).toEqual({ path: 'shop.clerk@1' });
    expect(response!.id).not.toBe(call.id);
  });

  test('H4 is dated by the clock otherwise', () => {
    const before = Date.now();
    const [response] = interruptedToolResponses(sessionOf({ ...call, timestamp: 1 }));
    expect(response!.timestamp).toBeGreaterThanOrEqual(before);
  });

  test('H4 changes nothing', () => {
    const session = sessionOf(call);
    const copy = plain(session);
    interruptedToolResponses(session);
    expect(plain(session)).toEqual(copy);
  });
});

/** Calls of tools that have ids, so that a request shows which response is whose. */
function calls(...names: string[]): Part[] {
  return names.map((name) => ({ functionCall: { id: name, name, args: {} } }));
}

const responding = (id: string): Part => ({ functionResponse: { id, name: id, response: { done: true } } });

const saying = (...parts: Part[]) => createEvent({ author: 'clerk', content: { role: 'model', parts } });

const sessionOf = (...events: Event[]): Session => ({ ...KEY, id: 's1', state: {}, events, lastUpdateTime: 0 });

const byId = (a: Part, b: Part) => (a.functionResponse!.id! < b.functionResponse!.id! ? -1 : 1);

/** An agent whose tools never return. Its model keeps its requests, and the reason why a real model would refuse them. */
function scripted(name: string, ...answers: Part[][]) {
  const conversations: Content[][] = [];
  const refusals: (string | undefined)[] = [];
  const scripts = answers.map((answer) => (conversation: Content[]) => {
    conversations.push(conversation);
    refusals.push(refusal(conversation));
    return answer;
  });
  const tools = ['order', 'pay', 'book'].map(
    (tool) => new FunctionTool({ name: tool, description: tool, execute: () => new Promise(() => undefined) }),
  );
  const asking = new LongRunningFunctionTool({ name: 'ask_user', description: 'Asks.', execute: () => undefined });
  const agent = new LlmAgent({ name, model: model(...scripts), tools: [...tools, asking] });
  return { agent, conversations, refusals };
}

/**
 * Why Gemini refuses a conversation with status 400: a turn with function calls must be followed by one with as many
 * function responses, and nothing else may answer.
 */
function refusal(conversation: Content[]): string | undefined {
  let open: string[] = [];
  for (const { parts = [] } of [...conversation, {}]) {
    const answered = parts.flatMap(({ functionResponse }) => functionResponse?.id ?? []);
    const unanswered = open.filter((id) => !answered.includes(id));
    const uncalled = answered.filter((id) => !open.includes(id));
    if (unanswered.length > 0) return `${unanswered.join(', ')}: no response`;
    if (uncalled.length > 0) return `${uncalled.join(', ')}: no call`;
    open = parts.flatMap(({ functionCall }) => functionCall?.id ?? []);
  }
  return undefined;
}
