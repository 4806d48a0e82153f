import type { MikroORM } from '@mikro-orm/core';
import { AdkEvent } from '../../../entities/index.js';
import { migrate } from '../../../migrations/migrate.js';
import { databasesOfUrls } from '../../support/servers.js';
import { WorkerBundle } from '../../support/worker-bundle.js';
import { LineProcess } from './line-process.js';
import { MIGRATIONS, NEXT, appliedMigrations, emptyDatabase, openHost, withNext } from './support.js';
import type { Work } from './working-process.js';

const PROCESSES = 8;

/** What a later version may do to tables that processes of this version still use: only add to them. */
const ADDED = [
  'alter table adk_events add column trace varchar(64) null',
  'create index adk_events_trace on adk_events (trace)',
  'create table adk_traces (id varchar(64) not null primary key)',
];

describe('a deploy pipeline that migrates while eight old processes read and write', () => {
  const bundle = new WorkerBundle('test/hosts/schema/working-process.ts');
  const started: LineProcess[] = [];
  beforeAll(async () => {
    await bundle.build();
    started.push(...Array.from({ length: PROCESSES }, () => new LineProcess(bundle.path)));
  });
  afterAll(async () => {
    // A process that has not answered would not end by itself.
    await Promise.all(started.map((process) => process.kill()));
    await bundle.remove();
  });

  /** @returns what the processes did during the deploy. */
  async function whileWorking(url: string, deploy: () => Promise<void>): Promise<Work[]> {
    const askAll = (line: string) => Promise.all(started.map((process) => process.ask(line)));
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

      const works = await whileWorking(database.url, async () => {
        await migrate(orm);
        await withNext(ADDED, (migrateToNext) => migrateToNext(orm));
      });
      expect(await appliedMigrations(orm)).toEqual([...MIGRATIONS, NEXT]);
      await expectWhole(orm, works);
    },
    300_000,
  );
});

/** Expects that each event known to a process is stored once and in its place, and that no process had an error. */
async function expectWhole(orm: MikroORM, works: readonly Work[]): Promise<void> {
  expect(works.flatMap((work) => work.errors)).toEqual([]);
  expect(Math.min(...works.map((work) => work.own.length))).toBeGreaterThan(1);
  const events = await orm.em.fork().find(AdkEvent, {}, { orderBy: { seq: 'asc' } });
  const acknowledged = new Set(works.flatMap((work) => [...work.own, ...work.shared]));
  expect(events.filter(({ id }) => !acknowledged.delete(id)).map(({ id }) => id)).toEqual([]);
  expect([...acknowledged]).toEqual([]);
  for (const id of new Set(events.map((event) => event.session.id))) {
    const seqs = events.filter((event) => event.session.id === id).map((event) => event.seq);
    expect(seqs).toEqual(seqs.map((_, index) => index + 1));
  }
}
