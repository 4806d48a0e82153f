import { createEvent } from '@google/adk';
import { MikroORM } from '@mikro-orm/core';
import { web } from '../../../packages/cli/src/commands/web.js';
import type { Context } from '../../../packages/cli/src/run.js';
import {
  type MikroOrmArtifactService,
  type MikroOrmMemoryService,
  type MikroOrmSessionService,
  adkEntities,
} from '../../../src/index.js';
import { createMigrated } from '../../support/migrated.js';
import { availableDatabases } from '../../support/servers.js';

const mockGiven: Given[] = [];

jest.mock('@google/adk-devtools', () => ({
  AdkApiServer: class {
    constructor(options: Given) {
      mockGiven.push(options);
    }
    start = () => Promise.resolve();
    stop = () => Promise.resolve();
  },
}));

interface Given {
  sessionService: MikroOrmSessionService;
  artifactService: MikroOrmArtifactService;
  memoryService: MikroOrmMemoryService;
}

test.each(availableDatabases())('web finds sessions, files and memories again after a restart, on %s', async (name) => {
  const { options, drop } = await createMigrated(name);
  /** Runs the command once, and uses the services that it gives to ADK's server. */
  const served = async <T>(use: (given: Given) => Promise<T>): Promise<T> => {
    const orm = await MikroORM.init({ ...options, entities: adkEntities() });
    try {
      const terminal = { note: () => undefined };
      const context = { orm, em: orm.em, codec: {}, terminal, signal: AbortSignal.abort() };
      await web(context as unknown as Context, '.', {});
      return await use(mockGiven.pop()!);
    } finally {
      await orm.close(true);
    }
  };
  const key = { appName: 'app', userId: 'ada', sessionId: 's' };
  const artifact = { text: 'of a file' };
  try {
    await served(async ({ sessionService, artifactService, memoryService }) => {
      const session = await sessionService.createSession(key);
      const content = { role: 'user', parts: [{ text: 'My dog is called Rex.' }] };
      await sessionService.appendEvent({ session, event: createEvent({ author: 'user', content }) });
      await artifactService.saveArtifact({ ...key, filename: 'f', artifact });
      await memoryService.addSessionToMemory(session);
    });
    await served(async ({ sessionService, artifactService, memoryService }) => {
      expect((await sessionService.getSession(key))?.events).toHaveLength(1);
      expect(await artifactService.loadArtifact({ ...key, filename: 'f' })).toEqual(artifact);
      expect((await memoryService.searchMemory({ ...key, query: 'dog' })).memories).toHaveLength(1);
    });
  } finally {
    await drop();
  }
});
