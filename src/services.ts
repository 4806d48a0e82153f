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
import { aCount, object } from './model/arguments.js';
import { MikroOrmSessionService } from './sessions/session-service.js';

/**
 * The options of all services: `ttlMs` is for the leases, `pollIntervalMs` for the event log, `canonicalUri` and `maxBytes` are for
 * artifacts, `embed` and `maxCharacters` are for memory.
 */
export interface AdkServicesOptions
  extends
    SessionLeasesOptions,
    Pick<EventLogOptions, 'pollIntervalMs'>,
    Pick<MikroOrmArtifactServiceOptions, 'canonicalUri' | 'maxBytes'>,
    Pick<MikroOrmMemoryServiceOptions, 'embed' | 'maxCharacters'> {}

const checkOptions = object<AdkServicesOptions>({
  ...LEASES_OPTIONS,
  ...LOG_OPTIONS,
  ...ARTIFACT_OPTIONS,
  embed: anEmbedding,
  maxCharacters: aCount,
});

/** The services on one database. */
export interface AdkServices {
  sessionService: MikroOrmSessionService;
  artifactService: MikroOrmArtifactService;
  /** It has the common options, `embed` and `maxCharacters`. For its other options, make a `MikroOrmMemoryService`. */
  memoryService: MikroOrmMemoryService;
  /** Only if there is a codec, since credentials are always encrypted. */
  credentialService?: MikroOrmCredentialService;
  leases: SessionLeases;
  log: EventLog;
  maintenance: SessionMaintenance;
}

/**
 * Makes the services of a `Runner`, and those around it, with the same options. With different codecs, for example, one service would
 * take the texts of another for damage.
 *
 * ```ts
 * const services = adkServices(orm.em);
 * const runner = new Runner({ appName: 'support', agent, ...services });
 * ```
 *
 * @param em the host's `EntityManager`, as for `MikroOrmSessionService`.
 * @throws InvalidArgumentError if an option is unknown or its value is invalid.
 * @throws SchemaError if the ORM has no supported driver, or does not list `adkEntities()`.
 */
export function adkServices(em: EntityManager, options: AdkServicesOptions = {}): AdkServices {
  const { ttlMs, pollIntervalMs, canonicalUri, maxBytes, embed, maxCharacters, ...ofService } = checkOptions(
    options,
    'The options of adkServices',
  );
  const { onError, telemetry, codec, maxDecodedBytes, retry, timeoutMs, postgresql, toolApps } = ofService;
  // A list may be empty, for example in a program that encrypts only in production.
  const isEmpty = [codec ?? []].flat().length === 0;
  const common = { onError, telemetry, codec, maxDecodedBytes, retry, timeoutMs, postgresql };
  return {
    sessionService: new MikroOrmSessionService(em, ofService),
    artifactService: new MikroOrmArtifactService(em, { ...common, canonicalUri, maxBytes }),
    memoryService: new MikroOrmMemoryService(em, { ...common, embed, maxCharacters }),
    ...(isEmpty ? {} : { credentialService: new MikroOrmCredentialService(em, common) }),
    leases: new SessionLeases(em, { ...ofService, ttlMs }),
    log: new EventLog(em, { ...common, pollIntervalMs }),
    maintenance: new SessionMaintenance(em, { ...common, toolApps }),
  };
}
