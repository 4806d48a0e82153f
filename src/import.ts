/**
 * `adk-mikro-orm/import`: copies the sessions of ADK's own stores. It is an entry of its own, since services do not need it.
 *
 * @module adk-mikro-orm/import
 */
export { importFrom, type ImportFromOptions } from './maintenance/import-from.js';
export type { ImportOptions } from './maintenance/options.js';
export type { Codec, CodecContext, CodecData, DecodedData } from './model/codec.js';
export type {
  CodecOptions,
  CommonOptions,
  ErrorContext,
  NotificationClient,
  PostgresqlOptions,
  ReportingOptions,
  RetryOptions,
} from './model/options.js';
export type { ImportResult, MaintenanceResult } from './model/results.js';
export type { SessionKey } from './model/keys.js';
export type { TransferTexts } from './transfer/bound-texts.js';
export type { RefusedRow } from './transfer/foreign/found-event.js';
export type { SavedNames } from './transfer/foreign/saved-session.js';
