import { performance } from 'node:perf_hooks';
import { percentilesOf, type Percentiles } from '../statistics.js';
import type { Operation } from './operations.js';

/** The time for an operation in both populations, in ms. */
export interface Budget {
  ms: number;
  longMs: number;
}

/** The most runs: enough for a p99. */
const MOST = 1_000;
/** The fewest runs of an operation that takes minutes, unless they would exceed its time by far. */
const FEWEST = 3;

const WARM_MS = 500;

export interface Compared {
  small: Percentiles;
  large: Percentiles;
}

/** Times an operation in both populations in turn, so that a disturbance affects both. In microseconds. */
export async function compare(small: Operation, large: Operation, { ms, longMs }: Budget): Promise<Compared> {
  const times: Record<'small' | 'large', number[]> = { small: [], large: [] };
  if (!large.isLong) {
    await warm(small);
    await warm(large);
  }
  const begin = performance.now();
  const given = large.isLong ? longMs : ms;
  for (;;) {
    times.small.push(await timed(small));
    times.large.push(await timed(large));
    const spent = performance.now() - begin;
    const runs = times.large.length;
    if (runs >= MOST || spent >= (runs < FEWEST ? FEWEST * given : given)) break;
  }
  return { small: percentilesOf(times.small), large: percentilesOf(times.large) };
}

async function warm(operation: Operation): Promise<void> {
  for (const begin = performance.now(); performance.now() - begin < WARM_MS;) await timed(operation);
}

async function timed(operation: Operation): Promise<number> {
  await operation.prepare?.();
  const begin = performance.now();
  await operation.run();
  return (performance.now() - begin) * 1_000;
}
