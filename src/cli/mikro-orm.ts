/** What differs in the command lines of MikroORM 6 and 7. */
import type { MikroORM } from '@mikro-orm/core';
import { UsageError } from './usage-error.js';

/** MikroORM 6 would connect at once, and fail without saying what it is that has failed. MikroORM 7 has no such option. */
export const LAZILY = { connect: false };

/** The members of `@mikro-orm/cli` that are used. */
interface MikroOrmCli {
  CLIHelper: { getORM(context: string, configPaths: string[] | undefined, options: object): Promise<MikroORM> };
  /** Of MikroORM 6. */
  CLIConfigurator?: { configure(): unknown };
  /** Of MikroORM 7. */
  configure?(): Promise<unknown>;
}

/**
 * What MikroORM says where there is none: beside a package.json, where environment variables give a part of it, and in any
 * other folder.
 */
const NO_CONFIG = /config file .*not found|No driver specified|needs to be installed as a local dependency/;

/**
 * The ORM of the host's config, found as MikroORM's own command line finds it: `MIKRO_ORM_CLI_CONFIG`, `configPaths` in
 * package.json, `mikro-orm.config.js` and so on; a config in TypeScript with what MikroORM loads it with.
 *
 * @throws UsageError when there is none.
 */
export async function hostOrm(config: string | undefined): Promise<MikroORM> {
  const cli = await load();
  // Sets up the loading of TypeScript; the commands that it also makes are not used.
  await (cli.configure ? cli.configure() : cli.CLIConfigurator?.configure());
  const context = process.env['MIKRO_ORM_CONTEXT_NAME'] ?? 'default';
  try {
    return await cli.CLIHelper.getORM(context, config === undefined ? undefined : [config], LAZILY);
  } catch (error) {
    if (error instanceof Error && NO_CONFIG.test(error.message))
      throw new UsageError('No config of MikroORM was found here. Name it with --config, or the database with --url.');
    throw error;
  }
}

async function load(): Promise<MikroOrmCli> {
  try {
    return await import('@mikro-orm/cli');
  } catch (cause) {
    throw new UsageError(
      'To find the config of MikroORM: npm install @mikro-orm/cli. Or name the database with --url.',
      { cause },
    );
  }
}
