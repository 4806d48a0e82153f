export { adkEntities } from '../entities/index.js';
export type { AdkEntityOptions } from '../entities/index.js';
export {
  AdkMikroOrmError,
  DatabaseError,
  EventTooLargeError,
  InvalidKeyError,
  SchemaError,
  SessionExistsError,
  SessionNotFoundError,
  StaleSessionError,
  UnserializableValueError,
} from './errors.js';
export { migrate } from './migrate.js';
export type { MikroOrmSessionServiceOptions, RetryOptions } from './options.js';
export { MikroOrmSessionService, type AppendEventsRequest, type UpdateStateRequest } from './session-service.js';
