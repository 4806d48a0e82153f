/** The tables, without their prefix, in an order in which they can be dropped. */
export const TABLES = [
  'credentials',
  'memories',
  'artifact_parts',
  'artifact_versions',
  'artifacts',
  'changes',
  'counters',
  'projections',
  'event_parts',
  'open_calls',
  'events',
  'session_states',
  'user_states',
  'app_states',
  'sessions',
];

/** The same as a list in a statement. */
export const TABLE_LIST = TABLES.map((table) => `adk_${table}`).join(', ');
