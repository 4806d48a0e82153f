import type { SessionKey } from './session-key.js';

/**
 * What a call of `SessionMaintenance` or `importFrom` has done so far, or would do with `dryRun`.
 *
 * @typeParam Kind the kinds of which `done` always has a number.
 */
export interface MaintenanceResult<Kind extends string = never> {
  /**
   * How many of each kind the call has deleted, rewritten or imported:
   *
   * - `sessions` were deleted, trimmed or imported, and `events`, by the numbers in the rows of their sessions;
   * - `stateKeys` of the user's own state (`user:`), `artifacts` with all their versions, `memories`, `credentials`, and rows of the
   *   host's tables (`owned`), by the names of their entities, were deleted by `eraseUser`; expired `memories` by `prune`;
   * - `texts` were rewritten by `reencode`: contents of events, values of state, other entries of the log, versions of artifacts, and
   *   memories; `unreadable` texts were left, because it cannot decode them or they lack a required codec;
   * - `artifactVersions` and `memories` were imported, from `records`. `refused` rows, or parts of rows, were not: `onRefused` gets each
   *   one. `annulled` events were left out, because a rewind of adk-python had annulled them, markers included.
   */
  done: Record<string, number> & Record<Kind, number>;
  /**
   * How many sessions were left as they are, because somebody holds their lease, had locked their row, or created or rewound them
   * during the call; for an import, because they are here (`onExisting`); for `reencode`, how many texts somebody else has written or
   * locked. Call again to handle them.
   */
  skipped: number;
  /** The first 100 of the skipped sessions that a foreign key of the host's keeps, with such a key. Absent if there are none. */
  kept?: readonly (SessionKey & { table: string; constraint: string })[];
  /**
   * Rows of the host's tables that refer to sessions or events which were deleted or kept, or to rows that a cascade deletes with them,
   * by foreign key. Absent if there are none. A row to which two ways lead counts for each way; of the rows that a key of a table to
   * itself deletes, only those that refer to a row reached by another key are counted.
   */
  referring?: readonly {
    table: string;
    /** The name of the foreign key; on SQLite, which keeps no names, its columns. */
    constraint: string;
    /** What the database does to the rows that refer to a row which is deleted. With the last two the row stays. */
    rule: 'cascade' | 'set null' | 'set default' | 'restrict' | 'no action';
    /** Absent if the account may not read the table. */
    rows?: number;
  }[];
  /** The number of transactions. */
  batches: number;
  /** Whether `maxBatches` or the signal ended the work early. Call again to continue. */
  more: boolean;
}

export type DeleteRule = NonNullable<MaintenanceResult['referring']>[number]['rule'];

/** A session that a foreign key of the host's keeps. */
export type KeptByKey = NonNullable<MaintenanceResult['kept']>[number];

/** What was done, by kind, and how much was skipped. */
export type Counts = Partial<Pick<MaintenanceResult, 'done' | 'skipped'>>;
