import type { BaseArtifactService } from '@google/adk';
import { ARTIFACT_RULES } from './artifact-rules.js';
import type { Verdict } from './contract.js';
import { judge } from './judge.js';

/** An empty store of the artifact service to judge. */
export interface ArtifactStore {
  service: BaseArtifactService;
  /** Another instance on the same store, as another process has it. Without it the rules of the level `shared` are left out. */
  another?: BaseArtifactService;
  /** Closes the store. */
  close?(): Promise<void>;
}

/** An artifact service to judge. */
export interface ArtifactHarness {
  name: string;
  /** Makes an empty store; it is called once. */
  open(): Promise<ArtifactStore>;
}

/**
 * Judges an artifact service by the rules that each must keep.
 *
 * @param harness how to open the service.
 * @returns the result of each rule, in the order of docs/contract.md.
 * @throws errors of opening or closing the store.
 */
export const checkArtifactService = (harness: ArtifactHarness): Promise<Verdict[]> => judge(harness, ARTIFACT_RULES);
