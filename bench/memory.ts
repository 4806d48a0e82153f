import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

const SAMPLE_MS = 5;

setFlagsFromString('--expose-gc');
/** Collects garbage. */
export const collect = runInNewContext('gc') as () => void;

const used = () => {
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
};

/** Measures the most memory that runs of some work take, including garbage that is not collected yet. */
export class MemoryGauge {
  #mostBytes = 0;

  get mostMb(): number {
    return this.#mostBytes / 1e6;
  }

  async during<T>(work: () => Promise<T>): Promise<T> {
    // Earlier garbage would hide growth.
    collect();
    const before = used();
    const sample = () => (this.#mostBytes = Math.max(this.#mostBytes, used() - before));
    const timer = setInterval(sample, SAMPLE_MS);
    try {
      return await work();
    } finally {
      clearInterval(timer);
      sample();
    }
  }
}
