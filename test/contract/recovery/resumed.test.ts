import {
  FunctionNode,
  FunctionTool,
  LlmAgent,
  LongRunningFunctionTool,
  NodeTool,
  RequestInput,
  Workflow,
  createEvent,
  type BasePlugin,
  type Context,
  type Event,
  type NodeContext,
  type Runner,
} from '@google/adk';
import { z } from 'zod';
import type { Part } from '../tools.js';
import type { Codec } from '../../../src/codecs/index.js';
import {
  CodecError,
  InvalidArgumentError,
  LeaseLostError,
  SessionNotFoundError,
  adkServices,
  runTurn,
  toolJournal,
  type AdkServicesOptions,
} from '../../../src/index.js';
import { secondCopy } from '../../support/second-copy.js';
import { KEY, call, model, summary, text, useDatabase } from '../runner/support.js';

const CONFIRMATION = 'adk_request_confirmation';
const INPUT = 'adk_request_input';
const STRICT = { onAnsweredCall: 'reject', onRewrittenEvent: 'reject', onStaleSession: 'reject' } as const;

type Agent = NonNullable<ConstructorParameters<typeof Runner>[0]['agent']>;

describe('an answer that somebody has stored', () => {
  const host = useDatabase('better-sqlite');

  const open = (sessions: AdkServicesOptions['sessions'] = STRICT) => adkServices(host.orm.em, { sessions });

  /** Runs a turn, as one worker of several. @returns what it has said. */
  async function run(agent: Agent, message?: string, services = open(), plugins: BasePlugin[] = []): Promise<string[]> {
    const said: string[] = [];
    const newMessage = message === undefined ? undefined : { role: 'user', parts: text(message) };
    for await (const event of runTurn(services, { key: KEY, agent, newMessage, plugins })) {
      said.push(typeof event.output === 'string' ? event.output : summary(event));
    }
    return said;
  }

  const waiting = async () => (await open().sessionService.findOpenCalls({ appName: KEY.appName })).calls;
  const answered = async () =>
    (await open().sessionService.findAnsweredCalls({ appName: KEY.appName })).calls.map(({ name }) => name);

  /** Stores an answer as the studio does, by a service that runs no agent. */
  async function store(response: Record<string, unknown>, at = 0, properties = {}): Promise<void> {
    const { sessionService } = open();
    const { id, name } = (await waiting())[at]!;
    const session = (await sessionService.getSession({ ...KEY, config: { numRecentEvents: 1 } }))!;
    const parts = [{ functionResponse: { id, name, response } }];
    const event = createEvent({ author: 'user', content: { role: 'user', parts }, ...properties });
    await sessionService.appendEvent({ session, event });
  }

  /** Ends a turn after an event, as if its process had been killed. @returns the event. */
  async function killedAfter(agent: Agent, isLast: (event: Event) => boolean, message?: string): Promise<Event> {
    const newMessage = message === undefined ? undefined : { role: 'user', parts: text(message) };
    for await (const event of runTurn(open(), { key: KEY, agent, newMessage })) if (isLast(event)) return event;
    throw new Error('The turn has ended.');
  }

  const history = async () => (await open().sessionService.getSession(KEY))!.events.map(summary);

  const asking = () =>
    new LongRunningFunctionTool({ name: 'ask', description: 'Asks.', execute: () => Promise.resolve(null) });

  test('H7 is run once', async () => {
    const clerk = new LlmAgent({
      name: 'clerk',
      model: model(call('ask'), text('Red it is.')),
      tools: [asking()],
    });
    expect(await run(clerk, 'Paint it.')).toEqual(['clerk calls ask']);
    expect([await answered(), await run(clerk)]).toEqual([[], []]);
    await store({ color: 'red' });
    expect([await answered(), await waiting()]).toEqual([['ask'], []]);

    expect(await run(clerk)).toEqual(['clerk Red it is.']);
    expect([await answered(), await run(clerk)]).toEqual([[], []]);
    expect((clerk.model as ReturnType<typeof model>).shown.at(-1)).toContain('user ask → {"color":"red"}');
    expect(await history()).toEqual([
      ...['user Paint it.', 'clerk calls ask'],
      ...['user ask → {"color":"red"}', 'clerk Red it is.'],
    ]);
  });

  test('H7 in a session that was deleted meanwhile is not run, and the session can be restored', async () => {
    const clerk = new LlmAgent({ name: 'clerk', model: model(call('ask'), text('Red.')), tools: [asking()] });
    await run(clerk, 'Paint it.');
    await store({ color: 'red' });
    const services = open({ ...STRICT, deletion: 'soft' });
    await services.sessionService.deleteSession(KEY);
    await expect(run(clerk, undefined, services)).rejects.toThrow(SessionNotFoundError);
    await services.sessionService.restoreSession(KEY);
    expect(await history()).toEqual(['user Paint it.', 'clerk calls ask', 'user ask → {"color":"red"}']);
  });

  /** A clerk whose tools need a confirmation. */
  function confirming(...answers: Parameters<typeof model>) {
    const paid: string[] = [];
    const tool = (name: string) =>
      new FunctionTool({
        name,
        description: 'Pays.',
        requireConfirmation: true,
        execute: () => {
          paid.push(name);
          return { paid: name };
        },
      });
    const clerk = new LlmAgent({ name: 'clerk', model: model(...answers), tools: [tool('rent'), tool('tax')] });
    return { clerk, paid };
  }

  test('H7 to two confirmations runs both tools, whenever each was answered', async () => {
    const both: Part[] = [...call('rent'), ...call('tax')];
    const { clerk, paid } = confirming(both, text('Paid.'), text('Bye.'));
    await run(clerk, 'Pay.');
    await store({ confirmed: true });
    await store({ confirmed: true });
    expect(await answered()).toEqual([CONFIRMATION, CONFIRMATION]);

    expect(await run(clerk, 'And?')).toEqual([
      'clerk rent → {"paid":"rent"}, tax → {"paid":"tax"}',
      'clerk Paid.',
      'clerk Bye.',
    ]);
    expect(paid).toEqual(['rent', 'tax']);
    expect([await answered(), await waiting()]).toEqual([[], []]);
    // The answers are together in the last event, as if they had been given at once.
    expect((await history()).filter((line) => line.startsWith('user'))).toEqual([
      ...[
        'user Pay.',
        'user ',
        `user ${Array(2).fill(`${CONFIRMATION} → {"confirmed":true}`).join(', ')}`,
        'user And?',
      ],
    ]);
  });

  test('H7 whose run was killed in the tool continues without running the tool again', async () => {
    const { clerk, paid } = confirming(call('rent'), text('I do not know.'));
    await run(clerk, 'Pay.');
    await store({ confirmed: true });
    // As if its process had ended in the tool: ADK stores nothing more.
    clerk.beforeToolCallback = () => {
      throw new Error('killed');
    };
    await expect(run(clerk)).rejects.toThrow('killed');
    expect([paid, await answered()]).toEqual([[], [CONFIRMATION]]);

    clerk.beforeToolCallback = undefined;
    const said = await run(clerk);
    expect(said).toEqual(['clerk I do not know.']);
    expect([paid, await answered()]).toEqual([[], []]);
    expect((await history()).at(-2)).toMatch(/^clerk rent → .*may or may not have taken effect/);
  });

  test('H7 is found again if the run ended after the tool, and the tool does not run again', async () => {
    const { clerk, paid } = confirming(call('rent'), text('Paid.'));
    await run(clerk, 'Pay.');
    await store({ confirmed: true });
    expect(summary(await killedAfter(clerk, () => true))).toBe('clerk rent → {"paid":"rent"}');
    expect([paid, await answered()]).toEqual([['rent'], [CONFIRMATION]]);

    expect(await run(clerk)).toEqual(['clerk Paid.']);
    expect([paid, await answered()]).toEqual([['rent'], []]);
  });

  test('H7 the signal of a turn ends its wait for the lease', async () => {
    const services = open();
    const lease = await services.leases.acquire(KEY, { holder: 'other', autoCreateSession: true });
    const stopping = new AbortController();
    const agent = confirming().clerk;
    const turn = runTurn(services, { key: KEY, agent, waitMs: 600_000, signal: stopping.signal }).next();
    stopping.abort();
    expect(await turn).toEqual({ done: true, value: undefined });
    await lease.release();
  });

  test('H7 a stateDelta without a message is refused', async () => {
    const turn = runTurn(open(), { key: KEY, agent: confirming().clerk, stateDelta: { a: 1 } });
    await expect(turn.next()).rejects.toThrow(InvalidArgumentError);
  });

  /** A clerk who has asked something, and whose other tool does this. */
  const busy = (work: () => unknown, ...answers: Parameters<typeof model>) =>
    new LlmAgent({
      name: 'clerk',
      model: model(call('ask'), ...answers),
      tools: [asking(), new FunctionTool({ name: 'work', description: 'Works.', execute: work })],
    });

  const seen = ({ state }: Context): undefined => {
    state.set('seen', true);
  };

  test('H7 while another run is under way is left for the next one', async () => {
    const clerk = busy(() => store({ color: 'red' }), call('work'), text('Worked.'), text('Red it is.'));
    await run(clerk, 'Paint it.');
    const said = await run(clerk, 'Work.', open({ ...STRICT, onStaleSession: 'rebase' }));
    expect(said).toEqual(['clerk calls work', 'clerk work → {}', 'clerk Worked.']);
    expect(await answered()).toEqual(['ask']);
    expect(await run(clerk)).toEqual(['clerk Red it is.']);
    expect([await answered(), await run(clerk)]).toEqual([[], []]);
  });

  test('H7 whose run has only set state is found again', async () => {
    const clerk = busy(() => 0, text('Red it is.'));
    await run(clerk, 'Paint it.');
    await store({ color: 'red' });
    clerk.beforeAgentCallback.push(seen);
    const { actions } = await killedAfter(clerk, () => true);
    expect(actions.stateDelta).toEqual({ seen: true });
    expect(await answered()).toEqual(['ask']);
    clerk.beforeAgentCallback.pop();
    expect(await run(clerk)).toEqual(['clerk Red it is.']);
    expect([await answered(), await run(clerk)]).toEqual([[], []]);
  });

  test('H7 a killed turn continues while an older question waits, one that has ended does not', async () => {
    const clerk = busy(() => 'worked', call('work'), text('Done.'));
    await run(clerk, 'Paint it.');
    await killedAfter(clerk, (event) => summary(event).includes('→'), 'Work.');
    clerk.afterAgentCallback.push(seen);
    expect(await run(clerk)).toEqual(['clerk Done.', 'clerk ']);
    expect([await waiting(), await run(clerk)]).toEqual([[expect.objectContaining({ name: 'ask' })], []]);
  });

  test.each([
    ['the lease is lost', 'this copy', toolJournal],
    ['a key is lost', 'this copy', toolJournal],
    ['the lease is lost', 'another copy', secondCopy().toolJournal],
  ] as const)(
    'H7 a turn throws the error itself if %s, and its journal is of %s of the package',
    async (what, _, journal) => {
      let isLost = false;
      const codec: Codec = {
        name: 'own',
        encode: () => {
          if (isLost) throw new Error('No key.');
          return undefined;
        },
        decode: () => undefined,
      };
      const services = adkServices(host.orm.em, { codec });
      const lose = async () => {
        isLost = what === 'a key is lost';
        if (isLost) return;
        await host.orm.em.getConnection().execute('update adk_sessions set lease_expires = 1');
        await services.leases.acquire(KEY, { holder: 'successor' });
      };
      const clerk = new LlmAgent({
        name: 'clerk',
        model: model([...call('lose'), ...call('next')]),
        tools: ['lose', 'next'].map((name) => new FunctionTool({ name, description: name, execute: lose })),
      });
      const error = what === 'a key is lost' ? CodecError : LeaseLostError;
      await expect(run(clerk, 'Go.', services, [journal()])).rejects.toThrow(error);
    },
  );

  const node = (ids: string[], inputSchema?: z.ZodType) =>
    new FunctionNode(
      'one',
      async function* ({ resumeInputs }: NodeContext) {
        const missing = ids.find((id) => resumeInputs[id] === undefined);
        if (missing) yield new RequestInput({ interruptId: missing, message: `${missing}?` });
        else yield `said ${ids.map((id) => JSON.stringify(resumeInputs[id])).join()}`;
      },
      { rerunOnResume: true, inputSchema },
    );

  const flow = (...ids: string[]) => new Workflow({ name: 'flow', edges: [['START', node(ids)]] });

  test.each([
    ['a question of a workflow', () => flow('a'), [{ n: 1 }], /said {"n":1}$/],
    [
      'two questions of a workflow, one after the other',
      () => flow('a', 'b'),
      [{ result: 1 }, { result: 2 }],
      /said 1,2/,
    ],
    [
      'a question of a workflow that is a tool',
      () =>
        new LlmAgent({
          name: 'clerk',
          model: model(call('one', {}), text('Thanks.')),
          tools: [new NodeTool(node(['a'], z.object({})))],
        }),
      [{ result: 3 }],
      /Thanks/,
    ],
  ] as [string, () => Agent, Record<string, unknown>[], RegExp][])(
    'H7 to %s is run once',
    async (_name, made, responses, said) => {
      const agent = made();
      await run(agent, 'Go.');
      let last = '';
      for (const response of responses) {
        await store(
          response,
          (await waiting()).findIndex(({ name }) => name === INPUT),
        );
        expect(await answered()).toEqual([INPUT]);
        last = (await run(agent)).join('\n');
        expect([await answered(), await run(agent)]).toEqual([[], []]);
      }
      expect(last).toMatch(said);
    },
  );
});
