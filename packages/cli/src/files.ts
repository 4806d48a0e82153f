import { existsSync, readFileSync } from 'node:fs';
import { open, readFile, rm, type FileHandle } from 'node:fs/promises';
import path from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { pathToFileURL } from 'node:url';
import { aString, object, rule } from '../../../src/model/arguments.js';
import { TOOL_APPS } from '../../../src/model/options.js';
import { decode, isObject, isRecord } from '../../../src/model/json.js';
import type { Prices } from '../../studio/src/index.js';
import { somePrices } from '../../studio/src/operations/prices.js';
import { UsageError } from './errors.js';

/** The system's error codes for files, in words. */
const REASONS: Readonly<Record<string, string>> = {
  ENOENT: 'there is no such file or folder',
  EEXIST: 'it exists already',
  EISDIR: 'it is a folder',
  ENOTDIR: 'a part of its path is not a folder',
  EACCES: 'no permission',
  EPERM: 'no permission',
  EROFS: 'the disk is read-only',
  ENOSPC: 'the disk is full',
};

/** @param flags `r` to read the file, `w` to overwrite it, `wx` to write it if it does not exist. */
export async function openFile(path: string, flags: 'r' | 'w' | 'wx'): Promise<FileHandle> {
  try {
    return await open(path, flags);
  } catch (error) {
    throw inWords(path, flags === 'r' ? 'read' : 'written', error);
  }
}

/**
 * Writes a new file, or to the standard output. What cannot be written whole leaves no file.
 *
 * @param file undefined or `-` for the standard output.
 */
export async function writeFile(file: string | undefined, content: AsyncIterable<Uint8Array>): Promise<void> {
  if (file === undefined || file === '-') return pipeline(Readable.from(content), process.stdout, { end: false });
  const opened = await openFile(file, 'wx');
  try {
    await pipeline(Readable.from(content), opened.createWriteStream());
  } catch (error) {
    await rm(file, { force: true });
    throw inWords(file, 'written', error);
  }
}

/** @returns the error code of Node.js, or an empty text. */
export const codeOf = (error: unknown): string =>
  isObject(error) && 'code' in error && typeof error.code === 'string' ? error.code : '';

/** The error of a file for the terminal. */
export function inWords(path: string, verb: 'read' | 'written', cause: unknown): Error {
  const reason = REASONS[codeOf(cause)];
  return reason === undefined && cause instanceof Error
    ? cause
    : new Error(`${path} cannot be ${verb}: ${reason}.`, { cause });
}

/** @throws UsageError if there is no such file or folder. */
export function checkExists(path: string, what: 'file' | 'folder' = 'file'): void {
  if (!existsSync(path)) throw new UsageError(`There is no ${what} ${path}.`);
}

/** @param file JSON with prices by model. @throws UsageError, InvalidArgumentError. */
export async function pricesOf(file: string): Promise<Prices> {
  checkExists(file);
  const content = decode(await readFile(file, 'utf8'));
  if (!content) throw new UsageError(`${file} is not JSON.`);
  return somePrices(content.value, file);
}

/**
 * @param file a JavaScript module.
 * @returns what it exports as default.
 * @throws UsageError when there is no such file, and what the module throws.
 */
export async function defaultExportOf(file: string): Promise<unknown> {
  checkExists(file);
  const loaded = (await import(pathToFileURL(path.resolve(file)).href)) as { default?: unknown };
  // Node.js puts the exports of a file in CommonJS into `default`, and so does TypeScript.
  return isObject(loaded.default) && 'default' in loaded.default ? loaded.default.default : loaded.default;
}

/** What `"adk-mikro-orm": { … }` of a package.json says of the host's services. */
interface HostSettings {
  /** The path of the codec. */
  codec?: string;
  toolApps?: readonly string[];
  /** Tables whose rows belong to people, by the names of their entities. */
  owned?: readonly { entity: string; appName: string; userId: string }[];
}

const isOwned = (each: unknown) =>
  isRecord(each) && ['entity', 'appName', 'userId'].every((name) => typeof each[name] === 'string');
const checkSettings = object<HostSettings>({
  ...{ codec: aString, toolApps: TOOL_APPS },
  owned: rule(
    'a list of objects with entity, appName and userId',
    (value) => Array.isArray(value) && value.every(isOwned),
  ),
});

/** @returns the settings of the nearest package.json. @throws InvalidArgumentError if it has others. */
export function hostSettings(folder = process.cwd()): HostSettings {
  const file = path.join(folder, 'package.json');
  if (!existsSync(file)) {
    const parent = path.dirname(folder);
    return parent === folder ? {} : hostSettings(parent);
  }
  const content = decode(readFileSync(file, 'utf8'))?.value;
  const given = (isRecord(content) ? content['adk-mikro-orm'] : undefined) ?? {};
  const { codec, ...settings } = checkSettings(given, `"adk-mikro-orm" in ${file}`);
  return { ...settings, ...(codec !== undefined && { codec: path.resolve(folder, codec) }) };
}
