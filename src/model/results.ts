/** What a call of `SessionMaintenance` has done so far, or with `dryRun` would have done. What the call does not do is 0. */
export interface MaintenanceResult {
  /** How many sessions were deleted, or trimmed. */
  sessions: number;
  /** How many events were deleted, by the numbers in the rows of their sessions. */
  events: number;
  /** How many keys of the user's own state (`user:`) `eraseUser` has deleted. */
  stateKeys: number;
  /** How many artifacts `eraseUser` has deleted, each with all its versions. */
  artifacts: number;
  /** How many saves from streams that nobody will end `prune` has removed: they got nothing for a day. */
  uploads: number;
  /** How many memories `eraseUser` has deleted, or `prune` since they had expired. */
  memories: number;
  /** How many credentials `eraseUser` has deleted. */
  credentials: number;
  /**
   * How many texts `reencode` has rewritten: contents of events, values of state, other entries of the log, versions of
   * artifacts, and memories. The others are stored as the codec stores them now.
   */
  texts: number;
  /** How many texts `reencode` cannot decode, or lack a codec that is required. They are left as they are. */
  unreadable: number;
  /**
   * How many sessions were left as they are, because somebody holds their lease, had locked their row, or has created or
   * rewound them during the call; of `reencode`, how many texts somebody else has written or locked. The same call again
   * takes them up.
   */
  skipped: number;
  /** How many transactions that took. */
  batches: number;
  /** Whether `maxBatches` or the signal ended the work before its end. The same call again continues. */
  more: boolean;
}

/** What an import has written so far, or with `dryRun` would have written; what was there already does not count. */
export interface ImportResult {
  sessions: number;
  events: number;
  /** How many versions of artifacts. */
  artifactVersions: number;
  memories: number;
  /** How many records were read. */
  records: number;
  /** How many rows, or parts of them, `importFrom` could not take; `onRefused` is called with each. */
  refused: number;
  /** How many events `importFrom` has left out because a rewind of adk-python had annulled them, markers included. */
  annulled: number;
}
