import { createInterface } from 'node:readline';
import { createEvent, type Session } from '@google/adk';
import { MikroORM } from '@mikro-orm/core';
import { databaseOptions } from '../../../mikro-orm.config.js';
import { MikroOrmSessionService, adkEntities } from '../../../src/index.js';

/** The events that a process appended and read between two lines. */
export interface Work {
  /** Ids of the events whose append was acknowledged. */
  own: string[];
  shared: string[];
  errors: string[];
}

const APP = { appName: 'app', userId: 'user' };

/** The most events that a process appends to each session. If a deploy takes longer, it waits for the end. */
const MOST = 1_000;

/** For each URL on stdin: works on the database until the next line, then reports what it did. */
let stop: (() => Promise<void>) | undefined;
for await (const line of createInterface({ input: process.stdin })) {
  if (stop) {
    await stop();
    stop = undefined;
  } else {
    stop = await start(line);
  }
}

async function start(url: string): Promise<() => Promise<void>> {
  const orm = await MikroORM.init({ ...(await databaseOptions(url)), entities: adkEntities(), ensureDatabase: false });
  const service = new MikroOrmSessionService(orm.em);
  const own = await service.createSession({ ...APP, sessionId: `own-${process.pid}` });
  const shared = await service.getOrCreateSession({ ...APP, sessionId: 'shared' });
  const done: Work = { own: [], shared: [], errors: [] };
  /** The events that it appends in all. Each process keeps the whole shared session in memory, so more would not fit. */
  let wanted = MOST;
  let end = () => {};
  const isEnding = new Promise<void>((resolve) => (end = resolve));

  const append = async (session: Session, acknowledged: string[]) => {
    const event = createEvent({
      author: 'user',
      content: { role: 'user', parts: [{ text: 'hello' }] },
      actions: { stateDelta: { n: acknowledged.length, 'user:n': process.pid } },
    });
    await service.appendEvent({ session, event });
    acknowledged.push(event.id);
  };
  const appendAll = async () => {
    while (done.own.length < wanted && done.errors.length === 0) {
      try {
        await append(own, done.own);
        await append(shared, done.shared);
        await service.getSession({ ...APP, sessionId: 'shared', config: { numRecentEvents: 20 } });
      } catch (error) {
        done.errors.push(error instanceof Error ? `${error.message} ${String(error.cause)}` : String(error));
      }
    }
  };
  // Before the deploy, while it runs, and after it.
  await append(own, done.own);
  const working = appendAll().then(() => isEnding);
  console.log('working');
  return async () => {
    wanted = done.own.length + 1;
    end();
    await working;
    await appendAll();
    await orm.close(true);
    console.log(JSON.stringify(done));
  };
}
