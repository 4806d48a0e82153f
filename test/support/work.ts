import { Session } from 'node:inspector';

let inspector: Session | undefined;

/** Counts from the first call on, since V8 does not count in code that it has compiled without counters. */
function counting(): Session {
  if (inspector) return inspector;
  inspector = new Session();
  inspector.connect();
  inspector.post('Profiler.enable');
  inspector.post('Profiler.startPreciseCoverage', { callCount: true, detailed: true });
  return inspector;
}

/** @returns how often blocks of the sources in a folder were entered since the last call: functions, branches and bodies of loops. */
function entered(folder: string): number {
  let count = 0;
  counting().post('Profiler.takePreciseCoverage', (error, found) => {
    if (error) throw error;
    for (const { url, functions } of found.result)
      if (url.includes(folder)) for (const { ranges } of functions) for (const range of ranges) count += range.count;
  });
  return count;
}

/**
 * Counts work instead of measuring time, which depends on the machine and on what else it does.
 *
 * @param folder whose sources count.
 */
export function workIn(folder: string, work: () => unknown): number {
  entered(folder);
  work();
  return entered(folder);
}
