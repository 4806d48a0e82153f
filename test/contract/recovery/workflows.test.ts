import {
  FunctionNode,
  InMemorySessionService,
  LlmAgent,
  NodeTool,
  RequestInput,
  Runner,
  Workflow,
  type BaseSessionService,
  type NodeContext,
} from '@google/adk';
import { z } from 'zod';
import type { Part } from '../tools.js';
import { MikroOrmSessionService, openLongRunningCalls } from '../../../src/index.js';
import { KEY, call, model, text, useDatabase } from '../runner/support.js';

const INPUT = 'adk_request_input';

/** A node that asks for values, one after the other, and says them. */
const asking = (name: string, ids: string[], schemas: { responseSchema?: z.ZodType; inputSchema?: z.ZodType } = {}) =>
  new FunctionNode(
    name,
    async function* ({ resumeInputs }: NodeContext) {
      const missing = ids.find((id) => resumeInputs[id] === undefined);
      if (missing)
        yield new RequestInput({
          interruptId: missing,
          message: `${missing}?`,
          responseSchema: schemas.responseSchema,
        });
      else yield `${name} ${ids.map((id) => JSON.stringify(resumeInputs[id])).join()}`;
    },
    { rerunOnResume: true, inputSchema: schemas.inputSchema },
  );

const flow = (...nodes: FunctionNode[]) =>
  new Workflow({ name: 'flow', edges: nodes.map((node, i) => [i === 0 ? 'START' : nodes[i - 1]!, node]) });

const answer = (id: string, response: Record<string, unknown>): Part[] => [
  { functionResponse: { id, name: INPUT, response } },
];

const NUMBER = z.object({ n: z.number() });

type Root = ConstructorParameters<typeof Runner>[0]['agent'];

/** Makes the root anew for each service, and what a person says, with the questions that wait after it. */
const CONVERSATIONS: Record<string, [() => Root, [said: Part[], waiting: string[]][]]> = {
  'a schema that the first answer does not fit': [
    () => flow(asking('one', ['a'], { responseSchema: NUMBER })),
    [
      [text('Go.'), ['a']],
      [answer('a', { n: 'many' }), ['a']],
      [answer('a', { n: 2 }), []],
      [answer('a', { n: 3 }), []],
    ],
  ],
  'a plain text': [
    () => flow(asking('one', ['a'])),
    [
      [text('Go.'), ['a']],
      [text('blue'), []],
      [text('Again.'), ['a']],
      [answer('a', { result: 'red' }), []],
    ],
  ],
  'two questions, one after the other': [
    () => flow(asking('one', ['a']), asking('two', ['b'])),
    [
      [text('Go.'), ['a']],
      [answer('a', { result: 1 }), ['b']],
      // ADK 2.0 runs the first node again, and asks once more.
      [text('blue'), ['b']],
      [answer('b', { result: 1 }), []],
    ],
  ],
  'two questions, of which a plain text answers the first': [
    () => flow(asking('one', ['a']), asking('two', ['b'])),
    [
      [text('Go.'), ['a']],
      [text('blue'), ['b']],
      // ADK still counts the first question, and takes the text for neither.
      [text('red'), ['a', 'b']],
      [answer('b', { result: 'red' }), ['a']],
    ],
  ],
  'a workflow as a tool': [
    () =>
      new LlmAgent({
        name: 'clerk',
        model: model(call('one', {}), text('Thanks.')),
        tools: [new NodeTool(asking('one', ['a'], { inputSchema: z.object({}) }))],
      }),
    [
      [text('Go.'), ['a', 'one']],
      [answer('a', { result: 1 }), []],
    ],
  ],
};

describe('workflows that ask a person', () => {
  const host = useDatabase('better-sqlite');

  /** @returns what the run has said, or its error. */
  async function said(sessionService: BaseSessionService, agent: Root, parts: Part[]): Promise<string> {
    const runner = new Runner({ appName: KEY.appName, agent, sessionService });
    const texts: string[] = [];
    try {
      const newMessage = { role: 'user', parts: structuredClone(parts) };
      for await (const { content, output } of runner.runAsync({ ...KEY, newMessage }))
        texts.push(JSON.stringify(output) ?? content?.parts?.map((part) => part.text ?? 'calls').join() ?? '');
    } catch (error) {
      texts.push((error as Error).message);
    }
    return texts.join('\n');
  }

  test.each(Object.entries(CONVERSATIONS))('H5 %s', async (_name, [made, turns]) => {
    const strict = new MikroOrmSessionService(host.orm.em, { onAnsweredCall: 'reject' });
    const reference = new InMemorySessionService();
    await Promise.all([strict, reference].map((service) => service.createSession(KEY)));
    const [agent, other] = [made(), made()];
    for (const [parts, waiting] of turns) {
      const expected = await said(reference, other, parts);
      const shown = await said(strict, agent, parts);
      // A second answer is refused before ADK refuses it.
      if (!/has an answer to this call already/.test(shown)) expect(shown).toBe(expected);
      else expect(expected).toMatch(/already been answered|does not match any interrupt/);
      const session = (await strict.getSession(KEY))!;
      const open = openLongRunningCalls(session).map(({ id, name }) => (name === INPUT ? id : name));
      expect([parts, open.sort()]).toEqual([parts, waiting]);
      const { calls } = await strict.findOpenCalls({ appName: KEY.appName });
      expect(calls.map(({ id, name }) => (name === INPUT ? id : name)).sort()).toEqual(waiting);
    }
  });
});
