import { BaseLlm, LlmAgent, Runner, type BaseLlmConnection, type LlmResponse } from '@google/adk';
import { MikroORM } from '@mikro-orm/sqlite';
import { MikroOrmSessionService, adkEntities, migrate } from 'adk-mikro-orm';

/** Answers without a key and without a network. */
class FakeModel extends BaseLlm {
  override async *generateContentAsync(): AsyncGenerator<LlmResponse, void> {
    yield { content: { role: 'model', parts: [{ text: 'Nice to meet you, Ada.' }] } };
  }

  override async connect(): Promise<BaseLlmConnection> {
    throw new Error('The fake model has no live connection.');
  }
}

test('the answer is stored, and written to the state', async () => {
  const orm = await MikroORM.init({ dbName: ':memory:', entities: adkEntities() });
  await migrate(orm);
  const sessionService = new MikroOrmSessionService(orm.em);
  const agent = new LlmAgent({ name: 'assistant', model: new FakeModel({ model: 'fake' }), outputKey: 'answer' });
  const runner = new Runner({ appName: 'support', agent, sessionService });

  const key = { appName: 'support', userId: 'ada', sessionId: 'first' };
  await sessionService.createSession(key);
  const newMessage = { role: 'user', parts: [{ text: 'I am Ada.' }] };
  for await (const event of runner.runAsync({ ...key, newMessage })) expect(event.errorMessage).toBeUndefined();

  const session = await sessionService.getSession(key);
  expect(session?.events.map(({ author }) => author)).toEqual(['user', 'assistant']);
  expect(session?.state).toEqual({ answer: 'Nice to meet you, Ada.' });
  await orm.close();
});
