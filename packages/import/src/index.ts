/**
 * `adk-mikro-orm/import`: copies the sessions of ADK's own stores. It is an entry of its own, since services do not need it.
 *
 * @module adk-mikro-orm/import
 */
export { importFrom, type ImportFromOptions } from './import-from.js';
export type { ImportOptions } from '../../../src/maintenance/options.js';
export type { Codec, CodecContext, CodecData, DecodedData } from '../../../src/model/codec.js';
export type {
  CodecOptions,
  CommonOptions,
  ErrorContext,
  NotificationClient,
  PostgresqlOptions,
  ReportingOptions,
  RetryOptions,
} from '../../../src/model/options.js';
export type { ImportResult, MaintenanceResult } from '../../../src/model/results.js';
export type { SessionKey } from '../../../src/model/keys.js';
export type { TransferTexts } from '../../../src/transfer/bound-texts.js';
export type { RefusedRow } from './found-event.js';
export type { SavedNames } from './saved-session.js';
