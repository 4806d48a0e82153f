import { fork } from 'node:child_process';
import { once } from 'node:events';
import { text } from 'node:stream/consumers';
import { MikroORM } from '@mikro-orm/core';
import { adkEntities, migrate } from '../../../src/index.js';
import { availableDatabases, createDatabase } from '../../support/servers.js';
import { WorkerBundle } from '../../support/worker-bundle.js';
import type { Outcome } from './callbacks-process.js';

const bundle = new WorkerBundle('test/hosts/process/callbacks-process.ts');

beforeAll(() => bundle.build());
afterAll(() => bundle.remove());

const MISSING = expect.stringContaining('SchemaError') as unknown;

/** The result or the error of a call, however the function that it calls fails. */
const RESULTS: Readonly<Record<string, unknown>> = {
  logger: 'logged',
  'span processor': 'observed',
  'onProgress of importSessions': true,
  'onProgress of reencode': true,
  'onProgress of trim': true,
  'onProgress of importFrom': 1,
  onRefused: 1,
  onDamage: 0,
  'onError of service': MISSING,
  'onError of log': MISSING,
  'onError of leases': MISSING,
  'onError of maintenance': MISSING,
  'onError of projection': MISSING,
  'onError of studio': 503,
};

test.each(availableDatabases())(
  'O8 what a function of the host throws or rejects with is no part of a call, on %s',
  async (name) => {
    const database = await createDatabase(name);
    const orm = await MikroORM.init({ ...database.options, entities: adkEntities() });
    await migrate(orm);
    await orm.close(true);
    try {
      const given = JSON.stringify({ name, url: database.url });
      const child = fork(bundle.path, [given], { execArgv: [], stdio: ['ignore', 'pipe', 'pipe', 'ipc'] });
      const outcomes: Outcome[] = [];
      child.on('message', (all: Outcome[]) => outcomes.push(...all));
      const [[code], out, err] = await Promise.all([once(child, 'exit'), text(child.stdout!), text(child.stderr!)]);
      expect({ out, err, code }).toEqual({ out: '', err: '', code: 0 });
      expect(outcomes).toEqual(
        Object.entries(RESULTS).flatMap(([what, result]) =>
          (what === 'span processor' ? ['throws'] : ['throws', 'rejects']).map((way) => ({
            what: `${what} ${way}`,
            wasCalled: true,
            result,
          })),
        ),
      );
    } finally {
      await database.drop();
    }
  },
);
