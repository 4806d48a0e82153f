import { requestSuite } from './a-requests.js';
import { runnerSuite } from './a-runner.js';
import { stateSuite } from './b-state.js';
import { eventSuite } from './c-events.js';
import { appendTimeSuite } from './c-append-time.js';
import { pagesSuite } from './c-pages.js';
import { sessionSuite } from './d-sessions.js';
import { toolSessionSuite } from './d-tool-sessions.js';
import { batchesSuite } from './e-batches.js';
import { concurrencySuite } from './e-concurrency.js';
import { joinedSuite } from './e-joined.js';
import { sharingSuite } from './e-sharing.js';
import { transactionSuite } from './e-transactions.js';
import { schemaSuite } from './f-schema.js';
import { logFilterSuite } from './g-log-filters.js';
import { logPushSuite } from './g-log-push.js';
import { logSuite } from './g-log.js';
import { leaseSuite } from './h-leases.js';
import { openCallSuite } from './h-open-calls.js';
import { outcomeSuite } from './h-outcomes.js';
import { damageSuite } from './i-damage.js';
import { completeLogSuite } from './j-complete-log.js';
import { projectionSuite } from './j-projections.js';
import { forkSuite } from './k-forks.js';
import { pastSuite } from './k-history.js';
import { deletionSuite } from './k-deletion.js';
import { interleavingSuite } from './k-interleaving.js';
import { turnsSuite } from './k-turns.js';
import { usageSuite } from './k-usage.js';
import { summarySuite } from './k-summaries.js';
import { kindSuite } from './k-kinds.js';
import { maintenanceSuite } from './k-maintenance.js';
import { telemetrySuite } from './n-telemetry.js';
import { codecSuite } from './m-codecs.js';
import { failureSuite } from './o-errors.js';
import { historySuite } from './o-history.js';
import { partsSuite } from './o-parts.js';
import { valueSuite } from './o-values.js';
import { artifactSuite } from './p-artifacts.js';
import { streamSuite } from './p-streams.js';
import { memorySuite } from './q-memory.js';
import { credentialSuite } from './s-credentials.js';
import type { Suite } from './rule.js';

/** What a conversation needs of any database: `npm test` runs these alone on PostgreSQL. */
export const coreSuites: readonly Suite[] = [
  runnerSuite,
  requestSuite,
  stateSuite,
  eventSuite,
  appendTimeSuite,
  pagesSuite,
  sessionSuite,
  toolSessionSuite,
  concurrencySuite,
  leaseSuite,
  artifactSuite,
  memorySuite,
];

/** Every suite; a suite that is not here never runs. */
export const suites: readonly Suite[] = [
  ...coreSuites,
  batchesSuite,
  sharingSuite,
  transactionSuite,
  joinedSuite,
  schemaSuite,
  logSuite,
  logFilterSuite,
  logPushSuite,
  openCallSuite,
  outcomeSuite,
  damageSuite,
  completeLogSuite,
  projectionSuite,
  maintenanceSuite,
  kindSuite,
  usageSuite,
  deletionSuite,
  interleavingSuite,
  forkSuite,
  pastSuite,
  summarySuite,
  turnsSuite,
  telemetrySuite,
  codecSuite,
  failureSuite,
  historySuite,
  partsSuite,
  valueSuite,
  streamSuite,
  credentialSuite,
];
