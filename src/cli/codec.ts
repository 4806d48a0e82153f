import type { Codec } from '../model/codec.js';
import { CODEC_OPTIONS } from '../model/options.js';
import { defaultExportOf } from './default-export.js';

/**
 * @param file a JavaScript module whose default export is a codec, or a list of codecs, as for the `codec` option.
 * @throws UsageError when there is no such file; InvalidArgumentError when it has no such export.
 */
export async function codecOf(file: string): Promise<Codec | readonly Codec[]> {
  const codec = await defaultExportOf(file);
  CODEC_OPTIONS.codec(codec, `The default export of ${file}`);
  return codec as Codec | readonly Codec[];
}
