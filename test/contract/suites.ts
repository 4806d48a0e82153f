import { runnerSuite } from './a-runner.js';
import { stateSuite } from './b-state.js';
import { eventSuite } from './c-events.js';
import { sessionSuite } from './d-sessions.js';
import { concurrencySuite } from './e-concurrency.js';
import { schemaSuite } from './f-schema.js';
import type { Suite } from './rule.js';

/** Every suite; a suite that is not here never runs. */
export const suites: readonly Suite[] = [
  runnerSuite,
  stateSuite,
  eventSuite,
  sessionSuite,
  concurrencySuite,
  schemaSuite,
];
