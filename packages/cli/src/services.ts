/**
 * The services of a database that is given by its URL, for the `services.yaml` of ADK's command line (docs/dev-ui.md).
 */
import type { MikroORM } from '@mikro-orm/core';
import { MikroOrmArtifactService, MikroOrmMemoryService, MikroOrmSessionService } from '../../../src/index.js';
import { aString, anything, object, rule } from '../../../src/model/arguments.js';
import { isRecord } from '../../../src/model/json.js';
import { connector } from './connect.js';

/** What a class of `services.yaml` is constructed with: options, or the URI itself. */
export type ServiceUri =
  | string
  | {
      uri: string;
      /** ADK passes the folder of the agents. It is not used. */
      agentsDir?: string | undefined;
    };

const ARGUMENT = 'The argument';
const checkArgument = rule('a URI, or an object with one', (value) => typeof value === 'string' || isRecord(value));
const checkOptions = object<Exclude<ServiceUri, string>>({ uri: aString, agentsDir: anything }, 'uri');

// ADK constructs a service, and does not wait for it.
const connect = await connector();

/** Services with the same URI share a pool of connections. */
const orms = new Map<string, MikroORM>();

function managerOf(given: ServiceUri): MikroORM['em'] {
  checkArgument(given, ARGUMENT);
  const { uri } = typeof given === 'string' ? { uri: given } : checkOptions(given, ARGUMENT);
  const orm = orms.get(uri) ?? connect(uri);
  orms.set(uri, orm);
  return orm.em;
}

/**
 * Closes the pools of connections of all services that were made here, so that a process can end. Do not use these services any
 * more; one that is made later has a new pool.
 */
export async function closeServices(): Promise<void> {
  const open = [...orms.values()];
  orms.clear();
  await Promise.all(open.map((orm) => orm.close(true)));
}

/** Stores sessions in the database that the URI names. The tables must exist: `adk-mikro-orm migrate` makes them. */
export class SessionService extends MikroOrmSessionService {
  /** @throws InvalidArgumentError for any other option, which would have no effect. */
  constructor(uri: ServiceUri) {
    super(managerOf(uri));
  }
}

/** Stores files in the database that the URI names. */
export class ArtifactService extends MikroOrmArtifactService {
  /** @throws InvalidArgumentError for any other option, which would have no effect. */
  constructor(uri: ServiceUri) {
    super(managerOf(uri));
  }
}

/** Stores memories in the database that the URI names. */
export class MemoryService extends MikroOrmMemoryService {
  /** @throws InvalidArgumentError for any other option, which would have no effect. */
  constructor(uri: ServiceUri) {
    super(managerOf(uri));
  }
}
