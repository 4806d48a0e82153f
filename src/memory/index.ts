/**
 * What agents remember, in the host's own database. `adkServices` of `adk-mikro-orm` has the service, too.
 *
 * @module adk-mikro-orm/memory
 */
export {
  MikroOrmMemoryService,
  type AddEventsToMemoryRequest,
  type AddMemoryRequest,
  type ForgetRequest,
  type FoundMemory,
  type ListMemoriesRequest,
  type MikroOrmMemoryServiceOptions,
  type SearchMemoriesRequest,
  type StoredMemory,
} from './memory-service.js';
export type { TextOfEvent } from './memory-content.js';
export type { MemoryProjectionOptions } from './memory-projection.js';
