import type { Event } from '@google/adk';
import type { DamagedEventError } from '../model/errors.js';
import type { LogCursor } from '../model/log-history.js';

/** The place of a reader in one session's log. */
export interface SessionLogCursor {
  /** The number of the last event seen; 0 for the beginning. */
  seq: number;
  /**
   * The history that the number belongs to. A session gets a new one when it is rewound, or deleted and created again. Empty
   * if it is unknown, for example because there is no session yet.
   */
  incarnation: string;
}

/** An entry of one session's log: an event, an error in its place if it cannot be read, or a `reset`. */
export type SessionLogEntry = Pick<LogEntry, 'seq' | 'appName' | 'userId' | 'sessionId' | 'appendTime'> & {
  /** Continue from here. */
  cursor: SessionLogCursor;
} & (
    | { event: Event; error?: undefined; change?: undefined }
    | { event?: undefined; error: DamagedEventError; change?: undefined }
    | {
        /**
         * The session was rewound, or deleted and created again, or the database was restored to a time before that. Drop what
         * you keep of the session: its events follow, from the first one.
         */
        change: 'reset';
        event?: undefined;
        error?: undefined;
      }
  );

/** An event of the log, or an error in its place if it cannot be read. */
export type LogEntry = {
  /** Its number among the events of all sessions. A change has that of the event before it. */
  position: number;
  /** Continue from here. */
  cursor: LogCursor;
  /** Its number in the session. A change has that of the session's newest event at that time. */
  seq: number;
  appName: string;
  userId: string;
  sessionId: string;
  /**
   * When the database stored the event, by its own clock, in ms since 1970. The `timestamp` of an event of a model is the time at which
   * its request began. Absent if the event was imported from a store that does not keep this time, or is missing.
   */
  appendTime?: number;
  /** Another session, from which `forkSession` has copied the event, has it now. Leave it out of what must count an event once. */
  copied?: true;
} & (
  | {
      event: Event;
      /** Only in the complete log: the keys of its state delta that have another value by now; see `LogChange`. */
      superseded?: readonly string[];
      error?: undefined;
      change?: undefined;
    }
  | { event?: undefined; superseded?: undefined; error: DamagedEventError; change?: undefined }
);

/**
 * A change other than an appended event. Keys of state have their prefixes.
 *
 * `superseded` names the keys whose value lost to another write, or was replaced by a later one. Ignore them when you fold the
 * log into state: the entry with the stored value has the key, too.
 */
export type LogChange = Pick<LogEntry, 'position' | 'cursor' | 'seq' | 'appName' | 'userId' | 'sessionId'> &
  (
    | {
        /** A session was created. Drop what you keep of an earlier session with its id. */
        change: 'created';
        /** Its first state; empty if the session was trimmed. What did not fit follows in an entry `state`. */
        state: Record<string, unknown>;
        superseded: readonly string[];
      }
    | {
        /** State was set or removed outside a run: the user's if the session id is empty, the app's if the user id is, too. */
        change: 'state';
        state: Record<string, unknown>;
        removed: readonly string[];
        superseded: readonly string[];
      }
    | {
        /** A session was deleted. */
        change: 'deleted';
        /** With `deletion: 'soft'`: it may be restored. */
        soft: boolean;
        /**
         * Unless `soft`, the whole current state of user and app: the entries that set or removed keys are deleted with the
         * session.
         */
        state: Record<string, unknown>;
      }
    | {
        /**
         * Something else happened to a session. It can be read now, and has only the events from `firstSeq` to `seq`.
         */
        change: 'replaced';
        /**
         * Why it is no longer what its earlier entries say: an event was appended again with other content, the oldest events
         * were deleted, it was rewound to an event, restored after a soft deletion, or written by an import.
         */
        reason: 'rewritten' | 'trimmed' | 'rewound' | 'restored' | 'imported';
        /** The number of its oldest event; above `seq` if it has none. */
        firstSeq: number;
        /**
         * The whole current state of session, user and app: the entries that set or removed keys may be deleted.
         */
        state: Record<string, unknown>;
        /** For `rewritten`: the number and the content of the event. Absent if it is deleted, or cannot be read. */
        eventSeq?: number;
        event?: Event;
      }
  );

/** An event of the complete log, or another change. */
export type CompleteLogEntry = LogEntry | LogChange;

/** Of each kind of entry what it has without its cursor. */
export type WithoutCursor<Entry> = Entry extends unknown ? Omit<Entry, 'cursor'> : never;
