import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createServer, type AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import { MikroORM } from '@mikro-orm/core';
import { adkEntities, migrate } from '../../../src/index.js';
import { availableDatabases, createDatabase } from '../../support/servers.js';
import { WorkerBundle } from '../../support/worker-bundle.js';
import type { Given } from './features-process.js';

const bundle = new WorkerBundle('test/hosts/process/features-process.ts');
const silent = createServer(() => undefined);

beforeAll(async () => {
  await bundle.build();
  await once(silent.listen(0, '127.0.0.1'), 'listening');
});
afterAll(async () => {
  silent.close();
  await bundle.remove();
});

const FEATURES: readonly Given['feature'][] = ['watch', 'abandoned', 'lease', 'projection', 'studio', 'telemetry'];

test.each(availableDatabases())(
  'O8 a process that has closed its ORM ends by itself, whatever it has used, on %s',
  async (name) => {
    const database = await createDatabase(name);
    const orm = await MikroORM.init({ ...database.options, entities: adkEntities() });
    await migrate(orm);
    await orm.close(true);
    const { port: silentPort } = silent.address() as AddressInfo;
    const ended = async (feature: Given['feature']) => {
      const given: Given = { database: { name, url: database.url }, feature, silentPort };
      const child = spawn(process.execPath, [bundle.path, JSON.stringify(given)], {
        stdio: ['ignore', 'inherit', 'pipe'],
      });
      const [err, [code]] = await Promise.all([text(child.stderr), once(child, 'close')]);
      return { feature, err, code: code as unknown };
    };
    try {
      const features = name === 'postgresql' ? [...FEATURES, 'listen' as const] : FEATURES;
      expect(await Promise.all(features.map(ended))).toEqual(
        features.map((feature) => ({ feature, err: '', code: 0 })),
      );
    } finally {
      await database.drop();
    }
  },
);
