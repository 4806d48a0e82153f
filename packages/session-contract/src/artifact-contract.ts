import type { BaseArtifactService } from '@google/adk';
import { ARTIFACT_RULES } from './artifact-rules.js';
import type { Verdict } from './contract.js';
import { judge } from './judge.js';

/** A store of an artifact service that is judged, empty at first. */
export interface ArtifactStore {
  service: BaseArtifactService;
  /** Another instance on the same store, as another process has it. Without it the rules of the level `shared` are left out. */
  another?: BaseArtifactService;
  /** Ends what `open` began. */
  close?(): Promise<void>;
}

/** An artifact service to judge. */
export interface ArtifactHarness {
  name: string;
  /** Makes an empty store; it is called once. */
  open(): Promise<ArtifactStore>;
}

/**
 * Judges an artifact service by the rules that any of them must keep.
 *
 * @param harness how to open the service.
 * @returns what became of each rule, in the order of docs/contract.md.
 * @throws what opening or closing the store throws.
 */
export const checkArtifactService = (harness: ArtifactHarness): Promise<Verdict[]> => judge(harness, ARTIFACT_RULES);
