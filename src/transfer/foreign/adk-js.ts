import type { EntityManager } from '@mikro-orm/core';
import { eventData } from './event-data.js';
import { checkedTime, stateObject, type ForeignKind } from './foreign-rows.js';

/**
 * `DatabaseSessionService` of `@google/adk` 2.0, and in its repository (core/src/sessions/db/schema.ts). The event's JSON has its time in
 * ms; the column of 2.0 has whole seconds on MySQL.
 *
 * @param em of the source: on MySQL and MariaDB times are local ones, and its config says of which zone.
 */
export function adkJs(em: EntityManager): ForeignKind {
  const timeOf = (value: unknown) => {
    const time: unknown = em.getPlatform().parseDate(value as string);
    return checkedTime(time instanceof Date ? time.getTime() : undefined);
  };
  return {
    event: eventData,
    state: stateObject,
    times: (row) => ({ createTime: timeOf(row['create_time']), lastUpdateTime: timeOf(row['update_time']) }),
  };
}
