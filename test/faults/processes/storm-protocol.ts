import type { DatabaseError, LogCursor, CommonOptions } from '../../../src/index.js';

interface StormConnection {
  url: string;
  /** Names the driver, if the URL does not. */
  name?: 'better-sqlite';
  /** By default the writer retries at once, and an outage of a second is too long for it. */
  retry?: NonNullable<CommonOptions['retry']>;
}

/** The job of a `storm-process.ts`. */
export type StormJob = StormConnection &
  (
    | {
        kind: 'append';
        label: string;
        count: number;
        isPatient: boolean;
      }
    /** Reads from a cursor on, until it learns how many entries there are. */
    | { kind: 'watch'; after?: LogCursor | number }
  );

/** An append that was not acknowledged. */
export interface FailedAppend {
  id: string;
  outcome: DatabaseError['outcome'];
  /** The driver's code, or MikroORM's name for the failure. */
  code: string;
}

/** The answers that a process got. */
export interface StormHistory {
  /** The ids of acknowledged events, in order. */
  acknowledged: string[];
  failed: FailedAppend[];
  /** The appends that a kill interrupted. */
  interrupted: string[];
  /** The ids that `getSession` returned. */
  reads: string[][];
  /** The ids of the handle in the end. */
  handle: string[];
  /** The entries of the log. */
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

/** Sent at once, so that the parent knows everything that a killed process knew. */
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
