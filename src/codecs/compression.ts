import * as zlib from 'node:zlib';
import { oneOf, object, aWholeNumber } from '../model/arguments.js';
import type { Codec } from '../model/codec.js';
import { CodecError, InvalidArgumentError } from '../model/errors.js';
import { isObject } from '../model/json.js';

export type CompressionAlgorithm = 'zstd' | 'brotli' | 'gzip';

export interface CompressionOptions {
  /**
   * The algorithm for new texts: by default `zstd` if Node.js has it (22.15 and later), otherwise `gzip`. Texts of every algorithm
   * are read. If an older Node.js reads the same tables, use `gzip` or `brotli`.
   */
  algorithm?: CompressionAlgorithm;
  /** Texts of fewer bytes stay as they are; 512 by default. */
  minBytes?: number;
}

const checkOptions = object<CompressionOptions>({
  algorithm: oneOf('zstd', 'brotli', 'gzip'),
  minBytes: aWholeNumber,
});

/** Smaller texts gain little, and the codec's name takes space, too. */
const MIN_BYTES = 512;

/** The bytes that base64 and the name of the codec add. */
const storedLength = (length: number) => length * (4 / 3) + 64;

interface Algorithm {
  /** The first byte of its output. */
  mark: number;
  compress(data: Uint8Array): Buffer;
  /** @throws a RangeError if the result is larger. */
  expand(data: Uint8Array, maxOutputLength: number): Buffer;
}

/** Fast, since every append waits for it; docs/codecs.md has what was measured. */
const BROTLI = { params: { [zlib.constants.BROTLI_PARAM_QUALITY]: 4 } };

const ALGORITHMS: Record<CompressionAlgorithm, Algorithm | undefined> = {
  gzip: {
    mark: 1,
    compress: (data) => zlib.gzipSync(data),
    expand: (data, maxOutputLength) => zlib.gunzipSync(data, { maxOutputLength }),
  },
  brotli: {
    mark: 2,
    compress: (data) => zlib.brotliCompressSync(data, BROTLI),
    expand: (data, maxOutputLength) => zlib.brotliDecompressSync(data, { maxOutputLength }),
  },
  zstd: zstd(),
};

/** The types of Node.js 20 lack zstd. */
interface Zstd {
  zstdCompressSync(data: Uint8Array): Buffer;
  zstdDecompressSync(data: Uint8Array, options: zlib.ZlibOptions): Buffer;
}

/** @returns undefined if Node.js does not have it. */
function zstd(): Algorithm | undefined {
  const { zstdCompressSync, zstdDecompressSync } = zlib as Partial<Zstd>;
  if (!zstdCompressSync || !zstdDecompressSync) return undefined;
  return {
    mark: 3,
    compress: (data) => zstdCompressSync(data),
    expand: (data, maxOutputLength) => zstdDecompressSync(data, { maxOutputLength }),
  };
}

/**
 * A codec that compresses large texts. Put it before `encryption`, since encrypted bytes do not compress. The stored length then
 * depends on the content: do not compress if somebody who can see the lengths also chooses a part of the content.
 *
 * @throws InvalidArgumentError for an unknown option, or an algorithm that this Node.js does not have.
 */
export function compression(options: CompressionOptions = {}): Codec {
  const { algorithm = ALGORITHMS.zstd ? 'zstd' : 'gzip', minBytes = MIN_BYTES } = checkOptions(
    options,
    'The options of compression',
  );
  const chosen = ALGORITHMS[algorithm];
  if (!chosen) throw new InvalidArgumentError('algorithm must be brotli or gzip: zstd needs Node.js 22.15 or later.');
  return {
    name: 'compression',
    encode(data) {
      if (data.length < minBytes) return undefined;
      const compressed = chosen.compress(data);
      if (storedLength(compressed.length) >= data.length) return undefined;
      return { data: Buffer.concat([Buffer.of(chosen.mark), compressed]) };
    },
    decode({ data }, _context, maxBytes) {
      const [mark] = data;
      if (mark === 3 && !ALGORITHMS.zstd)
        throw new CodecError('A stored text is compressed with zstd, which needs Node.js 22.15 or later.');
      const algorithm = Object.values(ALGORITHMS).find((each) => each?.mark === mark);
      try {
        return algorithm?.expand(data.subarray(1), maxBytes);
      } catch (error) {
        return isTooLarge(error) ? 'tooLarge' : undefined;
      }
    },
  };
}

const isTooLarge = (error: unknown) => isObject(error) && 'code' in error && error.code === 'ERR_BUFFER_TOO_LARGE';
