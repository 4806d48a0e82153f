/**
 * A conversation that survives `kill -9`. Run it with `npm run demo`.
 *
 * One process lets an agent work until it has a question for the user, and is killed. A second process, which knows
 * nothing of the first one, finds the question in the database and answers it. The agent then continues, writes a file,
 * and remembers in the next conversation what was said in this one.
 */
import { LogLevel, Runner, setLogLevel, type LlmRequest } from '@google/adk';
import { MikroORM } from '@mikro-orm/core';
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { databaseOptions } from '../mikro-orm.config.js';
import { adkEntities, adkServices, migrate } from '../src/index.js';
import * as print from './print.js';
import { travelAgent } from './travel-agent.js';

type Content = LlmRequest['contents'][number];

const APP = { appName: 'travel', userId: 'ada' };
const QUESTION = 'I need a flight from Vienna to Lisbon on Friday.';
const ANSWER = 'The 09:40, please. A window seat.';
const NEXT_QUESTION = 'Which seat did I take to Lisbon?';

async function openRunner() {
  setLogLevel(LogLevel.ERROR);

  // Step 1. Your own MikroORM, with our entities beside yours. `databaseOptions` picks the driver for a URL; an
  // application would write `driver: PostgreSqlDriver, clientUrl: …` here.
  const url = process.env.ADK_DATABASE_URL ?? '';
  const orm = await MikroORM.init({ ...(await databaseOptions(url)), entities: adkEntities() });

  // Step 2. The tables. A service in production runs `mikro-orm migration:up` in its pipeline instead; see the README.
  await migrate(orm);

  // Step 3. The services, and a Runner on them. Nothing else of an ADK program changes.
  // Of two answers to one question, the second is refused, so that the agent runs once.
  const services = adkServices(orm.em, { sessions: { onAnsweredCall: 'reject' } });
  const shown: Content[][] = [];
  const agent = travelAgent(({ contents }: LlmRequest) => shown.push(structuredClone(contents)));
  const runner = new Runner({ appName: APP.appName, agent, ...services });

  const run = async (sessionId: string, newMessage: Content) => {
    for await (const event of runner.runAsync({ userId: APP.userId, sessionId, newMessage })) {
      print.progress(event);
    }
  };
  return { orm, ...services, run, shown };
}

/** The first process. */
async function ask(): Promise<void> {
  const { orm, sessionService, run, shown } = await openRunner();
  print.heading(`PROCESS 1 (pid ${process.pid})`);

  // Step 4. A session, and a first turn: the agent calls a tool, then `ask_user`, and there the run pauses.
  const session = await sessionService.createSession(APP);
  print.said('user', QUESTION);
  await run(session.id, { role: 'user', parts: [{ text: QUESTION }] });

  print.modelRequest('WHAT THE MODEL WAS SHOWN LAST', shown.at(-1));
  await print.events(orm.em.fork(), session);

  // Step 5. The process could wait for the answer for days. It won't: who gets this message kills it.
  process.send?.('paused');
  await once(process, 'disconnect');
}

/** The second process: nothing of the first is left but the database. */
async function answer(): Promise<void> {
  const { orm, sessionService, artifactService, memoryService, run, shown } = await openRunner();
  print.heading(`PROCESS 2 (pid ${process.pid})`);

  // Step 6. A question is open: the call of a long-running tool that nobody has answered, in whichever session.
  const [call] = (await sessionService.findOpenCalls(APP)).calls;
  const session = call && (await sessionService.getSession({ ...APP, sessionId: call.sessionId }));
  if (!session) throw new Error('The agent has not asked anything. A model may do that; try again.');
  print.note(`read ${session.events.length} events of session ${session.id}`);
  print.said('asked', String(call.args?.['question']));
  print.said('user', ANSWER);

  // Step 7. The answer is the response to that call. The Runner reads the session, and the agent continues.
  const response = { id: call.id, name: call.name, response: { answer: ANSWER } };
  await run(session.id, { role: 'user', parts: [{ functionResponse: response }] });

  print.modelRequest('WHAT THE MODEL WAS SHOWN FIRST IN THIS PROCESS', shown[0]);
  await print.events(orm.em.fork(), session, session.events.length);
  await print.state(orm.em.fork(), session);
  for (const { filename, version, size } of await artifactService.findArtifacts(APP))
    print.note(`the agent has written ${filename}: version ${version}, ${size} bytes`);

  // Step 8. What was said is remembered. A server would let `memoryService.projection()` do that in the background.
  const whole = await sessionService.getSession({ ...APP, sessionId: session.id });
  if (whole) await memoryService.addSessionToMemory(whole);
  const next = await sessionService.createSession(APP);
  print.heading('THE NEXT CONVERSATION');
  print.said('user', NEXT_QUESTION);
  await run(next.id, { role: 'user', parts: [{ text: NEXT_QUESTION }] });
  await orm.close();
}

/** Starts the first process, kills it when it has paused, and starts the second. */
async function main(): Promise<void> {
  // Both processes find the database by this variable.
  process.env.ADK_DATABASE_URL ??= `sqlite:${join(await mkdtemp(join(tmpdir(), 'adk-demo-')), 'demo.sqlite')}`;
  const [scheme, file] = process.env.ADK_DATABASE_URL.split(/:(.*)/);
  print.title({
    // The URL of a server can hold a password.
    database: scheme === 'sqlite' ? `SQLite, ${file}` : `${scheme} (ADK_DATABASE_URL)`,
    model: process.env.GEMINI_API_KEY ? 'gemini-2.5-flash' : 'scripted (for Gemini, set GEMINI_API_KEY)',
  });

  const self = fileURLToPath(import.meta.url);
  const first = fork(self, ['ask']);
  const ended = once(first, 'exit');
  const paused = await Promise.race([once(first, 'message'), ended.then(() => undefined)]);
  if (!paused) throw new Error('The first process has ended early.');

  first.kill('SIGKILL');
  const [, signal] = (await ended) as [number | null, string | null];
  print.killed(first.pid, signal);

  const [code] = (await once(fork(self, ['answer']), 'exit')) as [number | null];
  if (code !== 0) throw new Error('The second process has failed.');
}

const [role] = process.argv.slice(2);
if (role === 'ask') await ask();
else if (role === 'answer') await answer();
else await main();
