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
  SchemaError,
  SessionExistsError,
  SessionNotFoundError,
  StaleSessionError,
  UnserializableValueError,
  type Damage,
  type DamagedEvents,
} from './errors.js';
export {
  EventLog,
  type EventLogOptions,
  type LogEntry,
  type LogFilter,
  type LogPlace,
  type SessionLog,
  type SessionLogFilter,
  type WatchOptions,
} from './event-log.js';
export type { NotificationClient } from './log-listener.js';
export { toMessages, type Message, type MessageToolCall } from './messages.js';
export { migrate } from './migrate.js';
export type { ErrorContext, MikroOrmSessionServiceOptions, ReportingOptions, RetryOptions } from './options.js';
export { interruptedToolResponses, unansweredFunctionCalls, type UnansweredFunctionCall } from './recovery.js';
export {
  SessionLeases,
  type AcquireOptions,
  type Lease,
  type LeaseInfo,
  type SessionLeasesOptions,
} from './session-leases.js';
export type { AppendEventsRequest, UpdateStateRequest } from './requests.js';
export { MikroOrmSessionService } from './session-service.js';
export { deriveSessionId } from './session-tree.js';
