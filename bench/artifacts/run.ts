import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { performance } from 'node:perf_hooks';
import { parseArgs } from 'node:util';
import { FileArtifactService, LogLevel, setLogLevel, type BaseArtifactService } from '@google/adk';
import type { MikroORM } from '@mikro-orm/core';
import { MikroOrmArtifactService } from '../../src/index.js';
import { start, stop } from '../../test/support/run-servers.js';
import { createDatabase, type TestDatabase } from '../../test/support/servers.js';
import { migrated } from '../contenders/open.js';
import { measuredDatabases } from '../environment.js';
import { COMMAND } from '../options.js';
import { duration, number, printHeading, printTable, showProgress } from '../report.js';
import { spreadOf } from '../statistics.js';
import { streamed } from './stream.js';

/** Sizes of artifacts, and how often one is saved and loaded. */
const SIZES: readonly (readonly [title: string, bytes: number, rounds: number])[] = [
  ['10 kB', 10_000, 60],
  ['1 MB', 1_000_000, 20],
  ['20 MB', 20_000_000, 5],
];

const NAMES = 1_000;
const VERSIONS = 50;
const LIST_ROUNDS = 20;

const USAGE = `${COMMAND} -- artifacts [--only <databases>] [--mb <size>]
  How long it takes to save, load and list artifacts, in turn with FileArtifactService of @google/adk on files of the same disk;
  and how much memory a stream of --mb (1000) takes in its own process. Medians; a ratio is our time divided by that of files.`;

const KEY = { appName: 'bench', userId: 'ada', sessionId: 's' };

/** Measures artifacts on each database. */
export async function runArtifacts(args: string[]): Promise<void> {
  const { values } = parseArgs({
    args,
    options: {
      only: { type: 'string' },
      mb: { type: 'string', default: '1000' },
      help: { type: 'boolean', default: false },
    },
  });
  if (values.help) {
    process.stdout.write(`${USAGE}\n`);
    return;
  }
  if (values.only !== undefined) process.env['ADK_TEST_DATABASES'] = values.only;
  // ADK's service warns about each name that it saves for the first time.
  setLogLevel(LogLevel.ERROR);
  await start();
  try {
    for (const name of measuredDatabases()) await measureOn(await createDatabase(name), Number(values.mb));
  } finally {
    await stop();
  }
}

async function measureOn(database: TestDatabase, mb: number): Promise<void> {
  const orm = await migrated(database);
  const folder = await mkdtemp(path.join(tmpdir(), 'adk-bench-'));
  try {
    const ours = new MikroOrmArtifactService(orm.em);
    const files = new FileArtifactService(folder);
    const rows: string[][] = [];
    for (const size of SIZES) rows.push(...(await sizeRows(database.name, ours, files, size)));
    showProgress(`${database.name}: ${NAMES * VERSIONS} versions`);
    rows.push(await listRow(orm, ours, files));
    showProgress(`${database.name}: a stream`);
    const { save, read } = await streamed(database, mb * 1e6);
    for (const [title, { ms, grownMb }] of Object.entries({ save, read }))
      rows.push([`${title} ${mb} MB as a stream`, duration(ms * 1_000), '', `${number(grownMb)} MB more memory`]);
    showProgress('');
    printHeading(database.name);
    printTable([['', 'time', 'files', 'ratio'], ...rows]);
  } finally {
    await orm.close(true);
    await database.drop();
    await rm(folder, { recursive: true });
  }
}

async function sizeRows(
  database: string,
  ours: BaseArtifactService,
  files: BaseArtifactService,
  [title, bytes, rounds]: (typeof SIZES)[number],
): Promise<string[][]> {
  const data = randomBytes(bytes).toString('base64');
  const artifact = { inlineData: { data, mimeType: 'image/png' } };
  const file = { ...KEY, filename: `of ${title}` };
  const times = { save: [[], []], load: [[], []] } as Record<'save' | 'load', [number[], number[]]>;
  for (let round = -1; round < rounds; round++) {
    showProgress(`${database}: ${title}, ${round + 1} of ${rounds}`);
    for (const [i, service] of [ours, files].entries()) {
      const save = await timed(() => service.saveArtifact({ ...file, artifact }));
      const load = await timed(async () => {
        const loaded = await service.loadArtifact(file);
        if (loaded?.inlineData?.data?.length !== data.length) throw new Error('Another artifact came back.');
      });
      // The first round warms up.
      if (round < 0) continue;
      times.save[i]!.push(save);
      times.load[i]!.push(load);
    }
  }
  return (['save', 'load'] as const).map((what) => row(`${what} ${title}`, ...times[what]));
}

/** Lists names that have many versions; the files have one each. */
async function listRow(orm: MikroORM, ours: BaseArtifactService, files: BaseArtifactService): Promise<string[]> {
  const of = { ...KEY, sessionId: 'many' };
  for (let i = 0; i < NAMES; i++)
    for (const service of [ours, files])
      await service.saveArtifact({ ...of, filename: `report-${i}.pdf`, artifact: { text: 'x'.repeat(200) } });
  const execute = (statement: string) => orm.em.getConnection().execute(statement);
  const columns = 'app_name, user_id, session_id, filename';
  for (let there = 1; there < VERSIONS; there *= 2)
    await execute(`insert into adk_artifact_versions (${columns}, version, info, data, create_time)
      select ${columns}, version + ${there}, info, data, create_time from adk_artifact_versions
      where session_id = 'many' and version + ${there} < ${VERSIONS}`);
  await execute(`update adk_artifacts set last_version = ${VERSIONS - 1} where session_id = 'many'`);
  const times: [number[], number[]] = [[], []];
  for (let round = -1; round < LIST_ROUNDS; round++)
    for (const [i, service] of [ours, files].entries()) {
      const took = await timed(async () => {
        const { length } = await service.listArtifactKeys(of);
        if (length !== NAMES) throw new Error(`${length} names were listed.`);
      });
      if (round >= 0) times[i]!.push(took);
    }
  return row(`list ${NAMES} names of ${VERSIONS} versions (files: of one)`, ...times);
}

async function timed(work: () => Promise<unknown>): Promise<number> {
  const begin = performance.now();
  await work();
  return performance.now() - begin;
}

function row(title: string, ours: readonly number[], files: readonly number[]): string[] {
  const [mine, theirs] = [ours, files].map((times) => spreadOf(times)?.median ?? NaN) as [number, number];
  return [title, duration(mine * 1_000), duration(theirs * 1_000), `${(mine / theirs).toFixed(2)} ×`];
}
