import { MikroORM } from '@mikro-orm/postgresql';
import { adkServices } from 'adk-mikro-orm';
import fastify from 'fastify';
import { appName, ask, type Said } from './agent.js';
import { eventStream, stopping } from './event-stream.js';
import config from './mikro-orm.config.js';

const orm = await MikroORM.init(config);
const services = adkServices(orm.em);
const { sessionService, log } = services;

/** The user from your login, never from the URL. */
const keyOf = (sessionId: string) => ({ appName, userId: 'ada', sessionId });

const app = fastify();
app.addHook('onClose', () => orm.close());

app.get('/health', async () => {
  await sessionService.getAppState({ appName }); // the server answers, and has our tables
  return { status: 'ok' };
});
app.post<{ Params: { id: string }; Body: Said }>('/sessions/:id/messages', ({ params, body }) =>
  ask(services, keyOf(params.id), body),
);
const events = eventStream(log, keyOf);
app.get('/sessions/:id/events', ({ raw }, reply) => {
  reply.hijack();
  events.listener(raw, reply.raw);
});

await app.listen({ port: Number(process.env.PORT ?? 8080), host: '0.0.0.0' });
console.log('listening', app.server.address());
// Waits for running turns.
stopping.signal.addEventListener('abort', () => void app.close());
