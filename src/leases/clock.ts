import { clearInterval, clearTimeout, now, setInterval, setTimeout } from '../model/clock.js';

/** The clock and the timers of leases, in ms; tests replace them. The timers keep no process alive: its leases expire. */
export const clock = {
  now,

  /** @returns a function that stops the timer. */
  after(ms: number, action: () => void): () => void {
    const timer = setTimeout(action, ms).unref();
    return () => clearTimeout(timer);
  },

  /** @returns a function that stops the timer. */
  every(ms: number, action: () => void): () => void {
    const timer = setInterval(action, ms).unref();
    return () => clearInterval(timer);
  },
};
