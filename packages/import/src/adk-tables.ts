import { types } from 'node:util';
import type { EventRecord } from '../../../src/internal.js';
import type { EntityManager } from '@mikro-orm/core';
import { UnreadableRow, checkedTime, jsonObject, utcTime, type ForeignKind } from './foreign-rows.js';
import type { ForeignRow } from './foreign-store.js';
import { msOf, pythonEvent, toCamelCase } from './python-event.js';

/**
 * What an event's users have named: the list in `events/event.js` of `@google/adk` 2.0.0, which keeps it to itself.
 */
export const USERS = new Set([
  'actions.state_delta',
  'actions.artifact_delta',
  'actions.requested_auth_configs',
  'actions.requested_tool_confirmations',
  'actions.custom_metadata',
  'actions.agent_state',
  'custom_metadata',
  'content.parts.function_call.args',
  'content.parts.function_response.response',
  'output',
  'route',
]);

/** The first time in ms, in March 1973, that cannot be one in seconds. */
export const FIRST_MS = 1e11;

/**
 * The event in the column `event_data`, which ADK JS and adk-python have alike. Both may have written to one table; their
 * times distinguish them, ms and seconds. @throws UnreadableRow
 */
function eventData(row: ForeignRow): EventRecord['event'] {
  const json = jsonObject(row, 'event_data');
  if (checkedTime(json['timestamp']) < FIRST_MS) return pythonEvent(json, row, USERS);
  if (json['id'] !== row['id']) throw new UnreadableRow('event_data has another id than the row');
  return toCamelCase(json, USERS) as EventRecord['event'];
}

/** What the stores have alike that keep an event as JSON, and always write an object as state. */
const withEventData = { event: eventData, state: (row: ForeignRow) => jsonObject(row, 'state') };

/**
 * `DatabaseSessionService` of `@google/adk` 2.0, and in its repository (core/src/sessions/db/schema.ts). The event's JSON has its time in
 * ms; the column of 2.0 has whole seconds on MySQL.
 *
 * @param em of the source: on MySQL and MariaDB times are local ones, and its config says of which zone.
 */
export function adkJs(em: EntityManager): ForeignKind {
  const timeOf = (value: unknown) => {
    const time: unknown = em.getPlatform().parseDate(value as string);
    return checkedTime(types.isDate(time) ? time.getTime() : undefined);
  };
  const times: ForeignKind['times'] = (row) => ({
    createTime: timeOf(row['create_time']),
    lastUpdateTime: timeOf(row['update_time']),
  });
  return { ...withEventData, times };
}

/** adk-python's `SqliteSessionService` (sessions/sqlite_session_service.py): times are seconds, as numbers. */
export const adkPythonSqlite: ForeignKind = {
  ...withEventData,
  times: (row) => ({
    createTime: checkedTime(msOf(row['create_time'])),
    lastUpdateTime: checkedTime(msOf(row['update_time'])),
  }),
};

/**
 * adk-python's `DatabaseSessionService` with schema v1 (sessions/schemas/v1.py). Times have no zone: that of the creation is
 * UTC, that of an append is UTC on some databases and local on others, so the last event's is taken.
 */
export const adkPython: ForeignKind = {
  ...withEventData,
  times(row, lastEvent) {
    const createTime = utcTime(row['create_time']);
    return { createTime, lastUpdateTime: lastEvent ?? createTime };
  },
};
