import type { EntityManager, MikroORM } from '@mikro-orm/core';
import type { Command } from 'commander';
import {
  CodecError,
  DamagedSessionError,
  InvalidArgumentError,
  InvalidKeyError,
  type MaintenanceOptions,
  type SessionKey,
} from '../../../src/index.js';
import type { Codec } from '../../../src/model/codec.js';
import type { CodecOptions } from '../../../src/model/options.js';
import { CODEC_OPTIONS } from '../../../src/model/options.js';
import { NAME_CODEC, printableLines, repairCommand } from '../../studio/src/operations/words.js';
import { connect, type ConnectionOptions } from './connect.js';
import { Unfinished, UsageError } from './errors.js';
import { defaultExportOf, hostSettings } from './files.js';
import { CALLED } from './named-command.js';
import { Terminal } from './terminal.js';
import { inWordsOf } from './words.js';

/** The options of every command, and that of those which ask. */
interface CommonFlags extends ConnectionOptions {
  json?: boolean;
  utc?: boolean;
  codec?: string;
  maxDecodedBytes?: number;
  yes?: true;
}

/** What a command gets. */
export interface Context {
  orm: MikroORM;
  em: EntityManager;
  terminal: Terminal;
  /** The URL of the database, if it was given instead of a config. */
  url?: string | undefined;
  /** The codec of stored contents, if one was named; for everything that reads or writes them. */
  codec: CodecOptions;
  /** What package.json says of the host's services beside that. */
  services: { toolApps?: readonly string[] };
  /** The host's tables whose rows belong to people, which package.json names. */
  owned: NonNullable<MaintenanceOptions['owned']>;
  /** Fires at the first Ctrl-C; a second one ends the process. */
  signal: AbortSignal;
  /** Asks, unless there is `--yes`. @throws Unfinished for another answer than yes. */
  confirm: (question: string | (() => Promise<string>), unchanged?: string) => Promise<void>;
}

/** What a command does, with its arguments and its options. @throws Unfinished to end the process with 1. */
export type Work<Args extends unknown[]> = (context: Context, ...args: Args) => Promise<void>;

/**
 * Opens the database, runs a command's work, and closes the database. Sets the exit code of the process: 0, 1 if something failed,
 * 2 if the command line was wrong.
 *
 * @param mayCreate whether the command creates a SQLite file that does not exist.
 */
export async function runCommand(
  command: Command,
  load: () => Promise<Work<never>>,
  { mayCreate = false, ofSession = false }: { mayCreate?: boolean; ofSession?: boolean },
): Promise<void> {
  const {
    json = false,
    utc = false,
    codec: named,
    maxDecodedBytes,
    yes,
    ...connection
  } = command.optsWithGlobals<CommonFlags>();
  const { yes: _, ...flags } = command.opts<CommonFlags>();
  const controller = new AbortController();
  const { signal } = controller;
  const end = () => controller.abort();
  process.once('SIGINT', end).once('SIGTERM', end);
  let orm: MikroORM | undefined;
  try {
    const {
      codec = named,
      owned = [],
      ...services
    } = { ...hostSettings(), ...(named !== undefined && { codec: named }) };
    const options = {
      ...(codec !== undefined && { codec: await codecOf(codec) }),
      ...(maxDecodedBytes !== undefined && { maxDecodedBytes }),
    };
    orm = await connect(connection, mayCreate);
    const terminal = new Terminal(json, utc);
    const confirm: Context['confirm'] = async (question, unchanged = 'Nothing was deleted.') => {
      if (yes) return;
      const text = typeof question === 'string' ? question : await question();
      if (!(await terminal.confirm(text, signal))) throw new Unfinished(unchanged);
    };
    const context: Context = {
      ...{ orm, em: orm.em, terminal, url: connection.url, codec: options, services, signal, confirm },
      owned: owned.map(({ entity, ...names }) => ({ entity: { name: entity }, ...names })),
    };
    process.exitCode = 0;
    const work = await load();
    const args: unknown[] = command.processedArgs;
    const [appName, userId, sessionId] = args;
    await work(context, ...((ofSession ? [{ appName, userId, sessionId }, flags] : [...args, flags]) as never));
  } catch (error) {
    fail(error, command);
  } finally {
    process.off('SIGINT', end).off('SIGTERM', end);
    await orm?.close(true);
  }
}

/** What a command does with the session that its arguments name, and its options. */
export type SessionWork<Flags> = Work<[key: SessionKey, flags: Flags]>;

/**
 * @param file a JavaScript module whose default export is a codec, or a list of codecs, as for the `codec` option.
 * @throws UsageError when there is no such file; InvalidArgumentError when it has no such export.
 */
async function codecOf(file: string): Promise<Codec | readonly Codec[]> {
  const codec = await defaultExportOf(file);
  CODEC_OPTIONS.codec(codec, `The default export of ${file}`);
  return codec as Codec | readonly Codec[];
}

/** Reports an error on stderr. @param command the command whose option names the message uses. */
export function fail(error: unknown, command?: Command): void {
  process.exitCode = 1;
  const said = error instanceof Error ? error.message : String(error);
  if (error instanceof Unfinished) {
    if (said !== '') process.stderr.write(`${said}\n`);
    return;
  }
  const isUsage =
    error instanceof UsageError || error instanceof InvalidArgumentError || error instanceof InvalidKeyError;
  if (isUsage) process.exitCode = 2;
  const names = error instanceof InvalidArgumentError ? error.names : [];
  const message = withOptionsOf(command, inWordsOf(command?.optsWithGlobals() ?? {}, said), names);
  process.stderr.write(`error: ${printableLines(message).join('\n')}\n`);
  if (error instanceof CodecError && error.missing !== undefined) process.stderr.write(`${NAME_CODEC}\n`);
  if (error instanceof DamagedSessionError) {
    const { appName, userId, sessionId } = error;
    // Without a session, the state of the user or of the app is damaged.
    const owner = [appName, userId, sessionId].filter((each) => each !== '');
    process.stderr.write(`See: ${repairCommand(owner)}\n`);
  }
}

/** Names options as the command line does: `--keep-last` for `keepLast`. @param names the options that the message names. */
function withOptionsOf(command: Command | undefined, message: string, names: readonly string[]): string {
  const words = new Map<string, string>();
  for (const option of command?.options ?? []) words.set(option.attributeName(), option.long ?? '');
  for (const argument of command?.registeredArguments ?? [])
    words.set(CALLED[argument.name()] ?? argument.name(), `<${argument.name()}>`);
  return message.replace(/\w+/g, (word) => (names.includes(word) && words.get(word)) || word);
}
