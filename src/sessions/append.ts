import type { Event, Session } from '@google/adk';
import { UniqueConstraintViolationException } from '@mikro-orm/core';
import { confirm } from '../database/confirm.js';
import type { Sql, StoredEvent } from '../database/dialects/dialect.js';
import type { EventContent } from '../database/stores/session-reader.js';
import type { Stores } from '../database/stores/stores.js';
import { isOpen } from '../database/mikro-orm.js';
import type { Outcome, Transactions } from '../database/transaction.js';
import type { Announcer } from '../log/announcer.js';
import { aRecord } from '../model/arguments.js';
import {
  EventConflictError,
  EventTooLargeError,
  InsideTransactionError,
  SessionNotFoundError,
  StaleSessionError,
  UnserializableValueError,
  type Damage,
} from '../model/errors.js';
import { decodeEvent, encode } from '../model/event-codec.js';
import { checkKeys, isIncomplete, type SessionKey } from '../model/keys.js';
import type { MikroOrmSessionServiceOptions } from '../model/options.js';
import { byScope, checkStateKey, setOwn, type StateEntry } from '../model/state.js';
import { readEvents, readState, type DamageReporter } from './damage.js';
import { applyDelta, copyOfDelta, forgetWrites, stampDelta, winningKeys } from './delta.js';
import {
  catchUp,
  forgetRevision,
  hasOnlyReadEvents,
  keyOf,
  placeEvent,
  revisionOf,
  setRevision,
  setTentative,
  tentativeOf,
  type Revision,
} from './handle.js';
import type { LeaseGuard } from './lease-guard.js';

/** An event on its way into the database. */
export interface PendingEvent {
  /** The caller's object, which goes into the handle. */
  event: Event;
  stored: StoredEvent;
  /** A copy of the event, which the caller cannot change. */
  copy: Event;
  /** The state delta of the copy, without `temp:` keys, each value with its stamp. */
  delta: Record<string, unknown>;
  /** The delta as rows of the state tables. */
  writes: readonly StateEntry[];
}

/** The result of an append. */
interface Appended {
  incarnation: string;
  lastSeq: number;
  /** Whether one of the events was stored before. */
  replaced: boolean;
  /** Whether the session had fewer events than the handle has read: a failover or a restore took it back. */
  wentBack: boolean;
  /** Damage that the append found. */
  damaged?: Damage;
}

/** What an append one by one has to know of its call. */
interface OneByOne {
  /** Whether a handle that is behind is refused. */
  rejects: boolean;
  outcome: Outcome;
  /** The content of events that the tries before have met, by id. */
  replaced: Map<string, string | undefined>;
}

export type NonEmpty<T> = readonly [T, ...T[]];

export function isNonEmpty<T>(list: readonly T[]): list is NonEmpty<T> {
  return list.length > 0;
}

/** Appends events: checks and encodes them, writes them, and brings the handle up to what was written. */
export class Appender {
  constructor(
    private readonly stores: Stores,
    private readonly transactions: Transactions,
    private readonly leases: LeaseGuard,
    private readonly announcer: Announcer,
    private readonly damage: DamageReporter,
    private readonly options: MikroOrmSessionServiceOptions,
  ) {}

  /** Checks and encodes an event, and takes the `temp:` keys out of its delta as the base class does (contract A7). */
  prepare(session: Session, event: Event): PendingEvent {
    const key = keyOf(session);
    if (isIncomplete(key)) throw new SessionNotFoundError(session.id);
    checkKeys({ ...key, eventId: event.id });
    if (!Number.isFinite(event.timestamp)) throw new UnserializableValueError('timestamp', 'not a finite number');
    const { stateDelta } = event.actions ?? {};
    if (stateDelta !== undefined && stateDelta !== null) aRecord(stateDelta, 'actions.stateDelta');
    const copy: Event = event.actions ? { ...event, actions: { ...event.actions } } : event;
    const delta = stampDelta(copy);
    const writes = Object.entries(delta).map(([name, value]) => {
      checkStateKey(key, name);
      const stored = encode(value, `actions.stateDelta.${name}`);
      // The handle gets the value that a later read returns, not the object before its toJSON (contract I6).
      setOwn(delta, name, stored.value);
      return { key: name, json: stored.json, eventId: event.id };
    });

    const { json } = encode(copy, '');
    const { maxEventBytes } = this.options;
    if (maxEventBytes !== undefined && Buffer.byteLength(json) > maxEventBytes) {
      throw new EventTooLargeError(
        `The event has ${Buffer.byteLength(json)} bytes, more than the ${maxEventBytes} of maxEventBytes; keep large content in an artifact.`,
      );
    }
    if (Object.keys(event.actions?.stateDelta ?? {}).length > 0) {
      try {
        event.actions.stateDelta = copyOfDelta(copy, delta);
      } catch {
        // Frozen; it stays as the caller made it.
      }
    }
    return { event, copy, stored: { id: event.id, timestamp: event.timestamp, json }, delta, writes };
  }

  /**
   * Such an append would wait for the lock of that transaction, which may end only after it. And the handle has events that
   * nobody else may ever see.
   *
   * @throws InsideTransactionError when a transaction that is still open has appended to the handle, and this call does not
   *   join it.
   */
  refuseBesideTransaction(handle: Session): void {
    const tentative = tentativeOf(handle);
    if (tentative && !this.transactions.isJoined && isOpen(tentative.transaction)) {
      throw new InsideTransactionError(
        'A transaction that is still open has appended to this Session object, and this call does not join it',
      );
    }
  }

  /** After the transaction, or the savepoint, that has appended to a handle: it is behind unless that was committed. */
  async #settle(handle: Session): Promise<void> {
    this.refuseBesideTransaction(handle);
    const tentative = tentativeOf(handle);
    if (!tentative || tentative.transaction === this.transactions.joinedTransaction) return;
    const areStored = await this.transactions.run((sql) =>
      this.#areStored(sql, keyOf(handle), tentative.events, false),
    );
    setTentative(handle, undefined);
    if (areStored) return;
    setRevision(handle, '', revisionOf(handle)?.seq ?? 0);
    forgetWrites(handle.state);
  }

  /** Appends prepared events and changes the handle to match. */
  async append(handle: Session, pending: NonEmpty<PendingEvent>): Promise<void> {
    await this.#settle(handle);
    const known = revisionOf(handle);
    const revision = known ?? (await this.#locate(handle));
    const { incarnation, lastSeq, replaced, wentBack, damaged } = await this.#write(handle, pending, revision);
    await this.announcer.announce();

    // Committed: from here on nothing may throw (contract A11).
    const transaction = this.transactions.joinedTransaction;
    if (transaction) {
      // An event that was stored before the transaction does not show whether it was committed.
      const before = replaced ? (tentativeOf(handle)?.events ?? []) : [];
      setTentative(handle, { transaction, events: [...before, ...pending.map(({ stored }) => stored)] });
    }
    if (damaged) this.damage.tell(keyOf(handle), damaged);
    const inStep = !replaced && incarnation === revision.incarnation && lastSeq - pending.length === revision.seq;
    try {
      // A handle that only has events that were read cannot have this one, so its events need not be searched. In a long
      // session the search takes longer than the append.
      const isNew = !replaced && hasOnlyReadEvents(handle, revision);
      for (const { event, copy, delta, stored } of pending) {
        // The handle has it already if its row was lost and it is appended again.
        if (isNew && !handle.events.includes(event)) handle.events.push(event);
        else placeEvent(handle, event);
        if (replaced) continue;
        if (Object.keys(delta).length > 0) applyDelta(handle.state, copy);
        handle.lastUpdateTime = stored.timestamp;
      }
      if (inStep && known) setRevision(handle, incarnation, lastSeq);
      else await this.#catchUp(handle, revision, pending, incarnation !== revision.incarnation || wentBack);
    } catch {
      // Somebody froze the handle during the append, so it stays behind; the next append is refused.
      forgetRevision(handle);
    }
  }

  /**
   * The revision of a handle that was not read by a service (a clone, an object literal): that of its last stored
   * event.
   */
  async #locate(handle: Session): Promise<Revision> {
    const key = keyOf(handle);
    const last = handle.events.at(-1);
    return this.transactions.run(async (sql) => {
      const head = await this.stores.sessions.head(sql, key);
      if (!head) throw new SessionNotFoundError(handle.id);
      const stored = last && (await this.stores.events.find(sql, key, last.id, false));
      return { incarnation: head.incarnation, seq: stored?.seq ?? 0, eventCount: -1 };
    });
  }

  async #write(handle: Session, pending: NonEmpty<PendingEvent>, revision: Revision): Promise<Appended> {
    const writes = pending.map(({ copy, delta, writes }) => {
      const winning = winningKeys(handle.state, copy, delta);
      return writes.filter(({ key }) => winning.has(key));
    });
    const rejects = this.options.onStaleSession === 'reject';
    const { incarnation } = revision;
    const outcome: Outcome = {};
    try {
      const batch = {
        session: keyOf(handle),
        incarnation,
        expectedSeq: rejects ? revision.seq : undefined,
        lease: this.leases.ruleFor(keyOf(handle)),
        events: pending.map(({ stored }) => stored),
        lastUpdateTime: (pending.at(-1) ?? pending[0]).stored.timestamp,
        state: byScope(new Map(writes.flat().map((entry) => [entry.key, entry])).values()),
      };
      const write = (sql: Sql) => this.stores.events.append(sql, batch);
      const lastSeq = this.stores.events.appendsInOneStatement(batch)
        ? await this.transactions.statement(write, { outcome })
        : await this.transactions.transaction(write, { outcome });
      if (lastSeq !== undefined) {
        return { incarnation, lastSeq, replaced: false, wentBack: lastSeq - pending.length < revision.seq };
      }
    } catch (error) {
      if (!(error instanceof UniqueConstraintViolationException)) throw error;
    }
    const replaced = new Map<string, string | undefined>();
    const appended = await this.transactions.transaction(
      (sql) => this.#writeOneByOne(sql, keyOf(handle), pending, writes, revision, { rejects, outcome, replaced }),
      { outcome },
    );
    if (appended.replaced) await confirm(this.transactions, this.stores, outcome);
    return appended;
  }

  /** For an event that is stored already, a session that does not exist, or a handle that is behind. */
  async #writeOneByOne(
    sql: Sql,
    session: SessionKey,
    pending: NonEmpty<PendingEvent>,
    writes: readonly StateEntry[][],
    revision: Revision,
    { rejects, outcome, replaced: before }: OneByOne,
  ): Promise<Appended> {
    const head = await this.stores.sessions.lock(sql, session);
    if (!head) throw new SessionNotFoundError(session.sessionId);
    // What a try of this call has stored is not refused for what came after it (contract O1).
    const events = pending.map(({ stored }) => stored);
    const isDone = outcome.lostAnswer !== undefined && (await this.#areStored(sql, session, events, true));
    if (!isDone) await this.leases.check(sql, session);

    // A row above last_seq has the number that the next append would use, so every append would fail. Now last_seq
    // covers it (contract I4).
    const highest = await this.stores.events.highestSeq(sql, session, head);
    let lastSeq = Math.max(head.lastSeq, highest);
    if (lastSeq > head.lastSeq) await this.stores.sessions.setLastSeq(sql, session, lastSeq);
    const wentBack = revision.seq > lastSeq;
    const uncounted = { from: head.lastSeq + 1, to: lastSeq, problem: 'uncounted' } as const;

    // Numbers without a row are not events that the handle has missed.
    let unseen = Math.min(head.lastSeq, highest) - revision.seq;
    let replaced = false;
    for (const [i, { stored }] of pending.entries()) {
      const existing = await this.stores.events.find(sql, session, stored.id, true);
      const entries = writes[i] ?? [];
      if (existing) {
        replaced = true;
        if (existing.seq > revision.seq && existing.seq <= head.lastSeq) unseen--;
        const isOthers = before.has(stored.id) && before.get(stored.id) !== existing.json;
        // A try of this call may have replaced it, and somebody else after that: not to be undone.
        if (isOthers && existing.json !== stored.json && outcome.lostAnswer !== undefined)
          throw this.transactions.errorOf(outcome.lostAnswer);
        before.set(stored.id, existing.json);
        await this.#replace(sql, session, existing, stored, entries, lastSeq);
      } else {
        const { incarnation } = head;
        const batch = { session, incarnation, expectedSeq: lastSeq, lease: undefined, events: [stored] };
        const seq = await this.stores.events.append(sql, {
          ...batch,
          lastUpdateTime: stored.timestamp,
          state: byScope(entries),
        });
        if (seq !== ++lastSeq) throw new Error(`The session's lock did not hold: ${seq} instead of ${lastSeq}.`);
      }
    }
    // Checked last, because only now is it known which unseen events are the caller's own. The throw rolls everything
    // back.
    if (rejects && !isDone && (head.incarnation !== revision.incarnation || unseen > 0 || wentBack))
      throw new StaleSessionError(session.sessionId);
    return {
      incarnation: head.incarnation,
      lastSeq,
      replaced,
      wentBack,
      ...(uncounted.to >= uncounted.from && { damaged: { events: [uncounted], stateKeys: [] } }),
    };
  }

  /** Whether all of these events are stored, as they are. */
  async #areStored(sql: Sql, session: SessionKey, events: readonly StoredEvent[], isLocked: boolean): Promise<boolean> {
    for (const { id, json } of events) {
      const existing = await this.stores.events.find(sql, session, id, isLocked);
      if (existing?.json !== json) return false;
    }
    return true;
  }

  /**
   * Gives a stored event its new content. Only what changed in its delta has an effect, and where it is not the
   * session's newest event, only on what it wrote last (contract A5).
   */
  async #replace(
    sql: Sql,
    session: SessionKey,
    existing: EventContent,
    stored: StoredEvent,
    entries: readonly StateEntry[],
    lastSeq: number,
  ): Promise<void> {
    if (existing.json === stored.json) return;
    const isNewest = existing.seq === lastSeq;
    const event = decodeEvent(existing.json);
    if (event && this.options.onRewrittenEvent === 'reject') throw new EventConflictError(stored.id);
    const before = event?.actions?.stateDelta ?? {};
    const changed = entries.filter(
      ({ key, json }) => !Object.hasOwn(before, key) || JSON.stringify(before[key]) !== json,
    );
    await this.stores.events.replace(sql, session, existing.seq, stored);
    const former = (event && existing.json) ?? null;
    await this.stores.changes.recordRewriting(sql, { session, seq: lastSeq, eventSeq: existing.seq, before: former });
    // When the old content cannot be read, only keys that this event wrote last may be overwritten.
    await this.stores.state.set(sql, session, byScope(changed), !isNewest || !event);
    if (isNewest) await this.stores.sessions.setLastUpdateTime(sql, session, stored.timestamp);
  }

  /**
   * Reads what a handle missed, after the lock is gone (contract E2, E3).
   *
   * @param isAnew whether what the handle has read is not the session's history any more, so that all of it is read.
   */
  async #catchUp(handle: Session, revision: Revision, pending: NonEmpty<PendingEvent>, isAnew: boolean): Promise<void> {
    const key = keyOf(handle);
    // Should the reading fail, the next append has to find the handle behind.
    setRevision(handle, isAnew ? '' : revision.incarnation, revision.seq);
    try {
      await this.transactions.run(async (sql) => {
        const { reader } = this.stores;
        const since = await reader.read(sql, key, { after: isAnew ? 0 : revision.seq });
        // Deleted and created again since the append.
        const isAnother = isAnew || (since && since.incarnation !== revision.incarnation) === true;
        const read = isAnother && !isAnew ? await reader.read(sql, key) : since;
        if (!read) return;
        const [state, missed] = [readState(read.state), readEvents(read)];
        if (isAnother) forgetWrites(handle.state);
        catchUp(handle, read, state.value, missed.value, pending, isAnother);
        this.damage.tell(key, missed.damaged, state.damaged);
      });
    } catch (error) {
      this.transactions.report(error, { operation: 'catchUp', key });
      // The events are committed, so this call has succeeded; the handle stays behind and catches up with its next
      // append.
    }
  }
}
