import type { LeaseRule, Sql } from '../database/dialects/dialect.js';
import { currentLease } from '../database/statements/leases.js';
import { lockSession } from '../database/statements/sessions.js';
import { InvalidArgumentError, LeaseHeldError, LeaseLostError } from '../model/errors.js';
import { sessionIdentity, type SessionKey } from '../model/keys.js';
import type { MikroOrmSessionServiceOptions } from '../model/options.js';

/** The lease that a service needs for its writes. */
export interface Fence {
  session: SessionKey;
  token: number;
  /** The identities of the sessions that the service has created. */
  readonly created: Set<string>;
}

/** Decides by leases whether a service may write to a session (contract H2). */
export class LeaseGuard {
  readonly #onUnleasedAppend: MikroOrmSessionServiceOptions['onUnleasedAppend'];
  /** Whether leases are checked at all. */
  readonly isOn: boolean;

  constructor(
    onUnleasedAppend: MikroOrmSessionServiceOptions['onUnleasedAppend'],
    readonly fence: Fence | undefined,
  ) {
    this.#onUnleasedAppend = onUnleasedAppend;
    this.isOn = fence !== undefined || onUnleasedAppend === 'reject';
  }

  /** Allows a service with a lease to write to a session that it has created, which `runEphemeral` needs. */
  created(session: SessionKey): void {
    this.fence?.created.add(sessionIdentity(session));
  }

  /** @throws InvalidArgumentError if the service has the lease of another session. */
  ruleFor(session: SessionKey): LeaseRule | undefined {
    const { fence } = this;
    if (fence) {
      const { appName, userId, sessionId } = fence.session;
      // An `AgentTool` uses a session with its caller's id in another app.
      const isOfRun = session.userId === userId && session.sessionId === sessionId;
      if (isOfRun && session.appName === appName) return { token: fence.token };
      if (!isOfRun && !fence.created.has(sessionIdentity(session))) {
        throw new InvalidArgumentError(
          'The sessionService of a lease cannot write to another session. Nothing was written. ' +
            'Take the lease of that session as well, or write with a service without a lease.',
        );
      }
    }
    return this.#onUnleasedAppend === 'reject' ? 'unleased' : undefined;
  }

  /**
   * Locks the session of the lease, if a tool of it writes to another one: nobody takes over the lease until the end of the transaction.
   *
   * @throws LeaseLostError if the lease of this service is no longer the current one.
   */
  async checkCaller(sql: Sql, session: SessionKey): Promise<void> {
    const caller = this.fence?.session;
    if (!caller || sessionIdentity(caller) === sessionIdentity(session)) return;
    await lockSession(sql, caller);
    await this.check(sql, caller);
  }

  /**
   * The caller must hold the session's lock.
   *
   * @param options.refusesHeld whether a session whose lease somebody holds is refused; by default as `onUnleasedAppend` says.
   * @throws LeaseLostError if the lease of this service is no longer the current one.
   * @throws LeaseHeldError if it is refused, and the service has no lease and somebody else has.
   */
  async check(
    sql: Sql,
    session: SessionKey,
    { refusesHeld = this.#onUnleasedAppend === 'reject' }: { refusesHeld?: boolean } = {},
  ): Promise<void> {
    const ofOwner = this.ruleFor(session);
    const rule = typeof ofOwner === 'object' ? ofOwner : refusesHeld && 'unleased';
    if (!rule) return;
    const current = await currentLease(sql, session, { underLock: true });
    if (rule === 'unleased') {
      if (current?.isHeld) throw new LeaseHeldError(session.sessionId, current.holder, current.expiresAt);
    } else if (current?.token !== rule.token) {
      throw new LeaseLostError(session.sessionId);
    }
  }
}
