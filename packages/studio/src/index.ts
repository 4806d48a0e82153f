/**
 * `adk-mikro-orm/studio`: pages that show the stored sessions. `docs/studio.md` says how to run and mount it.
 *
 * @module adk-mikro-orm/studio
 */
export { createStudio, type Studio, type StudioOptions } from './studio.js';
export type { StudioScope } from './guard.js';
export type { LogReaders } from './visit.js';
export type { LogCursor } from '../../../src/model/log-history.js';
export type { SessionKey } from '../../../src/model/keys.js';
export type { Codec, CodecContext, CodecData, DecodedData } from '../../../src/model/codec.js';
export type { CodecOptions, ErrorContext } from '../../../src/model/options.js';
