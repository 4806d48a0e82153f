import type { BaseMemoryService, Event, MemoryEntry } from '@google/adk';
import type { MikroOrmArtifactService, MikroOrmMemoryService } from '../../src/index.js';

/** The base classes of adk-js after 2.0.0, where they have more than those that are installed here. */
interface NewerMemoryEntry extends MemoryEntry {
  id?: string;
  customMetadata?: Record<string, unknown>;
}

interface NewerMemoryService extends BaseMemoryService {
  searchMemory(request: { appName: string; userId: string; query: string }): Promise<{ memories: NewerMemoryEntry[] }>;
  addEventsToMemory(request: {
    appName: string;
    userId: string;
    events: Event[];
    sessionId?: string;
    customMetadata?: Record<string, unknown>;
  }): Promise<void>;
  addMemory(request: {
    appName: string;
    userId: string;
    memories: NewerMemoryEntry[];
    customMetadata?: Record<string, unknown>;
  }): Promise<void>;
}

type Part = Parameters<MikroOrmArtifactService['saveArtifact']>[0]['artifact'];

/** The artifacts of one session, as a tool of newer ADKs sees them: a wrapper adds the session to each request. */
interface SessionArtifacts {
  saveArtifact(request: {
    filename: string;
    artifact: Part;
    customMetadata?: Record<string, unknown>;
  }): Promise<number>;
  loadArtifact(request: { filename: string; version?: number }): Promise<Part | undefined>;
  listArtifactKeys(): Promise<string[]>;
  deleteArtifact(filename: string): Promise<void>;
  listVersions(filename: string): Promise<number[]>;
}

const scoped = (
  service: MikroOrmArtifactService,
  scope: { appName: string; userId: string; sessionId: string },
): SessionArtifacts => ({
  saveArtifact: (request) => service.saveArtifact({ ...scope, ...request }),
  loadArtifact: (request) => service.loadArtifact({ ...scope, ...request }),
  listArtifactKeys: () => service.listArtifactKeys(scope),
  deleteArtifact: (filename) => service.deleteArtifact({ ...scope, filename }),
  listVersions: (filename) => service.listVersions({ ...scope, filename }),
});

test('U2 the services fit the base classes of newer ADKs', () => {
  // What is tested is that this compiles.
  const asNewer = (service: MikroOrmMemoryService): NewerMemoryService => service;
  expect([asNewer, scoped].map((each) => typeof each)).toEqual(['function', 'function']);
});
