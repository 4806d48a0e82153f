import { Session, type Profiler } from 'node:inspector/promises';
import { performance } from 'node:perf_hooks';
import { start, stop } from '../test/support/run-servers.js';
import type { DatabaseName } from '../test/support/servers.js';
import { closeContenders, openContenders } from './contenders/open.js';
import { appendLane } from './workloads/sessions.js';

const APPENDS = 2_000;
const SHOWN = 25;

/** Shows where an append of ours spends its time. */
export async function runProfile([name = 'better-sqlite']: string[]): Promise<void> {
  const database = name as DatabaseName;
  process.env['ADK_TEST_DATABASES'] = database;
  await start();
  const contenders = await openContenders(database);
  try {
    const lane = appendLane(contenders.ours);
    const run = async () => {
      await lane.prepare?.(APPENDS);
      const begin = performance.now();
      await lane.run(APPENDS);
      return performance.now() - begin;
    };
    await run();
    const ms = await run();
    await lane.prepare?.(APPENDS);
    const profile = await profiled(() => lane.run(APPENDS));
    process.stdout.write(`${database}: ${((ms * 1_000) / APPENDS).toFixed(0)} µs an append\n`);
    print(profile);
  } finally {
    await closeContenders(contenders);
    await stop();
  }
}

async function profiled(work: () => Promise<void>): Promise<Profiler.Profile> {
  const session = new Session();
  session.connect();
  await session.post('Profiler.enable');
  await session.post('Profiler.setSamplingInterval', { interval: 100 });
  await session.post('Profiler.start');
  await work();
  const { profile } = await session.post('Profiler.stop');
  session.disconnect();
  return profile;
}

function print({ nodes, samples = [], timeDeltas = [] }: Profiler.Profile): void {
  const self = new Map<number, number>();
  for (const [i, id] of samples.entries()) self.set(id, (self.get(id) ?? 0) + (timeDeltas[i] ?? 0));
  // The time to start and stop the profiler does not count.
  const timeOf = ({ id, callFrame }: Profiler.ProfileNode) =>
    callFrame.functionName === 'dispatch' && callFrame.url === '' ? 0 : (self.get(id) ?? 0);
  const total = nodes.reduce((sum, node) => sum + timeOf(node), 0);
  const byId = new Map(nodes.map((node) => [node.id, node]));

  const packages = new Map<string, number>();
  const functions = new Map<string, number>();
  const inclusive = new Map<string, number>();
  const add = (to: Map<string, number>, key: string, time: number) => to.set(key, (to.get(key) ?? 0) + time);
  /** @param above the names of the callers, so that a recursive function counts once. */
  const visit = (node: Profiler.ProfileNode, above: ReadonlySet<string>): number => {
    const { functionName, url, lineNumber } = node.callFrame;
    const name = `${functionName || '(anonymous)'} ${placeOf(url)}:${lineNumber + 1}`;
    const own = timeOf(node);
    add(packages, packageOf(url, functionName), own);
    add(functions, name, own);
    let time = own;
    const names = new Set(above).add(name);
    for (const child of node.children ?? []) time += visit(byId.get(child)!, names);
    if (!above.has(name)) add(inclusive, name, time);
    return time;
  };
  visit(nodes[0]!, new Set());

  const table = (title: string, times: Map<string, number>) => {
    process.stdout.write(`\n${title}\n`);
    const sorted = [...times].sort(([, a], [, b]) => b - a).slice(0, SHOWN);
    for (const [name, time] of sorted)
      process.stdout.write(`  ${((100 * time) / total).toFixed(1).padStart(5)} %  ${name}\n`);
  };
  table('By package, own time', packages);
  table('By function, own time', functions);
  table('By function, with what it calls', inclusive);
}

/** The folder in which `npm run bench` runs our files is among the packages. */
const OURS = /.*node_modules\/\.cache\/adk-mikro-orm\/bench\//;

function packageOf(url: string, functionName: string): string {
  if (url === '') return functionName; // (idle), (program), (garbage collector), and native functions
  if (url.startsWith('node:')) return 'node';
  const [, name = ''] = /^((?:@[^/]+\/)?[^/]+)/.exec(placeOf(url)) ?? [];
  return name;
}

function placeOf(url: string): string {
  return url.replace(OURS, '').replace(/.*node_modules\//, '');
}
