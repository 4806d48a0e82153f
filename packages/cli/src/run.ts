import type { EntityManager, MikroORM } from '@mikro-orm/core';
import { Command, Option } from 'commander';
import {
  CodecError,
  DamagedSessionError,
  InvalidArgumentError,
  InvalidKeyError,
  type SessionKey,
} from '../../../src/index.js';
import type { Codec } from '../../../src/model/codec.js';
import type { CodecOptions } from '../../../src/model/options.js';
import { CODEC_OPTIONS } from '../../../src/model/options.js';
import { inWordsOfUrl } from '../../../src/model/setting-words.js';
import { NAME_CODEC, printableLines, repairCommand } from '../../studio/src/operations/words.js';
import { connect, type ConnectionOptions } from './connect.js';
import { Unfinished, UsageError } from './errors.js';
import { defaultExportOf, hostSettings } from './files.js';
import { Terminal } from './terminal.js';

/** What the package calls options and arguments, if not as the command line does. */
const CALLED: Readonly<Record<string, string>> = {
  '--app <name>': 'appName',
  '--user <id>': 'userId',
  '--session <id>': 'sessionId',
  '--id <id>': 'memoryId',
  '--label <name=value>': 'labels',
  '--before <invocation>': 'beforeInvocationId',
  '--pause <time>': 'pauseMs',
  '--last <n>': 'numRecentEvents',
  app: 'appName',
  user: 'userId',
  session: 'sessionId',
};

class NamedOption extends Option {
  override attributeName(): string {
    return CALLED[this.flags] ?? super.attributeName();
  }
}

/** A command whose options have the names of the package, to be passed on as they are. */
export class NamedCommand extends Command {
  override createCommand(name?: string): NamedCommand {
    return new NamedCommand(name);
  }

  override createOption(flags: string, description?: string): Option {
    return new NamedOption(flags, description);
  }
}

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
  /** Fires at the first Ctrl-C; a second one ends the process. */
  signal: AbortSignal;
  /** Asks, unless there is `--yes`. @throws Unfinished for another answer than yes. */
  confirm: (question: string | (() => Promise<string>), unchanged?: string) => Promise<void>;
}

/** What a command does, with its arguments and its options. @throws Unfinished to end the process with 1. */
export type Work<Args extends unknown[]> = (context: Context, ...args: Args) => Promise<void>;

/**
 * @param mayCreate whether the command creates a SQLite file that does not exist.
 * @returns an action for commander: opens the database, runs the work, closes the database. It sets the exit code of the process:
 *   0, 1 if something failed, 2 if the command line was wrong.
 */
export function action<Args extends unknown[]>(work: Work<Args>, mayCreate = false) {
  return async function (this: Command): Promise<void> {
    const {
      json = false,
      utc = false,
      codec: named,
      maxDecodedBytes,
      yes,
      ...connection
    } = this.optsWithGlobals<CommonFlags>();
    const { yes: _, ...flags } = this.opts<CommonFlags>();
    const controller = new AbortController();
    const { signal } = controller;
    const end = () => controller.abort();
    process.once('SIGINT', end).once('SIGTERM', end);
    let orm: MikroORM | undefined;
    try {
      const { codec = named, ...services } = { ...hostSettings(), ...(named !== undefined && { codec: named }) };
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
      const context = { orm, em: orm.em, terminal, url: connection.url, codec: options, services, signal, confirm };
      process.exitCode = 0;
      await work(context, ...([...(this.processedArgs as unknown[]), flags] as Args));
    } catch (error) {
      fail(error, this);
    } finally {
      process.off('SIGINT', end).off('SIGTERM', end);
      await orm?.close(true);
    }
  };
}

/** What a command does with the session that its arguments name, and its options. */
export type SessionWork<Flags> = (context: Context, key: SessionKey, flags: Flags) => Promise<void>;

/** Like `action`, for commands whose arguments are an app, a user and a session. */
export const sessionAction = <Flags>(work: SessionWork<Flags>) =>
  action<[string, string, string, Flags]>((context, appName, userId, sessionId, flags) =>
    work(context, { appName, userId, sessionId }, flags),
  );

/**
 * @param file a JavaScript module whose default export is a codec, or a list of codecs, as for the `codec` option.
 * @throws UsageError when there is no such file; InvalidArgumentError when it has no such export.
 */
async function codecOf(file: string): Promise<Codec | readonly Codec[]> {
  const codec = await defaultExportOf(file);
  CODEC_OPTIONS.codec(codec, `The default export of ${file}`);
  return codec as Codec | readonly Codec[];
}

/** Makes a message or advice of the package speak of `--url` instead of a config. */
export const inWordsOf = ({ url }: Pick<Context, 'url'>, message: string): string =>
  url === undefined ? message : inWordsOfUrl(message);

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
  const inWords = said.replace(/Use getOrCreateSession, [^.]*\.$/, 'Choose another id.');
  const message = withOptionsOf(command, inWordsOf(command?.optsWithGlobals() ?? {}, inWords), names);
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
