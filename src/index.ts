export { adkEntities } from '../entities/index.js';
export type { AdkEntityOptions } from '../entities/index.js';
export {
  AdkMikroOrmError,
  DamagedEventError,
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
  SessionExistsError,
  SessionNotFoundError,
  StaleSessionError,
  UnserializableValueError,
  type Damage,
  type DamagedEvents,
} from './model/errors.js';
export {
  EventLog,
  type EventLogOptions,
  type LogEntry,
  type LogFilter,
  type LogPlace,
  type SessionLog,
  type SessionLogFilter,
  type WatchOptions,
} from './log/event-log.js';
export type { NotificationClient } from './log/listener.js';
export { toMessages, type Message, type MessageToolCall } from './sessions/messages.js';
export { migrate } from '../migrations/migrate.js';
export type { SessionKey } from './model/keys.js';
export type { ErrorContext, MikroOrmSessionServiceOptions, ReportingOptions, RetryOptions } from './model/options.js';
export { interruptedToolResponses, unansweredFunctionCalls, type UnansweredFunctionCall } from './leases/recovery.js';
export {
  SessionLeases,
  type AcquireOptions,
  type Lease,
  type LeaseInfo,
  type SessionLeasesOptions,
} from './leases/session-leases.js';
export type { AppendEventsRequest, UpdateStateRequest } from './sessions/requests.js';
export { MikroOrmSessionService } from './sessions/session-service.js';
export { deriveSessionId } from './model/session-tree.js';
