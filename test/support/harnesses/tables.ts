/** Our tables, as a list in a statement. */
export const TABLES = [
  'artifacts',
  'artifact_versions',
  'artifact_parts',
  'memories',
  'credentials',
  'changes',
  'counters',
  'projections',
  'sessions',
  'events',
  'event_parts',
  'open_calls',
  'session_states',
  'user_states',
  'app_states',
]
  .map((table) => `adk_${table}`)
  .join(', ');
