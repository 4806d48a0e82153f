import type { EntityManager } from '@mikro-orm/core';
import { once } from 'node:events';
import path from 'node:path';
import { migrationStatus } from '../../../../src/internal.js';
import { SchemaError, adkServices } from '../../../../src/index.js';
import type { Work } from '../run.js';
import { UsageError } from '../errors.js';
import { checkExists } from '../files.js';

/** Serves ADK's development page and API until Ctrl-C. It changes no table, since others may use the database. */
export const web: Work<[string, { port?: number }]> = async (
  { orm, em, codec, terminal, signal },
  folder,
  { port = 8_000 },
) => {
  checkExists(folder, 'folder');
  const { AdkApiServer } = await devtools();
  await refuseProblems(orm);
  // Without one of them the server keeps files or memories in this process alone.
  const { sessionService, artifactService, memoryService } = adkServices(em, codec);
  const server = new AdkApiServer({
    ...{ agentsDir: path.resolve(folder), port, serveDebugUI: true },
    ...{ sessionService, artifactService, memoryService },
  });
  await server.start();
  terminal.note(`The page: ${server.url}/dev-ui/`);
  if (!signal.aborted) await once(signal, 'abort');
  await server.stop();
};

/** @throws SchemaError if the tables are missing or those of another version: every page would say it otherwise. */
export async function refuseProblems({ em }: { em: EntityManager }): Promise<void> {
  const { problem } = await migrationStatus({ em });
  if (problem !== undefined) throw new SchemaError(problem);
}

async function devtools() {
  try {
    return await import('@google/adk-devtools');
  } catch (cause) {
    throw new UsageError(
      "ADK's page needs a package that could not be loaded: npm install --save-dev @google/adk-devtools",
      { cause },
    );
  }
}
