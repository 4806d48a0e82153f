/** The tables without their prefix, in an order that allows dropping them. */
export const TABLES = [
  'credentials',
  'forgotten_memories',
  'memories',
  'artifact_parts',
  'artifact_versions',
  'artifacts',
  'changes',
  'counters',
  'projections',
  'retry_tokens',
  'event_parts',
  'open_calls',
  'events',
  'session_states',
  'user_states',
  'app_states',
  'sessions',
];

/** The tables as a list for a statement. */
export const TABLE_LIST = TABLES.map((table) => `adk_${table}`).join(', ');
