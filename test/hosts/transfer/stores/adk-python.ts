import { DATABASES, type DatabaseName } from '../../../support/harnesses/databases.js';

/**
 * The tables of adk-python's `DatabaseSessionService`, as SQLAlchemy makes them from src/google/adk/sessions/schemas/v1.py at
 * 0c505feacb488069223e04b2b2bb4f576a616ce7 (without `event_sequence`, which no release has) and schemas/shared.py at
 * 00da0bb31907a5344e28d57efbb3fa00e57fffc1 in google/adk-python; on MariaDB by a `mariadb+…` URL.
 */
export function pythonTables(name: DatabaseName): string[] {
  const { pythonTypes, quote } = DATABASES[name].otherStores;
  const [json, time] = pythonTypes;
  return [
    `CREATE TABLE adk_internal_metadata (${quote}key${quote} VARCHAR(128) NOT NULL, value VARCHAR(256) NOT NULL,
      PRIMARY KEY (${quote}key${quote}))`,
    `CREATE TABLE sessions (app_name VARCHAR(128) NOT NULL, user_id VARCHAR(128) NOT NULL, id VARCHAR(128) NOT NULL,
      state ${json} NOT NULL, create_time ${time} NOT NULL, update_time ${time} NOT NULL, PRIMARY KEY (app_name, user_id, id))`,
    `CREATE TABLE app_states (app_name VARCHAR(128) NOT NULL, state ${json} NOT NULL, update_time ${time} NOT NULL,
      PRIMARY KEY (app_name))`,
    `CREATE TABLE user_states (app_name VARCHAR(128) NOT NULL, user_id VARCHAR(128) NOT NULL, state ${json} NOT NULL,
      update_time ${time} NOT NULL, PRIMARY KEY (app_name, user_id))`,
    `CREATE TABLE events (id VARCHAR(128) NOT NULL, app_name VARCHAR(128) NOT NULL, user_id VARCHAR(128) NOT NULL,
      session_id VARCHAR(128) NOT NULL, invocation_id VARCHAR(256) NOT NULL, ${quote}timestamp${quote} ${time} NOT NULL,
      event_data ${json}, PRIMARY KEY (id, app_name, user_id, session_id),
      FOREIGN KEY (app_name, user_id, session_id) REFERENCES sessions (app_name, user_id, id) ON DELETE CASCADE)`,
    `CREATE INDEX idx_events_app_user_session_ts ON events (app_name, user_id, session_id, ${quote}timestamp${quote} DESC)`,
    "INSERT INTO adk_internal_metadata VALUES ('schema_version', '1')",
  ];
}

/** The result of `Event.model_dump(exclude_none=True, mode='json')`: times in seconds, bytes in base64 for URLs. */
export const PYTHON_EVENT = {
  id: 'in the JSON',
  invocation_id: 'in the JSON',
  author: 'agent',
  timestamp: 1600000001.123456,
  branch: 'a.b',
  content: {
    role: 'model',
    parts: [
      { text: 'é😀', thought: true, thought_signature: '-_8=' },
      { inline_data: { mime_type: 'image/png', data: '-_8=' } },
      { function_call: { id: 'c1', name: 'find_it', args: { my_arg: { in_ner: 1 } } } },
    ],
  },
  actions: {
    state_delta: { my_key: { in_ner: 1 }, 'user:my_lang': 'pt', 'app:my_version': 3 },
    artifact_delta: { 'my_file.txt': 1 },
    requested_auth_configs: {
      call_1: {
        auth_scheme: { type_: 'apiKey', in_: 'header', name: 'X-My_Key' },
        raw_auth_credential: { auth_type: 'oauth2', oauth2: { client_id: 'a_b' } },
        credential_key: 'k_1',
      },
    },
    requested_tool_confirmations: { call_2: { hint: 'a_b', confirmed: false, payload: { my_key: 1 } } },
    agent_state: { my_node: { a_b: 1 } },
    compaction: {
      start_timestamp: 1600000000.5,
      end_timestamp: 1600000001.5,
      compacted_content: { parts: [{ function_call: { args: { a_b: 1 } }, thought_signature: '-_8=' }] },
    },
    transfer_to_agent: 'other_agent',
  },
  long_running_tool_ids: ['c1'],
  custom_metadata: { my_key: { a_b: 1 } },
  usage_metadata: { prompt_token_count: 5 },
  error_code: 'MAX_TOKENS',
  turn_complete: true,
};

/** The same event in ADK JS. */
export const SAME_IN_JS = {
  id: 'e1',
  invocationId: 'i1',
  author: 'agent',
  timestamp: 1600000001123.456,
  branch: 'a.b',
  content: {
    role: 'model',
    parts: [
      { text: 'é😀', thought: true, thoughtSignature: '+/8=' },
      { inlineData: { mimeType: 'image/png', data: '+/8=' } },
      { functionCall: { id: 'c1', name: 'find_it', args: { my_arg: { in_ner: 1 } } } },
    ],
  },
  actions: {
    stateDelta: { my_key: { in_ner: 1 }, 'user:my_lang': 'pt', 'app:my_version': 3 },
    artifactDelta: { 'my_file.txt': 1 },
    requestedAuthConfigs: {
      call_1: {
        authScheme: { type: 'apiKey', in: 'header', name: 'X-My_Key' },
        rawAuthCredential: { authType: 'oauth2', oauth2: { clientId: 'a_b' } },
        credentialKey: 'k_1',
      },
    },
    requestedToolConfirmations: { call_2: { hint: 'a_b', confirmed: false, payload: { my_key: 1 } } },
    agentState: { my_node: { a_b: 1 } },
    compaction: {
      startTimestamp: 1600000000500,
      endTimestamp: 1600000001500,
      compactedContent: { parts: [{ functionCall: { args: { a_b: 1 } }, thoughtSignature: '+/8=' }] },
    },
    transferToAgent: 'other_agent',
  },
  longRunningToolIds: ['c1'],
  customMetadata: { my_key: { a_b: 1 } },
  usageMetadata: { promptTokenCount: 5 },
  errorCode: 'MAX_TOKENS',
  turnComplete: true,
};
