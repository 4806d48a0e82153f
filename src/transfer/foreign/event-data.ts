import type { ForeignRow } from './foreign-store.js';
import type { EventRecord } from '../records.js';
import { toCamelCase } from './camel-case.js';
import { UnreadableRow, checkedTime, jsonObject } from './foreign-rows.js';
import { pythonEvent } from './python-event.js';

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
export function eventData(row: ForeignRow): EventRecord['event'] {
  const json = jsonObject(row, 'event_data');
  if (checkedTime(json['timestamp']) < FIRST_MS) return pythonEvent(json, row, USERS);
  if (json['id'] !== row['id']) throw new UnreadableRow('event_data has another id than the row');
  return toCamelCase(json, USERS) as EventRecord['event'];
}
