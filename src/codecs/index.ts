/**
 * `adk-mikro-orm/codecs`: for the `codec` option. `docs/codecs.md` says what they hide and what they do not.
 *
 * @module adk-mikro-orm/codecs
 */
export { compression, type CompressionAlgorithm, type CompressionOptions } from './compression.js';
export { encryption, type EncryptionOptions, type KeyFunction, type KeyUse } from './encryption.js';
export { wrappedKeys, type WrappedKeysOptions } from './wrapped-keys.js';
export { KeyNeeded, type Codec, type CodecContext, type CodecData, type DecodedData } from '../model/codec.js';
