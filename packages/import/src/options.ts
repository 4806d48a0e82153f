import type { EntityManager } from '@mikro-orm/core';
import type { CommonOptions, ImportOptions, SessionKey } from '../../../src/index.js';

/** Names for saved sessions that replace those in the file. */
export type SavedNames = Partial<SessionKey>;

/** A row that could not be imported, or a part of one. */
export interface RefusedRow {
  appName: string;
  /** Absent for state of an app. */
  userId?: string;
  /** Absent for state of a user or an app. */
  sessionId?: string;
  /** Absent for the session itself or its state. */
  eventId?: string;
  reason: string;
}

export interface ImportFromOptions extends ImportOptions, CommonOptions {
  /**
   * The `EntityManager` of any MikroORM on the database with ADK's store; it need not know the tables. Or the text of a file that
   * `adk run --save_session` or the page of `adk web` wrote, in TypeScript or Python: a session, or an array of sessions.
   */
  from: EntityManager | string;
  /** The `EntityManager` of the MikroORM with our tables, which may be the same one. */
  to: EntityManager;
  /** Other names for the sessions of a text. */
  as?: SavedNames;
  /**
   * Also imports the events that a rewind of adk-python has annulled, and its markers; false by default: ADK for TypeScript does
   * not know the markers, so its agents would see the annulled events.
   */
  keepAnnulled?: boolean;
  /** Only reads and counts: nothing is written. */
  dryRun?: boolean;
  /** Gets each row that cannot be imported, with the reason. The import continues, even if this function throws. */
  onRefused?: (row: RefusedRow) => void;
}
