import { tsImport } from 'tsx/esm/api';
import { memoryFolder } from './memory-folder.js';

// Jest does not transform the imports of its global setup.
export const servers = await /** @type {Promise<typeof import('./run-servers.js')>} */ (
  tsImport('./run-servers.ts', import.meta.url)
);

// MikroORM 6 keeps the metadata of decorated entities here. With one worker, jest runs test files in this process, and each file
// inherits its globals: ADK's entities would get metadata with the classes of an earlier file.
Reflect.deleteProperty(globalThis, 'mikro-orm-metadata');

export default async function setup() {
  process.env['ADK_TEST_FOLDER'] ??= memoryFolder();
  await servers.start();
}
