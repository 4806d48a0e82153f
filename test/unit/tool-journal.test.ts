import { FunctionTool, InMemorySessionService, LlmAgent, Runner, Workflow, setLogger } from '@google/adk';
import { toolJournal } from '../../src/conversation/tool-journal.js';
import * as clock from '../../src/model/clock.js';
import { scriptedModel } from '../../src/testing/scripted-model.js';

// A copy of the module, whose clock a test can replace.
jest.mock('../../src/model/clock.js', () => ({
  __esModule: true,
  ...jest.requireActual<typeof clock>('../../src/model/clock.js'),
}));

/** A workflow whose second node calls a tool, and what that has done. */
function flow() {
  const ran: unknown[] = [];
  const model = scriptedModel([{ name: 'charge' }, 'Paid.', 'More.']);
  const charge = new FunctionTool({ name: 'charge', description: 'Charges.', execute: () => ran.push('charge') });
  const greet = () => 'Hello.';
  const agent = new Workflow({
    name: 'flow',
    edges: [['START', greet, new LlmAgent({ name: 'clerk', model, tools: [charge] })]],
  });
  return { ran, model, agent };
}

/** Each look at the clock is 10 s after the last one. @returns how many s have passed. */
function hurry(): () => number {
  let seconds = 0;
  jest.spyOn(clock, 'now').mockImplementation(() => (seconds += 10) * 1000);
  return () => seconds;
}

beforeEach(() => setLogger(null));
afterEach(() => jest.restoreAllMocks());

test('H6 a tool whose call is never stored does not run, and the run ends', async () => {
  hurry();
  const { ran, model, agent } = flow();
  const runner = new Runner({
    ...{ appName: 'bank', agent, plugins: [toolJournal()] },
    sessionService: new InMemorySessionService(),
  });
  const { id: sessionId } = await runner.sessionService.createSession({ appName: 'bank', userId: 'ada' });
  const newMessage = { role: 'user', parts: [{ text: 'Go.' }] };
  // It has read the first event, and leaves.
  for await (const event of runner.runAsync({ userId: 'ada', sessionId, newMessage })) if (event) break;
  expect(ran).toEqual([]);
  expect(model.requests).toHaveLength(1);
});

test('H6 a reader that is too slow for its tool gets the error', async () => {
  const seconds = hurry();
  const { ran, agent } = flow();
  const sessionService = new InMemorySessionService();
  const runner = new Runner({ appName: 'bank', agent, plugins: [toolJournal()], sessionService });
  const { id: sessionId } = await sessionService.createSession({ appName: 'bank', userId: 'ada' });
  const newMessage = { role: 'user', parts: [{ text: 'Go.' }] };
  const read = async () => {
    for await (const event of runner.runAsync({ userId: 'ada', sessionId, newMessage }))
      while (event && seconds() < 40) await new Promise((resolve) => void setImmediate(resolve));
  };
  await expect(read()).rejects.toThrow(/was not stored within 30 s: the reader/);
  expect(ran).toEqual([]);
});
