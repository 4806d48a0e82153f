import { MikroORM } from '@mikro-orm/postgresql';
import { adkServices } from 'adk-mikro-orm';
import express from 'express';
import { appName, ask } from './agent.js';
import { eventStream, stopping } from './event-stream.js';
import config from './mikro-orm.config.js';
import { send } from './send.js';

const orm = await MikroORM.init(config);
// One of each for the process. They fork the EntityManager for each call, so requests need no RequestContext for them.
const { sessionService, log } = adkServices(orm.em);

/** The user from your login, never from the URL. */
const keyOf = (sessionId: string) => ({ appName, userId: 'ada', sessionId });

const app = express();
app.use(express.json());

app.get('/health', async (_request, response) => {
  await sessionService.getAppState({ appName }); // the server answers, and has our tables
  response.json({ status: 'ok' });
});
app.post('/sessions/:id/messages', async (request, response) => {
  const { text } = request.body as { text: string };
  response.json(await ask(sessionService, keyOf(request.params.id), text));
});
app.get('/sessions/:id/events', (request, response) =>
  send(eventStream(log, keyOf(request.params.id), request.get('last-event-id')), response),
);

const server = app.listen(Number(process.env.PORT ?? 8080), () => console.log('listening', server.address()));
// Runs that are under way end first.
stopping.signal.addEventListener('abort', () => server.close(() => void orm.close()));
