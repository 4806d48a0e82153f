import * as zlib from 'node:zlib';
import { oneOf, object, aWholeNumber } from '../model/arguments.js';
import type { Codec } from '../model/codec.js';
import { CodecError, InvalidArgumentError } from '../model/errors.js';
import { isObject } from '../model/objects.js';

export type CompressionAlgorithm = 'zstd' | 'brotli' | 'gzip';

export interface CompressionOptions {
  /**
   * What to write with: by default `zstd` if Node.js has it (22.15 and later), otherwise `gzip`. All of them are read. If
   * an older Node.js is to read the same tables, name `gzip` or `brotli`.
   */
  algorithm?: CompressionAlgorithm;
  /** Texts of fewer bytes stay as they are; 512 by default. */
  minBytes?: number;
}

const checkOptions = object<CompressionOptions>({
  algorithm: oneOf('zstd', 'brotli', 'gzip'),
  minBytes: aWholeNumber,
});

/** Little text is left of an event below that size, and the names of the codec take some. */
const MIN_BYTES = 512;

/** What base64 and the name of the codec add. */
const storedLength = (length: number) => length * (4 / 3) + 64;

interface Algorithm {
  /** The first byte of what it has written. */
  mark: number;
  compress(data: Uint8Array): Buffer;
  /** @throws a RangeError when it becomes larger. */
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

/** What the types of Node.js 20 lack. */
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
 * A codec that makes large texts smaller. Put it before `encryption`: what is encrypted cannot be compressed. What is stored then
 * has a length that depends on the content; do not compress if somebody who sees the lengths may choose a part of it.
 *
 * @throws InvalidArgumentError for an option that is not known, or an algorithm that this Node.js does not have.
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
        throw new CodecError('What is stored is compressed with zstd, which needs Node.js 22.15 or later.');
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
