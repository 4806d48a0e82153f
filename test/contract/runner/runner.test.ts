import {
  AgentTool,
  BaseAgent,
  FunctionTool,
  LlmAgent,
  LongRunningFunctionTool,
  ParallelAgent,
  Runner,
  createEvent,
  type BaseTool,
  type Event,
  type InvocationContext,
} from '@google/adk';
import { MikroOrmSessionService, SessionLeases } from '../../../src/index.js';
import { availableDatabases } from '../../support/servers.js';
import {
  KEY,
  call,
  everythingStored,
  expectAppendOrder,
  model,
  storedEvents,
  text,
  summary,
  turn,
  useDatabase,
} from './support.js';

describe.each(availableDatabases())('the Runner on %s', (name) => {
  const host = useDatabase(name);

  beforeEach(() => host.service.createSession(KEY));

  test('a text turn, and a second one that is shown all of the first', async () => {
    const llm = model(text('Hello Ada.'), text('As I said: hello.'));
    const agent = new LlmAgent({ name: 'greeter', model: llm });

    await turn(host.service, agent, 'Hello.');
    await turn(host.service, agent, 'Pardon?');

    expect(await expectAppendOrder(host)).toEqual([
      'user Hello.',
      'greeter Hello Ada.',
      'user Pardon?',
      'greeter As I said: hello.',
    ]);
    expect(llm.shown).toEqual([['user Hello.'], ['user Hello.', 'model Hello Ada.', 'user Pardon?']]);
  });

  test('tools: calls, results and state, and the next turn is shown them', async () => {
    const add = new FunctionTool({
      name: 'add_item',
      description: 'Adds an item to the cart.',
      execute: (_args, context) => {
        const cart = [...(context?.state.get<string[]>('cart') ?? []), 'tea'];
        context?.state.set('cart', cart);
        context?.state.set('user:visits', 1);
        context?.state.set('app:orders', 7);
        return { items: cart.length };
      },
    });
    const llm = model(call('add_item'), call('add_item'), text('Two items.'), text('Still two.'));
    const agent = new LlmAgent({ name: 'shop', model: llm, tools: [add], outputKey: 'last_answer' });

    await turn(host.service, agent, 'Tea, twice.');
    await turn(host.service, agent, 'How many?');

    const firstTurn = [
      'user Tea, twice.',
      'model calls add_item',
      'user add_item → {"items":1}',
      'model calls add_item',
      'user add_item → {"items":2}',
      'model Two items.',
    ];
    expect(llm.shown.at(-1)).toEqual([...firstTurn, 'user How many?']);
    expect(await expectAppendOrder(host)).toHaveLength(8);
    const state = { cart: ['tea', 'tea'], last_answer: 'Still two.', 'user:visits': 1, 'app:orders': 7 };
    expect((await host.service.getSession(KEY))?.state).toEqual(state);
  });

  test('ParallelAgent: the order of the answers is kept, although the events carry other times', async () => {
    const started = { a: gate(), b: gate(), c: gate() };
    const mayAnswer = { a: gate(), b: gate(), c: gate() };
    const answered = ['c', 'a', 'b'] as const;

    const branches = (['a', 'b', 'c'] as const).map((branch) => {
      const llm = model(async () => {
        started[branch].open();
        await mayAnswer[branch].opened;
        return text(`answer of ${branch}`);
      });
      // An event is stamped before the model answers: c begins last, so that it has the latest time, and answers first.
      const beforeAgentCallback = async () => {
        if (branch === 'c') {
          await Promise.all([started.a.opened, started.b.opened]);
          await nextMillisecond();
        }
        return undefined;
      };
      return new LlmAgent({ name: branch, model: llm, outputKey: `by_${branch}`, beforeAgentCallback });
    });
    // eslint-disable-next-line @typescript-eslint/no-deprecated -- what its users have now instead of a Workflow
    const agent = new ParallelAgent({ name: 'all', subAgents: branches });

    const remaining = [...answered];
    const openNext = () => {
      const next = remaining.shift();
      if (next) mayAnswer[next].open();
    };
    openNext();
    await turn(host.service, agent, 'Go.', openNext);

    expect(await expectAppendOrder(host)).toEqual([
      'user Go.',
      ...answered.map((branch) => `${branch} answer of ${branch}`),
    ]);
    const [, first, second] = await storedEvents(host.orm);
    expect(Number(first!.timestamp)).toBeGreaterThan(Number(second!.timestamp));
    expect((await host.service.getSession(KEY))?.state).toEqual({
      by_a: 'answer of a',
      by_b: 'answer of b',
      by_c: 'answer of c',
    });

    const llm = model(text('Seen.'));
    await turn(host.service, new LlmAgent({ name: 'reader', model: llm }), 'And?');
    const shown = llm.shown[0]!.join('\n');
    expect(shown).toMatch(/answer of c[^]*answer of a[^]*answer of b/);
  });

  test('AgentTool: the same session id under another app, each with its own events', async () => {
    const note = new FunctionTool({
      name: 'note',
      description: 'Takes a note.',
      execute: (_args, context) => {
        context?.state.set('noted', true);
        return { ok: true };
      },
    });
    const helperModel = model(call('note'), text('42'), text('43'));
    const helper = new LlmAgent({ name: 'helper', model: helperModel, tools: [note] });
    const ask = () => call('helper', { request: 'What is it?' });
    const agent = new LlmAgent({
      name: 'boss',
      model: model(ask(), text('It is 42.'), ask(), text('Now it is 43.')),
      tools: [new AgentTool({ agent: helper })],
    });

    await turn(host.service, agent, 'Ask your helper.');
    await turn(host.service, agent, 'Once more.');

    expect(await expectAppendOrder(host)).toEqual([
      'user Ask your helper.',
      'boss calls helper',
      'boss helper → {"result":"42"}',
      'boss It is 42.',
      'user Once more.',
      'boss calls helper',
      'boss helper → {"result":"43"}',
      'boss Now it is 43.',
    ]);
    expect(await expectAppendOrder(host, 'helper')).toEqual([
      'user What is it?',
      'helper calls note',
      'helper note → {"ok":true}',
      'helper 42',
      'user What is it?',
      'helper 43',
    ]);
    expect(helperModel.shown.at(-1)).toHaveLength(5);
    expect((await host.service.getSession(KEY))?.state).toEqual({ noted: true });
  });

  test('under a lease: AgentTool in AgentTool, and runEphemeral in a tool, write to sessions of their own', async () => {
    const leases = new SessionLeases(host.orm.em);
    await leases.run(KEY, { holder: 'worker' }, async ({ sessionService }) => {
      const asked = (name: string, answer: string, tools: BaseTool[] = []) =>
        new LlmAgent({
          name,
          model: model(...tools.map((tool) => call(tool.name, { request: 'Do.' })), text(answer)),
          tools,
        });
      const search = new FunctionTool({
        name: 'search',
        description: 'Runs an agent in a session that is deleted afterwards.',
        execute: async () => {
          const runner = new Runner({ appName: KEY.appName, agent: asked('searcher', 'found'), sessionService });
          const newMessage = { role: 'user', parts: text('Search.') };
          const events: Event[] = [];
          for await (const event of runner.runEphemeral({ userId: KEY.userId, newMessage })) events.push(event);
          return { said: events.map(summary) };
        },
      });
      const inner = new AgentTool({ agent: asked('inner', 'inner done', [search]) });
      const outer = new AgentTool({ agent: asked('outer', 'outer done', [inner]) });
      await turn(sessionService, asked('boss', 'done', [outer]), 'Go.');
    });
    const said = async (appName?: string) =>
      (await storedEvents(host.orm, appName)).map(({ data }) => summary(data as Event));
    expect(await said()).toEqual(['user Go.', 'boss calls outer', 'boss outer → {"result":"outer done"}', 'boss done']);
    expect(await said('outer')).toEqual([
      'user Do.',
      'outer calls inner',
      'outer inner → {"result":"inner done"}',
      'outer outer done',
    ]);
    expect(await said('inner')).toEqual([
      'user Do.',
      'inner calls search',
      'inner search → {"said":["searcher found"]}',
      'inner inner done',
    ]);
    const { sessions } = await host.service.listSessions({ appName: KEY.appName });
    expect(sessions.map(({ id }) => id)).toEqual([KEY.sessionId]);
  });

  test('a long-running tool: pauses, and continues in another process with the whole history', async () => {
    const tools = [
      new LongRunningFunctionTool({ name: 'ask_user', description: 'Asks the user.', execute: () => undefined }),
    ];
    const asking = new LlmAgent({ name: 'clerk', model: model(call('ask_user')), tools });
    const events = await turn(host.service, asking, 'Order tea.');
    const [callId] = events.at(-1)!.longRunningToolIds!;

    // Nothing of the first run is left but the database.
    const llm = model(text('Green it is.'));
    const resumed = new MikroOrmSessionService(host.orm.em);
    const answer = { functionResponse: { id: callId!, name: 'ask_user', response: { answer: 'green' } } };
    await turn(resumed, new LlmAgent({ name: 'clerk', model: llm, tools }), [answer]);

    expect(llm.shown).toEqual([['user Order tea.', 'model calls ask_user', 'user ask_user → {"answer":"green"}']]);
    expect((await storedEvents(host.orm)).map(({ data }) => summary(data as Event))).toEqual([
      'user Order tea.',
      'clerk calls ask_user',
      'user ask_user → {"answer":"green"}',
      'clerk Green it is.',
    ]);
  });

  test('temp: is there for the next tool and in no table', async () => {
    const login = new FunctionTool({
      name: 'login',
      description: 'Logs in.',
      execute: (_args, context) => {
        context?.state.set('temp:token', 'hunter2');
        context?.state.set('logged_in', true);
        return { ok: true };
      },
    });
    const fetch = new FunctionTool({
      name: 'fetch',
      description: 'Fetches something.',
      execute: (_args, context) => ({ hasToken: context?.state.get('temp:token') === 'hunter2' }),
    });
    const llm = model(call('login'), call('fetch'), text('Done.'), call('fetch'), text('Done.'));
    const agent = new LlmAgent({ name: 'client', model: llm, tools: [login, fetch] });

    await turn(host.service, agent, 'Fetch.');
    await turn(host.service, agent, 'Fetch again.');

    const lines = await expectAppendOrder(host);
    expect(lines.filter((line) => line.includes('hasToken'))).toEqual([
      'client fetch → {"hasToken":true}',
      'client fetch → {"hasToken":false}',
    ]);
    const stored = await everythingStored(host.orm);
    expect(stored).toContain('logged_in');
    expect(stored).not.toMatch(/temp:|hunter2/);
  });

  test('an agent that throws in the middle: what it said before stays, and the next turn continues from it', async () => {
    class Unreliable extends BaseAgent {
      protected async *runAsyncImpl({ invocationId }: InvocationContext): AsyncGenerator<Event, void, void> {
        const content = { role: 'model', parts: text('One moment.') };
        yield createEvent({ invocationId, author: this.name, content, actions: { stateDelta: { step: 1 } } });
        throw new Error('out of order');
      }

      protected async *runLiveImpl(): AsyncGenerator<Event, void, void> {
        // Not used.
      }
    }
    await expect(turn(host.service, new Unreliable({ name: 'clerk' }), 'Order tea.')).rejects.toThrow('out of order');

    expect(await expectAppendOrder(host)).toEqual(['user Order tea.', 'clerk One moment.']);
    expect((await host.service.getSession(KEY))?.state).toEqual({ step: 1 });

    const llm = model(text('Ordered.'));
    await turn(host.service, new LlmAgent({ name: 'clerk', model: llm }), 'Are you there?');
    expect(llm.shown).toEqual([['user Order tea.', 'model One moment.', 'user Are you there?']]);
    expect(await expectAppendOrder(host)).toHaveLength(4);
  });

  test('a tool that throws: the model learns of it, and the session stays whole', async () => {
    const broken = new FunctionTool({
      name: 'order',
      description: 'Orders.',
      execute: (_args, context) => {
        context?.state.set('ordered', true);
        throw new Error('the shop is closed');
      },
    });
    const llm = model(call('order'), text('The shop is closed.'));
    await turn(host.service, new LlmAgent({ name: 'clerk', model: llm, tools: [broken] }), 'Order tea.');

    expect(await expectAppendOrder(host)).toHaveLength(4);
    expect(llm.shown.at(-1)!.at(-1)).toContain('the shop is closed');
  });
});

/** A promise, and the function that resolves it. */
function gate() {
  let open: () => void = () => undefined;
  const opened = new Promise<void>((resolve) => (open = resolve));
  return { opened, open };
}

async function nextMillisecond(): Promise<void> {
  const now = Date.now();
  while (Date.now() === now) await new Promise(setImmediate);
}
