import { MikroORM } from '@mikro-orm/core';
import { Migration } from '@mikro-orm/migrations';
import { AdkEvent } from '../../../entities/index.js';
import type * as Migrations from '../../../migrations/index.js';
import { migrate } from '../../../migrations/migrate.js';
import { EventLog } from '../../../src/index.js';
import { expectSame, folded, tablesOf } from '../../support/fold.js';
import { databasesOfUrls, type DatabaseName } from '../../support/servers.js';
import { WorkerBundle } from '../../support/worker-bundle.js';
import { LineProcess } from './line-process.js';
import * as previous from './previous-version.js';
import { MIGRATIONS, appliedMigrations, dialectOf, emptyDatabase, openHost } from './support.js';
import type { Work } from './working-process.js';

const PROCESSES = 8;

/** Whether the previous version has its dialect; what is added later has nothing to deploy from. */
const isOfPrevious = (name: DatabaseName) => ['sqlite', 'postgresql', 'mysql', 'mariadb'].includes(dialectOf(name));

/** What a later version will do to tables that this version's processes still use: add, not change. */
class NextVersion extends Migration {
  override up() {
    this.addSql('alter table adk_events add column trace varchar(64) null');
    this.addSql('create index adk_events_trace on adk_events (trace)');
    this.addSql('create table adk_traces (id varchar(64) not null primary key)');
  }
}

const NEXT = { name: 'Migration20270101000000_adk_next', class: NextVersion };

/** `migrate` of a later version of this package. */
async function migrateToNext(orm: MikroORM): Promise<void> {
  await jest.isolateModulesAsync(async () => {
    jest.doMock('../../../migrations/index.js', () => {
      const { adkMigrations } = jest.requireActual<typeof Migrations>('../../../migrations/index.js');
      return { adkMigrations: (...args: Parameters<typeof adkMigrations>) => [...adkMigrations(...args), NEXT] };
    });
    await (await import('../../../migrations/migrate.js')).migrate(orm);
  });
  jest.dontMock('../../../migrations/index.js');
}

describe('a deploy pipeline that migrates while eight old processes read and write', () => {
  const bundle = new WorkerBundle('test/hosts/schema/working-process.ts');
  const started: LineProcess[] = [];
  const start = (...args: string[]) => {
    const processes = Array.from({ length: PROCESSES }, () => new LineProcess(bundle.path, { args }));
    started.push(...processes);
    return processes;
  };
  beforeAll(() => bundle.build());
  afterAll(async () => {
    // One that has not answered would not end by itself.
    await Promise.all(started.map((process) => process.kill()));
    await bundle.remove();
  });

  let ofThisVersion: LineProcess[] | undefined;
  let ofThePrevious: LineProcess[] | undefined;

  /** What the processes did in the meantime. */
  async function whileWorking(processes: LineProcess[], url: string, deploy: () => Promise<void>): Promise<Work[]> {
    const askAll = (line: string) => Promise.all(processes.map((process) => process.ask(line)));
    expect(await askAll(url)).toEqual(Array(PROCESSES).fill('working'));
    let answers: string[] = [];
    try {
      await deploy();
    } finally {
      answers = await askAll('stop');
    }
    return answers.map((answer) => JSON.parse(answer) as Work);
  }

  test.each(databasesOfUrls())(
    'loses nothing on %s',
    async (name) => {
      const database = await emptyDatabase(name);
      const orm = await openHost(database);
      await migrate(orm);

      const works = await whileWorking((ofThisVersion ??= start()), database.url, async () => {
        await migrate(orm);
        await migrateToNext(orm);
      });
      expect(await appliedMigrations(orm)).toEqual([...MIGRATIONS, NEXT.name]);
      await expectWhole(orm, works);
    },
    300_000,
  );

  for (const name of databasesOfUrls().filter(isOfPrevious))
    test(`loses nothing of processes of the version before the last migration on ${name}, and the log has all of it`, async () => {
      const database = await emptyDatabase(name);
      const before = await MikroORM.init({ ...database.options, entities: previous.adkEntities() });
      await previous.migrate(before);
      await before.close(true);

      const orm = await openHost(database);
      const works = await whileWorking((ofThePrevious ??= start('previous')), database.url, async () => {
        await migrate(orm);
        // Gives positions to what they append.
        await new EventLog(orm.em).head();
      });
      expect(await appliedMigrations(orm)).toEqual([...MIGRATIONS]);
      await expectWhole(orm, works);
      expectSame(await folded(new EventLog(orm.em), 'app'), await tablesOf(orm, 'app'));
    }, 300_000);
});

/** Whether every event that a process knows of is there, once and in its place, and no process had an error. */
async function expectWhole(orm: MikroORM, works: readonly Work[]): Promise<void> {
  expect(works.flatMap((work) => work.errors)).toEqual([]);
  expect(Math.min(...works.map((work) => work.own.length))).toBeGreaterThan(1);
  const events = await orm.em.fork().find(AdkEvent, {}, { orderBy: { seq: 'asc' } });
  expect(events.map((event) => event.id).sort()).toEqual(works.flatMap((work) => [...work.own, ...work.shared]).sort());
  for (const id of new Set(events.map((event) => event.session.id))) {
    const seqs = events.filter((event) => event.session.id === id).map((event) => event.seq);
    expect(seqs).toEqual(seqs.map((_, index) => index + 1));
  }
}
