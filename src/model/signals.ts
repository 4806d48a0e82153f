import { clearTimeout, setTimeout } from './clock.js';

/** The longest delay of a timer, 24 days: one with a longer delay would fire at once. */
export const MAX_TIMER_MS = 2 ** 31 - 1;

/**
 * Waits for a promise.
 *
 * @param timeoutMs 0 for no limit.
 * @param late gives the error for a promise that took longer.
 */
export async function inTime<T>(ready: Promise<T>, timeoutMs: number, late: (ms: number) => Error): Promise<T> {
  // A timer, however long, would keep the process alive after the call was given up.
  if (timeoutMs === 0) return ready;
  let timer: NodeJS.Timeout | undefined;
  const isLate = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(late(timeoutMs)), timeoutMs);
  });
  try {
    return await Promise.race([ready, isLate]);
  } finally {
    clearTimeout(timer);
  }
}

interface AbortListener {
  readonly actions: Set<() => void>;
  readonly listener: () => void;
}

const listening = new WeakMap<AbortSignal, AbortListener>();

/**
 * Calls `action` when a signal fires, or at once if it has fired. All actions of a signal share one listener, since Node.js 20 warns
 * if a signal has eleven.
 *
 * @returns a function that removes the action.
 */
export function onAbort(signal: AbortSignal | undefined, action: () => void): () => void {
  if (!signal) return () => undefined;
  if (signal.aborted) {
    action();
    return () => undefined;
  }
  const { actions, listener } = listening.get(signal) ?? listen(signal);
  // A new function, since the same action may be added twice.
  const own = () => action();
  actions.add(own);
  return () => {
    if (!actions.delete(own) || actions.size > 0) return;
    listening.delete(signal);
    signal.removeEventListener('abort', listener);
  };
}

function listen(signal: AbortSignal): AbortListener {
  const actions = new Set<() => void>();
  const listener = () => {
    for (const action of actions) action();
  };
  const started = { actions, listener };
  listening.set(signal, started);
  signal.addEventListener('abort', listener);
  return started;
}

/**
 * Waits for this many ms, or as long as a timer can, or until the signal fires.
 *
 * @param options.keepsAlive whether the process waits, too.
 */
export function pause(ms: number, signal?: AbortSignal, { keepsAlive = true } = {}): Promise<void> {
  return new Promise((resolve) => {
    let stop = () => {};
    const end = () => {
      clearTimeout(timer);
      stop();
      resolve();
    };
    const timer = setTimeout(end, Math.min(ms, MAX_TIMER_MS));
    if (!keepsAlive) timer.unref();
    stop = onAbort(signal, end);
  });
}
