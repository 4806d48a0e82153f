import { createHash } from 'node:crypto';
import { createInterface } from 'node:readline';
import { createEvent, type Event } from '@google/adk';
import { MikroORM, Utils, type Options } from '@mikro-orm/core';
import type { DialectName } from '../../../entities/dialect-name.js';
import { AdkMigrator, adkMigrations } from '../../../migrations/index.js';
import { databaseOptions } from '../../../mikro-orm.config.js';
import { EventLog, MikroOrmSessionService, SessionLeases, adkEntities, migrate } from '../../../src/index.js';

// A process that works on a database with the MikroORM that it finds, for majors.test.ts.

export interface Request {
  command: keyof typeof commands;
  url: string;
  dialect: DialectName;
  isFile: boolean;
  keepLargeEventsInParts: boolean;
  sessionId?: string;
}

export type Answer = { result: unknown } | { error: string };

const APP = { appName: 'app', userId: 'ada' };

/** Values that drivers and MikroORM tend to change. */
const STATE = {
  half: 0.1 + 0.2,
  largest: Number.MAX_VALUE,
  smallest: Number.MIN_VALUE,
  text: 'ä \u0000 \ud83d\ude00 \ud83d " \\ \' %',
  nothing: null,
  nested: { z: [1, { a: [] }], a: '' },
};

const TIME = 1_763_700_000_000;

const eventsOf = (keepLargeEventsInParts: boolean): Event[] => [
  createEvent({ id: 'plain', author: 'user', timestamp: TIME + 0.1, content: { parts: [{ text: STATE.text }] } }),
  createEvent({
    id: 'state',
    author: 'agent',
    timestamp: TIME + 1 / 3,
    actions: { stateDelta: { step: 1, 'user:values': STATE, 'app:values': STATE, 'temp:gone': 1 } },
  }),
  // Larger than MariaDB's default packet, so it is kept in parts there.
  ...(keepLargeEventsInParts
    ? [
        createEvent({
          id: 'large',
          author: 'tool',
          timestamp: TIME + 2,
          content: { parts: [{ text: 'ö'.repeat(9e6) }] },
        }),
      ]
    : []),
  createEvent({ id: 'last', author: 'agent', timestamp: TIME - 5, output: null, invocationId: 'i' }),
];

/** Calls a method that MikroORM 6 and 7 name differently. */
function call<Result>(target: object, six: string, seven: string): Promise<Result> {
  const method = Reflect.get(target, six in target ? six : seven) as () => Promise<Result>;
  return method.call(target);
}

const commands = {
  version: () => ({ mikroOrm: Utils.getORMVersion(), node: process.versions.node }),

  migrate: async ({ orm }: Work) => migrate(orm),

  up: async ({ orm }: Work) => (await orm.migrator.up()).map(({ name }) => name),

  down: async ({ orm }: Work) => (await orm.migrator.down({ to: 0 })).map(({ name }) => name),

  pending: async ({ orm }: Work) =>
    (await call<{ name: string }[]>(orm.migrator, 'getPendingMigrations', 'getPending')).map(({ name }) => name),

  needed: ({ orm }: Work) => call<boolean>(orm.migrator, 'checkMigrationNeeded', 'checkSchema'),

  /** Like `migration:list`. */
  async list({ orm }: Work) {
    const rows = await call<{ name: string; executed_at: Date }[]>(
      orm.migrator,
      'getExecutedMigrations',
      'getExecuted',
    );
    return rows.map(({ name, executed_at }) => [name, executed_at.toISOString().slice(0, 2)]);
  },

  /** Makes a session and appends each kind of event. */
  async write({ orm, keepLargeEventsInParts, sessionId = '' }: Work) {
    const service = new MikroOrmSessionService(orm.em);
    const session = await service.createSession({ ...APP, sessionId, state: { ...STATE, 'user:owner': sessionId } });
    for (const event of eventsOf(keepLargeEventsInParts)) await service.appendEvent({ session, event });
  },

  /** Continues an existing session, while others may do the same. */
  async append({ orm, sessionId = '' }: Work) {
    const service = new MikroOrmSessionService(orm.em);
    const session = await service.getOrCreateSession({ ...APP, sessionId });
    const ids: string[] = [];
    for (let i = 0; i < 10; i++) {
      const event = createEvent({ author: 'agent', actions: { stateDelta: { [`${process.pid}-${i}`]: i, last: i } } });
      await service.appendEvent({ session, event });
      ids.push(event.id);
    }
    return ids;
  },

  /** @returns the fencing token. */
  lease: ({ orm, sessionId = '' }: Work) =>
    new SessionLeases(orm.em).run({ ...APP, sessionId }, { holder: 'tester' }, (lease) => Promise.resolve(lease.token)),

  async read({ orm }: Work) {
    const service = new MikroOrmSessionService(orm.em);
    const { sessions } = await service.listSessions(APP);
    const full = await Promise.all(sessions.map(({ id }) => service.getSession({ ...APP, sessionId: id })));
    const log: unknown[] = [];
    for await (const entry of new EventLog(orm.em).since(0)) log.push(entry);
    return { sessions, full, log, user: await service.getUserState(APP), app: await service.getAppState(APP) };
  },

  delete: ({ orm, sessionId = '' }: Work) => new MikroOrmSessionService(orm.em).deleteSession({ ...APP, sessionId }),
};

interface Work extends Request {
  orm: MikroORM;
}

async function run(request: Request): Promise<Answer> {
  const options: Options = {
    ...(await databaseOptions(request.url)),
    entities: adkEntities(),
    extensions: [AdkMigrator],
    migrations: {
      migrationsList: adkMigrations(request.dialect),
      snapshot: false,
      silent: true,
      allOrNothing: !request.isFile,
    },
  };
  const orm = await MikroORM.init(options);
  try {
    const result: unknown = await commands[request.command]({ ...request, orm });
    return { result: result ?? null };
  } catch (error) {
    return { error: String(error) };
  } finally {
    await orm.close(true);
  }
}

/** Replaces long texts by their hashes. */
const shortened = (_key: string, value: unknown): unknown =>
  typeof value === 'string' && value.length > 10_000 ? createHash('sha256').update(value).digest('hex') : value;

// Knex, which MikroORM 6 runs on, prints that `create table` commits on MySQL.
console.log = () => undefined;
for await (const line of createInterface({ input: process.stdin })) {
  process.stdout.write(`${JSON.stringify(await run(JSON.parse(line) as Request), shortened)}\n`);
}
