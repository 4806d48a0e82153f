import type { EntityManager, MikroORM } from '@mikro-orm/core';
import { refuseOther } from '../src/database/orm/orm-connection.js';
import { InvalidArgumentError } from '../src/model/errors.js';
import { isObject } from '../src/model/json.js';

/**
 * @param orm what a host has passed.
 * @param call the name of the function that it was passed to.
 * @returns its `EntityManager`.
 * @throws InvalidArgumentError for anything but an ORM, such as an `EntityManager` or a promise.
 */
export function emOf(orm: MikroORM, call: string): EntityManager {
  const given: unknown = orm;
  if (!isObject(given) || !('em' in given) || !('config' in given))
    throw new InvalidArgumentError(`${call} needs your MikroORM itself: await ${call}(orm), not orm.em.`);
  refuseOther(given.em);
  return given.em;
}
