import { FunctionTool, LlmAgent, Runner } from '@google/adk';
import { DeadlockException, type MikroORM } from '@mikro-orm/core';
import { once } from 'node:events';
import { setTimeout } from 'node:timers/promises';
import { EventLog, MikroOrmSessionService, SessionLeases } from '../../../src/index.js';
import { scriptedModel } from '../../../src/testing/index.js';
import { faulty, range, saying, takesLock } from '../../contract/tools.js';
import { scraper, type Scrape } from './prometheus.js';

const KEY = { appName: 'support', userId: 'ada' };
const telemetry = true;

/**
 * Runs conversations and occasional failures with telemetry. Each metric has a value after the first round.
 *
 * @param rounds how often to scrape the metrics after the first time.
 * @param roundMs the least time that a round takes.
 */
export async function observeWork(orm: MikroORM, rounds: number, roundMs: number): Promise<Scrape[]> {
  const scrape = scraper();
  const service = new MikroOrmSessionService(orm.em, { telemetry });
  const strict = new MikroOrmSessionService(orm.em, { telemetry, onStaleSession: 'reject' });
  const model = scriptedModel(({ contents }) =>
    contents.at(-1)?.parts?.[0]?.functionResponse
      ? 'Your order is on its way.'
      : { name: 'find_order', args: { order: 17 } },
  );
  const execute = () => ({ status: 'on its way' });
  const tools = [new FunctionTool({ name: 'find_order', description: 'Finds an order.', execute })];
  const runner = new Runner({
    appName: KEY.appName,
    agent: new LlmAgent({ name: 'support', model, tools }),
    sessionService: service,
  });

  const newMessage = { role: 'user', parts: [{ text: 'Where is order 17?' }] };
  const converse = async () => {
    const { id: sessionId } = await service.createSession(KEY);
    for await (const _ of runner.runAsync({ ...KEY, sessionId, newMessage }));
  };
  const appendBehind = async (to: MikroOrmSessionService) => {
    const session = await service.createSession(KEY);
    const behind = await to.getSession({ ...KEY, sessionId: session.id });
    await service.appendEvent({ session, event: saying('first') });
    await to.appendEvent({ session: behind!, event: saying('second') });
  };
  const meetDeadlock = async () => {
    let fails = 1;
    const em = faulty(orm.em, {
      statement: (text) => takesLock(text) && fails-- > 0,
      error: () => new DeadlockException(new Error('deadlock')),
    });
    const session = await service.createSession(KEY);
    await new MikroOrmSessionService(em, { telemetry }).appendEvent({ session, event: saying('x') });
  };
  const loseLease = async () => {
    const { id: sessionId } = await service.createSession(KEY);
    const lease = await new SessionLeases(orm.em, { telemetry, ttlMs: 300 }).acquire(
      { ...KEY, sessionId },
      { holder: 'worker' },
    );
    await service.deleteSession({ ...KEY, sessionId });
    if (!lease.signal.aborted) await once(lease.signal, 'abort');
  };

  const stop = new AbortController();
  const log = new EventLog(orm.em, { telemetry });
  const watch = async () => {
    for await (const _ of log.watch(0, {}, { signal: stop.signal })) await setTimeout(roundMs / 40);
  };
  const watching = watch();
  const scrapes = [await scrape()];
  for (const round of range(rounds)) {
    // Before the others: one of them would write its append too, on a connection without the fault.
    if (round % 9 === 0) await meetDeadlock();
    await Promise.all([
      setTimeout(roundMs),
      ...range(Math.round(4 + 3 * Math.sin(round / 6))).map(converse),
      ...(round % 9 === 0 ? [appendBehind(service)] : []),
      // Rejected, since the object is behind.
      ...(round % 12 === 0 ? [appendBehind(strict).catch(() => undefined)] : []),
      ...(round % 25 === 0 ? [loseLease()] : []),
    ]);
    scrapes.push(await scrape());
  }
  stop.abort();
  await watching;
  return scrapes;
}
