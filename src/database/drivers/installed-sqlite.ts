import { isMissingModule } from '../../model/errors.js';

/** MikroORM's packages for SQLite, in the order in which they are tried. */
const PACKAGES = ['@mikro-orm/sqlite', '@mikro-orm/better-sqlite', '@mikro-orm/libsql'];

/**
 * Finds a driver for SQLite among those that the host may have installed.
 *
 * @param load imports a package by its name, in a module of the package that has it as a peer.
 * @returns what the first installed package exports.
 * @throws the error of the last one, if none is installed.
 */
export async function installedSqlite<Exports>(load: (name: string) => Promise<Exports>): Promise<Exports> {
  let missing: unknown;
  for (const name of PACKAGES) {
    try {
      return await load(name);
    } catch (error) {
      if (!isMissingModule(error)) throw error;
      missing = error;
    }
  }
  throw missing;
}
