import { MikroORM } from '@mikro-orm/core';
import { web } from '../../../packages/cli/src/commands/web.js';
import type { Context } from '../../../packages/cli/src/run.js';
import {
  MikroOrmArtifactService,
  MikroOrmMemoryService,
  MikroOrmSessionService,
  adkEntities,
} from '../../../src/index.js';
import { createMigrated } from '../../support/migrated.js';
import { availableDatabases } from '../../support/servers.js';

const mockGiven: object[] = [];

jest.mock('@google/adk-devtools', () => ({
  AdkApiServer: class {
    constructor(options: object) {
      mockGiven.push(options);
    }
    start = () => Promise.resolve();
    stop = () => Promise.resolve();
  },
}));

test.each(availableDatabases().slice(0, 1))('web keeps sessions, files and memories in the database', async (name) => {
  const { options, drop } = await createMigrated(name);
  const orm = await MikroORM.init({ ...options, entities: adkEntities() });
  try {
    const terminal = { note: () => undefined };
    const context = { orm, em: orm.em, codec: {}, terminal, signal: AbortSignal.abort() };
    await web(context as unknown as Context, '.', {});
    expect(mockGiven).toEqual([
      expect.objectContaining({
        sessionService: expect.any(MikroOrmSessionService),
        artifactService: expect.any(MikroOrmArtifactService),
        memoryService: expect.any(MikroOrmMemoryService),
      }),
    ]);
  } finally {
    await orm.close(true);
    await drop();
  }
});
