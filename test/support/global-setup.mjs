import { tsImport } from 'tsx/esm/api';

// Jest transforms no imports of its global setup.
export const servers = await /** @type {Promise<typeof import('./run-servers.js')>} */ (
  tsImport('./run-servers.ts', import.meta.url)
);

export default async function setup() {
  await servers.start();
}
