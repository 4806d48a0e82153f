import type { EntityManager, MikroORM } from '@mikro-orm/core';
import type { Command } from 'commander';
import { DamagedSessionError, InvalidArgumentError, InvalidKeyError } from '../model/errors.js';
import type { SessionKey } from '../model/keys.js';
import type { CodecOptions } from '../model/options.js';
import { codecOf } from './codec.js';
import { connect, type ConnectionOptions } from './connect.js';
import { Terminal } from './terminal.js';
import { UsageError } from './usage-error.js';
import { printableLines, quoted } from '../operations/words.js';

/** The options of every command. */
interface GlobalOptions extends ConnectionOptions {
  json?: boolean;
  codec?: string;
  maxDecodedBytes?: number;
}

/** What a command gets to work with. */
export interface Context {
  orm: MikroORM;
  em: EntityManager;
  terminal: Terminal;
  /** The URL of the database, if it was given instead of a config. */
  url?: string | undefined;
  /** The codec that contents are stored in, if one was named; for whatever reads or writes them. */
  codec: CodecOptions;
  /** Fires at the first Ctrl-C; a second one ends the process. */
  signal: AbortSignal;
}

/** How a command ended; where it is `failed`, it has reported why, and the process ends with 1. */
export type CommandResult = 'failed' | undefined;

/** What a command does, with its arguments and its options. */
export type Work<Args extends unknown[]> = (context: Context, ...args: Args) => Promise<CommandResult>;

/**
 * @param mayCreate whether the command makes a SQLite file that does not exist.
 * @returns an action for commander: opens the database, runs the work, closes the database. It sets the exit code of the
 *   process: 0, 1 if something failed, 2 if the command line was wrong.
 */
export function action<Args extends unknown[]>(work: Work<Args>, mayCreate = false) {
  return async function (this: Command, ...args: unknown[]): Promise<void> {
    const { json = false, codec, maxDecodedBytes, ...connection } = this.optsWithGlobals<GlobalOptions>();
    const controller = new AbortController();
    const end = () => controller.abort();
    process.once('SIGINT', end).once('SIGTERM', end);
    let orm: MikroORM | undefined;
    try {
      const options = {
        ...(codec !== undefined && { codec: await codecOf(codec) }),
        ...(maxDecodedBytes !== undefined && { maxDecodedBytes }),
      };
      orm = await connect(connection, mayCreate);
      const context = {
        orm,
        em: orm.em,
        terminal: new Terminal(json),
        url: connection.url,
        codec: options,
        signal: controller.signal,
      };
      // Commander adds the command itself.
      const outcome = await work(context, ...(args.slice(0, -1) as Args));
      process.exitCode = outcome === 'failed' ? 1 : 0;
    } catch (error) {
      fail(error, this);
    } finally {
      process.off('SIGINT', end).off('SIGTERM', end);
      await orm?.close(true);
    }
  };
}

/** What a command does with the session that its arguments name, and its options. */
export type SessionWork<Flags> = (context: Context, key: SessionKey, flags: Flags) => Promise<CommandResult>;

/** As `action`, when the arguments are an app, a user and a session. */
export function sessionAction<Flags>(work: SessionWork<Flags>) {
  const workOn: Work<[string, string, string, Flags]> = (context, ...[appName, userId, sessionId, flags]) =>
    work(context, { appName, userId, sessionId }, flags);
  return action(workOn);
}

/** What options and arguments are called in the package, if not as on the command line. */
const CALLED: Readonly<Record<string, string>> = {
  app: 'appName',
  user: 'userId',
  session: 'sessionId',
  id: 'memoryId',
  before: 'beforeInvocationId',
  pause: 'pauseMs',
  last: 'numRecentEvents',
};

/** A message of the package, or its advice, for somebody who may have no config: `--url` is in its place. */
export function inWordsOfUrl({ url }: Pick<Context, 'url'>, message: string): string {
  if (url === undefined) return message;
  return message
    .replace(/'dbName' or 'clientUrl' in the config of MikroORM/, 'the name of the database in --url')
    .replace(/'pool\.max' in the config of MikroORM/, "'pool.max' of your services")
    .replace(/('driverOptions' )?in the config of MikroORM/, (_, options) => (options ? '--url' : 'in --url'))
    .replace('with the option tablePrefix of adkEntities (and of adkMigrations)', 'with --config instead of --url')
    .replace(/npx adk-mikro-orm migrate/, '$& --url …')
    .replace(/, or '?npx mikro-orm migration:up'?( with adkMigrations\(…\) in your config)?/, '');
}

/** Reports an error on stderr. @param command whose words the message gets. */
export function fail(error: unknown, command?: Command): void {
  const isUsage =
    error instanceof UsageError || error instanceof InvalidArgumentError || error instanceof InvalidKeyError;
  process.exitCode = isUsage ? 2 : 1;
  const said = error instanceof Error ? error.message : String(error);
  const message = isUsage ? inWordsOf(command, said) : inWordsOfUrl(command?.optsWithGlobals() ?? {}, said);
  process.stderr.write(`error: ${printableLines(message).join('\n')}\n`);
  if (error instanceof DamagedSessionError) {
    const { appName, userId, sessionId } = error;
    process.stderr.write(`See: repair ${[appName, userId, sessionId].map(quoted).join(' ')} --dry-run\n`);
  }
}

/** Names options as the command line does: `--keep-last` for `keepLast`. */
function inWordsOf(command: Command | undefined, message: string): string {
  const words = new Map<string, string>();
  for (const option of command?.options ?? []) {
    const name = option.attributeName();
    words.set(CALLED[name] ?? name, option.long ?? name);
  }
  for (const argument of command?.registeredArguments ?? [])
    words.set(CALLED[argument.name()] ?? argument.name(), `<${argument.name()}>`);
  // Only what cannot be an English word, but for `at`, which begins a message.
  return message.replace(/(?<![\w-])[a-z]+[A-Z]\w*|^at\b/g, (word) => words.get(word) ?? word);
}
