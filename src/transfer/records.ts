import {
  aRecord,
  aString,
  aTime,
  aWholeNumber,
  anything,
  nullable,
  object,
  objects,
  oneOf,
  type Known,
} from '../model/arguments.js';
import { InvalidArgumentError } from '../model/errors.js';
import type { SessionKey } from '../model/keys.js';

/** A value of the state. Its key has no prefix: the record says whose it is. */
export interface StateRecord {
  key: string;
  value: unknown;
  /** The event that wrote it; null where it was set outside a run. */
  eventId: string | null;
}

/**
 * State of a session that was set outside a run, for forks and rewinding; `seq` is the number of the event before it.
 * `set` and `state` are absent where they were too large to be recorded.
 */
export type StateChangeRecord = { seq: number } & (
  | { kind: 'state'; set?: Record<string, unknown>; removed: readonly string[] }
  | { kind: 'rewound'; state?: Record<string, unknown> }
);

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

/** A session; its events follow as records of their own. */
export interface SessionRecord extends SessionKey {
  type: 'session';
  /** In ms since 1970, like the other times. */
  createTime: number;
  lastUpdateTime: number;
  /** The number of the oldest event that is kept; 1 where none was trimmed. */
  firstSeq: number;
  /** The number of the newest event; 0 where there was none. */
  lastSeq: number;
  /** When it was deleted with `deletion: 'soft'`. */
  deletedAt?: number;
  title?: string;
  labels?: Record<string, string>;
  /** Its own state. */
  state: readonly StateRecord[];
  /** The state that it was given, keys with prefixes; absent where that is not known, or does not explain `state`. */
  created?: Record<string, unknown>;
  changes?: readonly StateChangeRecord[];
}

/** An event of the session whose record came before. */
export interface EventRecord extends SessionKey {
  type: 'event';
  seq: number;
  /** The event as ADK has it, as JSON carries it. */
  event: { id: string; timestamp: number } & Record<string, unknown>;
}

/** A line of an export. */
export type TransferRecord = AppRecord | UserRecord | SessionRecord | EventRecord;

/** `checkKeys` looks at the names. */
const session: Known<SessionKey> = { appName: anything, userId: anything, sessionId: anything };

const CHECKS = {
  app: object<AppRecord>({ type: anything, appName: anything, state: objects }, 'state'),
  user: object<UserRecord>({ type: anything, appName: anything, userId: anything, state: objects }, 'state'),
  session: object<SessionRecord>(
    {
      type: anything,
      ...session,
      createTime: aTime,
      lastUpdateTime: aTime,
      firstSeq: aWholeNumber,
      lastSeq: aWholeNumber,
      deletedAt: aTime,
      title: aString,
      labels: aRecord,
      state: objects,
      created: aRecord,
      changes: objects,
    },
    'createTime',
    'lastUpdateTime',
    'firstSeq',
    'lastSeq',
    'state',
  ),
  event: object<EventRecord>({ type: anything, ...session, seq: aWholeNumber, event: aRecord }, 'seq', 'event'),
};
const checkState = object<StateRecord>({ key: aString, value: anything, eventId: nullable(aString) }, 'key', 'eventId');
const checkChange = object<{ seq: number; kind: string; set: object; removed: object; state: object }>(
  { seq: aWholeNumber, kind: oneOf('state', 'rewound'), set: aRecord, removed: anything, state: aRecord },
  'seq',
  'kind',
);
const checkEvent = (event: EventRecord['event']) => {
  aString(event.id, 'event.id');
  aTime(event.timestamp, 'event.timestamp');
};

/** @throws InvalidArgumentError for what is no record of an export; `number` counts from 1. */
export function checkRecord(record: unknown, number: number): asserts record is TransferRecord {
  const name = `Record ${number}`;
  aRecord(record, name);
  const { type } = record as TransferRecord;
  if (!Object.hasOwn(CHECKS, type))
    throw new InvalidArgumentError(`${name} has no type of a record: app, user, session or event.`);
  try {
    CHECKS[type](record, name);
    const checked = record as TransferRecord;
    if (checked.type === 'event') checkEvent(checked.event);
    else for (const value of checked.state) checkState(value, 'state');
    if (checked.type === 'session') for (const change of checked.changes ?? []) checkChange(change, 'changes');
  } catch (error) {
    if (!(error instanceof InvalidArgumentError) || error.message.startsWith(name)) throw error;
    throw new InvalidArgumentError(`${name}: ${error.message}`);
  }
}
