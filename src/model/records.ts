import type { ForkedFrom, SessionKey } from './keys.js';

/** A value of the state. Its key has no prefix, since the record names the owner. */
export interface StateRecord {
  key: string;
  value: unknown;
  /** The event that wrote it; null if it was set outside a run. */
  eventId: string | null;
}

/**
 * A change of state outside an event; a session's past state is computed from both. `state` was set outside a run, after the event
 * `seq`. `trimmed` is the state before the first event that is kept.
 */
export interface StateChangeRecord {
  kind: 'state' | 'trimmed';
  seq: number;
  set: Record<string, unknown>;
  removed: readonly string[];
}

/** The state of an app (`app:`). */
export interface AppRecord {
  type: 'app';
  appName: string;
  state: readonly StateRecord[];
}

/** The state of a user in an app (`user:`). */
export interface UserRecord {
  type: 'user';
  appName: string;
  userId: string;
  state: readonly StateRecord[];
}

/** A session; its events follow as further records. */
export interface SessionRecord extends SessionKey {
  type: 'session';
  /** In ms since 1970, like the other times. */
  createTime: number;
  lastUpdateTime: number;
  /** The number of the oldest event that is kept; 1 if none was trimmed. */
  firstSeq: number;
  /** The number of the newest event; 0 if there was none. */
  lastSeq: number;
  /** When it was deleted with `deletion: 'soft'`. */
  deletedAt?: number;
  title?: string;
  labels?: Record<string, string>;
  /** Of a fork. */
  forkedFrom?: ForkedFrom;
  /** Its own state. */
  state: readonly StateRecord[];
  /** The state at its creation, with prefixed keys; by default the state that no event has written. */
  created?: Record<string, unknown>;
  changes?: readonly StateChangeRecord[];
}

/** An event of the session in the preceding record. */
export interface EventRecord extends SessionKey {
  type: 'event';
  seq: number;
  /** ADK's event as JSON. */
  event: { id: string; timestamp: number } & Record<string, unknown>;
  /** The keys of its state delta that lost to an earlier event with a later write. */
  superseded?: readonly string[];
  /** When the database stored it first; absent if unknown. */
  appendTime?: number;
}

/** Names a version of an artifact in records. */
export interface ArtifactNames extends SessionKey {
  /** Empty for a file of the user. */
  sessionId: string;
  /** Without `user:`. */
  filename: string;
  version: number;
}

/** A version of an artifact; the parts of its content follow as further records. */
export interface ArtifactRecord extends ArtifactNames {
  type: 'artifact';
  /** When it was saved, in ms since 1970. */
  createTime: number;
  /** How many parts its content has. */
  parts: number;
  /** The Part without its content, the metadata, and type, size and hash. */
  info: Record<string, unknown>;
}

/** A part of the content of the preceding artifact. */
export interface ArtifactPartRecord extends ArtifactNames {
  type: 'part';
  /** Counted from 0. */
  part: number;
  /** The bytes in base64. */
  data: string;
}

/** What an agent remembers. */
export interface MemoryRecord extends SessionKey {
  type: 'memory';
  /** Empty if all users of the app share it. */
  userId: string;
  /** Empty if it belongs to no session. */
  sessionId: string;
  memoryId: string;
  /** The number of its event, if a projection has added it. */
  seq?: number;
  /** When it was said, in ms since 1970, like the other times. */
  time: number;
  /** When it was added. */
  createTime: number;
  /** Before this time nobody finds it. */
  settles?: number;
  /** From this time on nobody finds it. */
  expires?: number;
  /** What a search compares, in base64. */
  words: string;
  /** Its vector, in base64, and the name of what made it. */
  embedding?: string;
  model?: string;
  /** Content, author and metadata. */
  data: Record<string, unknown>;
}

/** That a memory was forgotten. */
export interface ForgottenRecord extends SessionKey {
  type: 'forgotten';
  /** Empty if it was for all users of the app. */
  userId: string;
  /** Empty if it was forgotten in all sessions. */
  sessionId: string;
  memoryId: string;
  /** When, in ms since 1970. */
  createTime: number;
}

/** A row of one of the host's own tables (`owned`), in the export of a person. Imports leave it out. */
export interface HostRecord {
  type: 'owned';
  appName: string;
  userId: string;
  /** The name of the entity. */
  entity: string;
  /** The row, as MikroORM serializes it: without hidden properties. */
  row: Record<string, unknown>;
}

/**
 * A line of an export: JSON with what is stored of an app, a user, a session, an event, a version of an artifact, a part of its
 * content, a memory, or that one was forgotten. Keep it whole: `importSessions` reads its other properties, too.
 */
export interface TransferRecord {
  type: 'app' | 'user' | 'session' | 'event' | 'artifact' | 'part' | 'memory' | 'forgotten' | 'owned';
  appName: string;
  /** Absent for the state of an app. */
  userId?: string;
  sessionId?: string;
}

/** All that a line of an export has. */
export type ExportRecord =
  | AppRecord
  | UserRecord
  | SessionRecord
  | EventRecord
  | ArtifactRecord
  | ArtifactPartRecord
  | MemoryRecord
  | ForgottenRecord
  | HostRecord;
