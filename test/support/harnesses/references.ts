import { InMemorySessionService } from '@google/adk';
import { DatabaseSessionService } from '@google/adk/sessions/database';
import type { MikroORM } from '@mikro-orm/core';
import type { ServiceHarness, ServiceStore } from '../../../packages/session-contract/src/index.js';
import { isMikroOrm7 } from '../mikro-orm.js';
import { createDatabase } from '../servers.js';
import { DATABASES, type DatabaseName } from './databases.js';
import {
  databaseDeviations,
  databaseRaces,
  inMemoryDeviations,
  postgresDeviations,
  sqliteRaces,
  type Deviations,
} from './deviations.js';

/** One of ADK's own services. */
export interface ReferenceHarness extends ServiceHarness {
  isAvailable(): boolean;
  /** The rules that it breaks. */
  deviations: Deviations;
  /** Like `deviations`, if the outcome depends on who comes first. */
  races: Deviations;
}

function inMemoryStore(): ServiceStore {
  const service = new InMemorySessionService();
  return { service, another: service, reopen: async () => inMemoryStore() };
}

function databaseReference(database: 'sqlite' | 'postgresql'): ReferenceHarness {
  return {
    ...adkDatabase(database),
    deviations: { ...databaseDeviations, ...(database === 'postgresql' && postgresDeviations) },
    races: { ...databaseRaces, ...(database === 'sqlite' && sqliteRaces) },
  };
}

/** ADK's `DatabaseSessionService`. */
export function adkDatabase(database: DatabaseName): Pick<ReferenceHarness, 'name' | 'isAvailable' | 'open'> {
  const { title, isAvailable } = DATABASES[database];
  return {
    name: `DatabaseSessionService on ${title}`,
    // ADK's service needs the drivers of MikroORM 6.
    isAvailable: () => !isMikroOrm7 && isAvailable(),
    async open() {
      const { options, drop } = await createDatabase(database);
      const opened: DatabaseSessionService[] = [];
      const disconnect = async () => {
        for (const each of opened.splice(0)) await closeOf(each);
      };
      const connect = async (): Promise<ServiceStore> => {
        const patience = { driverOptions: { acquireConnectionTimeout: 5_000 } };
        const service = new DatabaseSessionService({ ...options, ...patience });
        const another = new DatabaseSessionService({ ...options, ...patience });
        opened.push(service, another);
        // All its methods call `init`, which fails if two calls race.
        for (const each of [service, another]) await each.init();
        const reopen = async ({ killed }: { killed: boolean }) => {
          if (!killed) await disconnect();
          return connect();
        };
        const close = async () => {
          await disconnect();
          await drop();
        };
        return { service, another, reopen, close };
      };
      return connect();
    },
  };
}

/** Closes the connection of a service, which has no method to do so. */
async function closeOf(service: DatabaseSessionService): Promise<void> {
  await (service as unknown as { orm?: MikroORM }).orm?.close(true);
}

export const REFERENCES: readonly ReferenceHarness[] = [
  {
    name: 'InMemorySessionService',
    isAvailable: () => true,
    deviations: inMemoryDeviations,
    races: {},
    open: async () => inMemoryStore(),
  },
  databaseReference('sqlite'),
  databaseReference('postgresql'),
];
