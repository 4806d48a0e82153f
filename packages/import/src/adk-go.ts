import { types } from 'node:util';
import type { ForeignRow } from './foreign-store.js';
import { decodeExactly } from './exact-json.js';
import { isRecord } from '../../../src/model/json.js';
import { UnreadableRow, utcTime, type ForeignKind } from './foreign-rows.js';
import { filledActions } from './python-event.js';

/** The JSON columns, and their names in ADK JS. */
const JSON_COLUMNS = {
  content: 'content',
  grounding_metadata: 'groundingMetadata',
  custom_metadata: 'customMetadata',
  usage_metadata: 'usageMetadata',
  citation_metadata: 'citationMetadata',
  long_running_tool_ids_json: 'longRunningToolIds',
  routes_json: 'route',
  output_json: 'output',
  node_info_json: 'nodeInfo',
  requested_input_json: 'requestedInput',
};
const TEXT_COLUMNS = {
  branch: 'branch',
  isolation_scope: 'isolationScope',
  error_code: 'errorCode',
  error_message: 'errorMessage',
};
const BOOLEAN_COLUMNS = { partial: 'partial', turn_complete: 'turnComplete', interrupted: 'interrupted' };

/**
 * The GORM service of adk-go (session/database/storage_session.go). Fields that an event lacks are NULL, and so are columns that
 * another version has added.
 */
export const adkGo: ForeignKind = {
  event(row) {
    const event: Record<string, unknown> = { longRunningToolIds: [] };
    for (const [column, name] of Object.entries(JSON_COLUMNS)) {
      const value = jsonIn(row, column);
      if (value !== null) event[name] = value;
    }
    for (const [column, name] of Object.entries(TEXT_COLUMNS)) if (row[column]) event[name] = row[column];
    for (const [column, name] of Object.entries(BOOLEAN_COLUMNS)) if (row[column]) event[name] = true;
    return {
      id: row['id'] as string,
      invocationId: row['invocation_id'],
      author: row['author'],
      timestamp: utcTime(row['timestamp']),
      ...event,
      actions: actionsIn(row),
    };
  },

  // A map without keys may be NULL, empty text or JSON's null.
  state(row) {
    const state = jsonIn(row, 'state') ?? {};
    if (!isRecord(state)) throw new UnreadableRow('state is not the JSON of an object');
    return state;
  },

  times: (row) => ({ createTime: utcTime(row['create_time']), lastUpdateTime: utcTime(row['update_time']) }),
};

/** @returns null if there is nothing; older versions have written `<null>`. @throws UnreadableRow */
function jsonIn(row: ForeignRow, column: string): unknown {
  const value = row[column];
  if (value === null || value === undefined || value === '' || value === '<null>') return null;
  const read = typeof value === 'string' ? decodeExactly(value) : undefined;
  if (!read) throw new UnreadableRow(`${column} is not JSON`);
  return read.value;
}

/**
 * Reads the actions. Before v2.2.0 Go wrote its own field names (`StateDelta`), and null for maps.
 *
 * @throws UnreadableRow
 */
function actionsIn(row: ForeignRow): Record<string, unknown> {
  const { actions: bytes } = row;
  const text = types.isUint8Array(bytes) ? Buffer.from(bytes).toString() : (bytes ?? '');
  const read = text === '' ? {} : typeof text === 'string' ? decodeExactly(text)?.value : undefined;
  if (read !== null && !isRecord(read)) throw new UnreadableRow('actions is not the JSON of an object');
  const actions = fields(read ?? {});
  const { compaction } = actions;
  if (isRecord(compaction)) {
    const { startTimestamp, endTimestamp, ...rest } = fields(compaction);
    actions['compaction'] = { ...rest, startTimestamp: utcTime(startTimestamp), endTimestamp: utcTime(endTimestamp) };
  }
  return filledActions(actions);
}

/** The fields of a Go struct that are set, by their names in ADK JS. */
function fields(struct: Record<string, unknown>): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(struct)
      .filter(([, value]) => value !== null && value !== '' && value !== false)
      .map(([name, value]) => [name.charAt(0).toLowerCase() + name.slice(1), value]),
  );
}
