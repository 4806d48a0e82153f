import { tsImport } from 'tsx/esm/api';
import { memoryFolder } from './memory-folder.js';

// Jest transforms no imports of its global setup.
export const servers = await /** @type {Promise<typeof import('./run-servers.js')>} */ (
  tsImport('./run-servers.ts', import.meta.url)
);

export default async function setup() {
  process.env['ADK_TEST_FOLDER'] ??= memoryFolder();
  await servers.start();
}
