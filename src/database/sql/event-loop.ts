import { setImmediate } from 'node:timers/promises';

/** How long statements may keep the event loop from its other work, in ms. */
const MOST_MS = 8;

let lastTurn = 0;
let turning: Promise<void> | undefined;

/**
 * Gives the event loop a turn when it has not had one for some ms. A driver that runs in the process answers at once, so that
 * calls one after another would let no timer run: no lease would be renewed, and no abort signal would fire.
 *
 * @returns undefined where no turn is due.
 */
export function turnOfEventLoop(): Promise<void> | undefined {
  if (turning) return turning;
  return performance.now() - lastTurn < MOST_MS ? undefined : (turning = turn());
}

async function turn(): Promise<void> {
  await setImmediate();
  lastTurn = performance.now();
  turning = undefined;
}
