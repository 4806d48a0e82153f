import { serve } from '@hono/node-server';
import { MikroORM } from '@mikro-orm/postgresql';
import { adkServices } from 'adk-mikro-orm';
import { Hono } from 'hono';
import { appName, ask } from './agent.js';
import { eventStream, stopping } from './event-stream.js';
import config from './mikro-orm.config.js';

const orm = await MikroORM.init(config);
const { sessionService, log } = adkServices(orm.em);

/** The user from your login, never from the URL. */
const keyOf = (sessionId: string) => ({ appName, userId: 'ada', sessionId });

const app = new Hono();
app.get('/health', async (context) => {
  await sessionService.getAppState({ appName }); // the server answers, and has our tables
  return context.json({ status: 'ok' });
});
app.post('/sessions/:id/messages', async (context) => {
  const { text } = await context.req.json<{ text: string }>();
  return context.json(await ask(sessionService, keyOf(context.req.param('id')), text));
});
app.get('/sessions/:id/events', ({ req }) => eventStream(log, keyOf(req.param('id')), req.header('last-event-id')));

const server = serve({ fetch: app.fetch, port: Number(process.env.PORT ?? 8080) }, (address) =>
  console.log('listening', address),
);
// Waits for running turns.
stopping.signal.addEventListener('abort', () => server.close(() => void orm.close()));
