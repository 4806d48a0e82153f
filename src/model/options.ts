import {
  aBoolean,
  aCount,
  aFunction,
  aTimeout,
  aWait,
  aWholeNumber,
  copied,
  object,
  oneOf,
  rule,
  type Known,
} from './arguments.js';
import type { Codec } from './codec.js';
import type { DamagedSessionError } from './errors.js';
import type { SessionKey } from './keys.js';
import { isObject } from './objects.js';

export interface RetryOptions {
  /**
   * The most attempts of a call, the first included. By default 10 for deadlocks and lock time-outs, and for outages as
   * many as `forMs` has time for.
   */
  attempts?: number;
  /**
   * For how long an outage is waited out, in ms from its first error; 30,000 by default, 0 for no second try. An outage is
   * a connection that is lost or cannot be had, and a server that starts, stops, has no connection left, does not answer
   * within `timeoutMs`, or takes no writes for now (contract O4).
   */
  forMs?: number;
  /** The longest wait before the second try, in ms; it doubles with each try. 10 by default. */
  baseDelayMs?: number;
  /** The longest wait before any try, in ms; 1,000 by default. */
  maxDelayMs?: number;
}

/** The second argument of `onError`. */
export interface ErrorContext {
  /**
   * The method that was called, such as `appendEvent`; or what went on beside the calls: `catchUp`, `notify`, `rollback`,
   * `renew` and `release` (a lease), `poll`, `listen` and `assignPositions` (the event log).
   */
  operation: string;
  /** The session that was meant, or as much of its key as the call was given. */
  key: Partial<SessionKey>;
}

export interface ReportingOptions {
  /**
   * Called with the driver's own error, which holds SQL and stored values, or with what a codec has thrown, for the host's
   * log: what is thrown by a call holds none of it. Called once for each failure of the database that a caller gets as an error, and for those that no caller
   * gets; not for attempts that are tried again, nor for errors that are not the database's, which say all there is. What
   * it throws, and what it returns, is ignored.
   */
  onError?: (error: unknown, context: ErrorContext) => void;
  /**
   * Whether calls are spans and metrics of OpenTelemetry (contract N1), by the providers that the host has registered; false by
   * default. The constructor throws `InvalidArgumentError` when `@opentelemetry/api` is not installed.
   */
  telemetry?: boolean;
}

/** An option of everything that reads or writes contents. All processes on the same tables need it alike. */
export interface CodecOptions {
  /**
   * What contents of events and values of state pass through on their way into the database and out of it (contract M1), such as
   * `compression()` and `encryption(…)` of `adk-mikro-orm/codecs`. Several are applied in their order. Texts that are stored
   * already are read as they are, encoded or not.
   */
  codec?: Codec | readonly Codec[];
  /**
   * How large a stored text may become when it is decoded, in bytes; 67,108,864 (64 MB) by default, 536,870,888 at most. A larger one
   * is damage (contract I1), and none is encoded. It keeps a few stored bytes that somebody has forged from filling the memory.
   */
  maxDecodedBytes?: number;
}

/** The members of `pg`'s `Client` that are used. */
export interface NotificationClient {
  connect(): Promise<unknown>;
  query(sql: string): Promise<unknown>;
  end(): Promise<unknown>;
  on(event: 'notification' | 'error' | 'end', listener: (error?: unknown) => void): unknown;
}

/** Has no effect on other databases. */
export interface PostgresqlOptions {
  /**
   * Whether connections keep prepared statements, which spares the server most of the work of an append; true by default. Behind a
   * pooler that keeps none, or resets its connections, set it to false: otherwise each connection finds that out by three statements,
   * each with an error in the server's log.
   */
  preparedStatements?: boolean;
  /**
   * Whether an append notifies watchers of the event log in other processes, if they `listen`; false by default: without it they poll
   * at intervals.
   */
  notify?: boolean;
  /**
   * Makes a client of `pg`, not yet connected, for a connection of its own on which watchers of the event log are notified of commits
   * at once. It needs `notify` on the services that write.
   */
  listen?: () => NotificationClient;
}

/** What the services, leases, the event log and maintenance have in common. */
export interface CommonOptions extends ReportingOptions, CodecOptions {
  /** How deadlocks, lock time-outs, a busy SQLite file and outages are retried (contract E4, O4). */
  retry?: RetryOptions;
  /**
   * How long one attempt of a call may take, in ms, the wait for a connection of the pool included; 30,000 by default, 0
   * for no limit (contract O3). Then its connection is closed, and the attempt counts as an outage. `stats` of large tables may need
   * more. Without effect on statements on SQLite and PGlite, which run in this process, on those of a kysely that the host passes as
   * `driverOptions` to MikroORM 7, and inside a transaction of the host's.
   */
  timeoutMs?: number;
  postgresql?: PostgresqlOptions;
}

export interface MikroOrmSessionServiceOptions extends CommonOptions {
  /**
   * What an append does when somebody else has appended since the handle was read (contract E2): `rebase` (default)
   * appends and adds what was missed to the handle; `reject` throws `StaleSessionError` and writes nothing.
   */
  onStaleSession?: 'rebase' | 'reject';
  /**
   * What an append, a change of the session's state and its deletion do while somebody holds the session's lease, unless
   * they are made with that lease (contract H2): `allow` (default), as for a user's message; `reject` throws
   * `LeaseHeldError` and writes nothing.
   */
  onUnleasedAppend?: 'allow' | 'reject';
  /**
   * What `deleteSession` does (contract K3): `hard` (default) deletes the rows; `soft` keeps them and stores the
   * time of the deletion. `restoreSession` brings the session back, creating its id again deletes it for good, and so does
   * `prune({ deletedFor })` of `SessionMaintenance`.
   */
  deletion?: 'hard' | 'soft';
  /**
   * What an append does with an event whose id is stored with other content (contract J4): `replace` (default) stores the
   * new content, as ADK does; `reject` throws `EventConflictError`. The same content again is not a conflict.
   */
  onRewrittenEvent?: 'replace' | 'reject';
  /**
   * What an append does with an answer of the user to a call that is answered already, or never was open (contract H5): `allow`
   * (default) stores it, as ADK does, with which a client may send several; `reject` throws `CallAnsweredError`, so that of two
   * processes with an answer one runs the agent. The same event again is a retry.
   */
  onAnsweredCall?: 'allow' | 'reject';
  /**
   * How many of the newest events `getSession` and `getOrCreateSession` give if the caller names no number, and back to the
   * beginning of the oldest turn among them (contract K7); all by default. A caller gets all with `numRecentEvents: 0`.
   */
  defaultNumRecentEvents?: number;
  /**
   * What `getSession` does with a session of which rows are missing or cannot be read (contract I3): `throw` (default)
   * throws `DamagedSessionError`; `skip` gives the session without them, and reports to `onDamage`.
   */
  onDamagedEvent?: 'throw' | 'skip';
  /**
   * Called with damage that a call found and did not throw: `getSession` with `onDamagedEvent: 'skip'`, `createSession`,
   * `listSessions`, and appends. What it throws is ignored. By default the process emits a warning, once for each session.
   */
  onDamage?: (error: DamagedSessionError) => void;
  /**
   * The most bytes of UTF-8 an event may have as it is stored, after the `codec`; a larger one is refused with `EventTooLargeError`. No limit
   * by default.
   */
  maxEventBytes?: number;
}

const RETRY: Known<RetryOptions> = {
  attempts: aCount,
  forMs: aWait,
  baseDelayMs: aWait,
  maxDelayMs: aWait,
};

const POSTGRESQL: Known<PostgresqlOptions> = { preparedStatements: aBoolean, notify: aBoolean, listen: aFunction };

function isCodec(value: unknown): boolean {
  if (!isObject(value)) return false;
  const { name, encode, decode }: { name?: unknown; encode?: unknown; decode?: unknown } = value;
  return typeof name === 'string' && name !== '' && typeof encode === 'function' && typeof decode === 'function';
}

/** Two of one name could not be distinguished in what is stored. */
function areCodecs(value: unknown): boolean {
  const codecs: readonly unknown[] = Array.isArray(value) ? value : [value];
  return codecs.every(isCodec) && new Set((codecs as readonly Codec[]).map(({ name }) => name)).size === codecs.length;
}

/** What fits into a string of V8. */
const MOST_DECODED_BYTES = 2 ** 29 - 24;

export const CODEC_OPTIONS: Known<CodecOptions> = {
  codec: copied(rule('a codec, with name, encode and decode, or a list of codecs with different names', areCodecs)),
  maxDecodedBytes: rule(
    `a whole number from 1 to ${MOST_DECODED_BYTES}`,
    (value) => Number.isInteger(value) && Number(value) >= 1 && Number(value) <= MOST_DECODED_BYTES,
  ),
};

export const COMMON_OPTIONS: Known<CommonOptions> = {
  retry: object(RETRY),
  timeoutMs: aTimeout,
  postgresql: object(POSTGRESQL),
  onError: aFunction,
  telemetry: aBoolean,
  ...CODEC_OPTIONS,
};

export const SERVICE_OPTIONS: Known<MikroOrmSessionServiceOptions> = {
  onStaleSession: oneOf('rebase', 'reject'),
  onUnleasedAppend: oneOf('allow', 'reject'),
  maxEventBytes: aWholeNumber,
  deletion: oneOf('hard', 'soft'),
  onRewrittenEvent: oneOf('replace', 'reject'),
  onAnsweredCall: oneOf('allow', 'reject'),
  defaultNumRecentEvents: aCount,
  onDamagedEvent: oneOf('throw', 'skip'),
  onDamage: aFunction,
  ...COMMON_OPTIONS,
};

export const checkServiceOptions = object(SERVICE_OPTIONS);
