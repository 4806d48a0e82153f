/** The tables of the first migration, those with a foreign key before the table that it refers to. */
export const INITIAL_TABLES = [
  ...['credentials', 'forgotten_memories', 'memories', 'artifact_parts', 'artifact_versions', 'artifacts'],
  ...['projections', 'changes', 'counters', 'user_states', 'app_states'],
  ...['session_states', 'open_calls', 'event_parts', 'events', 'sessions'],
];
