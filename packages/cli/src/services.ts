/**
 * The services of a database that is given by its URL, for the `services.yaml` of ADK's command line (docs/dev-ui.md).
 */
import type { EntityManager } from '@mikro-orm/core';
import { MikroOrmArtifactService, MikroOrmMemoryService, MikroOrmSessionService } from '../../../src/index.js';
import { connector } from './connect.js';

/** What a class of `services.yaml` is constructed with: options, or the URI itself. */
export type ServiceUri = string | { uri: string };

// ADK constructs a service, and does not wait for it.
const connect = await connector();

/** Services with the same URI share a pool of connections. */
const managers = new Map<string, EntityManager>();

function managerOf(given: ServiceUri): EntityManager {
  const uri = typeof given === 'string' ? given : given.uri;
  const manager = managers.get(uri) ?? connect(uri).em;
  managers.set(uri, manager);
  return manager;
}

/** Stores sessions in the database that the URI names. The tables must exist: `adk-mikro-orm migrate` makes them. */
export class SessionService extends MikroOrmSessionService {
  constructor(uri: ServiceUri) {
    super(managerOf(uri));
  }
}

/** Stores files in the database that the URI names. */
export class ArtifactService extends MikroOrmArtifactService {
  constructor(uri: ServiceUri) {
    super(managerOf(uri));
  }
}

/** Stores memories in the database that the URI names. */
export class MemoryService extends MikroOrmMemoryService {
  constructor(uri: ServiceUri) {
    super(managerOf(uri));
  }
}
