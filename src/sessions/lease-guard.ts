import type { LeaseRule, Sql } from '../database/dialects/dialect.js';
import { currentLease } from '../database/statements/leases.js';
import { InvalidArgumentError, LeaseHeldError, LeaseLostError } from '../model/errors.js';
import { sessionIdentity, type SessionKey } from '../model/keys.js';
import type { MikroOrmSessionServiceOptions } from '../model/options.js';

/** A lease that a service writes under. */
export interface Fence {
  session: SessionKey;
  token: number;
  /** The identities of the sessions that the service has created. */
  readonly created: Set<string>;
}

/** Whether a service may write to a session, as far as its lease is concerned (contract H2). */
export class LeaseGuard {
  readonly #onUnleasedAppend: MikroOrmSessionServiceOptions['onUnleasedAppend'];
  /** Whether writes have a rule. */
  readonly isOn: boolean;

  constructor(
    onUnleasedAppend: MikroOrmSessionServiceOptions['onUnleasedAppend'],
    readonly fence: Fence | undefined,
  ) {
    this.#onUnleasedAppend = onUnleasedAppend;
    this.isOn = fence !== undefined || onUnleasedAppend === 'reject';
  }

  /** Lets a service with a lease write to a session that it has created, as `runEphemeral` does. */
  created(session: SessionKey): void {
    this.fence?.created.add(sessionIdentity(session));
  }

  /** @throws InvalidArgumentError when the service has the lease of another session. */
  ruleFor(session: SessionKey): LeaseRule | undefined {
    const { fence } = this;
    if (fence) {
      const { appName, userId, sessionId } = fence.session;
      // An `AgentTool` has a session with the id of its caller's, in another app.
      const isOfRun = session.userId === userId && session.sessionId === sessionId;
      if (isOfRun && session.appName === appName) return { token: fence.token };
      if (!isOfRun && !fence.created.has(sessionIdentity(session))) {
        throw new InvalidArgumentError(
          'The sessionService of a lease was asked to write to another session, without its lease. Nothing was written. ' +
            'Take the lease of that session as well, or write with a service without a lease.',
        );
      }
    }
    return this.#onUnleasedAppend === 'reject' ? 'unleased' : undefined;
  }

  /**
   * For the caller that holds the session's lock.
   *
   * @throws LeaseLostError when the lease of this service is no longer the current one.
   * @throws LeaseHeldError when the service has no lease, somebody else has, and that is to be refused.
   */
  async check(sql: Sql, session: SessionKey): Promise<void> {
    const rule = this.ruleFor(session);
    if (!rule) return;
    const current = await currentLease(sql, session, { underLock: true });
    if (rule === 'unleased') {
      if (current?.isHeld) throw new LeaseHeldError(session.sessionId, current.holder, current.expiresAt);
    } else if (current?.token !== rule.token) {
      throw new LeaseLostError(session.sessionId);
    }
  }
}
