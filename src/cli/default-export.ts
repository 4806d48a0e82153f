import { existsSync } from 'node:fs';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { isObject } from '../model/objects.js';
import { UsageError } from './usage-error.js';

/**
 * @param file a JavaScript module.
 * @returns what it exports as default.
 * @throws UsageError when there is no such file, and what the module throws.
 */
export async function defaultExportOf(file: string): Promise<unknown> {
  if (!existsSync(file)) throw new UsageError(`There is no file ${file}.`);
  const loaded = (await import(pathToFileURL(path.resolve(file)).href)) as { default?: unknown };
  // Node.js puts the exports of a file in CommonJS into `default`, and so does TypeScript.
  return isObject(loaded.default) && 'default' in loaded.default ? loaded.default.default : loaded.default;
}
