/** What has been done so far, or with `dryRun` would have been done. */
export interface MaintenanceProgress {
  /** How many sessions were deleted, or trimmed. */
  sessions: number;
  /** How many events were deleted, by the numbers in the rows of their sessions. */
  events: number;
  /** How many transactions that took. */
  batches: number;
}

export interface MaintenanceResult extends MaintenanceProgress {
  /**
   * How many sessions were left as they are: somebody holds their lease, or had locked their row, or has created or rewound
   * them during the call.
   */
  skipped: number;
  /** Whether `maxBatches` or the signal ended the work before its end. The same call again continues. */
  more: boolean;
}

export interface EraseUserResult extends MaintenanceResult {
  /** How many keys of the user's own state (`user:`) were deleted. */
  stateKeys: number;
}

/** What an import has written; what was there already does not count. */
export interface ImportProgress {
  sessions: number;
  events: number;
  /** How many records were read. */
  records: number;
}

export interface ImportFromProgress extends ImportProgress {
  /** How many rows, or parts of them, could not be taken; `onRefused` is called with each. */
  refused: number;
}

/** What `reencode` has done so far, or with `dryRun` would have done. */
export interface ReencodeResult {
  /** How many texts were read: contents of events, values of state, and other entries of the log. */
  texts: number;
  /** How many of them were rewritten. The others are stored as the codec stores them now. */
  rewritten: number;
  /** How many cannot be decoded, or lack a codec that is required. They are left as they are. */
  unreadable: number;
  /** How many somebody else has written or locked meanwhile; the same call again takes them up. */
  skipped: number;
  /** How many transactions that took. */
  batches: number;
  /** Whether `maxBatches` or the signal ended the work before its end. */
  more: boolean;
}

/** What a call that works in several transactions has done. */
export type WorkDone = ReencodeResult | MaintenanceResult | EraseUserResult | ImportProgress | ImportFromProgress;
