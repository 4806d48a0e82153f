/**
 * `adk-session-contract`: the contract that session, artifact and memory services of Google's Agent Development Kit are held to, as
 * tests for any `BaseSessionService`, `BaseArtifactService` and `BaseMemoryService`.
 *
 * @module adk-session-contract
 */
export { checkArtifactService, type ArtifactHarness, type ArtifactStore } from './artifact-contract.js';
export {
  checkSessionService,
  describeSessionServiceContract,
  type CheckOptions,
  type TestGlobals,
  type Verdict,
} from './contract.js';
export { checkMemoryService, type MemoryHarness, type MemoryStore } from './memory-contract.js';
export type { Level, ServiceHarness, ServiceStore } from './rule.js';
