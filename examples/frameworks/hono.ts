import { serve } from '@hono/node-server';
import { MikroORM } from '@mikro-orm/postgresql';
import { adkServices } from 'adk-mikro-orm';
import { Hono } from 'hono';
import { appName, ask, type Said } from './agent.js';
import { eventStream, stopping } from './event-stream.js';
import config from './mikro-orm.config.js';

const orm = await MikroORM.init(config);
const services = adkServices(orm.em);
const { sessionService, log } = services;

/** The user from your login, never from the URL. */
const keyOf = (sessionId: string) => ({ appName, userId: 'ada', sessionId });

const app = new Hono();
app.get('/health', async (context) => {
  await sessionService.getAppState({ appName }); // the server answers, and has our tables
  return context.json({ status: 'ok' });
});
app.post('/sessions/:id/messages', async (context) => {
  const said = await context.req.json<Said>();
  return context.json(await ask(services, keyOf(context.req.param('id')), said));
});
const events = eventStream(log, keyOf);
app.get('/sessions/:id/events', ({ req }) => events.fetch(req.raw));

const server = serve({ fetch: app.fetch, port: Number(process.env.PORT ?? 8080) }, (address) =>
  console.log('listening', address),
);
// Waits for running turns.
stopping.signal.addEventListener('abort', () => server.close(() => void orm.close()));
