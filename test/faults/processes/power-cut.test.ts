import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { MikroORM } from '@mikro-orm/core';
import { AdkEvent, adkEntities } from '../../../entities/index.js';
import { isChosen } from '../../support/run.js';
import { FILE_DATABASES } from '../../support/servers.js';
import { WorkerBundle } from '../../support/worker-bundle.js';
import { BetterSqliteDriver } from '../../support/mikro-orm.js';

const ACKNOWLEDGED = 40;

const bundle = new WorkerBundle('test/faults/processes/power-cut-worker.ts');
let folder: string;

/** Whether a test can see a process sync its files: this needs Linux, for `LD_PRELOAD`, and a compiler. */
const canCut = process.platform === 'linux' && hasCompiler();

function hasCompiler(): boolean {
  try {
    execFileSync('gcc', ['--version'], { stdio: 'ignore' });
    return true;
  } catch {
    return false;
  }
}

beforeAll(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'adk-power-cut-'));
  if (!canCut) return;
  const source = path.resolve('test/faults/processes/power-cut.c');
  execFileSync('gcc', ['-shared', '-fPIC', '-o', path.join(folder, 'power-cut.so'), source, '-ldl']);
  await bundle.build();
});

afterAll(async () => {
  await bundle.remove();
  await rm(folder, { recursive: true, force: true });
});

// Skipped, it still shows in the report.
const cut = canCut ? test.each(FILE_DATABASES.filter(isChosen)) : test.skip.each(['without Linux and gcc']);

cut('O9 what is acknowledged on %s survives a power cut', async (name) => {
  const file = path.join(folder, name, 'sessions.db');
  const synced = path.join(folder, name, 'synced');
  await mkdir(synced, { recursive: true });
  const child = spawn(process.execPath, [bundle.path, name, file], {
    env: { ...process.env, LD_PRELOAD: path.join(folder, 'power-cut.so'), SYNCED: synced },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const exit = once(child, 'exit');
  const acknowledged: string[] = [];
  for await (const id of createInterface({ input: child.stdout })) {
    acknowledged.push(id);
    if (acknowledged.length === ACKNOWLEDGED) child.kill('SIGKILL');
  }
  await exit;
  expect(acknowledged.length).toBeGreaterThanOrEqual(ACKNOWLEDGED);

  const driver = BetterSqliteDriver;
  const orm = await MikroORM.init({ driver, dbName: path.join(synced, 'sessions.db'), entities: adkEntities() });
  try {
    const stored = await orm.em.fork().find(AdkEvent, {}, { orderBy: { seq: 'asc' } });
    expect(stored.slice(0, acknowledged.length).map(({ id }) => id)).toEqual(acknowledged);
  } finally {
    await orm.close(true);
  }
});
