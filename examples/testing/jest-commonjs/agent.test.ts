import { LlmAgent, Runner } from '@google/adk';
import { scriptedModel, sessionMatchers, testSessionService } from 'adk-mikro-orm/testing';

expect.extend(sessionMatchers);

test('the answer is stored, and written to the state', async () => {
  const { service: sessionService, close } = await testSessionService();
  const model = scriptedModel(['Nice to meet you, Ada.']);
  const agent = new LlmAgent({ name: 'assistant', model, outputKey: 'answer' });
  const runner = new Runner({ appName: 'support', agent, sessionService });

  const key = { appName: 'support', userId: 'ada', sessionId: 'first' };
  await sessionService.createSession(key);
  const newMessage = { role: 'user', parts: [{ text: 'I am Ada.' }] };
  for await (const event of runner.runAsync({ ...key, newMessage })) expect(event.errorMessage).toBeUndefined();

  const session = await sessionService.getSession(key);
  expect(session).toHaveEvents([
    { author: 'user', text: 'I am Ada.' },
    { author: 'assistant', text: 'Nice to meet you, Ada.' },
  ]);
  expect(session).toHaveState({ answer: 'Nice to meet you, Ada.' });
  await close();
});
