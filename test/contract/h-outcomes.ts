import {
  AgentTool,
  BaseLlm,
  BaseTool,
  Context,
  FunctionTool,
  InvocationContext,
  LiveRequestQueue,
  LlmAgent,
  LongRunningFunctionTool,
  ParallelAgent,
  PluginManager,
  Runner,
  Workflow,
  getFunctionCalls,
  getFunctionResponses,
  setLogger,
  type BaseAgent,
  type BaseLlmConnection,
  type BasePlugin,
  type Event,
  type LlmResponse,
  type Session,
} from '@google/adk';
import type { EntityManager } from '@mikro-orm/core';
import timers from 'node:timers/promises';
import { toolResultOf } from '../../src/conversation/tool-results.js';
import {
  SessionLeases,
  SessionMaintenance,
  adkServices,
  interruptedToolResponses,
  runTurn,
  toMessages,
  toolJournal,
  unansweredFunctionCalls,
  type AdkServicesOptions,
  type MikroOrmSessionService,
} from '../../src/index.js';
import { scriptedModel } from '../../src/testing/index.js';
import { keyOf, type OwnStore } from '../support/harnesses/harness.js';
import { secondCopy } from '../support/second-copy.js';
import { NEVER_MS, following } from './log-tools.js';
import { Suite, onInnodb, withConnections, type OwnContext } from './rule.js';
import {
  LONG_LEASE,
  afterCommit,
  deadlock,
  errorOf,
  eventOf,
  expectCode,
  late,
  plain,
  range,
  reversing,
  until,
  type Content,
  type Part,
} from './tools.js';

export const outcomeSuite = new Suite({ isOfDialect: true });

/** One answer of a model to each request. */
function model(...answers: Part[][]) {
  const shown: Content[][] = [];
  const scripted = scriptedModel(({ contents }) => {
    shown.push(plain(contents));
    return { parts: answers[shown.length - 1] ?? [{ text: 'Done.' }] };
  });
  return Object.assign(scripted, { shown });
}

const calling = (...names: string[]): Part[] =>
  names.map((name) => ({ functionCall: { id: `of ${name}`, name, args: {} } }));

type Execute = (toolContext: Context) => unknown;

const tool = (name: string, execute: Execute) =>
  new FunctionTool({ name, description: name, execute: (_, toolContext) => execute(toolContext!) });

const clerk = (answers: ReturnType<typeof model>, tools: Record<string, Execute | BaseTool>) =>
  new LlmAgent({
    name: 'clerk',
    model: answers,
    tools: Object.entries(tools).map(([name, each]) => (each instanceof BaseTool ? each : tool(name, each))),
  });

interface Run {
  agent: BaseAgent;
  sessionService: MikroOrmSessionService;
  plugins?: BasePlugin[];
  message?: Part[];
  /** Called with each event before the next one is taken. */
  onEvent?: (event: Event) => unknown;
}

async function run(
  { appName, userId, id }: Session,
  { message = [{ text: 'Go.' }], onEvent, ...of }: Run,
): Promise<Event[]> {
  // ADK logs a line for each plugin.
  setLogger(null);
  const runner = new Runner({ appName, plugins: [toolJournal()], ...of });
  const events: Event[] = [];
  const newMessage = { role: 'user', parts: message };
  for await (const event of runner.runAsync({ userId, sessionId: id, newMessage })) {
    events.push(event);
    await onEvent?.(event);
  }
  return events;
}

/** What another process would find if this one crashed now. */
async function recovered({ another }: Pick<OwnContext, 'another'>, session: Session) {
  const found = (await another.getSession(keyOf(session)))!;
  const events = interruptedToolResponses(found);
  const responses = events.flatMap(getFunctionResponses).map(({ name, response }) => [name, response]);
  return { session: found, events, responses: Object.fromEntries(responses) as Record<string, unknown> };
}

const MAY_HAVE = { error: expect.stringMatching(/may or may not have taken effect/) };

const journaled = ({ events }: { events: Event[] }) => events.flatMap((event) => toolResultOf(event) ?? []);

outcomeSuite.own('H6', 'what a tool has returned is stored before the next one of its event runs', async (context) => {
  const { service, create, fresh } = context;
  const session = await create();
  let crash: Awaited<ReturnType<typeof recovered>> | undefined;
  const tools = {
    charge: (toolContext: Context) => {
      toolContext.state.set('paid', 240);
      toolContext.state.set('temp:secret', 'x');
      return { receipt: 17 };
    },
    mail: async () => {
      crash = await recovered(context, session);
      return 'sent';
    },
  };
  const plainly = await create();
  const [answers, others] = [model(calling('charge', 'mail')), model(calling('charge', 'mail'))];
  await run(session, { agent: clerk(answers, tools), sessionService: service });

  expect(crash!.responses).toEqual({ charge: { receipt: 17 }, mail: MAY_HAVE });
  expect(crash!.events.map(({ actions }) => actions.stateDelta)).toEqual([{ paid: 240 }]);
  expect(unansweredFunctionCalls(crash!.session).map(({ response }) => response)).toEqual([{ receipt: 17 }, undefined]);
  const [charge] = toMessages(crash!.session.events).flatMap(({ toolCalls }) => toolCalls);
  expect(charge).toMatchObject({ name: 'charge', response: { receipt: 17 } });

  // Apart from that, everything is as it is without the journal.
  await run(plainly, { agent: clerk(others, tools), sessionService: service, plugins: [] });
  expect(answers.shown).toEqual(others.shown);
  const shown = async (of: Session) =>
    toMessages((await fresh(of)).events).map(({ text, toolCalls, author }) => ({ text, toolCalls, author }));
  expect(await shown(session)).toEqual(await shown(plainly));
  const after = await fresh(session);
  expect(after.events.map((event) => [event.author, toolResultOf(event)?.result])).toEqual([
    ...['user', 'clerk'].map((author) => [author, undefined]),
    ['clerk', { receipt: 17 }],
    ['clerk', 'sent'],
    ...['clerk', 'clerk'].map((author) => [author, undefined]),
  ]);
  expect(JSON.stringify(after.events)).not.toContain('secret');
  expect(interruptedToolResponses(after)).toEqual([]);
});

outcomeSuite.own(
  'H6',
  'a call that is alone has no other event than its response',
  async ({ service, create, fresh }) => {
    const session = await create();
    const agent = clerk(model(calling('charge')), { charge: () => ({ receipt: 17 }) });
    await run(session, { agent, sessionService: service });
    expect((await fresh(session)).events).toHaveLength(4);
  },
);

outcomeSuite.own('H6', 'each result is stored as ADK gives it to the model', async ({ service, create, fresh }) => {
  class Throwing extends FunctionTool {
    override runAsync(): Promise<unknown> {
      return Promise.reject(new Error('out of paper'));
    }
  }
  class Odd extends FunctionTool {
    override runAsync(): Promise<unknown> {
      // eslint-disable-next-line @typescript-eslint/prefer-promise-reject-errors -- as tools of others do
      return Promise.reject('jam');
    }
  }
  const inner = new LlmAgent({ name: 'helper', description: 'Helps.', model: model([{ text: 'Helped.' }]) });
  const tools = {
    text: () => 'sent',
    number: () => 0,
    list: () => [1, 2],
    nothing: () => undefined,
    null: () => null,
    object: () => ({ at: new Date(0), deep: { list: [null] } }),
    failing: () => Promise.reject(new Error('no such account')),
    odd: new Odd({ name: 'odd', description: 'Throws a text.', execute: () => undefined }),
    throwing: new Throwing({ name: 'throwing', description: 'Throws.', execute: () => undefined }),
    helper: new AgentTool({ agent: inner }),
    pending: new LongRunningFunctionTool({
      name: 'pending',
      description: 'Waits.',
      execute: () => ({ status: 'pending' }),
    }),
    asking: new LongRunningFunctionTool({ name: 'asking', description: 'Asks.', execute: () => undefined }),
  };
  const session = await create();
  const agent = clerk(model(calling(...Object.keys(tools))), tools);
  await run(session, { agent, sessionService: service });

  const read = await fresh(session);
  const responses = read.events.flatMap(getFunctionResponses).map(({ id, response }) => ({ id, response }));
  expect(responses).toHaveLength(Object.keys(tools).length - 1);
  // ADK calls `onToolErrorCallback` for an Error only.
  const known = responses.filter(({ id }) => id !== 'of odd');
  expect(journaled(read).map(({ id, response }) => ({ id, response }))).toEqual(known);
});

outcomeSuite.own('H6', 'a result that ADK drops beside a question is found', async (context) => {
  const { service, create, fresh } = context;
  const session = await create();
  const pay = new FunctionTool({ name: 'pay', description: 'Pays.', execute: () => 'paid', requireConfirmation: true });
  const agent = clerk(model(calling('charge', 'pay', 'mail')), { charge: () => 17, pay, mail: () => 'sent' });
  await run(session, { agent, sessionService: service });

  // ADK stores the question instead of the responses.
  expect((await fresh(session)).events.flatMap(getFunctionResponses)).toEqual([]);
  expect((await recovered(context, session)).responses).toEqual({ charge: { result: 17 }, mail: { result: 'sent' } });
});

outcomeSuite.own('H6', 'results of branches and turns whose calls have the same ids stay apart', async (context) => {
  const { service, create } = context;
  const session = await create();
  const first = [
    { functionCall: { id: 'call_0', name: 'note', args: {} } },
    { functionCall: { id: 'call_1', name: 'last', args: {} } },
  ];
  const crashes: unknown[] = [];
  const branch = (name: string, delay: Promise<unknown>) =>
    new LlmAgent({
      name,
      model: model(first),
      tools: [
        tool('note', () => `by ${name}`),
        tool('last', async () => {
          await delay;
          crashes.push((await recovered(context, session)).events);
        }),
      ],
    });
  let go = () => {};
  const both = new Promise<void>((resolve) => (go = resolve));
  const left = branch('left', both);
  const right = branch('right', Promise.resolve().then(go));
  // eslint-disable-next-line @typescript-eslint/no-deprecated -- what its users have now instead of a Workflow
  const agent = new ParallelAgent({ name: 'both', subAgents: [left, right] });
  await run(session, { agent, sessionService: service });
  await run(session, {
    agent: clerk(model(first), {
      note: () => 'again',
      last: async () => {
        expect((await recovered(context, session)).responses).toEqual({ note: { result: 'again' }, last: MAY_HAVE });
      },
    }),
    sessionService: service,
  });

  const noted = (crashes.flat() as Event[]).flatMap((event) =>
    getFunctionResponses(event).flatMap(({ name, response }) =>
      name === 'note' && 'result' in response! ? [[event.author, response.result]] : [],
    ),
  );
  expect(new Set(noted.map(String))).toEqual(new Set(['left,by left', 'right,by right']));
});

outcomeSuite.own('H6', 'the tools of a workflow: the results are found, too', async (context) => {
  const { service, create } = context;
  const session = await create();
  let crash: Awaited<ReturnType<typeof recovered>> | undefined;
  const node = clerk(model(calling('charge', 'mail')), {
    charge: () => 17,
    mail: async () => {
      crash = await recovered(context, session);
    },
  });
  const agent = new Workflow({ name: 'flow', edges: [['START', node]] });
  await run(session, { agent: agent as unknown as BaseAgent, sessionService: service });
  expect(crash!.responses).toEqual({ charge: { result: 17 }, mail: MAY_HAVE });
});

/** A session whose process has ended in the second tool of an event. @returns it as another process reads it. */
async function killedInMail({ service, create, fresh }: OwnContext): Promise<Session> {
  const session = await create();
  const killed = new Promise<void>((resolve) => {
    const mail = () => {
      resolve();
      return new Promise<never>(() => undefined);
    };
    const agent = clerk(model(calling('charge', 'mail')), { charge: () => ({ receipt: 17 }), mail });
    void run(session, { agent, sessionService: service });
  });
  await killed;
  return fresh(session);
}

const RECEIPT = { charge: { receipt: 17 }, mail: MAY_HAVE };

outcomeSuite.own('H6', 'fork, rewind and trim treat a stored result as the event it is', async (context) => {
  const { service, orm, query } = context;
  const session = await killedInMail(context);
  const key = keyOf(session);
  const rows = async ({ sessionId }: { sessionId: string }) => {
    const found = await query<{ seq: number }>(
      'select seq from adk_events where app_name = ? and session_id = ? order by seq',
      [key.appName, sessionId],
    );
    return found.map(({ seq }) => seq);
  };
  const NONE = { charge: MAY_HAVE, mail: MAY_HAVE };
  expect(await rows(key)).toEqual([1, 2, 3]);
  for (const [at, responses] of [
    [3, RECEIPT],
    [2, NONE],
  ] as const) {
    const fork = await service.forkSession(key, { at });
    expect(await rows(keyOf(fork))).toEqual(range(at).map((i) => i + 1));
    expect((await recovered(context, fork)).responses).toEqual(responses);
  }

  const trimmed = await service.forkSession(key, { at: 3 });
  await new SessionMaintenance(orm.em).trim({ ...keyOf(trimmed), keepLast: 1 });
  expect(await rows(keyOf(trimmed))).toEqual([3]);
  const kept = await recovered(context, trimmed);
  expect([kept.responses, journaled(kept.session)]).toMatchObject([{}, [{ result: { receipt: 17 } }]]);
  expect(toMessages(kept.session.events)).toEqual([]);

  await service.rewindSession(key, { at: 2 });
  expect(await rows(key)).toEqual([1, 2]);
  expect((await recovered(context, session)).responses).toEqual(NONE);
});

outcomeSuite.own('H6', 'export and import carry a stored result unchanged', async (context) => {
  const session = await killedInMail(context);
  const { userId, appName } = session;
  const exported = async (orm: OwnStore['orm']) => {
    const records = [];
    for await (const record of new SessionMaintenance(orm.em).exportSessions({ appName, userId })) records.push(record);
    return records;
  };
  const records = await exported(context.orm);
  const other = await context.scratch();
  await new SessionMaintenance(other.orm.em).importSessions(records);
  expect(await exported(other.orm)).toEqual(records);
  expect(await other.query('select seq from adk_events')).toHaveLength(3);
  expect((await recovered(other, session)).responses).toEqual(RECEIPT);
});

// A reader of pages counts numbers (contract C6): without the result it would look for the missing one, or find an empty page.
outcomeSuite.own(
  'H6',
  'a stored result has its number in pages, and shows as the response of its call',
  async (context) => {
    const session = await killedInMail(context);
    const key = keyOf(session);
    const { service, orm, query } = context;
    const page = await service.readEvents(key);
    expect(page.events.map(({ seq }) => seq)).toEqual([1, 2, 3]);
    expect(
      toMessages(page).map(({ author, toolCalls }) => [author, toolCalls.map(({ response }) => response)]),
    ).toEqual([
      ['user', []],
      ['clerk', [{ receipt: 17 }, undefined]],
    ]);
    const older = await service.readEvents(key, { before: 3, limit: 1 });
    expect(older.events.map(({ seq }) => seq)).toEqual([2]);

    const { memoryService } = adkServices(orm.em);
    await memoryService.addSessionToMemory(session);
    const memories = await query('select 1 from adk_memories where app_name = ?', [key.appName]);
    expect(memories).toHaveLength(1);
  },
);

/** A model whose live connection makes one call of each tool, and ends. */
class LiveModel extends BaseLlm {
  readonly #names: string[];

  constructor(...names: string[]) {
    super({ model: 'live' });
    this.#names = names;
  }

  override async *generateContentAsync(): AsyncGenerator<LlmResponse, void> {
    await Promise.reject(new Error('It only has a live connection.'));
  }

  override connect(): Promise<BaseLlmConnection> {
    const parts = calling(...this.#names);
    const nothing = () => Promise.resolve();
    return Promise.resolve({
      ...{ sendHistory: nothing, sendContent: nothing, sendRealtime: nothing, close: nothing },
      receive: async function* () {
        yield { content: { role: 'model', parts } };
      },
    });
  }
}

outcomeSuite.own('H6', 'in a live run what a tool has returned is stored, too', async (context) => {
  const { service, create } = context;
  const session = await create();
  let crash: Awaited<ReturnType<typeof recovered>> | undefined;
  const tools = {
    charge: () => ({ receipt: 17 }),
    mail: async () => {
      crash = await recovered(context, session);
      return 'sent';
    },
  };
  const agent = new LlmAgent({
    name: 'clerk',
    model: new LiveModel('charge', 'mail'),
    tools: Object.entries(tools).map(([name, execute]) => tool(name, execute)),
  });
  const runner = new Runner({ appName: session.appName, agent, sessionService: service, plugins: [toolJournal()] });
  const { userId, id: sessionId } = session;
  const liveRequestQueue = new LiveRequestQueue();
  for await (const event of runner.runLive({ userId, sessionId, liveRequestQueue }))
    expect(event.errorCode).toBeFalsy();
  expect(crash!.responses).toEqual(RECEIPT);
  const after = await context.fresh(session);
  expect(journaled(after).map(({ result }) => result)).toEqual([{ receipt: 17 }, 'sent']);
  expect(interruptedToolResponses(after)).toEqual([]);
});

const workflow = (node: LlmAgent) => new Workflow({ name: 'flow', edges: [['START', node]] }) as unknown as BaseAgent;

outcomeSuite.own(
  'H6',
  'a tool of a workflow waits until its call is stored, however slow the reader is',
  async (context) => {
    const { service, create } = context;
    const session = await create();
    const stored: unknown[] = [];
    const note = async () => {
      const { events } = (await context.another.getSession(keyOf(session)))!;
      stored.push(events.map(({ content }) => content?.parts?.flatMap(({ functionCall }) => functionCall?.args ?? [])));
      return `note ${stored.length}`;
    };
    const calls = (n: number) =>
      ['note', 'last'].map((name) => ({ functionCall: { id: `of ${name}`, name, args: { n } } }));
    const crashes: unknown[] = [];
    const last = async () => void crashes.push((await recovered(context, session)).responses);
    const node = clerk(model(calls(1), calls(2)), { note, last });
    const turns = async () => {
      for (let i = 0; i < 20; i++) await new Promise((resolve) => void setImmediate(resolve));
    };
    await run(session, { agent: workflow(node), sessionService: service, onEvent: turns });

    expect(stored.map((each) => (each as unknown[]).flat().at(-1))).toEqual([{ n: 1 }, { n: 2 }]);
    expect(crashes).toEqual([1, 2].map((n) => ({ note: { result: `note ${n}` }, last: MAY_HAVE })));
  },
);

outcomeSuite.own('H6', 'a workflow whose reader leaves runTurn runs no tool any more', async (context) => {
  const { services, create } = await banking(context);
  const session = await create();
  const ran: string[] = [];
  const answers = model(calling('charge'));
  const node = clerk(answers, { charge: () => void ran.push('charge') });
  const greet = () => 'Hello.';
  const agent = new Workflow({ name: 'flow', edges: [['START', greet, node]] });
  const newMessage = { role: 'user', parts: [{ text: 'Go.' }] };
  // The call is not stored yet.
  for await (const event of runTurn(services, { key: keyOf(session), agent, newMessage })) if (event) break;
  expect(ran).toEqual([]);
  expect(answers.shown.length).toBeLessThanOrEqual(1);
  await (await services.leases.acquire(keyOf(session), { holder: 'next' })).release();
});

outcomeSuite.own(
  'H6',
  'of calls with the same id in one event, no result is taken for that of another',
  async (context) => {
    const { service, create } = context;
    const session = await create();
    const [first] = calling('note');
    const both = [first!, { functionCall: { ...first!.functionCall!, args: { n: 2 } } }, ...calling('last')];
    let crash: Awaited<ReturnType<typeof recovered>> | undefined;
    let n = 0;
    const tools = { note: () => ++n, last: async () => void (crash = await recovered(context, session)) };
    await run(session, { agent: clerk(model(both), tools), sessionService: service });
    expect(n).toBe(2);
    expect(crash!.events.flatMap(getFunctionResponses).map(({ response }) => response)).toEqual(
      Array(3).fill(MAY_HAVE),
    );
  },
);

outcomeSuite.own('H6', 'a result that cannot be stored ends the run', async ({ service, create, fresh }) => {
  const session = await create();
  const answers = model(calling('charge', 'mail'), [{ text: 'All is well.' }]);
  const ran: string[] = [];
  const agent = clerk(answers, { charge: () => ({ big: 1n }), mail: () => void ran.push('mail') });
  await expect(run(session, { agent, sessionService: service })).rejects.toThrow('big');
  expect([ran, answers.shown.length]).toEqual([[], 1]);
  expect((await fresh(session)).events.map(({ author }) => author)).toEqual(['user', 'clerk']);
});

outcomeSuite.own(
  'H6',
  'what a tool returned after a confirmation is stored before the next one runs',
  async (context) => {
    const { service, create } = context;
    const session = await create();
    let crash: Awaited<ReturnType<typeof recovered>> | undefined;
    const confirmed = (name: string, execute: () => unknown) =>
      new FunctionTool({ name, description: name, execute, requireConfirmation: true });
    const tools = {
      charge: confirmed('charge', () => 17),
      mail: confirmed('mail', async () => {
        crash = await recovered(context, session);
      }),
    };
    const agent = clerk(model(calling('charge'), [{ text: 'Wait.' }]), tools);
    await run(session, { agent, sessionService: service });
    await run(session, { agent: clerk(model(calling('mail')), tools), sessionService: service });
    const asked = (await context.fresh(session)).events.flatMap(getFunctionCalls);
    const message = asked.flatMap(({ id, name }) =>
      name === 'adk_request_confirmation' ? [{ functionResponse: { id, name, response: { confirmed: true } } }] : [],
    );
    await run(session, { agent: clerk(model(), tools), sessionService: service, message });
    expect(crash!.responses).toEqual({ charge: { result: 17 }, mail: MAY_HAVE });
  },
);

outcomeSuite.own(
  'H6',
  'of two calls with one id that wait for a confirmation, the newest runs, whichever question is answered',
  async (context) => {
    const { services, pay, rows, fresh, create } = await banking(context);
    const { sessionService } = services;
    let stored: Session | undefined;
    const execute = async (_: unknown, toolContext?: Context) => {
      const result = await services.exactlyOnce(toolContext, pay);
      stored = await fresh(toolContext!.invocationContext.session);
      return result;
    };
    const charge = new FunctionTool({ name: 'charge', description: 'Charges.', execute, requireConfirmation: true });
    const calls = async (session: Session) => (await fresh(session)).events.flatMap(getFunctionCalls);
    for (const order of [
      [0, 1],
      [1, 0],
    ]) {
      const session = await create();
      for (const text of ['Wait.', 'Wait.'])
        await run(session, { agent: clerk(model(calling('charge'), [{ text }]), { charge }), sessionService });
      const questions = (await calls(session)).filter(({ name }) => name === 'adk_request_confirmation');
      const before = (await rows()).length;
      for (const { id, name } of order.map((i) => questions[i]!)) {
        const message = [{ functionResponse: { id, name, response: { confirmed: true } } }];
        await run(session, { agent: clerk(model(), { charge }), sessionService, message });
        // ADK ignores the other question: a response with the id of its call has come since.
        expect([order, (await rows()).length - before]).toEqual([order, 1]);
      }
      // If the process is killed before ADK has stored the response; the earlier call may still wait.
      const receipt = (await rows()).at(-1);
      const known = [undefined, { receipt }].slice(order[0]);
      expect(unansweredFunctionCalls(stored!).map(({ response }) => response)).toEqual(known);
      const repaired = [...stored!.events, ...interruptedToolResponses(stored!)];
      expect(unansweredFunctionCalls({ ...stored!, events: repaired })).toEqual([]);
      // After the response.
      const { events } = await fresh(session);
      const unanswered = unansweredFunctionCalls({ ...session, events }).map(({ event }) => events.indexOf(event));
      expect(unanswered).toEqual([1]);
      expect(await sessionService.findOpenCalls({ appName: 'bank' })).toMatchObject({ calls: [] });
    }
  },
);

outcomeSuite.own('H6', 'the journal stores no second record of what exactlyOnce has stored', async (context) => {
  const bank = await banking(context);
  const { services, pay, rows, fresh } = bank;
  const { sessionService } = services;
  const once = (_: unknown, toolContext?: Context) => services.exactlyOnce(toolContext, pay);
  const options = { description: 'Charges.', execute: once, requireConfirmation: true };
  const confirmed = new FunctionTool({ name: 'confirmed', ...options });
  const charge: Execute = (toolContext) => once({}, toolContext);
  const other: Execute = async (toolContext) => ({ of: await once({}, toolContext) });
  const later: Execute = async (toolContext) => {
    const result = await once({}, toolContext);
    toolContext.state.set('last', 14);
    return result;
  };
  const tools = { confirmed, charge, other, later };
  const session = await bank.create();
  await run(session, { agent: clerk(model(calling('confirmed')), tools), sessionService });
  const [, question] = (await fresh(session)).events.flatMap(getFunctionCalls);
  const functionResponse = { id: question!.id, name: question!.name, response: { confirmed: true } };
  const message = [{ functionResponse }];
  await run(session, { agent: clerk(model(), tools), sessionService, message });
  await run(session, { agent: clerk(model(calling('charge', 'other', 'later')), tools), sessionService });

  // The journal stores a result only if the tool returned or wrote more than `exactlyOnce` has stored.
  expect(journaled(await fresh(session)).map(({ id, result, actions }) => [id, result, actions.stateDelta])).toEqual([
    ['of confirmed', { receipt: 11 }, {}],
    ['of charge', { receipt: 12 }, {}],
    ['of other', { receipt: 13 }, {}],
    ['of other', { of: { receipt: 13 } }, {}],
    ['of later', { receipt: 14 }, {}],
    ['of later', { receipt: 14 }, { last: 14 }],
  ]);
  expect(await rows()).toEqual([11, 12, 13, 14]);
});

outcomeSuite.own(
  'H6',
  'the id of a call is stored before its tool starts, and stays when the call runs again',
  async (context) => {
    const { service, another, create, fresh } = context;
    /** Runs a turn whose process ends in the tool. @returns the key that another system has got, and the open calls by then. */
    const killed = (session: Session, of: (tools: { pay: BaseTool }) => Run, requireConfirmation = false) =>
      new Promise<unknown[]>((resolve, reject) => {
        const execute = async (_: unknown, toolContext?: Context) => {
          const open = unansweredFunctionCalls(await fresh(session));
          resolve([toolContext!.functionCallId, ...open.map(({ id }) => id)]);
          return new Promise<never>(() => undefined);
        };
        const pay = new FunctionTool({ name: 'pay', description: 'Pays.', execute, requireConfirmation });
        run(session, of({ pay })).catch(reject);
      });
    const unnumbered = () => model([{ functionCall: { name: 'pay', args: {} } }]);

    // ADK makes an id. A workflow starts a tool while its call is being stored.
    for (const wrap of [(agent: LlmAgent): BaseAgent => agent, workflow]) {
      const session = await create();
      const agentOf = (tools: { pay: BaseTool }) => wrap(clerk(unnumbered(), tools));
      const [id, ...open] = await killed(session, (tools) => ({ agent: agentOf(tools), sessionService: service }));
      expect([id, open]).toEqual([expect.stringMatching(/^adk-/), [id]]);
      const responses = (await recovered(context, session)).events.flatMap(getFunctionResponses);
      expect(responses).toMatchObject([{ id, response: MAY_HAVE }]);
    }

    // After a confirmation ADK runs the stored call, and again if the answer comes again after a crash.
    const session = await create();
    const asked = new FunctionTool({ name: 'pay', description: 'Pays.', execute: () => 0, requireConfirmation: true });
    await run(session, { agent: clerk(unnumbered(), { pay: asked }), sessionService: service });
    const [call, question] = (await fresh(session)).events.flatMap(getFunctionCalls);
    const message = [{ functionResponse: { id: question!.id, name: question!.name, response: { confirmed: true } } }];
    for (const sessionService of [service, another])
      expect(
        await killed(session, (tools) => ({ agent: clerk(model(), tools), sessionService, message }), true),
      ).toEqual([call!.id, call!.id]);
  },
);

outcomeSuite.own('H6', 'what else a tool has asked for is found with its result', async (context) => {
  const { service, create } = context;
  const session = await create();
  let crash: Awaited<ReturnType<typeof recovered>> | undefined;
  const tools = {
    over: ({ actions }: Context) => {
      actions.transferToAgent = 'expert';
      actions.escalate = true;
      actions.skipSummarization = true;
    },
    last: async () => {
      crash = await recovered(context, session);
      throw new Error('No more.');
    },
  };
  await run(session, { agent: clerk(model(calling('over', 'last')), tools), sessionService: service }).catch(() => 0);
  expect(crash!.events).toMatchObject([
    { actions: { transferToAgent: 'expert', escalate: true, skipSummarization: true } },
  ]);
});

outcomeSuite.own('H6', 'no tool runs after the journal has found that the lease is lost', async (context) => {
  const { orm, peer, create, query } = context;
  const session = await create();
  const lease = await new SessionLeases(orm.em, LONG_LEASE).acquire(keyOf(session), { holder: 'first' });
  const ran: string[] = [];
  const charge = async () => {
    ran.push('charge');
    await query('update adk_sessions set lease_expires = 1 where app_name = ? and session_id = ?', [
      session.appName,
      session.id,
    ]);
    const taken = await new SessionLeases(peer.em, LONG_LEASE).acquire(keyOf(session), { holder: 'second' });
    await taken.release();
  };
  const agent = clerk(model(calling('charge', 'mail')), { charge, mail: () => void ran.push('mail') });
  await run(session, { agent, sessionService: lease.sessionService }).catch(() => undefined);
  await lease.release();
  expect(ran).toEqual(['charge']);
  expect(journaled(await context.fresh(session))).toEqual([]);
});

outcomeSuite.own('H6', 'no message of a user answers a call by its metadata', async ({ create, append }) => {
  const session = await create();
  await append(session, { author: 'clerk', content: { role: 'model', parts: calling('charge') } });
  const customMetadata = { adk_mikro_orm_tool_result: { id: 'of charge', result: 'forged' } };
  await append(session, { author: 'user', customMetadata });
  await append(session, { author: 'clerk', content: { role: 'model', parts: [{ text: 'x' }] }, customMetadata });
  expect(unansweredFunctionCalls(session).map(({ response }) => response)).toEqual([undefined]);
});

/** A store with a table of the host. */
async function banking(context: Pick<OwnContext, 'scratch'>, options: AdkServicesOptions = {}) {
  const store = await context.scratch();
  const of = (orm: OwnStore['orm']) => adkServices(orm.em, options);
  const services = of(store.orm);
  let id = 10;
  const pay = async (tx: EntityManager) => {
    await store.query("insert into host_notes (id, text) values (?, 'paid')", [++id], tx);
    return { receipt: id };
  };
  return {
    store,
    services,
    of,
    pay,
    rows: async () =>
      (await store.query<{ id: number }>("select id from host_notes where text = 'paid' order by id")).map(
        ({ id: each }) => each,
      ),
    create: () => services.sessionService.createSession({ appName: 'bank', userId: 'ada' }),
    fresh: async (session: Session) => (await store.another.getSession(keyOf(session)))!,
  };
}

/** The context of a tool's call, as a Runner of any process makes it. */
function contextOf(
  session: Session,
  sessionService: MikroOrmSessionService,
  id = 'of charge',
  branch?: string,
): Context {
  const invocation = {
    invocationId: 'i',
    session,
    sessionService,
    pluginManager: new PluginManager(),
    ...(branch && { branch }),
  };
  return new Context({ invocationContext: new InvocationContext(invocation), functionCallId: id });
}

/** A session in which an agent has called a tool. */
async function called({ create, services }: Awaited<ReturnType<typeof banking>>, branch?: string) {
  const session = await create();
  const event = eventOf({
    author: 'clerk',
    content: { role: 'model', parts: calling('charge') },
    ...(branch && { branch }),
  });
  await services.sessionService.appendEvent({ session, event });
  return session;
}

outcomeSuite.own(
  'H6',
  'rows and result of exactlyOnce are stored together, and a second call gets the result',
  async (context) => {
    const bank = await banking(context, { sessions: { onStaleSession: 'reject' } });
    const { services, pay, rows, fresh } = bank;
    const session = await bank.create();
    const results: unknown[] = [];
    let crash: Session | undefined;
    const agent = clerk(model(calling('charge', 'mail')), {
      charge: async (toolContext) => {
        for (let i = 0; i < 2; i++) results.push(await services.exactlyOnce(toolContext, pay));
        crash = await fresh(session);
        return results[0];
      },
      mail: () => 'sent',
    });
    const handle = (await services.sessionService.getSession(keyOf(session)))!;
    handle.state['direct'] = 1;
    await run(session, { agent, sessionService: services.sessionService });
    expect(results).toEqual([{ receipt: 11 }, { receipt: 11 }]);
    expect(await rows()).toEqual([11]);
    expect(unansweredFunctionCalls(crash!).map(({ response }) => response)).toEqual([{ receipt: 11 }, undefined]);
    const { events } = await fresh(session);
    expect(events.flatMap(getFunctionResponses).map(({ response }) => response)).toEqual([
      { receipt: 11 },
      { result: 'sent' },
    ]);
  },
);

outcomeSuite.own('H6', 'after exactlyOnce a handle is in step, and has kept what only it has', async (context) => {
  const bank = await banking(context, { sessions: { onStaleSession: 'reject' } });
  const { services, pay, fresh } = bank;
  const session = await called(bank);
  session.state['direct'] = 1;
  session.state['temp:x'] = 2;
  await services.exactlyOnce(contextOf(session, services.sessionService), pay);
  const read = await fresh(session);
  expect(plain(session)).toEqual({ ...plain(read), state: { direct: 1, 'temp:x': 2 } });
  const { statements } = await counted(bank.store, () =>
    services.sessionService.appendEvent({ session, event: eventOf() }),
  );
  expect(statements).toBe(
    (await counted(bank.store, () => services.sessionService.appendEvent({ session, event: eventOf() }))).statements,
  );
});

outcomeSuite.own('H6', 'exactlyOnce wakes the watchers of its process after its commit', async (context) => {
  const bank = await banking(context, { log: { pollIntervalMs: NEVER_MS } });
  const { services, pay } = bank;
  const session = await called(bank);
  await following(
    (signal) => services.log.session(keyOf(session)).watch(0, {}, { signal }),
    async (seen) => {
      await until(() => seen.length === 1);
      await services.exactlyOnce(contextOf(session, services.sessionService), pay);
      await until(() => seen.length === 2);
      expect(toolResultOf(seen[1]!.event!)).toMatchObject({ result: { receipt: 11 } });
    },
  );
});

outcomeSuite.own('H6', 'exactlyOnce takes a session service of another copy of the package', async (context) => {
  const bank = await banking(context);
  const session = await called(bank);
  const { exactlyOnce } = secondCopy().adkServices(bank.store.orm.em);
  for (let i = 0; i < 2; i++)
    expect(await exactlyOnce(contextOf(session, bank.services.sessionService), bank.pay)).toEqual({ receipt: 11 });
  expect(await bank.rows()).toEqual([11]);
});

const counted = async (store: OwnStore, work: () => Promise<unknown>) => ({
  statements: (await store.recorded(work)).length,
});

outcomeSuite.own('H6', 'exactlyOnce waits for a call that a workflow is still storing', async (context) => {
  const bank = await banking(context);
  const { services, pay, rows, fresh } = bank;
  const session = await bank.create();
  const faked = jest.spyOn(timers, 'setImmediate').mockRejectedValue(new Error('the host has faked its timers'));
  try {
    // The same ids in each turn, as models have them that number their calls.
    for (let i = 0; i < 2; i++) {
      const node = clerk(model(calling('charge')), { charge: (toolContext) => services.exactlyOnce(toolContext, pay) });
      const agent = new Workflow({ name: 'flow', edges: [['START', node]] });
      await run(session, { agent: agent as unknown as BaseAgent, sessionService: services.sessionService });
    }
  } finally {
    faked.mockRestore();
  }
  expect(await rows()).toEqual([11, 12]);
  const { events } = await fresh(session);
  const responses = events.flatMap(getFunctionResponses).map(({ response }) => response);
  expect(responses).toEqual([{ receipt: 11 }, { receipt: 12 }]);
});

outcomeSuite.own(
  'H6',
  'exactlyOnce takes no result of an earlier call whose response is not stored yet',
  async (context) => {
    const bank = await banking(context);
    const { services, pay, rows, fresh } = bank;
    const session = await bank.create();
    const node = clerk(model(calling('charge'), calling('charge'), calling('charge')), {
      charge: (toolContext) => services.exactlyOnce(toolContext, pay),
    });
    const turns = async () => {
      for (let i = 0; i < 20; i++) await new Promise((resolve) => void setImmediate(resolve));
    };
    const { sessionService } = services;
    await run(session, { agent: workflow(node), sessionService, plugins: [], onEvent: turns });
    expect(await rows()).toEqual([11, 12, 13]);
    const responses = (await fresh(session)).events.flatMap(getFunctionResponses).map(({ response }) => response);
    expect(responses).toEqual([11, 12, 13].map((receipt) => ({ receipt })));
  },
);

outcomeSuite.own('H6', 'exactlyOnce refuses calls that share an id in their event', async (context) => {
  const bank = await banking(context);
  const { services, pay, rows, fresh } = bank;
  const session = await bank.create();
  const agent = clerk(model([...calling('charge'), ...calling('charge')]), {
    charge: (toolContext) => services.exactlyOnce(toolContext, pay),
  });
  await run(session, { agent, sessionService: services.sessionService });
  expect(await rows()).toEqual([]);
  const told = (await fresh(session)).events.flatMap(getFunctionResponses).map(({ response }) => response);
  expect(told).toEqual(Array(2).fill({ error: expect.stringMatching(/one id to several calls/) }));
});

outcomeSuite.own('H6', 'of an exactlyOnce whose work throws nothing is stored', async (context) => {
  const bank = await banking(context);
  const { services, pay, rows, fresh } = bank;
  const session = await called(bank);
  const toolContext = contextOf(session, services.sessionService);
  const before = plain(await fresh(session));
  const mistake = new Error('not enough money');
  const failing = async (tx: EntityManager) => {
    await pay(tx);
    throw mistake;
  };
  expect(await errorOf(services.exactlyOnce(toolContext, failing))).toBe(mistake);
  const unstorable = async (tx: EntityManager) => ({ ...(await pay(tx)), big: 1n });
  await expectCode(services.exactlyOnce(toolContext, unstorable), 'ADK_UNSERIALIZABLE_VALUE', 'result.big');
  expect(await rows()).toEqual([]);
  expect(plain(await fresh(session))).toEqual(before);
  expect(await services.exactlyOnce(toolContext, pay)).toEqual({ receipt: 13 });
  expect(await rows()).toEqual([13]);
});

outcomeSuite.own('H6', 'calls of other turns and branches with the same id are other calls', async (context) => {
  const bank = await banking(context);
  const { services, pay, rows } = bank;
  const { sessionService } = services;
  const session = await called(bank);
  const again = () => services.exactlyOnce(contextOf(session, sessionService), pay);
  expect(await again()).toEqual({ receipt: 11 });
  const say = (event: Event) => sessionService.appendEvent({ session, event });
  const response = { functionResponse: { id: 'of charge', name: 'charge', response: {} } };
  await say(eventOf({ author: 'clerk', content: { role: 'user', parts: [response] } }));
  await expectCode(again(), 'ADK_INVALID_ARGUMENT', 'has a response already');
  await say(eventOf({ author: 'clerk', content: { role: 'model', parts: calling('charge') } }));
  expect(await again()).toEqual({ receipt: 12 });
  for (const branch of ['a', 'b'])
    await say(eventOf({ author: 'clerk', branch, content: { role: 'model', parts: calling('charge') } }));
  const inBranch = (branch: string) =>
    services.exactlyOnce(contextOf(session, sessionService, 'of charge', branch), pay);
  expect([await inBranch('a'), await inBranch('b'), await inBranch('a')]).toEqual(
    [13, 14, 13].map((receipt) => ({ receipt })),
  );
  expect(await rows()).toEqual([11, 12, 13, 14]);
});

outcomeSuite.own(
  'H6',
  'of sixteen that run a call at once one does the work, and all get its result',
  async (context) => {
    const bank = await banking(context);
    const session = await called(bank);
    const others = bank.of(bank.store.peer);
    const results = await Promise.all(
      range(16).map(async (i) => {
        const services = i % 2 ? bank.services : others;
        const read = (await services.sessionService.getSession(keyOf(session)))!;
        return services.exactlyOnce(contextOf(read, services.sessionService), bank.pay);
      }),
    );
    const [row] = await bank.rows();
    expect(await bank.rows()).toEqual([row]);
    expect(results).toEqual(range(16).map(() => ({ receipt: row })));
    expect(journaled(await bank.fresh(session))).toHaveLength(1);
  },
);

outcomeSuite.own(
  'H6',
  'the work of a lease that is lost does not run, nor that of a call that is gone',
  async (context) => {
    const bank = await banking(context);
    const { services, pay, rows, store } = bank;
    const others = bank.of(store.peer);
    const session = await called(bank);
    const lease = await services.leases.acquire(keyOf(session), { holder: 'first' });
    await store.query('update adk_sessions set lease_expires = 1');
    const successor = await others.leases.acquire(keyOf(session), { holder: 'second' });
    // The work does not even begin, so there is nothing to roll back.
    const unexpected = () => Promise.reject(new Error('The work has run.'));
    await expectCode(services.exactlyOnce(contextOf(session, lease.sessionService), unexpected), 'ADK_LEASE_LOST');
    await lease.release();
    expect(await rows()).toEqual([]);
    const read = (await successor.sessionService.getSession(keyOf(session)))!;
    await services.sessionService.rewindSession(keyOf(session), { at: 0, includeLeased: true });
    await expectCode(others.exactlyOnce(contextOf(read, successor.sessionService), pay), 'ADK_STALE_SESSION');
    await successor.release();
    await expectCode(
      services.exactlyOnce(contextOf(read, services.sessionService, 'other'), pay),
      'ADK_INVALID_ARGUMENT',
    );
    expect(await rows()).toEqual([]);
  },
);

outcomeSuite.own(
  'H6',
  'nor that of an agent which is a tool, and runs under the lease of its caller',
  async (context) => {
    const bank = await banking(context);
    const { services, pay, rows, store } = bank;
    const session = await bank.create();
    const lease = await services.leases.acquire(keyOf(session), { holder: 'first' });
    const told: unknown[] = [];
    const inner = clerk(model(calling('charge', 'again')), {
      charge: (toolContext) => services.exactlyOnce(toolContext, pay),
      again: async (toolContext) => {
        await store.query('update adk_sessions set lease_expires = 1');
        await (await bank.of(store.peer).leases.acquire(keyOf(session), { holder: 'second' })).release();
        told.push(await errorOf(services.exactlyOnce(toolContext, pay)));
      },
    });
    const agent = clerk(model(calling('clerk')), { clerk: new AgentTool({ agent: inner }) });
    await run(session, { agent, sessionService: lease.sessionService }).catch(() => undefined);
    await lease.release();
    expect(told).toMatchObject([{ code: 'ADK_LEASE_LOST' }]);
    expect(await rows()).toEqual([11]);
  },
);

outcomeSuite.own(
  'H6',
  'if the answer to the commit of exactlyOnce is lost, the stored result decides',
  async (context) => {
    const bank = await banking(context, { sessions: { onStaleSession: 'reject' } });
    const { pay, rows, store } = bank;
    const session = await called(bank);
    let commits = 0;
    const em = afterCommit(store.orm.em, () => {
      if (++commits === 1) throw Object.assign(new Error('The connection was lost'), { code: 'ECONNRESET' });
    });
    const services = adkServices(em, { sessions: { onStaleSession: 'reject' } });
    expect(await services.exactlyOnce(contextOf(session, services.sessionService), pay)).toEqual({ receipt: 11 });
    expect(commits).toBe(2);
    expect(await rows()).toEqual([11]);
    expect(plain(session)).toEqual(plain(await bank.fresh(session)));

    const once = adkServices(em, { retry: { attempts: 1 } });
    commits = 0;
    await bank.services.sessionService.appendEvent({
      session,
      event: eventOf({ author: 'clerk', content: { role: 'model', parts: calling('other') } }),
    });
    const lost = errorOf(once.exactlyOnce(contextOf(session, once.sessionService, 'of other'), pay));
    expect(await lost).toMatchObject({ code: 'ADK_DATABASE', outcome: 'unknown' });
  },
);

outcomeSuite.own(
  'H6',
  'work that meets a deadlock runs again, and counts once',
  async (context) => {
    const bank = await banking(context);
    const { services, pay, rows, store } = bank;
    const session = await called(bank);
    const other = store.peer.em.fork();
    let runs = 0;
    const result = await services.exactlyOnce(contextOf(session, services.sessionService), async (tx) => {
      const paid = await pay(tx);
      if (++runs === 1) await deadlock(store, tx, other);
      return paid;
    });
    expect(runs).toBe(2);
    expect(result).toEqual({ receipt: 12 });
    expect(await rows()).toEqual([12]);
  },
  (harness) => onInnodb(harness) && withConnections(harness),
);

outcomeSuite.own('H6', 'results are encoded, also by a codec that waits for its key', async (context) => {
  const codec = late({ ...reversing }, () => Promise.resolve());
  const bank = await banking(context, { codec });
  const session = await called(bank);
  const { services, pay, rows, store } = bank;
  const again = async () => {
    const read = (await services.sessionService.getSession(keyOf(session)))!;
    return services.exactlyOnce(contextOf(read, services.sessionService), async (tx) => ({
      ...(await pay(tx)),
      secret: 'rosebud',
    }));
  };
  const result = await again();
  expect(await again()).toEqual(result);
  expect(await rows()).toHaveLength(1);
  expect(JSON.stringify(await store.query('select data from adk_events'))).not.toContain('rosebud');
});

outcomeSuite.own(
  'H6',
  'exactlyOnce refuses a transaction around it, one in its work, and other session services',
  async (context) => {
    const bank = await banking(context);
    const { services, pay, rows, store } = bank;
    const { sessionService } = services;
    const session = await called(bank);
    const toolContext = contextOf(session, sessionService);
    await store.orm.em.fork().transactional(async (tx) => {
      await expectCode(services.exactlyOnce(toolContext, pay), 'ADK_INSIDE_TRANSACTION');
      const joined = contextOf(session, sessionService.withEntityManager(tx));
      await expectCode(services.exactlyOnce(joined, pay), 'ADK_INSIDE_TRANSACTION');
    });
    const nested = () => store.orm.em.fork().transactional(() => Promise.resolve());
    await expectCode(services.exactlyOnce(toolContext, nested), 'ADK_INSIDE_TRANSACTION');
    const append = () => sessionService.appendEvent({ session, event: eventOf() });
    await expectCode(services.exactlyOnce(toolContext, append), 'ADK_INSIDE_TRANSACTION');
    const tx = store.orm.em.fork();
    await tx.begin();
    await sessionService.withEntityManager(tx).appendEvent({ session, event: eventOf() });
    await expectCode(services.exactlyOnce(toolContext, pay), 'ADK_INSIDE_TRANSACTION');
    await tx.rollback();
    await expectCode(services.exactlyOnce(undefined, pay), 'ADK_INVALID_ARGUMENT', 'toolContext');
    const foreign = contextOf(session, undefined as unknown as MikroOrmSessionService);
    await expectCode(services.exactlyOnce(foreign, pay), 'ADK_INVALID_ARGUMENT', 'MikroOrmSessionService');
    expect(await rows()).toEqual([]);
  },
);

outcomeSuite.own('H6', 'after a crash a model learns what each tool has done, and acts on it', async (context) => {
  const bank = await banking(context);
  const { services, pay, rows, fresh } = bank;
  const { sessionService } = services;
  const session = await bank.create();
  const plugins = [toolJournal({ exactlyOnce: ['charge', 'refund'] })];
  const done: string[] = [];
  const tools = (hang: Execute) => ({
    log: () => 'logged',
    charge: (toolContext: Context) => services.exactlyOnce(toolContext, pay),
    mail: hang,
    refund: (toolContext: Context) => services.exactlyOnce(toolContext, pay),
    find: () => ({ sent: true }),
  });
  // The process ends while `mail` runs; `refund` has not begun.
  let arrived = () => {};
  const hangs = new Promise<void>((resolve) => (arrived = resolve));
  const hanging = () => {
    arrived();
    return new Promise<never>(() => undefined);
  };
  void run(session, {
    agent: clerk(model(calling('log', 'charge', 'mail', 'refund')), tools(hanging)),
    sessionService,
    plugins,
  });
  await hangs;

  const taken = await fresh(session);
  await sessionService.appendEvents({ session: taken, events: interruptedToolResponses(taken) });
  const reacting = scriptedModel(({ contents }) => {
    const last = contents.flatMap(({ parts = [] }) => parts).flatMap(({ functionResponse }) => functionResponse ?? []);
    const told = last.map(({ name, response }) => `${name} ${JSON.stringify(response)}`);
    if (done.length === 0) {
      done.push(...told);
      // It repeats what did not take effect, asks about what may have, and repeats nothing that is done.
      const parts = last.flatMap(({ name = '', response }) => {
        const { error } = response as { error?: string };
        if (!error) return [];
        const next = error.includes('did not take effect') ? name : 'find';
        return [{ functionCall: { id: `${next} again`, name: next, args: {} } }];
      });
      return { parts };
    }
    const names = last.slice(4).map(({ name }) => name);
    return `Done: ${names.join()}`;
  });
  const agent = new LlmAgent({
    name: 'clerk',
    model: reacting,
    tools: clerk(
      model(),
      tools(() => 'sent'),
    ).tools,
  });
  const events = await run(session, { agent, sessionService, plugins });
  expect(done).toEqual([
    'log {"result":"logged"}',
    'charge {"receipt":11}',
    expect.stringMatching(/^mail .*may or may not have taken effect/),
    expect.stringMatching(/^refund .*did not take effect: nothing was changed/),
  ]);
  expect(events.at(-1)?.content?.parts).toEqual([{ text: 'Done: find,refund' }]);
  expect(await rows()).toEqual([11, 12]);
});
