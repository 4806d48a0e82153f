import type { SessionKey } from './keys.js';

/** Rows of a host's table that refer to sessions by a foreign key. Rows that refer to these rows are not counted. */
export interface ReferringRows {
  table: string;
  /** The name of the foreign key; on SQLite, which keeps no names, its columns. */
  constraint: string;
  /** What the database does to the rows that refer to a row which is deleted. With the last two the row stays. */
  rule: 'cascade' | 'set null' | 'set default' | 'restrict' | 'no action';
  rows: number;
}

export type DeleteRule = ReferringRows['rule'];

/** A session that a foreign key of the host's keeps. */
export type KeptByKey = NonNullable<MaintenanceResult['kept']>[number];

/** What a call of `SessionMaintenance` has done so far, or would do with `dryRun`. Counts that do not apply to the call are 0. */
export interface MaintenanceResult {
  /** How many sessions were deleted, or trimmed. */
  sessions: number;
  /** How many events were deleted, by the numbers in the rows of their sessions. */
  events: number;
  /** How many keys of the user's own state (`user:`) `eraseUser` has deleted. */
  stateKeys: number;
  /** How many artifacts `eraseUser` has deleted, each with all its versions. */
  artifacts: number;
  /** How many memories `eraseUser` has deleted, or how many expired ones `prune` has. */
  memories: number;
  /** How many credentials `eraseUser` has deleted. */
  credentials: number;
  /** How many rows of the host's own tables (`owned`) `eraseUser` has deleted, by the names of their entities. */
  owned: Record<string, number>;
  /**
   * How many texts `reencode` has rewritten: contents of events, values of state, other entries of the log, versions of artifacts,
   * and memories.
   */
  texts: number;
  /** How many texts `reencode` has left as they are, because it cannot decode them or they lack a required codec. */
  unreadable: number;
  /**
   * How many sessions were left as they are, because somebody holds their lease, had locked their row, or created or rewound them
   * during the call; for `reencode`, how many texts somebody else has written or locked. Call again to handle them.
   */
  skipped: number;
  /** The first 100 of the skipped sessions that a foreign key of the host's keeps. Absent if there are none. */
  kept?: readonly (SessionKey & { table: string; constraint: string })[];
  /** Rows of the host's tables that refer to sessions which were deleted or kept, by foreign key. Absent if there are none. */
  referring?: readonly ReferringRows[];
  /** The number of transactions. */
  batches: number;
  /** Whether `maxBatches` or the signal ended the work early. Call again to continue. */
  more: boolean;
}

/** What an import has written so far, or would write with `dryRun`. What existed does not count. */
export interface ImportResult {
  sessions: number;
  events: number;
  /** The number of artifacts' versions. */
  artifactVersions: number;
  memories: number;
  /** How many records were read. */
  records: number;
  /** How many sessions were left as they are, because they are here: see `onExisting`. */
  skipped: number;
  /** How many rows, or parts of rows, `importFrom` could not import. `onRefused` gets each one. */
  refused: number;
  /** How many events `importFrom` has left out because a rewind of adk-python had annulled them, markers included. */
  annulled: number;
}
