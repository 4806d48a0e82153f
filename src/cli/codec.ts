import { existsSync } from 'node:fs';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import type { Codec } from '../model/codec.js';
import { isObject } from '../model/objects.js';
import { CODEC_OPTIONS } from '../model/options.js';
import { UsageError } from './usage-error.js';

/**
 * @param file a JavaScript module whose default export is a codec, or a list of codecs, as for the `codec` option.
 * @throws UsageError when there is no such file; InvalidArgumentError when it has no such export.
 */
export async function codecOf(file: string): Promise<Codec | readonly Codec[]> {
  if (!existsSync(file)) throw new UsageError(`There is no file ${file}.`);
  const loaded = (await import(pathToFileURL(path.resolve(file)).href)) as { default?: unknown };
  // Node.js puts the exports of a file in CommonJS into `default`, and so does TypeScript.
  const codec = isObject(loaded.default) && 'default' in loaded.default ? loaded.default.default : loaded.default;
  CODEC_OPTIONS.codec(codec, `The default export of ${file}`);
  return codec as Codec | readonly Codec[];
}
