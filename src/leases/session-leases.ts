import { sessionHead } from '../database/statements/sessions.js';
import { currentLease, nextToken, releaseLease, renewLease, takeLease } from '../database/statements/leases.js';
import type { EntityManager } from '@mikro-orm/core';
import { setTimeout } from 'node:timers/promises';
import { Database } from '../database/calls/database.js';
import { aBoolean, aDuration, aWait, object, rule, type Known } from '../model/arguments.js';
import { LeaseHeldError, LeaseLostError, SessionNotFoundError } from '../model/errors.js';
import { checkedSessionKey, isLonger, isStorable, type SessionKey } from '../model/keys.js';
import { SERVICE_OPTIONS, type MikroOrmSessionServiceOptions } from '../model/options.js';
import type { Fence } from '../sessions/lease-guard.js';
import { MikroOrmSessionService } from '../sessions/session-service.js';
import { detached } from '../telemetry/telemetry.js';
import { clock } from './clock.js';

/** With the options of `MikroOrmSessionService`, for `lease.sessionService`. */
export interface SessionLeasesOptions extends MikroOrmSessionServiceOptions {
  /** How long a lease lasts without a renewal, in ms; 30,000 by default. It is renewed six times in that time. */
  ttlMs?: number;
}

export interface AcquireOptions {
  /** A name that others see, such as a host name and process id; up to 255 characters. */
  holder: string;
  /** How long to wait for a lease that somebody else holds, in ms; 0 by default. */
  waitMs?: number;
  /**
   * Creates the session, without state, if there is none; false by default. A lease needs an existing session, so
   * `autoCreateSession` of newer Runners would come too late.
   */
  autoCreateSession?: boolean;
}

/** A lease, as any process can read it. */
export interface LeaseInfo {
  holder: string;
  token: number;
  /** When it expires unless it is renewed, in ms since 1970 by the database's clock. */
  expiresAt: number;
}

const DEFAULT_TTL_MS = 30_000;
const RENEWALS_PER_TTL = 6;
const MAX_POLL_MS = 250;
const MAX_HOLDER_LENGTH = 255;

export const LEASES_OPTIONS: Known<SessionLeasesOptions> = { ...SERVICE_OPTIONS, ttlMs: aDuration };

const checkOptions = object(LEASES_OPTIONS);

const aHolder = rule(
  `a string of 1 to ${MAX_HOLDER_LENGTH} characters, without NUL and halves of surrogate pairs`,
  (value) => typeof value === 'string' && value !== '' && !isLonger(value, MAX_HOLDER_LENGTH) && isStorable(value),
);

const checkAcquire = object<AcquireOptions>({ holder: aHolder, waitMs: aWait, autoCreateSession: aBoolean }, 'holder');

/**
 * One writer to a session at a time, across processes. The database's clock alone decides who holds a lease, and every
 * acquisition has a fencing token, so that a holder that was paused and overtaken cannot write (contract H1, H2).
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
   * @throws InvalidArgumentError when an option is not known, or has a value that it cannot have.
   * @throws SchemaError when the ORM has no supported driver, or does not list `adkEntities()`.
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
   * @throws LeaseHeldError when somebody else holds it, after `waitMs`.
   * @throws SessionNotFoundError when there is no such session, without `autoCreateSession`.
   * @throws InvalidArgumentError when an option is not known, or the holder's name is empty, too long, or cannot be stored.
   * @throws InsideTransactionError inside a transaction of the same ORM.
   */
  async acquire(session: SessionKey, options: AcquireOptions): Promise<Lease> {
    const key = checkedSessionKey(session);
    const { holder, waitMs = 0, autoCreateSession } = checkAcquire(options, 'The options of acquire');
    const acquire = () => this.#database.call({ operation: 'acquire', key }, () => this.#acquire(key, holder, waitMs));
    try {
      return await acquire();
    } catch (error) {
      if (!autoCreateSession || !(error instanceof SessionNotFoundError)) throw error;
      await this.#service().getOrCreateSession(key);
      return acquire();
    }
  }

  #service(fence?: Fence): MikroOrmSessionService {
    const database = this.#database.with(this.#options);
    return new MikroOrmSessionService(this.#em, this.#options, { database, fence });
  }

  async #acquire(key: SessionKey, holder: string, waitMs: number): Promise<Lease> {
    const deadline = performance.now() + waitMs;
    for (;;) {
      const current = await this.#current(key);
      if (!current) {
        // Taken before the statement is sent: by the database's clock the lease begins later, so it expires later than
        // we expect.
        const askedAt = clock.now();
        const token = await this.#take(key, holder);
        // Renewals continue after this call.
        if (token !== undefined) return detached(() => this.#begin(key, token, askedAt));
        // Another process took the lease first, or the session does not exist.
        await this.#checkExists(key);
        continue;
      }
      const left = deadline - performance.now();
      if (left <= 0) throw new LeaseHeldError(key.sessionId, current.holder, current.expiresAt);
      await setTimeout(Math.min(left, MAX_POLL_MS, this.#ttlMs / RENEWALS_PER_TTL));
    }
  }

  /**
   * Acquires a lease, runs `work` with it, and releases it, also when `work` throws.
   *
   * @returns what `work` returns.
   * @throws SessionNotFoundError when there is no such session, without `autoCreateSession`.
   * @throws LeaseHeldError when somebody else holds the lease, after `waitMs`.
   */
  async run<T>(session: SessionKey, options: AcquireOptions, work: (lease: Lease) => Promise<T>): Promise<T> {
    const lease = await this.acquire(session, options);
    try {
      return await work(lease);
    } finally {
      // A lease that could not be released expires. The caller needs the result or the error of `work`.
      await lease.release().catch(() => undefined);
    }
  }

  /** @returns who holds a session's lease; undefined when nobody does, or there is no such session. */
  async current(session: SessionKey): Promise<LeaseInfo | undefined> {
    const key = checkedSessionKey(session);
    return this.#database.call({ operation: 'current', key }, () => this.#current(key));
  }

  async #current(key: SessionKey): Promise<LeaseInfo | undefined> {
    const found = await this.#database.run((sql) => currentLease(sql, key));
    return found?.isHeld ? { holder: found.holder, token: found.token, expiresAt: found.expiresAt } : undefined;
  }

  async #take(key: SessionKey, holder: string): Promise<number | undefined> {
    // A statement of its own: in one transaction with `take`, a locked session row would make all leases wait for the
    // counter.
    const token = await this.#database.statement(nextToken);
    const taken = await this.#database.statement((sql) => takeLease(sql, key, { holder, token, ttlMs: this.#ttlMs }));
    return taken ? token : undefined;
  }

  async #checkExists(key: SessionKey): Promise<void> {
    const head = await this.#database.run((sql) => sessionHead(sql, key));
    if (!head) throw new SessionNotFoundError(key.sessionId);
  }

  #begin(session: SessionKey, token: number, askedAt: number): Lease {
    // No retries: the next renewal is the retry, and the deadline ends the lease.
    const renewing = this.#database.with({ retry: { attempts: 1 }, timeoutMs: this.#ttlMs / RENEWALS_PER_TTL });
    // After that time the lease has expired, and need not be released.
    const { retry, timeoutMs, onError, telemetry = false } = this.#options;
    const releasing = this.#database.with({
      retry: { ...retry, forMs: Math.min(retry?.forMs ?? Infinity, this.#ttlMs) },
      timeoutMs: Math.min(timeoutMs || Infinity, this.#ttlMs),
      telemetry,
      ...(onError && { onError }),
    });
    return new Lease(
      session,
      token,
      this.#service({ session, token, created: new Set() }),
      { ttlMs: this.#ttlMs, askedAt },
      {
        refuseTransaction: () => releasing.refuseTransaction(),
        renew: () => renewing.statement((sql) => renewLease(sql, session, token, this.#ttlMs)),
        release: () =>
          releasing.call({ operation: 'release', key: session }, () =>
            releasing.statement((sql) => releaseLease(sql, session, token)),
          ),
        releaseLost: () => renewing.statement((sql) => releaseLease(sql, session, token)),
        report: (error, operation) => this.#database.report(error, { operation, key: session }),
        lost: () => this.#database.telemetry?.lostLease(this.#database.system),
      },
    );
  }
}

interface LeaseActions {
  /** @throws InsideTransactionError inside a transaction: the lease cannot be released there. */
  refuseTransaction(): void;
  /** @returns whether the lease is still ours. */
  renew(): Promise<boolean>;
  release(): Promise<void>;
  /** Releases a lost lease that the database still has, without retries. */
  releaseLost(): Promise<void>;
  /** Called with the error when a renewal, or the release of a lost lease, has failed. */
  report(error: unknown, operation: 'renew' | 'release'): void;
  /** Called when the lease is lost. */
  lost(): void;
}

/** A held lease; from `SessionLeases.acquire`. */
export class Lease {
  readonly #abort = new AbortController();
  readonly #actions: LeaseActions;
  readonly #ttlMs: number;
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
     * Writes to the session only while this lease is the current one; throws `LeaseLostError` otherwise. It also writes to
     * sessions with the same id and user in other apps, which `AgentTool` uses, and to sessions that it has created, as
     * `runEphemeral` does. It refuses others with `InvalidArgumentError`.
     */
    readonly sessionService: MikroOrmSessionService,
    { ttlMs, askedAt }: { ttlMs: number; askedAt: number },
    actions: LeaseActions,
  ) {
    this.#actions = actions;
    this.#ttlMs = ttlMs;
    [this.#endsAt, this.#endDeadline] = this.#expectRenewal(askedAt);
    this.#endRenewals = clock.every(ttlMs / RENEWALS_PER_TTL, () => {
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
   * Gives the lease back at once. After that its `sessionService` writes nothing. A lost lease is not an error; if the database
   * still has it, it is given back, too.
   *
   * @throws InsideTransactionError inside a transaction of the same ORM; then the lease is still held.
   */
  async release(): Promise<void> {
    if (this.#isReleased) return;
    this.#actions.refuseTransaction();
    this.#isReleased = true;
    const isLost = this.#isOver;
    this.#end();
    // The host may close its connections after this call: no renewal may be in flight then.
    await this.#renewing;
    if (!isLost) return this.#actions.release();
    // It may be lost for this process only. Others would wait until it expires.
    await this.#actions.releaseLost().catch((error: unknown) => this.#actions.report(error, 'release'));
  }

  async #renew(): Promise<void> {
    const askedAt = clock.now();
    try {
      // In a busy process this timer may fire before that of the deadline, and a renewal would make others wait for another `ttlMs`.
      if (askedAt >= this.#endsAt) this.#lose();
      if (this.#isOver) return;
      const isOurs = await this.#actions.renew();
      if (!isOurs) this.#lose();
      if (this.#isOver) return;
      this.#endDeadline();
      [this.#endsAt, this.#endDeadline] = this.#expectRenewal(askedAt);
    } catch (error) {
      this.#actions.report(error, 'renew');
      // The next renewal tries again. The deadline stays.
    }
  }

  /** The lease ends in this process one renewal interval before it expires in the database (contract H3). */
  #expectRenewal(askedAt: number): [endsAt: number, endDeadline: () => void] {
    const endsAt = askedAt + this.#ttlMs * (1 - 1 / RENEWALS_PER_TTL);
    return [endsAt, clock.after(Math.max(0, endsAt - clock.now()), () => this.#lose())];
  }

  #lose(): void {
    if (this.#isOver) return;
    this.#end();
    this.#actions.lost();
  }

  #end(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#endRenewals();
    this.#endDeadline();
    this.#abort.abort(new LeaseLostError(this.session.sessionId));
  }
}
