/**
 * The tables as entities: query them, and relate your own entities to them.
 *
 * @module adk-mikro-orm/entities
 */
import { adkAppState } from './adk-app-state.js';
import { adkArtifact } from './adk-artifact.js';
import { adkArtifactPart } from './adk-artifact-part.js';
import { adkArtifactVersion } from './adk-artifact-version.js';
import { adkChange } from './adk-change.js';
import { adkCounter } from './adk-counter.js';
import { adkCredential } from './adk-credential.js';
import { adkEvent } from './adk-event.js';
import { adkEventPart } from './adk-event-part.js';
import { adkForgottenMemory } from './adk-forgotten-memory.js';
import { adkMemory } from './adk-memory.js';
import { adkOpenCall } from './adk-open-call.js';
import { adkProjection } from './adk-projection.js';
import { adkRetryToken } from './adk-retry-token.js';
import { adkSession } from './adk-session.js';
import { adkSessionState } from './adk-session-state.js';
import { adkUserState } from './adk-user-state.js';
import { InvalidArgumentError } from '../src/model/errors.js';
import { naming, type AdkEntityOptions } from './naming.js';

export { AdkAppState } from './adk-app-state.js';
export { AdkArtifact } from './adk-artifact.js';
export { AdkArtifactPart } from './adk-artifact-part.js';
export { AdkArtifactVersion } from './adk-artifact-version.js';
export { AdkChange } from './adk-change.js';
export { AdkCounter } from './adk-counter.js';
export { AdkCredential } from './adk-credential.js';
export { AdkEvent } from './adk-event.js';
export { AdkEventPart } from './adk-event-part.js';
export { AdkForgottenMemory } from './adk-forgotten-memory.js';
export { AdkMemory } from './adk-memory.js';
export { AdkOpenCall } from './adk-open-call.js';
export { AdkProjection } from './adk-projection.js';
export { AdkRetryToken } from './adk-retry-token.js';
export { AdkSession } from './adk-session.js';
export { AdkSessionState } from './adk-session-state.js';
export { AdkUserState } from './adk-user-state.js';
export type { AdkEntityOptions } from './naming.js';

/**
 * The entities of this package, for `MikroORM.init({ entities: [...adkEntities(), ...yours] })`.
 *
 * @param options.schema the database schema of the tables; by default the ORM's own.
 * @param options.tablePrefix the beginning of the table names; `adk_` by default.
 * @throws InvalidArgumentError if an option is unknown, or not a string.
 * @returns one entity for each table. Query and relate to them by name or by the exports `AdkSession`, `AdkEvent`, …,
 *   which name the same entities whatever the schema and prefix.
 */
export function adkEntities(options?: AdkEntityOptions) {
  const names = naming(options);
  return refusingToNest([
    adkSession(names),
    adkEvent(names),
    adkEventPart(names),
    adkOpenCall(names),
    adkSessionState(names),
    adkUserState(names),
    adkAppState(names),
    adkChange(names),
    adkCounter(names),
    adkProjection(names),
    adkRetryToken(names),
    adkArtifact(names),
    adkArtifactVersion(names),
    adkArtifactPart(names),
    adkMemory(names),
    adkForgottenMemory(names),
    adkCredential(names),
  ]);
}

/** Throws a helpful error for a nested list, for which MikroORM's own error does not mention entities. */
function refusingToNest<Entities extends object>(entities: Entities): Entities {
  return Object.defineProperty(entities, 'name', {
    get: () => {
      throw new InvalidArgumentError(
        "Spread the entities: write [...adkEntities(), …] in 'entities', not [adkEntities()].",
      );
    },
  });
}
