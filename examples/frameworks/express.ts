import { MikroORM } from '@mikro-orm/postgresql';
import { adkServices } from 'adk-mikro-orm';
import express from 'express';
import path from 'node:path';
import { appName, ask, type Said } from './agent.js';
import { chatPart } from './chat.js';
import { eventStream, stopping } from './event-stream.js';
import config from './mikro-orm.config.js';

const orm = await MikroORM.init(config);
// One of each for the whole process. They fork the EntityManager for each call, so requests need no RequestContext.
// Of two answers to a question, as from two windows, the first counts.
const services = adkServices(orm.em, { sessions: { onAnsweredCall: 'reject' } });
const { sessionService, log } = services;

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

const app = express();
app.use(express.json());

app.get('/health', async (_request, response) => {
  await sessionService.getAppState({ appName }); // the server answers, and has our tables
  response.json({ status: 'ok' });
});
app.post('/sessions/:id/messages', async (request, response) => {
  response.json(await ask(services, keyOf(request.params.id), request.body as Said));
});
app.get('/sessions/:id/events', eventStream(log, keyOf).listener);
app.get('/sessions/:id/part', async (request, response) => {
  const { searchParams } = new URL(request.url, 'http://localhost');
  const part = await chatPart(sessionService, keyOf(request.params.id), searchParams);
  response.status(part ? 200 : 400).json(part ?? null);
});
// The routes of an endless chat page.
app.get('/sessions/:id', (_request, response) => void response.type('html').send(PAGE));
app.get('/chat-page.js', (_request, response) => response.sendFile(path.join(import.meta.dirname, 'chat-page.js')));

const server = app.listen(Number(process.env.PORT ?? 8080), () => console.log('listening', server.address()));
// Waits for running turns.
stopping.signal.addEventListener('abort', () => server.close(() => void orm.close()));
