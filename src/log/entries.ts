import type { Event } from '@google/adk';
import type { DamagedEventError } from '../model/errors.js';
import type { LogCursor } from '../model/log-history.js';

/** Where a reader of one session's log is. */
export interface SessionLogCursor {
  /** The number of the last event seen; 0 for the beginning. */
  seq: number;
  /**
   * Which history of the session the number belongs to: it changes with a rewind, and when the session is deleted and
   * created again. Empty if it is not known, as when there is no session yet.
   */
  incarnation: string;
}

/** An event of one session's log, what is wrong with it, or a `SessionReset`. */
export type SessionLogEntry = Omit<LogEntryPosition, 'position' | 'cursor'> & {
  /** Where to continue from. */
  cursor: SessionLogCursor;
} & (
    | { event: Event; error?: undefined; change?: undefined }
    | { event?: undefined; error: DamagedEventError; change?: undefined }
    | SessionReset
  );

/**
 * The history that a reader of one session has read is no longer the session's: it was rewound, or deleted and created again,
 * or the database was restored to a time before that. Drop what was kept of the session; its events come next, from the
 * first one.
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
        /** Only in the complete log: the keys of its state delta whose value is not the stored one; see `LogChange`. */
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
 * `superseded` names keys whose value is not the stored one: it lost to another write, or a later write has replaced it.
 * Ignore them when you fold the log into state; the entry with the stored value has the key, too.
 */
export type LogChange = LogEntryPosition &
  (
    | {
        /** A session was created. Drop what you keep of an earlier one with its id. */
        change: 'created';
        /** The state it was given; empty if the session was trimmed. What did not fit follows in an entry `state`. */
        state: Record<string, unknown>;
        superseded: readonly string[];
      }
    | {
        /** State was set or removed outside a run. If the session id is empty, it is the user's; if the user id is, too, the app's. */
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
         * Unless `soft`, all state of user and app as it is now: the entries that had set or removed keys are gone with the
         * session.
         */
        state: Record<string, unknown>;
      }
    | {
        /**
         * Anything else has happened to a session. The entry says what it is now: it is visible, and has only the events from
         * `firstSeq` to `seq`.
         */
        change: 'replaced';
        reason: ReplacedReason;
        /** The number of the oldest event that it keeps; above `seq` if it has none. */
        firstSeq: number;
        /**
         * All state of session, user and app as it is now: the entries that had set or removed keys may be gone.
         */
        state: Record<string, unknown>;
        /** For `rewritten`: the number of the event, and its content. Absent if it is gone, or cannot be read. */
        eventSeq?: number;
        event?: Event;
      }
  );

/** An event of the complete log, or a change. */
export type CompleteLogEntry = (LogEntry | LogChange) & { cursor: LogCursor };
