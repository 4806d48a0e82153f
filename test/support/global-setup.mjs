import { tsImport } from 'tsx/esm/api';
import { memoryFolder } from './memory-folder.js';

// Jest transforms no imports of its global setup.
export const servers = await /** @type {Promise<typeof import('./run-servers.js')>} */ (
  tsImport('./run-servers.ts', import.meta.url)
);

// MikroORM 6 has the metadata of decorated entities here. With one worker jest runs the files of tests in this process, and gives each
// the globals that it finds: ADK's entities of one file would have metadata with the classes of the file before.
Reflect.deleteProperty(globalThis, 'mikro-orm-metadata');

export default async function setup() {
  process.env['ADK_TEST_FOLDER'] ??= memoryFolder();
  await servers.start();
}
