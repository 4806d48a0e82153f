/**
 * `adk-session-contract`: the contract that session services of Google's Agent Development Kit are held to, as tests for any
 * `BaseSessionService`.
 *
 * @module adk-session-contract
 */
export {
  checkSessionService,
  describeSessionServiceContract,
  type CheckOptions,
  type TestGlobals,
  type Verdict,
} from './contract.js';
export type { Level, ServiceHarness, ServiceStore } from './rule.js';
