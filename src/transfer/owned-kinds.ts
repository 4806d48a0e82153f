import { ownedArtifacts } from '../artifacts/owned-artifacts.js';
import { ownedCredentials } from '../credentials/owned-credentials.js';
import type { OwnedRows } from '../owned/owned-rows.js';
import { ownedChanges } from '../log/owned-changes.js';
import { ownedMarks, ownedMemories } from '../memory/owned-memories.js';
import { ownedSessions } from '../sessions/owned-sessions.js';
import { ownedState } from '../sessions/owned-state.js';

/**
 * Everything that belongs to people, in the order in which it is exported, and in which what does not precede the sessions is erased:
 * memories after the sessions, whose projections may add some until they are gone, and the log last, which has an entry for each
 * deletion.
 */
export const OWNED_ROWS: readonly OwnedRows[] = [
  ownedState,
  ownedSessions,
  ownedArtifacts,
  ownedMemories,
  ownedMarks,
  ownedCredentials,
  ownedChanges,
];
