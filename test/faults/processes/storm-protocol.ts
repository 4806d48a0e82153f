import type { DatabaseError, LogCursor, RetryOptions } from '../../../src/index.js';

interface StormConnection {
  url: string;
  /** For a URL that does not show which driver is meant. */
  name?: 'better-sqlite';
  /** By default it tries again at once, for which an outage of a second is long. */
  retry?: RetryOptions;
}

/** What `storm-process.ts` is given. */
export type StormJob = StormConnection &
  (
    | {
        kind: 'append';
        label: string;
        count: number;
        isPatient: boolean;
      }
    /** From a cursor on, until it learns how many entries there are. */
    | { kind: 'watch'; after?: LogCursor | number }
  );

/** An append that was not acknowledged. */
export interface FailedAppend {
  id: string;
  outcome: DatabaseError['outcome'];
  /** The driver's code, or MikroORM's name for the failure. */
  code: string;
}

/** The answers. */
export interface StormHistory {
  /** In the order in which they were. */
  acknowledged: string[];
  failed: FailedAppend[];
  /** The appends that were under way when the process was killed. */
  interrupted: string[];
  /** The ids that `getSession` gave. */
  reads: string[][];
  /** The ids of the handle in the end. */
  handle: string[];
  /** What the log gave. */
  seen: { id: string; position: number; cursor?: LogCursor | number }[];
  /** Errors that nobody handled, which would have ended the process. */
  unhandled: string[];
}

export const emptyHistory = (): StormHistory => ({
  acknowledged: [],
  failed: [],
  interrupted: [],
  reads: [],
  handle: [],
  seen: [],
  unhandled: [],
});

/** Told at once, so that what a process knew is known when it is killed. */
export type StormReport =
  | { kind: 'tries'; id: string }
  | { kind: 'acknowledged'; id: string }
  | ({ kind: 'failed' } & FailedAppend)
  | { kind: 'read'; ids: string[] }
  | { kind: 'handle'; ids: string[] }
  | { kind: 'seen'; id: string; position: number; cursor: LogCursor | number }
  | { kind: 'unhandled'; error: string }
  | { kind: 'done' }
  | { kind: 'error'; error: string };

export const STORM_SESSION = 'storm';
