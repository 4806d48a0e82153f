import type { BaseArtifactService } from '@google/adk';
import { randomBytes } from 'node:crypto';
import { ARTIFACT_RULES } from './artifact-rules.js';
import { verdictOf, type Verdict } from './contract.js';

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
export async function checkArtifactService(harness: ArtifactHarness): Promise<Verdict[]> {
  const store = await harness.open();
  const { service, another = service } = store;
  const verdicts: Verdict[] = [];
  try {
    for (const rule of ARTIFACT_RULES) {
      const isLeftOut = rule.level === 'shared' && !store.another;
      // A store that is used again has artifacts of earlier runs.
      const context = { service, another, app: `app-${randomBytes(5).toString('hex')}` };
      verdicts.push(await verdictOf(rule, isLeftOut ? undefined : () => rule.test(context)));
    }
    return verdicts;
  } finally {
    await store.close?.();
  }
}
