import {
  FunctionTool,
  LlmAgent,
  LongRunningFunctionTool,
  ParallelAgent,
  SequentialAgent,
  TruncatingContextCompactor,
  TokenBasedContextCompactor,
  createEvent,
  type BaseAgent,
  type CompactedEvent,
  type Event,
} from '@google/adk';
import type { Content, Part } from '../tools.js';
import { MikroOrmSessionService } from '../../../src/index.js';
import { range } from '../tools.js';
import { KEY, model, text, turn, useDatabase } from './support.js';

describe('a history that is cut', () => {
  const host = useDatabase('better-sqlite');

  beforeEach(() => host.service.createSession(KEY));

  test.each(Object.entries(conversations()))(
    'K7 begins with a turn of the user, in %s',
    async (_name, conversation) => {
      const { agent, shown, turns } = conversation();
      for (const message of turns) await turn(host.service, agent, message);
      const { length } = (await host.service.getSession(KEY))!.events;
      expect(length).toBeGreaterThan(12);

      const requests = new Set<number>();
      for (const newest of range(length + 1).map((n) => n + 1)) {
        const fork = await host.service.forkSession(KEY, { as: `cut ${newest}` });
        const bounded = new MikroOrmSessionService(host.orm.em, { defaultNumRecentEvents: newest });
        shown.length = 0;
        await turn(bounded, agent, 'And?', undefined, fork.id);
        expect(shown.length).toBeGreaterThan(0);
        for (const contents of shown) expectWhole(contents);
        requests.add(shown[0]!.length);
      }
      // It was cut.
      expect(requests.size).toBeGreaterThan(1);
    },
  );
});

/** As models want it: the user begins, and what answers a call comes right after it. */
function expectWhole(contents: readonly Content[]): void {
  const [first] = contents;
  expect(first).toMatchObject({ role: 'user' });
  expect(first!.parts!.some(({ functionResponse }) => functionResponse)).toBe(false);
  for (const [i, { parts = [] }] of contents.entries()) {
    const called = contents[i - 1]?.parts?.flatMap(({ functionCall }) => functionCall?.id ?? []) ?? [];
    for (const { functionResponse } of parts) if (functionResponse) expect(called).toContain(functionResponse.id);
  }
}

let calls = 0;
const call = (name: string, args: Record<string, unknown> = {}): Part => ({
  functionCall: { id: `call ${++calls}`, name, args },
});

const respond = (functionCall: Part, response: Record<string, unknown>): Part[] => [
  { functionResponse: { id: functionCall.functionCall!.id!, name: functionCall.functionCall!.name!, response } },
];

/** An agent that answers from a list and then always the same, and what its models were shown. */
function cast(...answers: Part[][]) {
  const shown: Content[][] = [];
  const llm = () =>
    Object.assign(model(), {
      async *generateContentAsync({ contents }: { contents: Content[] }) {
        shown.push(structuredClone(contents));
        yield await Promise.resolve({ content: { role: 'model', parts: answers.shift() ?? text('So it is.') } });
      },
    });
  const tools = [
    new FunctionTool({ name: 'look_up', description: 'Looks something up.', execute: () => ({ found: true }) }),
    new LongRunningFunctionTool({ name: 'approve', description: 'Asks.', execute: () => ({ status: 'pending' }) }),
  ];
  return { shown, llm, tools };
}

interface Conversation {
  agent: BaseAgent;
  shown: Content[][];
  turns: (string | Part[])[];
}

function conversations(): Record<string, () => Conversation> {
  return {
    'parallel calls': () => {
      const looks = () => [call('look_up'), call('look_up')];
      const { shown, llm, tools } = cast(looks(), looks(), text('1'), looks(), text('2'), text('3'), looks());
      return { shown, agent: new LlmAgent({ name: 'clerk', model: llm(), tools }), turns: ['1', '2', '3', '4'] };
    },
    'long-running tools': () => {
      const [a, b] = [call('approve'), call('approve')];
      const answers = [[call('look_up'), a], text('Wait.'), text('1'), text('2'), [b], text('Wait.'), text('3')];
      const { shown, llm, tools } = cast(...answers);
      const turns = ['1', '2', respond(a, { yes: 1 }), '3', respond(b, { yes: 2 }), '4', '5'];
      return { shown, agent: new LlmAgent({ name: 'clerk', model: llm(), tools }), turns };
    },
    subagents: () => {
      const over = call('transfer_to_agent', { agentName: 'expert' });
      const { shown, llm, tools } = cast(text('Hello.'), [over], [call('look_up')], text('Found.'));
      const expert = new LlmAgent({ name: 'expert', description: 'Knows.', model: llm(), tools });
      const agent = new LlmAgent({ name: 'clerk', model: llm(), tools, subAgents: [expert] });
      return { shown, agent, turns: ['1', '2', '3', '4', '5', '6'] };
    },
    'agents side by side': () => {
      const { shown, llm, tools } = cast([call('look_up')], [call('look_up')]);
      const side = ['a', 'b'].map((name) => new LlmAgent({ name, model: llm(), tools }));
      const last = new LlmAgent({ name: 'last', model: llm(), tools });
      /* eslint-disable @typescript-eslint/no-deprecated -- what its users have now instead of a Workflow */
      const subAgents = [new ParallelAgent({ name: 'both', subAgents: side }), last];
      return { shown, agent: new SequentialAgent({ name: 'all', subAgents }), turns: ['1', '2', '3'] };
      /* eslint-enable @typescript-eslint/no-deprecated */
    },
    'a conversation that is summarised': () => {
      const { shown, llm, tools } = cast(text('1'), [call('look_up')], text('2'), text('3'), [call('look_up')]);
      const contextCompactors = [
        new TokenBasedContextCompactor({
          tokenThreshold: 200,
          eventRetentionSize: 4,
          summarizer: { summarize: (events) => Promise.resolve(summaryOf(events)) },
        }),
      ];
      const agent = new LlmAgent({ name: 'clerk', model: llm(), tools, contextCompactors });
      return { shown, agent, turns: range(5).map((n) => `${n} ${'x'.repeat(400)}`) };
    },
    'a conversation that is truncated': () => {
      const { shown, llm, tools } = cast(text('1'), [call('look_up')], text('2'), text('3'), [call('look_up')]);
      const contextCompactors = [new TruncatingContextCompactor({ threshold: 20 })];
      const agent = new LlmAgent({ name: 'clerk', model: llm(), tools, contextCompactors });
      return { shown, agent, turns: ['1', '2', '3', '4', '5', '6'] };
    },
  };
}

function summaryOf(events: Event[]): CompactedEvent {
  const endTime = events.at(-1)!.timestamp;
  const compactedContent = 'They talked.';
  return {
    ...createEvent({ author: 'system' }),
    isCompacted: true,
    startTime: events[0]!.timestamp,
    endTime,
    compactedContent,
  };
}
