import { setImmediate } from 'node:timers/promises';
import { LlmAgent, Runner, createEvent, type Session } from '@google/adk';
import type { MikroORM } from '@mikro-orm/core';
import { MikroOrmArtifactService, MikroOrmSessionService } from '../../../src/index.js';
import type { DatabaseName } from '../../support/servers.js';
import { openOrm, type Database } from './open-orm.js';
import { contentOf, keyOf, type Acknowledgement, type Call, type Message } from './protocol.js';

// A process that uses the service. A `Child` calls its commands.

const orms = new Map<DatabaseName, MikroORM>();

function serviceOn(name: DatabaseName): MikroOrmSessionService {
  return new MikroOrmSessionService(orms.get(name)!.em);
}

/** An event whose id names its writer. In all scopes it writes its own keys, and keys that all events write. */
function eventOf(id: string) {
  const stateDelta = Object.fromEntries(
    ['', 'user:', 'app:'].flatMap((prefix) => [
      [`${prefix}last`, id],
      [prefix + id, id],
    ]),
  );
  return createEvent({
    id,
    author: 'agent',
    content: { role: 'model', parts: [{ text: id }] },
    actions: { stateDelta },
  });
}

/** Like `eventOf`, but the number of keys does not grow with the events. */
function loopEventOf(id: string, n: number) {
  const stateDelta = Object.fromEntries(
    ['', 'user:', 'app:'].flatMap((prefix) => [
      [`${prefix}last`, id],
      [`${prefix}${n % 5}`, { id, n }],
    ]),
  );
  return createEvent({ id, author: 'agent', actions: { stateDelta } });
}

const commands = {
  async open(database: Database): Promise<void> {
    orms.set(database.name, await openOrm(database));
  },

  async close({ name }: { name: DatabaseName }): Promise<void> {
    await orms.get(name)!.close(true);
    orms.delete(name);
  },

  /** Appends events `<label>-0`, `<label>-1` … to the sessions in turn, each by one handle. */
  async append(request: { name: DatabaseName; sessionIds: string[]; label: string; count: number }): Promise<void> {
    const { name, sessionIds, label, count } = request;
    const service = serviceOn(name);
    const handles = new Map<string, Session>();
    for (let i = 0; i < count; i++) {
      const sessionId = sessionIds[i % sessionIds.length]!;
      const session = handles.get(sessionId) ?? (await service.getSession(keyOf(sessionId)))!;
      handles.set(sessionId, session);
      await service.appendEvent({ session, event: eventOf(`${label}-${i}`) });
    }
  },

  /** Saves artifacts with the contents `contentOf(<label>-0)`, … under one name. @returns their versions. */
  async save(request: { name: DatabaseName; filename: string; label: string; count: number }): Promise<number[]> {
    const { name, filename, label, count } = request;
    const artifacts = new MikroOrmArtifactService(orms.get(name)!.em);
    const versions: number[] = [];
    for (let i = 0; i < count; i++)
      versions.push(
        await artifacts.saveArtifact({ ...keyOf('files'), filename, artifact: contentOf(`${label}-${i}`) }),
      );
    return versions;
  },

  /** Saves under one name in each database until the process ends, and reports what was acknowledged. */
  async saveForever({ filename, label }: { filename: string; label: string }): Promise<void> {
    const saveTo = async (name: DatabaseName, orm: MikroORM) => {
      const artifacts = new MikroOrmArtifactService(orm.em);
      for (let i = 0; ; i++) {
        const id = `${label}-${i}`;
        await artifacts.saveArtifact({ ...keyOf('files'), filename, artifact: contentOf(id) });
        await acknowledge({ name, sessionId: 'files', id });
      }
    };
    await Promise.all([...orms].map(([name, orm]) => saveTo(name, orm)));
  },

  /** In each database, saves a stream that yields 6 MB and never ends. Reports when 2.5 MB have been yielded. */
  async stream({ filename }: { filename: string }): Promise<void> {
    async function* content(name: DatabaseName) {
      for (let n = 0; n < 60; n++) {
        if (n === 25) await acknowledge({ name, sessionId: 'streams', id: filename });
        yield Buffer.alloc(100_000, n);
        await setImmediate();
      }
      await new Promise(() => {});
    }
    const mimeType = 'a/b';
    const saveTo = ([name, orm]: [DatabaseName, MikroORM]) =>
      new MikroOrmArtifactService(orm.em).saveArtifactStream({
        ...keyOf('streams'),
        filename,
        mimeType,
        content: content(name),
      });
    await Promise.all([...orms].map(saveTo));
  },

  /**
   * Answers a call as the recipe does.
   *
   * @param request.dies whether the process ends after the answer is stored and before the agent runs.
   * @returns how often the agent ran.
   * @throws CallAnsweredError
   */
  async answer(request: { name: DatabaseName; sessionId: string; id: string; dies?: boolean }): Promise<number> {
    const { name, sessionId, id, dies } = request;
    const { appName, userId } = keyOf(sessionId);
    const options = { onAnsweredCall: 'reject', defaultNumRecentEvents: 2 } as const;
    const sessionService = new MikroOrmSessionService(orms.get(name)!.em, options);
    let runs = 0;
    const beforeAgentCallback = () => {
      if (dies) process.kill(process.pid, 'SIGKILL');
      runs++;
      return { role: 'model', parts: [{ text: 'Thank you.' }] };
    };
    const agent = new LlmAgent({ name: 'agent', model: 'none', beforeAgentCallback });
    const runner = new Runner({ appName, agent, sessionService });
    const answer = { functionResponse: { id, name: 'ask_user', response: { by: process.pid } } };
    const newMessage = { role: 'user', parts: [answer] };
    for await (const _ of runner.runAsync({ userId, sessionId, newMessage }));
    return runs;
  },

  async create({ name, sessionId, label }: { name: DatabaseName; sessionId: string; label: string }): Promise<unknown> {
    return (await serviceOn(name).createSession({ ...keyOf(sessionId), state: { createdBy: label } })).state;
  },

  async getOrCreate(request: { name: DatabaseName; sessionId: string; label: string }): Promise<unknown> {
    const { name, sessionId, label } = request;
    return (await serviceOn(name).getOrCreateSession({ ...keyOf(sessionId), state: { createdBy: label } })).state;
  },

  /**
   * Appends to a session of each database until the process ends, and reports what was acknowledged.
   *
   * @param request.beside other sessions to append to at the same time; each writes only its own keys.
   */
  async appendForever(request: { sessionId: string; label: string; beside?: readonly string[] }): Promise<void> {
    const { sessionId, label, beside = [] } = request;
    const appendTo = async (name: DatabaseName, to: string) => {
      const service = serviceOn(name);
      const session = (await service.getSession(keyOf(to)))!;
      for (let n = 0; ; n++) {
        const id = `${label}-${n}`;
        const event =
          to === sessionId ? loopEventOf(id, n) : createEvent({ id, actions: { stateDelta: { last: id } } });
        await service.appendEvent({ session, event });
        await acknowledge({ name, sessionId: to, id });
      }
    };
    await Promise.all([...orms.keys()].flatMap((name) => [sessionId, ...beside].map((to) => appendTo(name, to))));
  },
};

export type Commands = typeof commands;

process.on('message', ({ call, command, request }: Call<keyof Commands>) => {
  (commands[command] as (request: unknown) => Promise<unknown>)(request).then(
    (result) => send({ call, result }),
    (error: unknown) => {
      const { message, code } = error as Error & { code?: string };
      send({ call, error: { message, ...(code !== undefined && { code }) } });
    },
  );
});
process.on('disconnect', () => process.exit());
send({ ready: true });

function send(message: Message): void {
  process.send!(message);
}

/** Waits until the message is in the channel: a kill would lose all messages that wait in this process. */
async function acknowledge(acknowledged: Acknowledgement): Promise<void> {
  await new Promise((resolve) => process.send!({ acknowledged } satisfies Message, resolve));
  // better-sqlite3 never waits, so nothing else would run.
  await setImmediate();
}
