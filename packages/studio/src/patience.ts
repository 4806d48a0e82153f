import { clearTimeout, setImmediate, setTimeout } from '../../../src/model/clock.js';

/**
 * Waits for what may take seconds.
 *
 * @param ms how long at most.
 * @param works promises whose work continues if it takes too long. Then the page says so, and its script loads it again.
 * @returns their results, undefined for those that take too long. @throws what one of them throws within that time.
 */
export async function soon<Results extends readonly unknown[]>(
  ms: number,
  ...works: { [Index in keyof Results]: Promise<Results[Index]> }
): Promise<{ [Index in keyof Results]: Results[Index] | undefined }> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<undefined>((resolve) => (timer = setTimeout(() => resolve(undefined), ms)));
  try {
    return (await Promise.all(works.map((work) => Promise.race([work, late])))) as never;
  } finally {
    clearTimeout(timer);
    // The next page begins it again, and reports what it throws.
    for (const work of works) work.catch(() => undefined);
  }
}

/** Lets other requests be answered, and timers run: drivers of SQLite never wait. */
export const breathe = (): Promise<void> => new Promise((resolve) => void setImmediate(resolve));
