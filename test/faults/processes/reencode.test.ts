import { createEvent } from '@google/adk';
import { MikroORM } from '@mikro-orm/core';
import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { adkEntities } from '../../../entities/index.js';
import { MikroOrmSessionService, SessionMaintenance, migrate } from '../../../src/index.js';
import { range, textOf } from '../../contract/tools.js';
import { createDatabase, databasesOfUrls } from '../../support/servers.js';
import { codecWith, type Job, type Report } from './reencode-protocol.js';
import { WorkerBundle } from '../../support/worker-bundle.js';

const KILLS = 3;
const EVENTS = 100;

const bundle = new WorkerBundle('test/faults/processes/reencode-worker.ts');
const children: ChildProcess[] = [];

beforeAll(() => bundle.build());

afterAll(async () => {
  for (const child of children) child.kill('SIGKILL');
  await bundle.remove();
});

/** Starts a process, and waits until it has done this much. */
async function start(job: Job, done: number): Promise<{ child: ChildProcess; seen: { done: number } }> {
  const child = fork(bundle.path, { execArgv: [] });
  children.push(child);
  const seen = { done: 0 };
  let error: string | undefined;
  child.on('message', (report: Report) => {
    if ('error' in report) error = report.error;
    else seen.done = report.done;
  });
  child.send(job);
  while (seen.done < done && error === undefined) await once(child, 'message');
  if (error !== undefined) throw new Error(error);
  return { child, seen };
}

async function kill(child: ChildProcess): Promise<void> {
  const hasEnded = once(child, 'exit');
  child.kill('SIGKILL');
  await hasEnded;
}

test.each(databasesOfUrls())(
  'M3 reencode that is killed again and again while another process appends is continued, on %s',
  async (name) => {
    const database = await createDatabase(name);
    const orm = await MikroORM.init({ ...database.options, entities: adkEntities() });
    const owner = { appName: 'app', userId: 'ada' };
    /** The names of the keys that encode the texts of events and state. */
    const keysInUse = async () => {
      const keys: unknown[] = [];
      for (const [table, column] of [
        ['events', 'data'],
        ['session_states', 'value'],
        ['user_states', 'value'],
        ['changes', 'data'],
      ]) {
        const rows: { content: unknown }[] = await orm.em
          .getConnection()
          .execute(`select ${column} as content from adk_${table} where ${column} is not null`);
        for (const { content } of rows)
          keys.push(/"key": ?"(\w+)"/.exec(typeof content === 'string' ? content : JSON.stringify(content))?.[1]);
      }
      return keys;
    };
    try {
      await migrate(orm);
      const old = new MikroOrmSessionService(orm.em, { codec: codecWith('old') });
      for (const sessionId of ['one', 'two', 'three']) {
        const session = await old.createSession({ ...owner, sessionId, state: { given: 1, 'user:own': 1 } });
        const events = range(EVENTS).map((n) =>
          createEvent({ author: 'agent', content: { parts: [{ text: `${n}` }] }, actions: { stateDelta: { n } } }),
        );
        await old.appendEvents({ session, events });
      }
      const appending = await start({ database, work: { ...owner, sessionId: 'one' } }, 1);
      for (const _ of range(KILLS)) {
        const { child } = await start({ database, work: 'reencode' }, 2);
        await kill(child);
        // Killed in the middle: its work stays, and some is left.
        const keys = await keysInUse();
        expect(new Set(keys)).toEqual(new Set(['old', 'new']));
      }
      const maintenance = new SessionMaintenance(orm.em, { codec: codecWith('new', 'old') });
      await maintenance.reencode();
      await kill(appending.child);
      const isDone = async () => {
        const { done, skipped } = await maintenance.reencode();
        expect(done.unreadable).toBe(0);
        return done.texts === 0 && skipped === 0;
      };
      while (!(await isDone())) continue;

      expect(new Set(await keysInUse())).toEqual(new Set(['new']));
      // Without the old key.
      const service = new MikroOrmSessionService(orm.em, { codec: codecWith('new') });
      for (const sessionId of ['one', 'two', 'three']) {
        const session = await service.getSession({ ...owner, sessionId });
        const texts = session?.events.map((event) => textOf(event)) ?? [];
        expect(texts.slice(0, EVENTS)).toEqual(range(EVENTS).map(String));
        const appended = texts.slice(EVENTS);
        expect(appended).toEqual(range(appended.length).map((n) => `appended ${n + 1}`));
        expect(session?.state).toMatchObject({ given: 1, 'user:own': 1, n: EVENTS - 1 });
        // No old value has overwritten a newer one.
        if (sessionId === 'one') expect(session?.state['appended']).toBe(appended.length);
        // The last append may be committed but not reported.
        if (sessionId === 'one') expect(appended.length).toBeGreaterThanOrEqual(appending.seen.done);
        else expect(appended).toEqual([]);
      }
    } finally {
      for (const child of children) child.kill('SIGKILL');
      await orm.close(true);
      await database.drop();
    }
  },
);
