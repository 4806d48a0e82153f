import { InMemorySessionService, type BaseSessionService } from '@google/adk';
import { DatabaseSessionService } from '@google/adk/sessions/database';
import type { MikroORM } from '@mikro-orm/core';
import { createDatabase } from '../servers.js';
import { DATABASES } from './databases.js';
import {
  databaseDeviations,
  databaseRaces,
  inMemoryDeviations,
  postgresDeviations,
  sqliteRaces,
} from './deviations.js';
import type { ReferenceHarness, Store } from './harness.js';
import { sqlite } from './sqlite.js';

/** ADK's services hide their storage, so what they stored is what a fresh handle says. */
function storeOf(service: BaseSessionService, another: BaseSessionService, close: () => Promise<void>): Store {
  return {
    service,
    another,
    close,
    stored: async (key) => {
      const session = await another.getSession(key);
      return session && JSON.parse(JSON.stringify(session));
    },
  };
}

export const inMemoryReference: ReferenceHarness = {
  own: false,
  name: 'InMemorySessionService',
  isAvailable: sqlite.isAvailable,
  deviations: inMemoryDeviations,
  races: {},
  async open() {
    const service = new InMemorySessionService();
    return storeOf(service, service, async () => undefined);
  },
};

export function databaseReference(database: 'sqlite' | 'postgresql'): ReferenceHarness {
  const { title, isAvailable } = DATABASES[database];
  return {
    own: false,
    name: `DatabaseSessionService on ${title}`,
    isAvailable,
    deviations: { ...databaseDeviations, ...(database === 'postgresql' && postgresDeviations) },
    races: { ...databaseRaces, ...(database === 'sqlite' && sqliteRaces) },
    async open() {
      const { options, drop } = await createDatabase(database);
      // Its methods all call `init`, which fails when it races with itself.
      const patience = { driverOptions: { acquireConnectionTimeout: 5_000 } };
      const services = [0, 1].map(() => new DatabaseSessionService({ ...options, ...patience }));
      for (const service of services) await service.init();
      const underway = new Set<Promise<unknown>>();
      const [service, another] = services.map((service) => tracked(service, underway));
      const settle = async () => {
        for (const call of underway) {
          await call;
          underway.delete(call);
        }
      };
      const close = async () => {
        await settle();
        for (const service of services) await closeOf(service);
        await drop();
      };
      return { ...storeOf(service!, another!, close), settle };
    },
  };
}

/** Remembers calls, since a test that fails leaves some behind, which would hold locks against the next test. */
function tracked<Service extends object>(service: Service, underway: Set<Promise<unknown>>): Service {
  return new Proxy(service, {
    get(target, name) {
      const member: unknown = Reflect.get(target, name, target);
      if (typeof member !== 'function') return member;
      return (...args: unknown[]) => {
        const result = Reflect.apply(member, target, args) as Promise<unknown>;
        underway.add(result.catch(() => undefined));
        return result;
      };
    },
  });
}

/** It opens a connection, and has no method to close it. */
async function closeOf(service: DatabaseSessionService): Promise<void> {
  await (service as unknown as { orm?: MikroORM }).orm?.close(true);
}
