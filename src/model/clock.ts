/**
 * The clock and the timers as they were when this module was loaded. A host's tests may replace them later (sinon, jest,
 * `mock.timers` of node:test), and a wait of ours would then never end. For times that are stored, `Date.now` is called where they
 * are needed, as ADK does, so that such tests can choose them.
 */
export const { setTimeout, clearTimeout, setInterval, clearInterval, setImmediate } = globalThis;

/** Runs something once all promises that are settled now have gone on. */
export const nextTick = process.nextTick.bind(process);

/** In ms, from some moment on; it never goes back. */
export const now = performance.now.bind(performance);
