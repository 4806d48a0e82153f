/**
 * `adk-mikro-orm/testing`: the contract that ADK's session services are held to. `docs/session-contract.md` says how to use it.
 *
 * @module adk-mikro-orm/testing
 */
export { checkSessionService, describeSessionServiceContract, type TestGlobals, type Verdict } from './contract.js';
export type { Level, ServiceHarness, ServiceStore } from './rule.js';
