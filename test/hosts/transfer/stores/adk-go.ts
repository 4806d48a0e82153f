import { DATABASES, type DatabaseName } from '../../../support/harnesses/databases.js';

/**
 * The tables of adk-go's session service, as GORM's AutoMigrate makes them from session/database/storage_session.go at
 * 030138e367e75b9e218291db4407cb81c0f513b1 and gorm_datatypes.go at 242dffa608c577397770a0aba78281f0b06752e1 in
 * google/adk-go.
 */
export function goTables(name: DatabaseName): string[] {
  const { goTypes, quote } = DATABASES[name].otherStores;
  const [key, text, json, bytes, boolean, time] = goTypes;
  const keys = (...columns: string[]) => columns.map((column) => `${column} ${key}`).join(', ');
  const of = (type: string, ...columns: string[]) => columns.map((column) => `${column} ${type}`).join(', ');
  return [
    `CREATE TABLE sessions (${keys('app_name', 'user_id', 'id')}, state ${json}, ${of(time, 'create_time', 'update_time')},
      PRIMARY KEY (app_name, user_id, id))`,
    `CREATE TABLE app_states (${keys('app_name')}, state ${json}, update_time ${time}, PRIMARY KEY (app_name))`,
    `CREATE TABLE user_states (${keys('app_name', 'user_id')}, state ${json}, update_time ${time},
      PRIMARY KEY (app_name, user_id))`,
    `CREATE TABLE events (${keys('id', 'app_name', 'user_id', 'session_id')}, ${of(text, 'invocation_id', 'author')},
      actions ${bytes},
      ${of(json, 'long_running_tool_ids_json', 'routes_json', 'output_json', 'node_info_json', 'requested_input_json')},
      ${of(text, 'branch', 'isolation_scope')}, ${of(time, `${quote}timestamp${quote}`)},
      ${of(json, 'content', 'grounding_metadata', 'custom_metadata', 'usage_metadata', 'citation_metadata')},
      ${of(boolean, 'partial', 'turn_complete')}, ${of(text, 'error_code', 'error_message')}, ${of(boolean, 'interrupted')},
      PRIMARY KEY (id, app_name, user_id, session_id),
      CONSTRAINT fk_sessions_events FOREIGN KEY (app_name, user_id, session_id)
        REFERENCES sessions (app_name, user_id, id) ON DELETE CASCADE)`,
  ];
}

/** A time in the minute of 1600000000, as Go's driver writes it; the seconds with their fraction. */
export function goTime(name: DatabaseName, seconds: string): string {
  return DATABASES[name].otherStores.goTime(seconds);
}
