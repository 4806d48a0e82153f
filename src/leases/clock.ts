/** The clock and the timers of leases, in ms; tests have others. A process that has nothing else to do may end: its leases expire. */
export const clock = {
  now: () => performance.now(),

  /** @returns what ends it. */
  after(ms: number, action: () => void): () => void {
    const timer = setTimeout(action, ms).unref();
    return () => clearTimeout(timer);
  },

  /** @returns what ends it. */
  every(ms: number, action: () => void): () => void {
    const timer = setInterval(action, ms).unref();
    return () => clearInterval(timer);
  },
};
