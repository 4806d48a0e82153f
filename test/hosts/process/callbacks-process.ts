import { createEvent } from '@google/adk';
import { MikroORM } from '@mikro-orm/core';
import { trace } from '@opentelemetry/api';
import { BasicTracerProvider } from '@opentelemetry/sdk-trace-base';
import { importFrom } from '../../../packages/import/src/index.js';
import {
  EventLog,
  MikroOrmSessionService,
  SessionLeases,
  SessionMaintenance,
  SessionProjection,
} from '../../../src/index.js';
import type { CodecData } from '../../../src/model/codec.js';
import { createStudio } from '../../../packages/studio/src/index.js';
import { openOrm, type Database } from '../../faults/processes/open-orm.js';
import { keyOf } from '../../faults/processes/protocol.js';
import { DATABASES } from '../../support/harnesses/databases.js';
import { ADK_JS_ON_SQLITE } from '../transfer/stores/adk-js.js';

// Runs in its own process, which an unhandled rejection would end.

/** The result of a call, and whether it called the failing function. */
export interface Outcome {
  what: string;
  wasCalled: boolean;
  result: unknown;
}

const database = JSON.parse(process.argv[2] ?? '') as Database;
const outcomes: Outcome[] = [];

const WAYS = {
  throws: () => {
    throw new Error('of the host');
  },
  rejects: () => Promise.reject(new Error('of the host')) as unknown as never,
};

async function observe(
  what: string,
  work: (bad: () => never) => Promise<unknown>,
  ways: Partial<typeof WAYS> = WAYS,
): Promise<void> {
  for (const [way, fail] of Object.entries(ways)) {
    let wasCalled = false;
    const result = await work(() => {
      wasCalled = true;
      return fail();
    }).catch((error: unknown) => String(error));
    outcomes.push({ what: `${what} ${way}`, wasCalled, result });
  }
}

const execute = ({ em }: MikroORM, sql: string) => em.getConnection().execute(sql);

async function main(): Promise<void> {
  let log: () => void = () => undefined;
  const orm = await openOrm(database, { logger: () => log() });
  const service = new MikroOrmSessionService(orm.em);
  const session = await service.createSession({ ...keyOf('s'), state: { a: 1 } });
  await service.appendEvent({ session, event: createEvent({ id: 'first' }) });

  await observe('logger', async (bad) => {
    log = bad;
    orm.config.getLogger().setDebugMode(['query']);
    const { id } = await service.appendEvent({ session, event: createEvent({ id: 'logged' }) });
    orm.config.getLogger().setDebugMode(false);
    return id;
  });

  const observed = new MikroOrmSessionService(orm.em, { telemetry: true });
  await observe(
    'span processor',
    async (onEnd) => {
      const nothing = () => Promise.resolve();
      const spanProcessors = [{ onStart: () => undefined, onEnd, forceFlush: nothing, shutdown: nothing }];
      trace.setGlobalTracerProvider(new BasicTracerProvider({ spanProcessors }));
      const { id } = await observed.appendEvent({ session, event: createEvent({ id: 'observed' }) });
      trace.disable();
      return id;
    },
    // The SDK ignores its result.
    { throws: WAYS.throws },
  );

  const maintenance = new SessionMaintenance(orm.em);
  const records: unknown[] = [];
  for await (const record of maintenance.exportSessions({ appName: 'app' })) records.push(record);
  await observe('onProgress of importSessions', async (onProgress) => {
    const { done } = await maintenance.importSessions(records, { onProgress });
    return done.records === records.length;
  });
  await observe('onProgress of reencode', async (onProgress) => {
    const codec = { name: 'none', encode: (data: Uint8Array) => ({ data }), decode: ({ data }: CodecData) => data };
    const { done } = await new SessionMaintenance(orm.em, { codec }).reencode({
      appName: 'app',
      dryRun: true,
      onProgress,
    });
    return done.texts > 0;
  });
  await observe('onProgress of trim', async (onProgress) => {
    await service.appendEvent({ session, event: createEvent({}) });
    const { done } = await maintenance.trim({ appName: 'app', keepLast: 1, onProgress });
    return done.events > 0;
  });

  const source = await MikroORM.init({
    driver: await DATABASES.sqlite.driver(),
    dbName: ':memory:',
    entities: [],
    discovery: { warnWhenNoEntities: false },
  });
  for (const statement of ADK_JS_ON_SQLITE) await execute(source, statement);
  await execute(source, `update app_states set state = '[]'`);
  const copy = (options: object) => importFrom({ from: source.em, to: orm.em, dryRun: true, ...options });
  await observe('onProgress of importFrom', async (onProgress) => (await copy({ onProgress })).done.events);
  await observe('onRefused', async (onRefused) => (await copy({ onRefused })).done.events);
  await source.close(true);

  await execute(orm, `update adk_events set data = '5'`);
  await observe('onDamage', async (onDamage) => {
    const lenient = new MikroOrmSessionService(orm.em, { onDamagedEvent: 'skip', onDamage });
    return (await lenient.getSession(keyOf('s')))?.events.length;
  });

  await execute(orm, 'alter table adk_sessions rename to other_sessions');
  await execute(orm, 'alter table adk_projections rename to other_projections');
  const name = 'p';
  const apply = () => Promise.resolve();
  const failing: Record<string, (onError: () => never) => Promise<unknown>> = {
    service: (onError) => new MikroOrmSessionService(orm.em, { onError }).getSession(keyOf('s')),
    log: (onError) => new EventLog(orm.em, { onError }).session(keyOf('s')).head(),
    leases: (onError) => new SessionLeases(orm.em, { onError }).current(keyOf('s')),
    maintenance: (onError) => new SessionMaintenance(orm.em, { onError }).stats(),
    projection: (onError) => new SessionProjection(orm.em, { onError, name, apply, clear: apply }).catchUp(),
    studio: async (onError) => {
      const studio = createStudio(orm.em, { onError });
      return (await studio.fetch(new Request('http://localhost/'))).status;
    },
  };
  for (const [who, call] of Object.entries(failing)) await observe(`onError of ${who}`, call);
  await orm.close(true);
}

main().then(
  () => process.send!(outcomes, () => process.disconnect()),
  (error: unknown) => {
    console.error(error);
    process.exit(1);
  },
);
