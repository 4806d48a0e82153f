/** What differs in the command lines of MikroORM 6 and 7. */
import { existsSync } from 'node:fs';
import { MikroORM, Utils, type Options } from '@mikro-orm/core';
import { UsageError } from './errors.js';
import { codeOf, defaultExportOf } from './files.js';
import { isObject } from '../../../src/model/json.js';

/** Without this MikroORM 6 connects at once, and fails without saying what has failed. MikroORM 7 has no such option. */
export const LAZILY = { connect: false };

interface OrmClass {
  /** In MikroORM 6. */
  initSync?(options: Options): MikroORM;
  new (options: Options): MikroORM;
}

/** @returns an ORM that is not connected. MikroORM 7 has no `initSync`: its constructor does the same. */
export function ormOf(options: Options): MikroORM {
  const Orm: OrmClass = MikroORM;
  return Orm.initSync?.(options) ?? new Orm(options);
}

/** The members of `@mikro-orm/cli` that are used. */
interface MikroOrmCli {
  CLIHelper: { getORM(context: string, configPaths: string[] | undefined, options: object): Promise<MikroORM> };
  /** In MikroORM 6. */
  CLIConfigurator?: { configure(): unknown };
  /** In MikroORM 7. */
  configure?(): Promise<unknown>;
}

/**
 * MikroORM's messages if there is no config: beside a package.json, with a part of it in environment variables, and in any other
 * folder.
 */
const NO_CONFIG = /config file .*not found|No driver specified|needs to be installed as a local dependency/;

/** The codes of Node.js if nothing in the process loads TypeScript, or only by leaving out types, as with enums and decorators. */
const NO_TYPESCRIPT = new Set([
  'ERR_UNKNOWN_FILE_EXTENSION',
  'ERR_UNSUPPORTED_NODE_MODULES_TYPE_STRIPPING',
  'ERR_UNSUPPORTED_TYPESCRIPT_SYNTAX',
  'ERR_INVALID_TYPESCRIPT_SYNTAX',
]);

const TYPESCRIPT = 'mikro-orm.config.ts';
const LOADED_BY_TSX = "Install tsx, and run NODE_OPTIONS='--import tsx' npx adk-mikro-orm";

const IN_TYPESCRIPT = /\.[cm]?ts$/;

/**
 * @param file a config whose default export is options, a list of them, or a function that returns them; in TypeScript if the
 *   process can load it.
 * @throws UsageError if it has no such export.
 */
async function namedOrm(file: string, context: string): Promise<MikroORM> {
  const exported = await defaultExportOf(file);
  const given: unknown = isFunction(exported) ? await exported(context) : await exported;
  const options: unknown = Array.isArray(given) ? given.find((each) => contextOf(each) === context) : given;
  if (!isObject(options)) throw new UsageError(`${file} has no default export with options for MikroORM.`);
  const preferTs = IN_TYPESCRIPT.test(file);
  return MikroORM.init({ allowGlobalContext: true, ...(preferTs && { preferTs }), ...options, ...LAZILY });
}

const isFunction = (value: unknown): value is (context: string) => unknown => typeof value === 'function';

const contextOf = (options: unknown): unknown =>
  isObject(options) && 'contextName' in options ? options.contextName : 'default';

/**
 * The ORM of the host's config, found as MikroORM's own command line finds it: `MIKRO_ORM_CLI_CONFIG`, `configPaths` in
 * package.json, `mikro-orm.config.js` and so on; a config in TypeScript with what MikroORM loads it with.
 *
 * @throws UsageError if there is none.
 */
export async function hostOrm(config: string | undefined): Promise<MikroORM> {
  const context = process.env['MIKRO_ORM_CONTEXT_NAME'] ?? 'default';
  if (config !== undefined) {
    try {
      return await namedOrm(config, context);
    } catch (error) {
      // MikroORM may be able to load TypeScript.
      if (!NO_TYPESCRIPT.has(codeOf(error))) throw error;
    }
  }
  const cli = await load();
  // Without this MikroORM 6 says that a named config in TypeScript is not found.
  if (config !== undefined) process.env['MIKRO_ORM_CLI_ALWAYS_ALLOW_TS'] ??= '1';
  // Sets up the loading of TypeScript. It also makes commands, which are not used.
  await (cli.configure ? cli.configure() : cli.CLIConfigurator?.configure());
  try {
    return await cli.CLIHelper.getORM(context, config === undefined ? undefined : [config], LAZILY);
  } catch (error) {
    const isMissing = error instanceof Error && NO_CONFIG.test(error.message);
    if (NO_TYPESCRIPT.has(codeOf(error)) || (config !== undefined && isMissing))
      throw new UsageError(`The config is in TypeScript, and could not be read. ${LOADED_BY_TSX} …`, { cause: error });
    if (isMissing) {
      const hint = existsSync(TYPESCRIPT) ? ` For ${TYPESCRIPT}: ${LOADED_BY_TSX} --config ${TYPESCRIPT}` : '';
      throw new UsageError(`No MikroORM config was found. Name it with --config, or the database with --url.${hint}`);
    }
    throw error;
  }
}

async function load(): Promise<MikroOrmCli> {
  try {
    return await import('@mikro-orm/cli');
  } catch (cause) {
    throw new UsageError(
      `To find the config of MikroORM: npm install @mikro-orm/cli@${Utils.getORMVersion()}. Or name a config in JavaScript with --config, or the database with --url.`,
      { cause },
    );
  }
}
