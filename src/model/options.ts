import { aBoolean, aCount, aFunction, aTimeout, aWait, copied, object, oneOf, rule, type Checks } from './arguments.js';
import type { Codec } from './codec.js';
import type { DamagedSessionError } from './errors.js';
import { isKey, type SessionKey } from './keys.js';
import { isObject } from './json.js';

/** The second argument of `onError`. */
export interface ErrorContext {
  /**
   * The method that was called, such as `appendEvent`, or work in the background: `catchUp`, `notify`, `rollback`, `renew` and
   * `release` (of a lease), `poll`, `listen` and `assignPositions` (of the event log).
   */
  operation: string;
  /** The session's key, or as much of it as the call was given. */
  key: Partial<SessionKey>;
}

/** Options for PostgreSQL. They have no effect on other databases. Each service takes those that it uses. */
export interface PostgresqlOptions {
  /**
   * Whether connections use prepared statements, which save the server most of the work of an append; true by default. Set it to
   * false behind a pooler that loses them: otherwise three statements fail on each new connection before it does without, and the
   * server logs them.
   */
  preparedStatements?: boolean;
  /**
   * Whether an append notifies watchers of the event log in other processes that `listen`; false by default: then they poll.
   */
  notify?: boolean;
  /**
   * Creates an unconnected client of `pg`, on whose connection the event log learns of commits at once. The services that write
   * need `notify`.
   */
  listen?: () => {
    connect(): Promise<unknown>;
    query(sql: string): Promise<unknown>;
    end(): Promise<unknown>;
    on(event: 'notification' | 'error' | 'end', listener: (error?: unknown) => void): unknown;
  };
  /**
   * Gives the settings of the server for each transaction, by name, such as `{ 'app.user_id': 'ada', role: 'chat' }` for policies of
   * row-level security, or an empty record for none; none by default. It is called in the asynchronous context of the call. With it every call is a transaction,
   * and appends to several sessions are not written together. A host's transaction has the settings that the host gives it.
   */
  settings?: () => Readonly<Record<string, string>>;
}

/** Options of all services. All processes on the same tables need the same `codec` and `maxDecodedBytes`. */
export interface CommonOptions {
  /**
   * Encodes contents of events and values of state before they are stored, and decodes them when they are read (contract M1):
   * `compression()` and `encryption(…)` of `adk-mikro-orm/codecs`, for example. Several are applied in order. Texts stored
   * earlier are still read, encoded or not.
   */
  codec?: Codec | readonly Codec[];
  /**
   * How many bytes a stored text may decode to; 67,108,864 (64 MB) by default, 536,870,888 at most. A larger one counts as damage
   * (contract I1), and nothing larger is encoded. Without a limit, a few forged bytes could fill the memory.
   */
  maxDecodedBytes?: number;
  /**
   * Gets the original error of the driver, the codec or `embed`, for the host's log. It contains SQL and stored values, which the
   * errors that calls throw leave out. It is called once for each failure that makes a call fail, and for each in the background;
   * not for attempts that are retried, and not for other errors, which are complete as thrown. What it throws or returns is ignored.
   */
  onError?: (error: unknown, context: ErrorContext) => void;
  /**
   * Whether calls send spans and metrics of OpenTelemetry (contract N1) to the providers that the host has registered; false by
   * default. If `@opentelemetry/api` is not installed, the constructor throws `InvalidArgumentError`.
   */
  telemetry?: boolean;
  /** How deadlocks, lock time-outs, a busy SQLite file and outages are retried (contract E4, O4). */
  retry?: {
    /**
     * How many attempts a call has at most, including the first. By default 10 for deadlocks and lock time-outs; for outages, as many
     * as fit into `forMs`.
     */
    attempts?: number;
    /**
     * How long an outage is retried, in ms from its first error; 30,000 by default, 0 for no retry. An outage is a connection that is
     * lost or cannot be opened, or a server that starts, stops, has no connection left, does not answer within `timeoutMs`, or
     * temporarily accepts no writes (contract O4).
     */
    forMs?: number;
    /** The longest wait before the first retry, in ms; it doubles with each retry. 10 by default. */
    baseDelayMs?: number;
    /** The longest wait before any retry, in ms; 1,000 by default. */
    maxDelayMs?: number;
  };
  /**
   * How long one attempt of a call may take, in ms, including the wait for a connection of the pool; 30,000 by default, 0 for no
   * limit (contract O3). After that its connection is closed, and the attempt counts as an outage. `stats` of large tables may need
   * more time. It has no effect on SQLite and PGlite, which run in this process, on a kysely instance in MikroORM 7's
   * `driverOptions`, or inside a host's transaction. A codec, `embed` and `text` have as long for an answer, on every database.
   */
  timeoutMs?: number;
  postgresql?: Omit<PostgresqlOptions, 'notify' | 'listen'>;
}

export interface MikroOrmSessionServiceOptions extends CommonOptions {
  postgresql?: Omit<PostgresqlOptions, 'listen'>;
  /**
   * What an append does if somebody else has appended since the handle was read (contract E2): `rebase` (default) appends and adds the
   * missed events to the handle; `reject` throws `StaleSessionError` and writes nothing.
   */
  onStaleSession?: 'rebase' | 'reject';
  /**
   * What an append, a change of the session's state and its deletion do without the lease while somebody holds it (contract H2):
   * `allow` (default) writes, for example a user's message; `reject` throws `LeaseHeldError` and writes nothing.
   */
  onUnleasedAppend?: 'allow' | 'reject';
  /**
   * What `deleteSession` does (contract K3): `hard` (default) deletes the rows; `soft` keeps them and stores the time of the
   * deletion. `restoreSession` then brings the session back; creating its id again, or `prune({ deletedFor })` of
   * `SessionMaintenance`, deletes it for good.
   */
  deletion?: 'hard' | 'soft';
  /**
   * The names of the agents that run in an `AgentTool`; none by default. ADK keeps what such an agent is asked in a session of its
   * own: in the app of the agent's name, under the user and the id of the caller's session. With their names here `deleteSession`,
   * `restoreSession`, `rewindSession` and `forkSession` of the caller's session include these sessions, in the same transaction.
   */
  toolApps?: readonly string[];
  /**
   * What an append does with an event whose id is stored with other content (contract J4): `replace` (default) stores the
   * new content, as ADK does; `reject` throws `EventConflictError`. The same content again is not a conflict.
   */
  onRewrittenEvent?: 'replace' | 'reject';
  /**
   * What an append does with the user's answer to a call that was already answered, or never was open (contract H5): `allow`
   * (default) stores it, as ADK does, so that a client may send several; `reject` throws `CallAnsweredError`, so that only one of two
   * processes with an answer runs the agent. The same event again is a retry.
   */
  onAnsweredCall?: 'allow' | 'reject';
  /**
   * How many of the newest events `getSession` and `getOrCreateSession` return if the request has no number; all by default. If the
   * first of them is within a turn, the whole turn is returned (contract K7). `numRecentEvents: 0` returns all.
   */
  defaultNumRecentEvents?: number;
  /**
   * What `getSession` does if rows of the session are missing or cannot be read (contract I3): `throw` (default) throws
   * `DamagedSessionError`; `skip` returns the session without them, and reports to `onDamage`.
   */
  onDamagedEvent?: 'throw' | 'skip';
  /**
   * Gets damage for which a call does not fail: in `getSession` with `onDamagedEvent: 'skip'`, `createSession`, `listSessions`, and
   * appends. What it throws is ignored. By default the process emits one warning for each session.
   */
  onDamage?: (error: DamagedSessionError) => void;
}

function isCodec(value: unknown): boolean {
  if (!isObject(value)) return false;
  const { name, encode, decode }: { name?: unknown; encode?: unknown; decode?: unknown } = value;
  return typeof name === 'string' && name !== '' && typeof encode === 'function' && typeof decode === 'function';
}

/** Stored texts name their codecs, so no two codecs may have the same name. */
function areCodecs(value: unknown): boolean {
  const codecs: readonly unknown[] = Array.isArray(value) ? value : [value];
  return codecs.every(isCodec) && new Set((codecs as readonly Codec[]).map(({ name }) => name)).size === codecs.length;
}

/** The longest string of V8. */
const MOST_DECODED_BYTES = 2 ** 29 - 24;

/** The options of what reads or writes contents. */
export type CodecOptions = Pick<CommonOptions, 'codec' | 'maxDecodedBytes'>;

/** A client that listens for notifications. */
export type NotificationClient = ReturnType<NonNullable<PostgresqlOptions['listen']>>;

export const CODEC_OPTIONS: Checks<CodecOptions> = {
  codec: copied(rule('a codec, with name, encode and decode, or a list of codecs with different names', areCodecs)),
  maxDecodedBytes: rule(
    `a whole number from 1 to ${MOST_DECODED_BYTES}`,
    (value) => Number.isInteger(value) && Number(value) >= 1 && Number(value) <= MOST_DECODED_BYTES,
  ),
};

const POSTGRESQL = { preparedStatements: aBoolean, settings: aFunction };

export const COMMON_OPTIONS: Checks<CommonOptions> = {
  retry: object<NonNullable<CommonOptions['retry']>>({
    ...{ attempts: aCount, forMs: aWait, baseDelayMs: aWait, maxDelayMs: aWait },
  }),
  timeoutMs: aTimeout,
  postgresql: object(POSTGRESQL),
  onError: aFunction,
  telemetry: aBoolean,
  ...CODEC_OPTIONS,
};

/** The value of `toolApps`. */
export const TOOL_APPS = copied(
  rule('an array of names of agents', (value) => Array.isArray(value) && value.every((name) => isKey('appName', name))),
);

export const LISTENING_OPTIONS: Checks<CommonOptions> = {
  ...COMMON_OPTIONS,
  postgresql: object({ ...POSTGRESQL, listen: aFunction }),
};

export const checkPostgresql = object<PostgresqlOptions>({
  ...POSTGRESQL,
  notify: aBoolean,
  listen: aFunction,
});

/** The options of sessions alone. */
export const SESSION_OPTIONS: Checks<Omit<MikroOrmSessionServiceOptions, keyof CommonOptions>> = {
  onStaleSession: oneOf('rebase', 'reject'),
  onUnleasedAppend: oneOf('allow', 'reject'),
  deletion: oneOf('hard', 'soft'),
  toolApps: TOOL_APPS,
  onRewrittenEvent: oneOf('replace', 'reject'),
  onAnsweredCall: oneOf('allow', 'reject'),
  defaultNumRecentEvents: aCount,
  onDamagedEvent: oneOf('throw', 'skip'),
  onDamage: aFunction,
};

export const SERVICE_OPTIONS: Checks<MikroOrmSessionServiceOptions> = {
  ...SESSION_OPTIONS,
  ...COMMON_OPTIONS,
  postgresql: object({ ...POSTGRESQL, notify: aBoolean }),
};

export const checkServiceOptions = object(SERVICE_OPTIONS);
