/**
 * Rules that docstrings cite as `(contract D8)` are in `docs/contract.md` of the repository. The README lists the other pages.
 *
 * @module adk-mikro-orm
 */
export { adkEntities } from '../entities/index.js';
export {
  AdkMikroOrmError,
  ArtifactTooLargeError,
  CodecError,
  DamagedArtifactError,
  DamagedEventError,
  DamagedMemoryError,
  DamagedSessionError,
  DatabaseError,
  ValueTooLargeError,
  InvalidArgumentError,
  InsideTransactionError,
  InvalidKeyError,
  LeaseHeldError,
  LeaseLostError,
  LogWentBackError,
  SchemaError,
  CallAnsweredError,
  EventConflictError,
  AlreadyExistsError,
  SessionNotFoundError,
  StaleSessionError,
  UnserializableValueError,
  UserNotErasedError,
  type Damage,
} from './model/errors.js';
export { EventLog, type CompleteEventLog, type EventLogOptions, type SessionLog } from './log/event-log.js';
export type { LogFilter, SessionLogFilter } from './log/filters.js';
export type { CompleteLogEntry, LogChange, LogEntry, SessionLogEntry, SessionLogCursor } from './log/entries.js';
export type { ImportOptions } from './model/import-options.js';
export type { LogCursor } from './model/log-history.js';
export { SessionProjection, type SessionProjectionOptions } from './log/session-projection.js';
export type { ToolCall } from './conversation/calls.js';
export { toMessages, type EventPage, type Message, type MessageToolCall } from './conversation/messages.js';
export type { RepairedSession } from './maintenance/repair.js';
export type {
  BatchOptions,
  EraseUserOptions,
  MaintenanceOptions,
  OwnerOptions,
  PruneOptions,
  ReencodeOptions,
  TrimOptions,
} from './maintenance/options.js';
export { SessionMaintenance } from './maintenance/session-maintenance.js';
export type { SessionStats } from './maintenance/stats.js';
export { migrate } from '../migrations/migrate.js';
export type { ForkedFrom, SessionKey } from './model/keys.js';
export type { MaintenanceResult } from './model/results.js';
export type { CommonOptions, ErrorContext, MikroOrmSessionServiceOptions, PostgresqlOptions } from './model/options.js';
export { interruptedToolResponses, openLongRunningCalls, unansweredFunctionCalls } from './conversation/recovery.js';
export { toolJournal, type ToolJournalOptions } from './conversation/tool-journal.js';
export { SessionLeases, type AcquireOptions, type Lease, type SessionLeasesOptions } from './leases/session-leases.js';
export type { HistoryPoint, UpdateStateRequest } from './sessions/requests.js';
export type { ReadEventsRequest } from './sessions/pages.js';
export type { FindOpenCallsRequest, OpenCall } from './sessions/open-calls.js';
export type { FindSessionsRequest, SessionSummary } from './sessions/stored-summaries.js';
export { runTurn, type RunTurnRequest } from './run-turn.js';
export { adkServices, type AdkServices, type AdkServicesOptions } from './services.js';
export {
  MikroOrmArtifactService,
  type ArtifactAddress,
  type MikroOrmArtifactServiceOptions,
  type StoredArtifactVersion,
  type ArtifactContent,
  type FindArtifactsRequest,
  type SaveStreamRequest,
  type ArtifactSummary,
} from './artifacts/artifact-service.js';
export { MikroOrmMemoryService } from './memory/memory-service.js';
export type {
  AddEventsToMemoryRequest,
  AddMemoryRequest,
  ForgetRequest,
  ListMemoriesRequest,
  MikroOrmMemoryServiceOptions,
  SearchMemoriesRequest,
  StoredMemory,
} from './memory/requests.js';
export type { MemoryEmbedding } from './memory/embedding.js';
export type { MemoryProjectionOptions } from './memory/memory-projection.js';
export { MikroOrmCredentialService } from './credentials/credential-service.js';
export { MikroOrmSessionService } from './sessions/session-service.js';
export type { TransferRecord } from './model/records.js';
