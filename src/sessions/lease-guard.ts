import type { LeaseRule } from '../database/dialects/dialect.js';
import type { Sql } from '../database/sql/sql.js';
import type { LeaseStore } from '../database/stores/lease-store.js';
import { LeaseHeldError, LeaseLostError } from '../model/errors.js';
import { sessionIdentity, type SessionKey } from '../model/keys.js';
import type { MikroOrmSessionServiceOptions } from '../model/options.js';

/** A lease that a service writes under. */
export interface Fence {
  session: SessionKey;
  token: number;
}

/** Whether a service may write to a session, as far as its lease is concerned (contract H2). */
export class LeaseGuard {
  readonly #store: LeaseStore;
  readonly #onUnleasedAppend: MikroOrmSessionServiceOptions['onUnleasedAppend'];

  constructor(
    store: LeaseStore,
    onUnleasedAppend: MikroOrmSessionServiceOptions['onUnleasedAppend'],
    readonly fence: Fence | undefined,
  ) {
    this.#store = store;
    this.#onUnleasedAppend = onUnleasedAppend;
  }

  /**
   * A service with a lease also writes to sessions without one: an `AgentTool` has its session under another app name.
   */
  ruleFor(session: SessionKey): LeaseRule | undefined {
    const { fence } = this;
    if (fence && sessionIdentity(fence.session) === sessionIdentity(session)) return { token: fence.token };
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
    const current = await this.#store.currentUnderLock(sql, session);
    if (rule === 'unleased') {
      if (current?.isHeld) throw new LeaseHeldError(session.sessionId, current.holder, current.expiresAt);
    } else if (current?.token !== rule.token) {
      throw new LeaseLostError(session.sessionId);
    }
  }
}
