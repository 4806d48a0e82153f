import { LlmAgent, LongRunningFunctionTool } from '@google/adk';
import { MikroOrmSessionService, toMessages } from '../../../src/index.js';
import { KEY, call, model, text, turn, useDatabase } from './support.js';

describe('the messages of a run', () => {
  const host = useDatabase('better-sqlite');

  test('are those that a user saw, live and after loading it', async () => {
    await host.service.createSession(KEY);
    const tools = [new LongRunningFunctionTool({ name: 'ask', description: 'Asks.', execute: () => undefined })];
    const answers = [[...text('One question.'), ...call('ask', { about: 'tea' })], text('Green it is.')];
    const agent = new LlmAgent({ name: 'clerk', model: model(...answers), tools });

    const live = await turn(host.service, agent, 'Order tea.');
    const [id] = live.at(-1)!.longRunningToolIds!;
    const response = { answer: 'green' };
    live.push(...(await turn(host.service, agent, [{ functionResponse: { id: id!, name: 'ask', response } }])));

    const loaded = await new MikroOrmSessionService(host.orm.em).getSession(KEY);
    const messages = toMessages(loaded!.events);
    expect(messages).toMatchObject([
      { role: 'user', text: 'Order tea.' },
      { role: 'agent', text: 'One question.', toolCalls: [{ id, name: 'ask', isLongRunning: true, response }] },
      { role: 'agent', text: 'Green it is.' },
    ]);
    expect(toMessages(live).map((message) => message.id)).toEqual(messages.slice(1).map((message) => message.id));
  });
});
