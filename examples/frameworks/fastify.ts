import { MikroORM } from '@mikro-orm/postgresql';
import { adkServices } from 'adk-mikro-orm';
import fastify from 'fastify';
import { appName, ask } from './agent.js';
import { eventStream, stopping } from './event-stream.js';
import config from './mikro-orm.config.js';

const orm = await MikroORM.init(config);
const { sessionService, log } = adkServices(orm.em);

/** The user from your login, never from the URL. */
const keyOf = (sessionId: string) => ({ appName, userId: 'ada', sessionId });

const app = fastify();
app.addHook('onClose', () => orm.close());

app.get('/health', async () => {
  await sessionService.getAppState({ appName }); // the server answers, and has our tables
  return { status: 'ok' };
});
app.post<{ Params: { id: string }; Body: { text: string } }>('/sessions/:id/messages', ({ params, body }) =>
  ask(sessionService, keyOf(params.id), body.text),
);
app.get<{ Params: { id: string }; Headers: { 'last-event-id'?: string } }>(
  '/sessions/:id/events',
  async ({ params, headers }) => eventStream(log, keyOf(params.id), headers['last-event-id']),
);

await app.listen({ port: Number(process.env.PORT ?? 8080), host: '0.0.0.0' });
console.log('listening', app.server.address());
// Waits for running turns.
stopping.signal.addEventListener('abort', () => void app.close());
