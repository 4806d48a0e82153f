import { eventData } from './event-data.js';
import { stateObject, utcTime, type ForeignKind } from './foreign-rows.js';

/**
 * adk-python's `DatabaseSessionService` with schema v1 (sessions/schemas/v1.py). Times have no zone: that of the creation is
 * UTC, that of an append is UTC on some databases and local on others, so the last event's is taken.
 */
export const adkPython: ForeignKind = {
  event: eventData,
  state: stateObject,

  times(row, lastEvent) {
    const createTime = utcTime(row['create_time']);
    return { createTime, lastUpdateTime: lastEvent ?? createTime };
  },
};
