import { sessionHead } from '../database/statements/sessions.js';
import { currentLease, type StoredLease } from '../database/statements/leases.js';
import { heldLeases, nextToken, releaseLease, renewLease, takeLease } from './lease-rows.js';
import type { EntityManager } from '@mikro-orm/core';
import { Database } from '../database/calls/database.js';
import type { Sql } from '../database/dialects/dialect.js';
import {
  aBoolean,
  aCount,
  aDuration,
  aString,
  aWait,
  anAbortSignal,
  condition,
  object,
  rule,
} from '../model/arguments.js';
import { now } from '../model/clock.js';
import { LeaseHeldError, LeaseLostError, SessionNotFoundError } from '../model/errors.js';
import { checkKeys, checkedSessionKey, isLonger, isStorable, type SessionKey } from '../model/keys.js';
import { SERVICE_OPTIONS, type MikroOrmSessionServiceOptions } from '../model/options.js';
import type { Fence } from '../sessions/lease-guard.js';
import { pause } from '../model/signals.js';
import { MikroOrmSessionService } from '../sessions/session-service.js';
import { detached } from '../telemetry/telemetry.js';
import { clock } from './clock.js';

/** Options of `SessionLeases`, in addition to those of `MikroOrmSessionService`, which apply to `lease.sessionService`. */
export interface SessionLeasesOptions extends MikroOrmSessionServiceOptions {
  /** How long a lease lasts without renewal, in ms; 30,000 by default. It is renewed six times in that time. */
  ttlMs?: number;
}

export interface AcquireOptions {
  /** The name that others see, for example host name and process id; up to 255 characters. */
  holder: string;
  /** How long to wait for a lease that somebody else holds, in ms; 0 by default. */
  waitMs?: number;
  /** Ends the wait: `acquire` then throws its reason. */
  signal?: AbortSignal | undefined;
  /**
   * Creates the session, without state, if there is none; false by default. The `autoCreateSession` of newer Runners would come too
   * late, since a lease needs an existing session.
   */
  autoCreateSession?: boolean;
}

const DEFAULT_TTL_MS = 30_000;
const RENEWALS_PER_TTL = 6;
const MAX_POLL_MS = 250;
const MAX_HOLDER_LENGTH = 255;

const checkOptions = object<SessionLeasesOptions>({ ...SERVICE_OPTIONS, ttlMs: aDuration });

const aHolder = rule(
  `a string of 1 to ${MAX_HOLDER_LENGTH} characters, without NUL and halves of surrogate pairs`,
  (value) => typeof value === 'string' && value !== '' && !isLonger(value, MAX_HOLDER_LENGTH) && isStorable(value),
);

const checkAcquire = object<AcquireOptions>(
  { holder: aHolder, waitMs: aWait, signal: anAbortSignal, autoCreateSession: aBoolean },
  'holder',
);

/**
 * Allows one writer to a session at a time, across processes. Only the database's clock decides who holds a lease. Each holder has
 * a fencing token, so that one that was paused and replaced cannot write when it wakes (contract H1, H2).
 *
 * ```ts
 * await leases.run({ appName, userId, sessionId }, { holder: hostname() }, async ({ sessionService, signal }) => {
 *   const runner = new Runner({ appName, agent, sessionService });
 *   for await (const event of runner.runAsync({ userId, sessionId, newMessage, abortSignal: signal })) …
 * });
 * ```
 */
export class SessionLeases {
  readonly #em: EntityManager;
  readonly #options: MikroOrmSessionServiceOptions;
  readonly #ttlMs: number;
  readonly #database: Database;

  /**
   * @param em the host's `EntityManager`, as for `MikroOrmSessionService`.
   * @throws InvalidArgumentError if an option is unknown or its value is invalid.
   * @throws SchemaError if the ORM has no supported driver, or does not list `adkEntities()`.
   */
  constructor(em: EntityManager, options: SessionLeasesOptions = {}) {
    const { ttlMs = DEFAULT_TTL_MS, ...ofService } = checkOptions(options, 'The options of SessionLeases');
    this.#em = em;
    this.#options = ofService;
    this.#ttlMs = ttlMs;
    this.#database = new Database(em, ofService);
  }

  /**
   * Takes a session's lease and keeps renewing it until it is released or lost.
   *
   * @throws LeaseHeldError if somebody else still holds it after `waitMs`.
   * @throws SessionNotFoundError if there is no such session, without `autoCreateSession`.
   * @throws InvalidArgumentError if an option is unknown, or the holder's name is empty, too long, or cannot be stored.
   * @throws InsideTransactionError inside a transaction of the same ORM.
   */
  async acquire(session: SessionKey, options: AcquireOptions): Promise<Lease> {
    const key = checkedSessionKey(session);
    const { autoCreateSession, ...wanted } = checkAcquire(options, 'The options of acquire');
    const acquire = () => this.#database.call({ operation: 'acquire', key }, () => this.#acquire(key, wanted));
    try {
      return await acquire();
    } catch (error) {
      if (error instanceof LeaseHeldError) wanted.signal?.throwIfAborted();
      if (!autoCreateSession || !(error instanceof SessionNotFoundError)) throw error;
      await this.#service().getOrCreateSession(key);
      return acquire();
    }
  }

  #service(fence?: Fence): MikroOrmSessionService {
    const database = this.#database.with(this.#options);
    return new MikroOrmSessionService(this.#em, this.#options, { database, fence });
  }

  async #acquire(key: SessionKey, { holder, waitMs = 0, signal }: AcquireOptions): Promise<Lease> {
    const deadline = now() + waitMs;
    // Not in a transaction with `takeLease`: while that waits for a locked session, all leases would wait for the counter.
    let [current, token] = await this.#database.run((sql) => Promise.all([heldLease(sql, key), nextToken(sql)]));
    for (; ; current = await this.#current(key)) {
      if (!current) {
        const lease = { holder, token, ttlMs: this.#ttlMs };
        // Read before the statement is sent: the lease begins later in the database, so it cannot expire earlier than expected
        // here.
        const askedAt = clock.now();
        const isTaken = await this.#database.statement((sql) => takeLease(sql, key, lease));
        // Detached: renewals outlive this call.
        if (isTaken) return detached(() => this.#begin(key, lease.token, askedAt));
        // Another process got the lease first, with a later token, or the session does not exist.
        const head = await this.#database.run((sql) => sessionHead(sql, key));
        if (!head) throw new SessionNotFoundError(key.sessionId);
        token = await this.#database.statement(nextToken);
        continue;
      }
      const left = deadline - now();
      if (left <= 0 || signal?.aborted) throw new LeaseHeldError(key.sessionId, current.holder, current.expiresAt);
      await pause(Math.min(left, MAX_POLL_MS, this.#ttlMs / RENEWALS_PER_TTL), signal);
    }
  }

  /**
   * Acquires a lease, runs `work` with it, and releases it, even if `work` throws.
   *
   * @returns what `work` returns.
   * @throws SessionNotFoundError if there is no such session, without `autoCreateSession`.
   * @throws LeaseHeldError if somebody else still holds the lease after `waitMs`.
   */
  async run<T>(session: SessionKey, options: AcquireOptions, work: (lease: Lease) => Promise<T>): Promise<T> {
    const lease = await this.acquire(session, options);
    try {
      return await work(lease);
    } finally {
      await tryToRelease(lease);
    }
  }

  /** @returns the current lease of a session; undefined if there is none, or no such session. */
  async current(session: SessionKey): Promise<
    | {
        holder: string;
        token: number;
        /** When it was taken, in ms since 1970, by the database's clock. */
        since: number;
        /** When it expires if it is not renewed, in ms since 1970, by the database's clock. */
        expiresAt: number;
      }
    | undefined
  > {
    const key = checkedSessionKey(session);
    return this.#database.call({ operation: 'current', key }, () => this.#current(key));
  }

  #current(key: SessionKey) {
    return this.#database.run((sql) => heldLease(sql, key));
  }

  /**
   * Lists the leases that somebody holds. It reads the row of every session of the app or of the user.
   *
   * @returns those that were taken first at the beginning, at most `limit` (100 by default).
   * @throws InvalidArgumentError if an option is unknown or its value is invalid.
   */
  async held(
    options: { appName?: string; userId?: string; limit?: number } = {},
  ): Promise<(SessionKey & NonNullable<Awaited<ReturnType<SessionLeases['current']>>>)[]> {
    const { limit = 100, ...owner } = checkHeld(options, 'The options of held');
    checkKeys(owner);
    const leases = await this.#database.call({ operation: 'held', key: owner }, () =>
      this.#database.run((sql) => heldLeases(sql, owner, limit)),
    );
    return leases.map(leaseWithout);
  }

  /**
   * Ends a session's lease, whoever holds it. Its holder learns it from the next renewal or append, which fails with
   * `LeaseLostError`; what a tool of the run does elsewhere meanwhile nobody can stop.
   *
   * @returns whether there was a lease.
   */
  async release(session: SessionKey): Promise<boolean> {
    const key = checkedSessionKey(session);
    return this.#database.call({ operation: 'release', key }, async () => {
      const held = await this.#current(key);
      if (held) await this.#database.statement((sql) => releaseLease(sql, key, held.token));
      return held !== undefined;
    });
  }

  #begin(session: SessionKey, token: number, askedAt: number): Lease {
    // Without retries: the next renewal is one, and the deadline ends the lease.
    const renewing = this.#database.with({ retry: { attempts: 1 }, timeoutMs: this.#ttlMs / RENEWALS_PER_TTL });
    // Once the lease has expired, it need not be released.
    const { retry, timeoutMs, onError, telemetry = false } = this.#options;
    const releasing = this.#database.with({
      retry: { ...retry, forMs: Math.min(retry?.forMs ?? Infinity, this.#ttlMs) },
      timeoutMs: Math.min(timeoutMs || Infinity, this.#ttlMs),
      telemetry,
      ...(onError && { onError }),
    });
    return new Lease(session, token, this.#service({ session, token, created: new Set() }), {
      ...{ ttlMs: this.#ttlMs, askedAt, database: this.#database, renewing, releasing },
    });
  }
}

/** Releases a lease without throwing: the caller needs the result or the error of its work, and the lease will expire. */
export const tryToRelease = (lease: Lease): Promise<void> => lease.release().catch(() => undefined);

async function heldLease(sql: Sql, key: SessionKey) {
  const found = await currentLease(sql, key);
  return found?.isHeld ? leaseWithout(found) : undefined;
}

const leaseWithout = <Lease extends StoredLease>({ isHeld: _, ...lease }: Lease) => lease;

const checkHeld = object<{ appName?: string; userId?: string; limit?: number }>({
  ...{ appName: condition(aString), userId: condition(aString), limit: aCount },
});

/** What a lease needs to end in time. */
interface LeaseParts {
  ttlMs: number;
  /** When it was taken, by `clock`. */
  askedAt: number;
  /** Reports failures. */
  database: Database;
  /** Does not retry. */
  renewing: Database;
  releasing: Database;
}

/** A lease that is held. `SessionLeases.acquire` returns it. */
export class Lease {
  readonly #abort = new AbortController();
  readonly #parts: LeaseParts;
  readonly #endRenewals: () => void;
  #endsAt: number;
  #endDeadline: () => void;
  #renewing: Promise<void> = Promise.resolve();
  #isOver = false;
  #isReleased = false;

  /** @internal */
  constructor(
    readonly session: SessionKey,
    /** The fencing token: larger than that of any earlier lease of the session. */
    readonly token: number,
    /**
     * Writes to the session only while this lease is the current one; otherwise it throws `LeaseLostError`. It also writes to
     * sessions with the same id and user in other apps, which `AgentTool` needs, and to sessions that it has created, which
     * `runEphemeral` needs. For any other session it throws `InvalidArgumentError`.
     */
    readonly sessionService: MikroOrmSessionService,
    parts: LeaseParts,
  ) {
    this.#parts = parts;
    [this.#endsAt, this.#endDeadline] = this.#expectRenewal(parts.askedAt);
    this.#endRenewals = clock.every(parts.ttlMs / RENEWALS_PER_TTL, () => {
      this.#renewing = this.#renewing.then(() => this.#renew());
    });
  }

  /**
   * Fires, with a `LeaseLostError` as its reason, when the lease is lost or released; for `runAsync({ abortSignal })`.
   */
  get signal(): AbortSignal {
    return this.#abort.signal;
  }

  /**
   * Releases the lease at once. After that, its `sessionService` writes nothing. If the lease is already lost, this is not an error.
   *
   * @throws InsideTransactionError inside a transaction of the same ORM; then the lease is still held.
   */
  async release(): Promise<void> {
    if (this.#isReleased) return;
    const { renewing, releasing } = this.#parts;
    releasing.refuseTransaction();
    this.#isReleased = true;
    const isLost = this.#isOver;
    this.#end();
    // The host may close its connections after this call, so wait for a running renewal.
    await this.#renewing;
    const release = (sql: Sql) => releaseLease(sql, this.session, this.token);
    if (!isLost) return releasing.call({ operation: 'release', key: this.session }, () => releasing.statement(release));
    // The lease may be lost only for this process. If it still stands in the database, others would wait until it expires.
    await renewing.statement(release).catch((error: unknown) => this.#report(error, 'release'));
  }

  #report(error: unknown, operation: 'renew' | 'release'): void {
    this.#parts.database.report(error, { operation, key: this.session });
  }

  async #renew(): Promise<void> {
    const askedAt = clock.now();
    try {
      // In a busy process this timer may fire before that of the deadline. A renewal would make others wait for another `ttlMs`.
      if (askedAt >= this.#endsAt) this.#lose();
      if (this.#isOver) return;
      const { renewing, ttlMs } = this.#parts;
      const isOurs = await renewing.statement((sql) => renewLease(sql, this.session, this.token, ttlMs));
      if (!isOurs) this.#lose();
      if (this.#isOver) return;
      this.#endDeadline();
      [this.#endsAt, this.#endDeadline] = this.#expectRenewal(askedAt);
    } catch (error) {
      this.#report(error, 'renew');
      // The next renewal tries again; the deadline does not move.
    }
  }

  /** The lease ends in this process one renewal interval before it expires in the database (contract H3). */
  #expectRenewal(askedAt: number): [endsAt: number, endDeadline: () => void] {
    const endsAt = askedAt + this.#parts.ttlMs * (1 - 1 / RENEWALS_PER_TTL);
    return [endsAt, clock.after(Math.max(0, endsAt - clock.now()), () => this.#lose())];
  }

  #lose(): void {
    if (this.#isOver) return;
    this.#end();
    const { telemetry, system } = this.#parts.database;
    telemetry?.count('lostLeases', system);
  }

  #end(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#endRenewals();
    this.#endDeadline();
    this.#abort.abort(new LeaseLostError(this.session.sessionId));
  }
}
