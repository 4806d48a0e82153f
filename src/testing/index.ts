/**
 * `adk-mikro-orm/testing`: a session service, a model and matchers for the tests of agents, as `docs/testing.md` shows, and the
 * contract that ADK's session services are held to. `docs/session-contract.md` says how to use it.
 *
 * @module adk-mikro-orm/testing
 */
export {
  checkSessionService,
  describeSessionServiceContract,
  type CheckOptions,
  type TestGlobals,
  type Verdict,
} from './contract.js';
export { sessionMatchers, type ExpectedEvent, type MatcherContext, type MatcherResult } from './matchers.js';
export type { Level, ServiceHarness, ServiceStore } from './rule.js';
export { scriptedModel, type ScriptedAnswer, type ScriptedModel } from './scripted-model.js';
export { testSessionService, type TestSessionService } from './session-service.js';
