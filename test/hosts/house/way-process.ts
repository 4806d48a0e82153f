import { console as inspected } from 'node:inspector';
import { Session as Inspector, type Profiler, type Runtime } from 'node:inspector/promises';
import path from 'node:path';
import { createEvent } from '@google/adk';
import { NodePostgres } from '../../../src/database/drivers/node-postgres.js';
import { SynchronousDriver } from '../../../src/database/drivers/sqlite.js';
import { EventLog, MikroOrmSessionService } from '../../../src/index.js';
import { openOrm, type Database } from '../../faults/processes/open-orm.js';
import { keyOf } from '../../faults/processes/protocol.js';

// A process of its own, in which each source is a file, so that V8 can tell which of them a call enters.

/** The code that one warm call enters. */
export interface Way {
  /** The number of functions called in each source. */
  functions: Record<string, number>;
  /** The deepest chain of calls to a driver, through awaited promises, from the outside in. */
  calls: string[];
}

const REPOSITORY = path.resolve(import.meta.dirname, '../../..');

/** @returns the path of a source in the repository; undefined for any other file. */
function sourceOf(url: string): string | undefined {
  const file = url.startsWith('file:') ? path.relative(REPOSITORY, new URL(url).pathname) : '';
  return /^(src|entities)\//.test(file) ? file : undefined;
}

/** Whether a function is in no source: tsx adds some to keep names, and V8 adds one that sets the fields of an object. */
const isAdded = (name: string) => name.startsWith('__') || name === '<instance_members_initializer>';

async function functionsOf(inspector: Inspector, call: () => Promise<unknown>): Promise<Way['functions']> {
  await inspector.post('Profiler.enable');
  await inspector.post('Profiler.startPreciseCoverage', { callCount: true, detailed: false });
  await call();
  const { result } = await inspector.post('Profiler.takePreciseCoverage');
  await inspector.post('Profiler.stopPreciseCoverage');
  const isEntered = ({ functionName, ranges: [range] }: Profiler.FunctionCoverage) =>
    !isAdded(functionName) && range !== undefined && range.count > 0;
  const entered = result.flatMap(({ url, functions }) => {
    const source = sourceOf(url);
    const count = functions.filter(isEntered).length;
    return source && count > 0 ? [[source, count] as const] : [];
  });
  return Object.fromEntries(entered.sort(([a], [b]) => (a < b ? -1 : 1)));
}

let isTraced = false;

for (const { prototype } of [NodePostgres, SynchronousDriver]) {
  const { send } = prototype;
  prototype.send = function (...args: never) {
    // Only an inspector sees the stack through a promise that is not awaited where it was made.
    if (isTraced) inspected.trace();
    return Reflect.apply(send, this, args);
  };
}

async function callsOf(inspector: Inspector, call: () => Promise<unknown>): Promise<string[]> {
  let deepest: string[] = [];
  inspector.on('Runtime.consoleAPICalled', ({ params: { stackTrace } }) => {
    const calls = framesOf(stackTrace);
    if (calls.length > deepest.length) deepest = calls;
  });
  await inspector.post('Runtime.enable');
  await inspector.post('Debugger.enable');
  await inspector.post('Debugger.setAsyncCallStackDepth', { maxDepth: 200 });
  isTraced = true;
  await call();
  isTraced = false;
  return deepest;
}

function framesOf(trace: Runtime.StackTrace | undefined): string[] {
  const calls: string[] = [];
  for (let part = trace; part; part = part.parent)
    for (const { functionName, url } of part.callFrames) {
      const source = sourceOf(url);
      const call = `${functionName || '(anonymous)'} ${source}`;
      // A function that has awaited is listed once more for each await.
      if (source && !isAdded(functionName) && call !== calls.at(-1)) calls.push(call);
    }
  return calls.reverse();
}

async function wayOf(call: () => Promise<unknown>): Promise<Way> {
  for (let i = 0; i < 3; i++) await call();
  const inspector = new Inspector();
  inspector.connect();
  const functions = await functionsOf(inspector, call);
  const calls = await callsOf(inspector, call);
  inspector.disconnect();
  return { functions, calls };
}

async function main(): Promise<Record<string, Way>> {
  const orm = await openOrm(JSON.parse(process.argv[2] ?? '') as Database);
  const service = new MikroOrmSessionService(orm.em);
  const log = new EventLog(orm.em);
  const key = keyOf('s');
  const session = await service.createSession(key);
  const appendEvent = () => {
    const event = createEvent({ author: 'agent', content: { parts: [{ text: 'a' }] } });
    event.actions.stateDelta['step'] = event.timestamp;
    return service.appendEvent({ session, event });
  };
  const since = async () => {
    for await (const _ of log.since(0)) continue;
  };
  const ways = {
    appendEvent: await wayOf(appendEvent),
    getSession: await wayOf(() => service.getSession(key)),
    since: await wayOf(since),
  };
  await orm.close(true);
  return ways;
}

main().then(
  (ways) => process.send!(ways),
  // Open connections would keep this process, and the test, waiting.
  (error: unknown) => process.send!(String(error), () => process.exit(1)),
);
