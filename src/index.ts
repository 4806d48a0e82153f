/**
 * Rules that docstrings cite as `(contract D8)` are in `docs/contract.md` of this package; its README lists the other pages.
 *
 * @module adk-mikro-orm
 */
export { adkEntities } from '../entities/index.js';
export type { AdkEntityOptions } from '../entities/index.js';
export {
  AdkMikroOrmError,
  ArtifactTooLargeError,
  CodecError,
  DamagedArtifactError,
  DamagedEventError,
  DamagedMemoryError,
  DamagedSessionError,
  DatabaseError,
  EventTooLargeError,
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
  type DamagedEvents,
} from './model/errors.js';
export {
  EventLog,
  type CompleteEventLog,
  type EventLogOptions,
  type SessionLog,
  type WatchOptions,
} from './log/event-log.js';
export type { LogFilter, SessionLogFilter } from './log/filters.js';
export type {
  CompleteLogEntry,
  LogChange,
  LogEntry,
  LogEntryPosition,
  ReplacedReason,
  SessionLogEntry,
  SessionLogCursor,
  SessionReset,
} from './log/entries.js';
export type { LogCursor } from './model/log-history.js';
export {
  SessionProjection,
  type ProjectionFilter,
  type ProjectionStatus,
  type SessionProjectionOptions,
} from './log/session-projection.js';
export type { Question, Takes } from './conversation/answers.js';
export type { LongRunningCall, Place, Run } from './conversation/calls.js';
export { toMessages, type EventPage, type Message, type MessageToolCall } from './conversation/messages.js';
export type { TakenEvent } from './maintenance/raw-rows.js';
export type { RepairOptions, RepairedSession, StateOwner, TakenChange, TakenValue } from './maintenance/repair.js';
export type {
  BatchOptions,
  EraseUserOptions,
  ImportOptions,
  MaintenanceOptions,
  PruneOptions,
  ReencodeOptions,
  StatsOptions,
  TrimOptions,
  UsageOptions,
} from './maintenance/options.js';
export { SessionMaintenance } from './maintenance/session-maintenance.js';
export type { AppStats, SessionStats } from './maintenance/stats.js';
export type { Usage, UsageRow } from './maintenance/usage.js';
export type { TokenCounts } from './conversation/tokens.js';
export type { Placement } from '../migrations/citus-layout.js';
export { distribute, type DistributeOptions, type DistributeResult } from '../migrations/distribute.js';
export { migrate } from '../migrations/migrate.js';
export type { Codec, CodecContext, CodecData, DecodedData } from './model/codec.js';
export type { ForkedFrom, SessionKey } from './model/keys.js';
export type { DeleteRule, ImportResult, KeptByKey, MaintenanceResult, ReferringRows } from './model/results.js';
export type {
  CodecOptions,
  CommonOptions,
  ErrorContext,
  MikroOrmSessionServiceOptions,
  NotificationClient,
  PostgresqlOptions,
  ReportingOptions,
  RetryOptions,
} from './model/options.js';
export {
  interruptedToolResponses,
  openLongRunningCalls,
  unansweredFunctionCalls,
  type OpenLongRunningCall,
  type UnansweredFunctionCall,
} from './conversation/recovery.js';
export { toolJournal, type ToolJournalOptions } from './conversation/tool-journal.js';
export {
  SessionLeases,
  type AcquireOptions,
  type Lease,
  type LeaseInfo,
  type SessionLeasesOptions,
} from './leases/session-leases.js';
export type { HistoryPoint } from './sessions/history.js';
export type { AppendEventsRequest, ForkPoint, UpdateStateRequest } from './sessions/requests.js';
export type { ReadEventsRequest } from './sessions/pages.js';
export type { FindOpenCallsRequest, FindOpenCallsResponse, OpenCall } from './sessions/open-calls.js';
export type { FindSessionsRequest, SessionSummary } from './sessions/stored-summaries.js';
export type { FindSessionsResponse, SessionDescription } from './sessions/summaries.js';
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
export {
  createArtifactHandler,
  type ArtifactHandler,
  type ArtifactHandlerOptions,
  type RequestedArtifact,
} from './artifacts/artifact-handler.js';
export {
  MikroOrmMemoryService,
  type AddEventsToMemoryRequest,
  type AddMemoryRequest,
  type ForgetRequest,
  type FoundMemory,
  type ListMemoriesRequest,
  type MikroOrmMemoryServiceOptions,
  type SearchMemoriesRequest,
  type StoredMemory,
} from './memory/memory-service.js';
export type { TextOfEvent } from './memory/memory-content.js';
export type { MemoryEmbedding } from './memory/embedding.js';
export type { MemoryProjectionOptions } from './memory/memory-projection.js';
export type { RebuildVectorsRequest } from './memory/rebuild-vectors.js';
export { MikroOrmCredentialService, type CredentialAddress } from './credentials/credential-service.js';
export { MikroOrmSessionService } from './sessions/session-service.js';
export type { ExportOptions } from './transfer/export.js';
export type {
  AppRecord,
  ArtifactPartRecord,
  ArtifactRecord,
  EventRecord,
  MemoryRecord,
  SessionRecord,
  StateChangeRecord,
  StateRecord,
  TransferRecord,
  UserRecord,
} from './transfer/records.js';
