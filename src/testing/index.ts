/**
 * `adk-mikro-orm/testing`: a session service, a model and matchers for the tests of agents, as `docs/testing.md` shows.
 *
 * @module adk-mikro-orm/testing
 */
export { sessionMatchers, type ExpectedEvent, type MatcherContext, type MatcherResult } from './matchers.js';
export { scriptedModel, type ScriptedAnswer, type ScriptedModel } from './scripted-model.js';
export { testSessionService, type TestSessionService } from './session-service.js';
