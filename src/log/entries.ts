import type { Event } from '@google/adk';
import type { DamagedEventError } from '../model/errors.js';
import type { LogCursor } from '../model/log-history.js';

/** Where a reader of one session's log is. */
export interface SessionLogCursor {
  /** The number of the last event seen; 0 for the beginning. */
  seq: number;
  /**
   * Which history of the session the number belongs to: another one after a rewind, and when the session is deleted and
   * created again. Empty if it is not known, as before the session is there.
   */
  incarnation: string;
}

/** An event of one session's log, what is wrong with it, or a `SessionReset`. */
export type SessionLogEntry = Omit<LogEntryPosition, 'position' | 'cursor'> & {
  /** The cursor to go on from. */
  cursor: SessionLogCursor;
} & (
    | { event: Event; error?: undefined; change?: undefined }
    | { event?: undefined; error: DamagedEventError; change?: undefined }
    | SessionReset
  );

/**
 * The history that a reader of one session has read so far is not the session's any more: it was rewound, or deleted and
 * created again, or the database was restored to a time before that. What the reader keeps of the session is void; the events
 * that the session has now come next, from the first one.
 */
export interface SessionReset {
  change: 'reset';
  event?: undefined;
  error?: undefined;
}

/** Where an entry of the log is. */
export interface LogEntryPosition {
  /** Its number among the events of all sessions; absent in one session's log. A change has that of the event that it follows. */
  position?: number;
  /** Where to continue from; absent in one session's log. */
  cursor?: LogCursor;
  /** Its number in the session; of a change, the number of the session's newest event at that time. */
  seq: number;
  appName: string;
  userId: string;
  sessionId: string;
}

/** An event of the log, or what is wrong with it. */
export type LogEntry = LogEntryPosition &
  (
    | {
        event: Event;
        /** Only in the complete log: the keys of its state delta whose value is not the stored one, as `LogChange` has them. */
        superseded?: readonly string[];
        error?: undefined;
        change?: undefined;
      }
    | { event?: undefined; superseded?: undefined; error: DamagedEventError; change?: undefined }
  );

/**
 * Why a session differs from what its earlier entries say: an event was appended again with other content, the oldest
 * events were dropped, it was taken back to an event, restored after a soft deletion, or written by an import.
 */
export type ReplacedReason = 'rewritten' | 'trimmed' | 'rewound' | 'restored' | 'imported';

/**
 * A change other than an appended event. Keys of state have their prefixes.
 *
 * `superseded` names keys whose value is not the one that is stored now: it lost to another write, or a later one has
 * replaced it. Whoever folds the log into state leaves them out; the entry whose value stands has the key, too.
 */
export type LogChange = LogEntryPosition &
  (
    | {
        /** A session was created. What a reader keeps of the session is of an earlier one. */
        change: 'created';
        /** The state it was given; empty if the session was trimmed, and without what did not fit: an entry `state` has it. */
        state: Record<string, unknown>;
        superseded: readonly string[];
      }
    | {
        /** State was set or removed outside a run. Without ids of session or user it is of the user or the app. */
        change: 'state';
        state: Record<string, unknown>;
        removed: readonly string[];
        superseded: readonly string[];
      }
    | {
        /** A session was deleted. */
        change: 'deleted';
        /** With `deletion: 'soft'`: it may come back. */
        soft: boolean;
        /**
         * Unless `soft`, all state of user and app as it is now: entries that had it, or of keys that were removed, are gone
         * with the session.
         */
        state: Record<string, unknown>;
      }
    | {
        /**
         * Everything else that happens to a session. The entry says what it is now: it is visible, and has the events from `firstSeq`
         * to `seq` alone.
         */
        change: 'replaced';
        reason: ReplacedReason;
        /** The number of the oldest event that it keeps; above `seq` if it has none. */
        firstSeq: number;
        /**
         * All state of session, user and app as it is now: entries that had it, or of keys that were removed, may be gone with events.
         */
        state: Record<string, unknown>;
        /** For `rewritten`: the number of the event, and its content. Absent if it is gone, or cannot be read. */
        eventSeq?: number;
        event?: Event;
      }
  );

/** An event of the complete log, or a change. */
export type CompleteLogEntry = (LogEntry | LogChange) & { cursor: LogCursor };
