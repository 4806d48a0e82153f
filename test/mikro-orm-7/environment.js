import { TestEnvironment } from 'jest-environment-node';
import { existsSync } from 'node:fs';

/**
 * @typedef {{ dumpDataDir(compression: 'none'): Promise<Blob>, close(): Promise<void> }} Pglite
 * @typedef {{ dataDir: string, loadDataDir?: Blob }} Options
 */
async function loadPglite() {
  // Not by its name, since it is not there where MikroORM 6 alone is installed.
  const packageName = '@electric-sql/pglite';
  /** @type {{ PGlite: { create(options: Options): Promise<Pglite> } }} */
  const { PGlite } = await import(packageName);
  return PGlite;
}

/** @type {Promise<Blob> | undefined} */
let emptyCluster;

async function makeCluster() {
  const PGlite = await loadPglite();
  const pglite = await PGlite.create({ dataDir: 'memory://' });
  const files = await pglite.dumpDataDir('none');
  await pglite.close();
  return files;
}

/**
 * Making a cluster takes seconds, copying one does not.
 *
 * @param {Options} options
 */
async function create(options) {
  const PGlite = await loadPglite();
  if (existsSync(options.dataDir)) return PGlite.create(options);
  return PGlite.create({ ...options, loadDataDir: await (emptyCluster ??= makeCluster()) });
}

/** Brings PGlite into tests from outside: its WebAssembly does not start on the globals that jest gives to tests. */
export default class extends TestEnvironment {
  /** @override */
  async setup() {
    await super.setup();
    Object.assign(this.global, { PGlite: { create } });
  }
}
