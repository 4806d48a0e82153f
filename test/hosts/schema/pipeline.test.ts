import { rm } from 'node:fs/promises';
import { createEvent } from '@google/adk';
import type { MikroORM } from '@mikro-orm/core';
import { AdkMigrator } from '../../../migrations/index.js';
import { migrate } from '../../../migrations/migrate.js';
import { MikroOrmSessionService } from '../../../src/sessions/session-service.js';
import { databasesOfUrls } from '../../support/servers.js';
import { HostFolder, installPackage, type Home, type Snapshot } from './host-folder.js';
import { TABLES, emptyDatabase, openHost, query, tablesWith } from './support.js';

const SNAPSHOTS: Snapshot[] = ['snapshot from before our package', 'no snapshot yet', 'snapshot: false'];
const HOMES: Home[] = ['list', 'folder'];

let root: string;
beforeAll(async () => {
  root = await installPackage();
});
afterAll(() => rm(root, { recursive: true, force: true }));

const KEY = { appName: 'shop', userId: 'ada', sessionId: 'before' };

async function converse(orm: MikroORM): Promise<void> {
  const service = new MikroOrmSessionService(orm.em);
  const session = await service.createSession({ ...KEY, state: { step: 1, 'user:name': 'Ada', 'app:open': true } });
  await service.appendEvent({
    session,
    event: createEvent({ author: 'user', content: { parts: [{ text: 'hello' }] } }),
  });
}

async function expectConversation(orm: MikroORM): Promise<void> {
  expect(await new MikroOrmSessionService(orm.em).getSession(KEY)).toMatchObject({
    state: { step: 1, 'user:name': 'Ada', 'app:open': true },
    events: [{ author: 'user', content: { parts: [{ text: 'hello' }] } }],
  });
}

const databases = databasesOfUrls();
/** Each takes a dozen commands. Without ADK_TEST_FULL there is one for each database; together they have each home and each snapshot. */
const variants = databases
  .flatMap((name, i) =>
    HOMES.flatMap((home, j) =>
      SNAPSHOTS.map((snapshot, k) => ({ name, home, snapshot, isFirst: i % 2 === j && i % 3 === k })),
    ),
  )
  .filter(({ isFirst }) => isFirst || process.env['ADK_TEST_FULL']);

describe('F2 the documented pipeline keeps every conversation', () => {
  test.each(variants)('on $name, $home, $snapshot', async ({ name, home, snapshot }) => {
    const database = await emptyDatabase(name);
    const host = await HostFolder.create(root, database, snapshot, home);
    const orm = await openHost(database, { extensions: [AdkMigrator] });

    await host.mikroOrm('migration:up');
    if (home === 'folder') await migrate(orm);
    expect(await tablesWith('adk_', orm, name)).toEqual(TABLES);
    await converse(orm);

    const hadTicket = snapshot === 'snapshot from before our package';
    await host.createMigration(
      'title: p.string(), state: p.string().nullable()',
      hadTicket ? 'alter table ticket drop column state' : 'drop table ticket',
    );
    await host.mikroOrm('migration:up');
    await host.createMigration(
      'title: p.string(), state: p.string().nullable(), priority: p.integer()',
      'alter table ticket drop column priority',
    );
    await host.mikroOrm('migration:up');
    expect(await host.mikroOrm('migration:check')).toContain('No changes required');
    await query(orm.em, `insert into ticket (id, title, state, priority) values (1, 'a', 'b', 2)`);
    await query(orm.em, 'delete from ticket');
    await expectConversation(orm);

    await host.mikroOrm('migration:down');
    await host.mikroOrm('migration:down');
    await host.mikroOrm('migration:up');
    expect(await query(orm.em, 'select id, title, state, priority from ticket')).toEqual([]);
    expect(await host.mikroOrm('migration:check')).toContain('No changes required');
    expect((await host.written()).filter((text) => text.includes('adk_'))).toEqual([]);
    await expectConversation(orm);
  });
});
