import type { Context } from '@google/adk';
import type { EntityManager } from '@mikro-orm/core';
import {
  ARTIFACT_OPTIONS,
  MikroOrmArtifactService,
  type MikroOrmArtifactServiceOptions,
} from './artifacts/artifact-service.js';
import { MikroOrmCredentialService } from './credentials/credential-service.js';
import { SessionLeases, type SessionLeasesOptions } from './leases/session-leases.js';
import { EventLog, type EventLogOptions } from './log/event-log.js';
import type { MaintenanceOptions } from './maintenance/options.js';
import { SessionMaintenance } from './maintenance/session-maintenance.js';
import { MikroOrmMemoryService } from './memory/memory-service.js';
import { MEMORY_OPTIONS, type MikroOrmMemoryServiceOptions } from './memory/requests.js';
import { aDuration, object, objects } from './model/arguments.js';
import { InvalidArgumentError } from './model/errors.js';
import {
  COMMON_OPTIONS,
  SESSION_OPTIONS,
  checkPostgresql,
  type CommonOptions,
  type MikroOrmSessionServiceOptions,
  type PostgresqlOptions,
} from './model/options.js';
import { MikroOrmSessionService } from './sessions/session-service.js';

/** The options of all services, and those of each, by service. */
export interface AdkServicesOptions extends Omit<CommonOptions, 'postgresql'> {
  postgresql?: PostgresqlOptions;
  /** As for `SessionMaintenance`. */
  owned?: MaintenanceOptions['owned'];
  /** Also for the `sessionService` of a lease; maintenance has its `toolApps`. */
  sessions?: Omit<MikroOrmSessionServiceOptions, keyof CommonOptions>;
  artifacts?: Omit<MikroOrmArtifactServiceOptions, keyof CommonOptions>;
  memory?: Omit<MikroOrmMemoryServiceOptions, keyof CommonOptions>;
  leases?: Pick<SessionLeasesOptions, 'ttlMs'>;
  log?: Pick<EventLogOptions, 'pollIntervalMs'>;
}

const checkOptions = object<AdkServicesOptions>({
  ...COMMON_OPTIONS,
  postgresql: checkPostgresql,
  owned: objects,
  sessions: object(SESSION_OPTIONS),
  artifacts: object(ARTIFACT_OPTIONS),
  memory: object(MEMORY_OPTIONS),
  leases: object({ ttlMs: aDuration }),
  log: object({ pollIntervalMs: aDuration }),
});

/** The services on one database. */
export interface AdkServices<Em extends EntityManager = EntityManager> {
  sessionService: MikroOrmSessionService;
  artifactService: MikroOrmArtifactService;
  memoryService: MikroOrmMemoryService;
  /** Only if there is a codec, since credentials are always encrypted. */
  credentialService?: MikroOrmCredentialService;
  leases: SessionLeases;
  log: EventLog;
  maintenance: SessionMaintenance;
  /**
   * Runs the work of a tool in a transaction that also stores its result, so that the call takes effect once (contract H6). If the
   * same call runs again, in this process or in another one, it gets the stored result, and `work` does not run. A retry after a
   * deadlock or a lost connection runs `work` again; what the earlier attempt wrote is rolled back.
   *
   * ```ts
   * execute: ({ euros }, toolContext) => exactlyOnce(toolContext, async (tx) => tx.create(Payment, { euros }).id),
   * ```
   *
   * Until `work` has ended, nothing else is appended to the session and its lease is not renewed: do in it only what is in
   * the transaction. Call it once in a tool, and return what it returns.
   *
   * @param toolContext that of the tool, in a run whose `sessionService` is of this package.
   * @param work writes rows of the host with `tx`. Its result is stored as JSON. If it throws, nothing is stored.
   * @returns the result as it is read from JSON.
   * @throws InvalidArgumentError if the session of `toolContext` has no such call without a response.
   * @throws StaleSessionError if the call was rewound or trimmed away; with `onStaleSession: 'reject'` if the handle is behind.
   * @throws UnserializableValueError if JSON cannot represent the result.
   * @throws InsideTransactionError inside a transaction, or if `work` begins another one.
   * @throws SessionNotFoundError, LeaseLostError, LeaseHeldError as `appendEvent`; and what `work` throws.
   */
  exactlyOnce<T>(this: void, toolContext: Context | undefined, work: (tx: Em) => Promise<T>): Promise<T>;
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
export function adkServices<Em extends EntityManager>(em: Em, options: AdkServicesOptions = {}): AdkServices<Em> {
  const checked = checkOptions(options, 'The options of adkServices');
  const { sessions, artifacts, memory, leases, log, postgresql = {}, owned, ...rest } = checked;
  const { notify, listen, ...ofAll } = postgresql;
  const common = { ...rest, postgresql: ofAll };
  const writing = { ...common, ...sessions, postgresql: { ...ofAll, notify } };
  const following = { ...common, postgresql: { ...ofAll, listen } };
  // A list may be empty, for example in a program that encrypts only in production.
  const isEmpty = [common.codec ?? []].flat().length === 0;
  return {
    sessionService: new MikroOrmSessionService(em, writing),
    artifactService: new MikroOrmArtifactService(em, { ...common, ...artifacts }),
    memoryService: new MikroOrmMemoryService(em, { ...following, ...memory }),
    ...(isEmpty ? {} : { credentialService: new MikroOrmCredentialService(em, common) }),
    leases: new SessionLeases(em, { ...writing, ...leases }),
    log: new EventLog(em, { ...following, ...log }),
    maintenance: new SessionMaintenance(em, { ...common, toolApps: sessions?.toolApps, owned }),
    async exactlyOnce(toolContext, work) {
      const sessionService = toolContext?.invocationContext.sessionService;
      if (toolContext && runsOnce(sessionService)) return sessionService.exactlyOnce(em, toolContext, work);
      throw new InvalidArgumentError(
        'exactlyOnce needs the toolContext of a run with a MikroOrmSessionService. Nothing was written.',
      );
    },
  };
}

/** Without `instanceof`: the Runner's service may be of another copy of this package. */
const runsOnce = (service: object | undefined): service is Pick<MikroOrmSessionService, 'exactlyOnce'> =>
  service !== undefined && 'exactlyOnce' in service;
