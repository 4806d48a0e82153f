import { MikroORM } from '@mikro-orm/core';
import { Global, Module, type FactoryProvider, type Type } from '@nestjs/common';
import {
  EventLog,
  MikroOrmArtifactService,
  MikroOrmMemoryService,
  MikroOrmSessionService,
  SessionLeases,
  adkServices,
  type AdkServices,
} from 'adk-mikro-orm';

/** All of them, as `runTurn` takes them. */
export const ADK_SERVICES = Symbol('the services of the process');

function provide<T>(type: Type<T>, useFactory: (services: AdkServices) => T): FactoryProvider<T> {
  return { provide: type, useFactory, inject: [ADK_SERVICES] };
}

const providers = [
  { provide: ADK_SERVICES, useFactory: ({ em }: MikroORM) => adkServices(em), inject: [MikroORM] },
  provide(MikroOrmSessionService, ({ sessionService }) => sessionService),
  provide(MikroOrmArtifactService, ({ artifactService }) => artifactService),
  provide(MikroOrmMemoryService, ({ memoryService }) => memoryService),
  provide(SessionLeases, ({ leases }) => leases),
  provide(EventLog, ({ log }) => log),
];

/** Our services for every module, made once, with the options of all of them in one place. */
@Global()
@Module({ providers, exports: providers })
export class AdkModule {}
