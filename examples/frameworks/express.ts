import { MikroORM } from '@mikro-orm/postgresql';
import { adkServices } from 'adk-mikro-orm';
import express from 'express';
import path from 'node:path';
import { appName, ask } from './agent.js';
import { chatPart } from './chat.js';
import { eventStream, stopping } from './event-stream.js';
import config from './mikro-orm.config.js';
import { send } from './send.js';

const orm = await MikroORM.init(config);
// One of each for the whole process. They fork the EntityManager for each call, so requests need no RequestContext.
const { sessionService, log } = adkServices(orm.em);

/** The user from your login, never from the URL. */
const keyOf = (sessionId: string) => ({ appName, userId: 'ada', sessionId });

const PAGE = `<!doctype html>
<html lang="en">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Support</title>
<body style="margin: 0">
<main id="chat"></main>
<script type="module">
  import { showChat } from '/chat-page.js';
  showChat(document.getElementById('chat'), location.pathname);
</script>
`;

const queryOf = (url: string) => new URL(url, 'http://localhost').searchParams;
/** The event after which a page begins to follow. Later, the browser sends the last id that it received. */
const after = (url: string) => queryOf(url).get('after') ?? undefined;

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
  send(eventStream(log, keyOf(request.params.id), request.get('last-event-id') ?? after(request.url)), response),
);
app.get('/sessions/:id/part', async (request, response) => {
  const part = await chatPart(sessionService, keyOf(request.params.id), queryOf(request.url));
  response.status(part ? 200 : 400).json(part ?? null);
});
// The routes of an endless chat page.
app.get('/sessions/:id', (_request, response) => void response.type('html').send(PAGE));
app.get('/chat-page.js', (_request, response) => response.sendFile(path.join(import.meta.dirname, 'chat-page.js')));

const server = app.listen(Number(process.env.PORT ?? 8080), () => console.log('listening', server.address()));
// Waits for running turns.
stopping.signal.addEventListener('abort', () => server.close(() => void orm.close()));
