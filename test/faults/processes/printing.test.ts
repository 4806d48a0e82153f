import { fork } from 'node:child_process';
import { once } from 'node:events';
import { text } from 'node:stream/consumers';
import { MikroORM } from '@mikro-orm/core';
import { adkEntities, migrate } from '../../../src/index.js';
import { DATABASES } from '../../support/harnesses/databases.js';
import { availableDatabases, createDatabase } from '../../support/servers.js';
import { WorkerBundle } from '../../support/worker-bundle.js';

const SECRET = 'swordfish';
const bundle = new WorkerBundle('test/faults/processes/printing-process.ts');

beforeAll(() => bundle.build());
afterAll(() => bundle.remove());

const EVERYWHERE = ['duplicate: AlreadyExistsError', 'statement: DatabaseError', 'rejecting onError: DatabaseError'];
const BROKEN = ['append', 'state', 'lease', 'delete'].map((what) => `${what}: DatabaseError`);
const MISSING = ['schema: SchemaError', 'schema: SchemaError'];

test.each(availableDatabases())('O8 nothing is printed, whatever fails, on %s', async (name) => {
  const database = await createDatabase(name);
  const orm = await MikroORM.init({ ...database.options, entities: adkEntities() });
  await migrate(orm);
  await orm.close(true);
  try {
    const given = JSON.stringify({ name, url: database.url, secret: SECRET });
    const child = fork(bundle.path, [given], { execArgv: [], stdio: ['ignore', 'pipe', 'pipe', 'ipc'] });
    const [[failed], out, err] = await Promise.all([
      // There is no message if an unhandled rejection ended the process.
      Promise.race([once(child, 'message'), once(child, 'disconnect')]).finally(
        () => child.connected && child.disconnect(),
      ),
      text(child.stdout!),
      text(child.stderr!),
    ]);
    expect(failed).toEqual([...EVERYWHERE, ...(DATABASES[name].kind === 'server' ? BROKEN : []), ...MISSING]);
    expect({ out, err }).toEqual({ out: '', err: '' });
  } finally {
    await database.drop();
  }
});
