import type { EntityManager } from '@mikro-orm/core';
import {
  ARTIFACT_OPTIONS,
  MikroOrmArtifactService,
  type MikroOrmArtifactServiceOptions,
} from './artifacts/artifact-service.js';
import { MikroOrmCredentialService } from './credentials/credential-service.js';
import { LEASES_OPTIONS, SessionLeases, type SessionLeasesOptions } from './leases/session-leases.js';
import { EventLog, LOG_OPTIONS, type EventLogOptions } from './log/event-log.js';
import { SessionMaintenance } from './maintenance/session-maintenance.js';
import { anEmbedding } from './memory/embedding.js';
import { MikroOrmMemoryService, type MikroOrmMemoryServiceOptions } from './memory/memory-service.js';
import { object } from './model/arguments.js';
import { MikroOrmSessionService } from './sessions/session-service.js';

/**
 * The options of all services: `ttlMs` is that of the leases, `pollIntervalMs` that of the event log, `canonicalUri` and `maxBytes` are those
 * of artifacts, `embed` is that of memory.
 */
export interface AdkServicesOptions
  extends
    SessionLeasesOptions,
    Pick<EventLogOptions, 'pollIntervalMs'>,
    Pick<MikroOrmArtifactServiceOptions, 'canonicalUri' | 'maxBytes'>,
    Pick<MikroOrmMemoryServiceOptions, 'embed'> {}

const checkOptions = object<AdkServicesOptions>({
  ...LEASES_OPTIONS,
  ...LOG_OPTIONS,
  ...ARTIFACT_OPTIONS,
  embed: anEmbedding,
});

/** The services on one database. */
export interface AdkServices {
  sessionService: MikroOrmSessionService;
  artifactService: MikroOrmArtifactService;
  /** With the common options and `embed`; for its others make a `MikroOrmMemoryService`. */
  memoryService: MikroOrmMemoryService;
  /** With a codec alone: credentials are always encrypted. */
  credentialService?: MikroOrmCredentialService;
  leases: SessionLeases;
  log: EventLog;
  maintenance: SessionMaintenance;
}

/**
 * Makes the services that a `Runner` takes, and what belongs to them, with the same options: a codec, for example, that one of them lacked would be
 * damage to it.
 *
 * ```ts
 * const services = adkServices(orm.em);
 * const runner = new Runner({ appName: 'support', agent, ...services });
 * ```
 *
 * @param em the host's `EntityManager`, as for `MikroOrmSessionService`.
 * @throws InvalidArgumentError when an option is not known, or has a value that it cannot have.
 * @throws SchemaError when the ORM has no supported driver, or does not list `adkEntities()`.
 */
export function adkServices(em: EntityManager, options: AdkServicesOptions = {}): AdkServices {
  const { ttlMs, pollIntervalMs, canonicalUri, maxBytes, embed, ...ofService } = checkOptions(
    options,
    'The options of adkServices',
  );
  const { onError, telemetry, codec, maxDecodedBytes, retry, timeoutMs, postgresql } = ofService;
  // A list may be empty: that of a program which encrypts in production alone.
  const isEmpty = [codec ?? []].flat().length === 0;
  const common = { onError, telemetry, codec, maxDecodedBytes, retry, timeoutMs, postgresql };
  return {
    sessionService: new MikroOrmSessionService(em, ofService),
    artifactService: new MikroOrmArtifactService(em, { ...common, canonicalUri, maxBytes }),
    memoryService: new MikroOrmMemoryService(em, { ...common, embed }),
    ...(isEmpty ? {} : { credentialService: new MikroOrmCredentialService(em, common) }),
    leases: new SessionLeases(em, { ...ofService, ttlMs }),
    log: new EventLog(em, { ...common, pollIntervalMs }),
    maintenance: new SessionMaintenance(em, common),
  };
}
