/**
 * Money that moves once. `npm run demo` runs it after the first demo.
 *
 * An agent moves money between two accounts, which are rows of the host's own table. Its process is killed after a
 * random statement, again and again. The next process tells the model what has happened, and the model decides what to repeat.
 */
import {
  FunctionTool,
  LlmAgent,
  LogLevel,
  Runner,
  isFinalResponse,
  setLogLevel,
  type Event,
  type LlmRequest,
} from '@google/adk';
import { LockMode, MikroORM, defineEntity, p, type EntityManager } from '@mikro-orm/core';
import assert from 'node:assert/strict';
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { z } from 'zod';
import { databaseOptions } from '../mikro-orm.config.js';
import {
  adkEntities,
  adkServices,
  interruptedToolResponses,
  migrate,
  toolJournal,
  type AdkServices,
  type Lease,
} from '../src/index.js';
import { scriptedModel, type ScriptedAnswer } from '../src/testing/index.js';
import * as print from './print.js';
import { onceAbandoned } from './processes.js';

const KEY = { appName: 'bank', userId: 'ada', sessionId: 'savings' };
const REQUEST = 'Move 10 euros to my savings, please.';
const EUROS = 10;

/** How long the next process waits for a dead one. In production, use the default of 30 seconds. */
const LEASE = { ttlMs: 1_000 };

/** A process runs about as many statements until it has answered a question. */
const STATEMENTS = 61;

/** How often the demo kills a process at least, and for how long, in ms. */
const DEMO_KILLS = 5;
const DEMO_MS = 20_000;

/** Draws the same numbers of statements in each run (Lehmer's generator). */
function* randomStatements(seed: number): Generator<number, never> {
  for (let drawn = seed; ;) {
    drawn = (drawn * 48_271) % 2_147_483_647;
    yield 1 + (drawn % STATEMENTS);
  }
}

const Account = defineEntity({
  name: 'Account',
  tableName: 'bank_accounts',
  properties: { name: p.string().primary(), euros: p.integer() },
});

/** @param onStatement is called after each statement, before its answer is used. */
async function open(onStatement: () => void = () => undefined): Promise<{ orm: MikroORM; services: AdkServices }> {
  setLogLevel(LogLevel.ERROR);
  const orm = await MikroORM.init({
    ...(await databaseOptions(process.env.ADK_DATABASE_URL ?? '')),
    entities: [...adkEntities(), Account],
    debug: ['query'],
    logger: onStatement,
  });
  return { orm, services: adkServices(orm.em, { leases: LEASE }) };
}

/** Moves money in the transaction that also stores what the tool returns. */
async function move(tx: EntityManager, euros: number) {
  const options = { lockMode: LockMode.PESSIMISTIC_WRITE };
  const current = await tx.findOneOrFail(Account, 'current', options);
  const savings = await tx.findOneOrFail(Account, 'savings', options);
  current.euros -= euros;
  savings.euros += euros;
  return { moved: euros };
}

function teller({ exactlyOnce }: AdkServices): LlmAgent {
  const moveMoney = new FunctionTool({
    name: 'move_money',
    description: 'Moves money to the savings.',
    parameters: z.object({ euros: z.number() }),
    execute: ({ euros }, toolContext) => exactlyOnce(toolContext, (tx) => move(tx, euros)),
  });
  const thank = new FunctionTool({ name: 'thank', description: 'Writes a card.', execute: () => 'Thank you.' });
  return new LlmAgent({ name: 'teller', model: scriptedModel(script), tools: [moveMoney, thank] });
}

/** What a model would say. It knows nothing but the conversation. */
function script({ contents }: LlmRequest): ScriptedAnswer {
  const parts = contents.flatMap((content) => content.parts ?? []);
  const since = parts.slice(parts.findLastIndex(({ text }) => text === REQUEST));
  const isMoved = since.some(({ functionResponse: of }) => of?.name === 'move_money' && of.response?.moved === EUROS);
  if (isMoved) return 'Your money is in your savings.';
  const calls = [{ name: 'move_money', args: { euros: EUROS } }, { name: 'thank' }];
  return { parts: calls.map((functionCall) => ({ functionCall })) };
}

/** Answers one question after the other, or only what is open. */
async function turns(services: AdkServices, { sessionService, signal }: Lease, isLast: boolean): Promise<true> {
  for (;;) {
    // Step 1. The calls that the killed process left open are answered with what is known of them.
    const session = await sessionService.getOrCreateSession(KEY);
    await sessionService.appendEvents({ session, events: interruptedToolResponses(session) });

    // Step 2. The next turn, or the rest of the interrupted one.
    const last = session.events.at(-1);
    const isAnswered = !last || (last.author !== 'user' && isFinalResponse(last) && last.content?.role === 'model');
    if (isAnswered && isLast) return true;
    const newMessage = { role: 'user', parts: [{ text: isAnswered ? REQUEST : 'Please go on.' }] };
    const plugins = [toolJournal({ exactlyOnce: ['move_money'] })];
    const runner = new Runner({ appName: KEY.appName, agent: teller(services), sessionService, plugins });
    for await (const event of runner.runAsync({ ...KEY, newMessage, abortSignal: signal }))
      if (event.errorMessage) throw new Error(event.errorMessage);
    signal.throwIfAborted();
  }
}

/** @param killAt the statement after which the process is killed; with 0 it answers what is open, and ends. */
async function work(killAt: number): Promise<void> {
  onceAbandoned(() => process.exit(1));
  let statements = 0;
  const { orm, services } = await open(() => {
    if (++statements === killAt) process.kill(process.pid, 'SIGKILL');
  });
  const options = { holder: `teller ${process.pid}`, waitMs: 60_000, autoCreateSession: true };
  for (let isDone = false; !isDone;)
    isDone = await services.leases.run(KEY, options, (lease) =>
      turns(services, lease, killAt === 0).catch((error: unknown) => {
        // A busy computer may renew a lease of a second too late. Nothing was written since; it begins again.
        if (!lease.signal.aborted) throw error;
        return false;
      }),
    );
  await orm.close();
}

/** Runs a process to its end. @returns whether it was killed. */
async function ended(killAt: number): Promise<boolean> {
  const child = fork(fileURLToPath(import.meta.url), ['work', String(killAt)]);
  const [code, signal] = (await once(child, 'exit')) as [number | null, NodeJS.Signals | null];
  if (code === 0 || signal === 'SIGKILL') return signal === 'SIGKILL';
  throw new Error(`A process has failed: ${code ?? signal}`);
}

/** @param kills how often a process is killed; without it as often as there is time. */
async function main(kills?: number): Promise<void> {
  process.env.ADK_DATABASE_URL ??= `sqlite:${join(await mkdtemp(join(tmpdir(), 'adk-transfer-')), 'bank.sqlite')}`;
  const { orm, services } = await open();
  await migrate(orm);
  const text = 'create table if not exists bank_accounts (name varchar(20) primary key, euros integer not null)';
  await orm.em.getConnection().execute(text, [], 'run');
  // On a server, another demo may have made them, and the conversation continues.
  const accounts = ['current', 'savings'].map((name) => ({ name, euros: 0 }));
  await orm.em.fork().upsertMany(Account, accounts, { onConflictAction: 'ignore' });

  print.heading('MONEY THAT MOVES ONCE');
  const end = Date.now() + DEMO_MS;
  let i = 0;
  for (const killAt of randomStatements(48)) {
    if (kills === undefined ? i >= DEMO_KILLS && Date.now() > end : i === kills) break;
    if (!(await ended(killAt))) throw new Error('A process has ended early.');
    i++;
    if (kills === undefined) print.note(`kill -9 after statement ${killAt}`);
    else print.gauge('kill -9', i, kills);
  }
  await ended(0);

  const { events } = await services.sessionService.getOrCreateSession(KEY);
  const asked = events.filter(
    ({ author, content }) => author === 'user' && content?.parts?.[0]?.text === REQUEST,
  ).length;
  const errors = events.flatMap(errorsOf);
  const [current, savings] = await orm.em.fork().find(Account, {}, { orderBy: { name: 'asc' } });
  await orm.close();
  print.said('asked', `${asked} times to move ${EUROS} euros`);
  print.said('model', `${errors.length} times it learned that a transfer did not take effect, and repeated it`);
  print.said('bank', `current account ${current?.euros} euros, savings ${savings?.euros} euros`);
  assert(
    errors.every((error) => error.includes('did not take effect')),
    'The model is never left in doubt.',
  );
  assert.deepEqual(
    [current?.euros, savings?.euros],
    [-asked * EUROS, asked * EUROS],
    'Each transfer took effect once.',
  );
}

const errorsOf = ({ content }: Event): string[] =>
  (content?.parts ?? []).flatMap(({ functionResponse: of }) =>
    of?.name === 'move_money' && typeof of.response?.error === 'string' ? [of.response.error] : [],
  );

const [role, killAt] = process.argv.slice(2);
if (role === 'work') await work(Number(killAt));
else await main(role === undefined ? undefined : Number(role));
