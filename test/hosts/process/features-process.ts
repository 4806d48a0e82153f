import { setTimeout } from 'node:timers';
import { createEvent } from '@google/adk';
import type { MikroORM } from '@mikro-orm/core';
import pg from 'pg';
import {
  EventLog,
  MikroOrmSessionService,
  SessionLeases,
  SessionProjection,
  type EventLogOptions,
} from '../../../src/index.js';
import { createStudio } from '../../../packages/studio/src/index.js';
import { openOrm, type Database } from '../../faults/processes/open-orm.js';
import { keyOf } from '../../faults/processes/protocol.js';

// A process that uses a feature, closes its ORM, and must then have nothing to wait for.

export interface Given {
  database: Database;
  feature: keyof typeof FEATURES;
  /** The port of a server that accepts connections and never answers. */
  silentPort: number;
}

const KEY = keyOf('s');

/** Follows the log until the first event. */
async function watchOne(orm: MikroORM, options?: EventLogOptions): Promise<void> {
  const stop = new AbortController();
  for await (const _ of new EventLog(orm.em, options).watch(0, {}, { signal: stop.signal })) stop.abort();
}

const FEATURES = {
  watch: (orm: MikroORM) => watchOne(orm),
  /** A loop that nobody continues or ends. */
  abandoned: async (orm: MikroORM) => {
    await new EventLog(orm.em).watch(0)[Symbol.asyncIterator]().next();
  },
  listen: async (orm: MikroORM, silentPort: number) => {
    await watchOne(orm, { postgresql: { listen: () => new pg.Client({ host: '127.0.0.1', port: silentPort }) } });
    await watchOne(orm, { postgresql: { listen: () => new pg.Client(String(orm.config.get('clientUrl'))) } });
  },
  /** A lease that is never released. */
  lease: async (orm: MikroORM) => {
    await new SessionLeases(orm.em).acquire(KEY, { holder: 'h' });
  },
  projection: async (orm: MikroORM) => {
    const stop = new AbortController();
    const apply = async () => stop.abort();
    await new SessionProjection(orm.em, { name: 'p', apply, clear: apply }).watch({ signal: stop.signal });
  },
  studio: async (orm: MikroORM) => {
    const studio = createStudio(orm.em);
    const live = () => studio.fetch(new Request('http://localhost/live?app=app&user=user&session=s'));
    // The first response is neither read nor cancelled.
    await live();
    const reader = (await live()).body!.getReader();
    await reader.read();
    const text = new TextDecoder().decode((await reader.read()).value);
    if (!text.includes('data:')) throw new Error(`No event: ${text}`);
    await reader.cancel();
  },
  telemetry: async (orm: MikroORM) => {
    await new MikroOrmSessionService(orm.em, { telemetry: true }).getSession(KEY);
    await watchOne(orm, { telemetry: true });
  },
};

/** Its timer does not keep the process alive; whatever does is printed. */
const PATIENCE_MS = 15_000;

async function main({ database, feature, silentPort }: Given): Promise<void> {
  const orm = await openOrm(database);
  const service = new MikroOrmSessionService(orm.em);
  const session = await service.getOrCreateSession(KEY);
  await service.appendEvent({ session, event: createEvent({ author: 'agent' }) });
  await FEATURES[feature](orm, silentPort);
  await orm.close(true);
  setTimeout(() => {
    console.error(`Still there: ${process.getActiveResourcesInfo().join()}`);
    process.exit(1);
  }, PATIENCE_MS).unref();
}

main(JSON.parse(process.argv[2] ?? '') as Given).catch((error: unknown) => {
  console.error(error);
  process.exit(1);
});
