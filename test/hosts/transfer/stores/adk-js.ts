/**
 * The tables that `DatabaseSessionService` of `@google/adk` 2.0.0 makes on SQLite (core/src/sessions/db/schema.ts in
 * google/adk-js), with one session. It needs MikroORM 6, so tests on MikroORM 7 cannot run it.
 */
export const ADK_JS_ON_SQLITE = [
  'create table `adk_internal_metadata` (`key` text not null primary key, `value` text not null)',
  'create table `app_states` (`app_name` text not null primary key, `state` json not null, `update_time` datetime not null)',
  `create table \`user_states\` (\`app_name\` text not null, \`user_id\` text not null, \`state\` json not null,
    \`update_time\` datetime not null, primary key (\`app_name\`, \`user_id\`))`,
  `create table \`sessions\` (\`id\` text not null, \`app_name\` text not null, \`user_id\` text not null, \`state\` json not null,
    \`create_time\` datetime not null, \`update_time\` datetime not null, primary key (\`id\`, \`app_name\`, \`user_id\`))`,
  `create table \`events\` (\`id\` text not null, \`app_name\` text not null, \`user_id\` text not null, \`session_id\` text not null,
    \`invocation_id\` text not null, \`timestamp\` datetime not null, \`event_data\` json not null,
    primary key (\`id\`, \`app_name\`, \`user_id\`, \`session_id\`))`,
  "insert into adk_internal_metadata values ('schema_version', '1')",
  "insert into app_states values ('shop', '{}', 1600000000000)",
  `insert into user_states values ('shop', 'ada', '{"lang":"pt"}', 1600000000000)`,
  `insert into sessions values ('old', 'shop', 'ada', '{"step":1}', 1600000000000, 1600000001000)`,
  `insert into events values ('e1', 'shop', 'ada', 'old', 'i1', 1600000001000,
    '{"id":"e1","invocation_id":"i1","author":"user","timestamp":1600000001000.5,"actions":{"state_delta":{"step":1},"artifact_delta":{},"requested_auth_configs":{},"requested_tool_confirmations":{}},"long_running_tool_ids":[]}')`,
];
