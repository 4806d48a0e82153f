import type { Event, Session } from '@google/adk';
import { UniqueConstraintViolationException } from '@mikro-orm/core';
import { confirm } from '../database/calls/confirm.js';
import type { Database } from '../database/calls/database.js';
import type { Outcome } from '../database/calls/retry.js';
import type { AppendBatch } from '../database/dialects/dialect.js';
import { isOpen } from '../database/orm/host-transaction.js';
import { encodedBatch } from '../database/stores/event-store.js';
import type { Stores } from '../database/stores/stores.js';
import { isPromise } from '../model/maybe-promise.js';
import { InsideTransactionError, SessionNotFoundError } from '../model/errors.js';
import { decodeEvent } from '../model/event-codec.js';
import type { SessionKey } from '../model/keys.js';
import { passingOf } from '../model/failures.js';
import { byScope, setOwn } from '../model/state.js';
import { readEvents, readState } from './damage.js';
import { applyDelta, forgetWrites, winningKeys } from './delta.js';
import {
  catchUp,
  forgetRevision,
  hasOnlyReadEvents,
  inTurn,
  keyOf,
  placeEvent,
  refuseUnchangeable,
  revisionOf,
  UNREAD,
  setRevision,
  setTentative,
  tentativeOf,
  type Revision,
} from './handle.js';
import { LockedAppend, type Appended, type EventWrite } from './locked-append.js';
import { pendingEvent, refuseTooLarge, type PendingEvent } from './pending-event.js';
import type { SessionCalls } from './session-calls.js';
import type { ObservedCall } from '../telemetry/telemetry.js';

type NonEmpty<T> = readonly [T, ...T[]];

function isNonEmpty<T>(list: readonly T[]): list is NonEmpty<T> {
  return list.length > 0;
}

/** A call that appends events to a handle. */
export interface Append {
  handle: Session;
  /** Of the session that the handle named when the call was made. */
  key: SessionKey;
  pending: NonEmpty<PendingEvent>;
  /** The call, where calls are observed. */
  observed: ObservedCall | undefined;
  /** Ends its wait for its turn. */
  waited: (() => void) | undefined;
}

type Target = Pick<Append, 'handle' | 'key'>;

/** Which session of its id a handle has read, and which history of it. */
type History = Pick<Revision, 'incarnation' | 'origin'>;

/** No session's: the handle is behind. */
const UNKNOWN: History = { incarnation: '', origin: '' };

/** An event to append, and the state that it leaves. */
type AppendedEvent = PendingEvent & EventWrite;

/** An event of a batch of several calls. */
interface BatchEvent extends AppendedEvent {
  handle: Session;
}

/**
 * The most events, and characters of JSON, that one batch of several appends has. On MySQL and MariaDB each number of events
 * is a statement of its own, which a connection keeps prepared; and a server refuses a packet that is too large.
 */
const MAX_BATCH_EVENTS = 64;
const MAX_BATCH_LENGTH = 1_000_000;

/** Writes events, and brings the handles up to what was written. */
export class Appender {
  readonly #calls: SessionCalls;
  readonly #database: Database;
  readonly #stores: Stores;

  constructor(calls: SessionCalls) {
    this.#calls = calls;
    this.#database = calls.database;
    this.#stores = calls.stores;
  }

  /** Appends the events of one call to a handle, after the writes to its session that were made before. */
  async appendEvents(handle: Session, events: readonly Event[], operation: string): Promise<void> {
    // The events are copied before the first await: the caller may change the objects after this call has returned its promise.
    const whole = events.filter((event) => !event.partial);
    if (whole.length > 0) refuseUnchangeable(handle, whole);
    // With a codec it is known later how large an event is as it is stored.
    const plainLimit = this.#calls.options.codec ? undefined : this.#calls.options.maxEventBytes;
    const pending = whole.map((event) => pendingEvent(handle, event, plainLimit));
    if (!isNonEmpty(pending)) return;
    // This is checked at once: in its turn it might wait for a call that waits for the transaction.
    this.#refuseBesideTransaction(handle);
    const key = keyOf(handle);
    await this.#database.call({ operation, key }, async () => {
      const { observed } = this.#database;
      const append = { handle, key, pending, observed, waited: observed?.waiting('queue') };
      if (!this.#database.isJoined) return this.#calls.turns.append(key, this, append);
      const [result] = await this.append([append]);
      return result;
    });
  }

  /**
   * Such an append would wait for the lock of that transaction, which may end only after it. And the handle has events that
   * nobody else may ever see.
   *
   * @throws InsideTransactionError when a transaction that is still open has appended to the handle, and this call does not
   *   join it.
   */
  #refuseBesideTransaction(handle: Session): void {
    const tentative = tentativeOf(handle);
    if (tentative && !this.#database.isJoined && isOpen(tentative.transaction)) {
      throw new InsideTransactionError(
        'A transaction that is still open has appended to this Session object, and this call does not join it',
      );
    }
  }

  /** Whether an append can be written in one batch with those before it. */
  canJoin(before: NonEmpty<Append>, append: Append): boolean {
    const appends: NonEmpty<Append> = [...before, append];
    const events = appends.flatMap(({ pending }) => pending);
    return (
      this.#fitTogether(appends) &&
      events.length <= MAX_BATCH_EVENTS &&
      events.reduce((length, { stored }) => length + stored.json.length, 0) <= MAX_BATCH_LENGTH
    );
  }

  /** With `reject` each append depends on the number of the one before. */
  #fitTogether(appends: NonEmpty<Append>): boolean {
    const incarnation = revisionOf(appends[0].handle)?.incarnation;
    return (
      this.#calls.options.onStaleSession !== 'reject' &&
      incarnation !== undefined &&
      appends.every(({ handle }) => revisionOf(handle)?.incarnation === incarnation && !tentativeOf(handle))
    );
  }

  /**
   * Appends prepared events to one session and changes the handles to match.
   *
   * @returns for each append a promise that is settled: one that is refused does not take the others with it.
   * @throws what the database says of the batch of all of them.
   */
  append(appends: NonEmpty<Append>): Promise<readonly Promise<void>[]> {
    for (const { waited } of appends) waited?.();
    const handles = new Set(appends.map(({ handle }) => handle));
    let work = async (): Promise<readonly Promise<void>[]> => {
      const outcome: Outcome = {};
      if (appends.length > 1 && this.#fitTogether(appends) && (await this.#appendTogether(appends, outcome))) {
        this.#observe(appends);
        return appends.map(() => Promise.resolve());
      }
      const results: Promise<void>[] = [];
      for (const append of appends) {
        // What is known of the batch is known of each.
        const result = this.#appendOne(append, { ...outcome });
        results.push(result);
        await result.then(
          () => this.#observe([append]),
          () => undefined,
        );
      }
      return results;
    };
    for (const handle of handles) {
      const inner = work;
      work = () => inTurn(handle, inner);
    }
    return work();
  }

  /** Appends are stored that were written together, by the call of the first of them. */
  #observe(appends: NonEmpty<Append>): void {
    const { telemetry, system } = this.#database;
    if (!telemetry) return;
    const size = appends.reduce((sum, { pending }) => sum + pending.length, 0);
    for (const { pending, observed } of appends) {
      const counted = telemetry.appended(
        system,
        pending.map(({ stored }) => stored.json),
      );
      observed?.appended(counted, { size, writer: appends[0].observed });
    }
  }

  #rebased(): void {
    this.#database.telemetry?.rebased(this.#database.system);
  }

  /** After the transaction, or the savepoint, that has appended to a handle: it is behind unless that was committed. */
  async #settle({ handle, key }: Append): Promise<void> {
    this.#refuseBesideTransaction(handle);
    const tentative = tentativeOf(handle);
    if (!tentative || tentative.transaction === this.#database.joined?.current) return;
    const areStored = await this.#database.run((sql) => this.#stores.events.hasAll(sql, key, tentative.events));
    setTentative(handle, undefined);
    if (areStored) return;
    setRevision(handle, UNKNOWN, revisionOf(handle)?.seq ?? 0);
    forgetWrites(handle.state);
  }

  /**
   * Writes the events of several calls as one batch.
   *
   * @returns false when one of them has to be refused or replaces an event: nothing is written.
   */
  async #appendTogether(appends: NonEmpty<Append>, outcome: Outcome): Promise<boolean> {
    const [{ handle: first, key }] = appends;
    const revision = revisionOf(first);
    if (!revision) return false;
    const weighings = new Map(appends.map(({ handle }) => [handle, weighing(handle.state)]));
    const events = appends.flatMap(({ handle, pending }) => {
      const weigh = weighings.get(handle);
      return weigh ? pending.map((event) => ({ handle, ...weigh(event) })) : [];
    });
    let lastSeq: number | undefined;
    try {
      lastSeq = await this.#writeBatch(key, { ...revision, seq: undefined }, events, outcome);
    } catch (error) {
      // What one of them has caused is no error of the others; an outage is one of all.
      if (outcome.lostAnswer !== undefined || passingOf(this.#database.failureOf(error))) throw error;
      return false;
    }
    if (lastSeq === undefined) return false;
    await this.#calls.announcer.announce();
    for (const handle of weighings.keys()) await this.#takeOver({ handle, key }, events, revision, lastSeq);
    return true;
  }

  /** @returns the number of the last event; undefined when the batch can't be written as it is. */
  async #writeBatch(
    session: SessionKey,
    expected: History & { seq: number | undefined },
    events: readonly EventWrite[],
    outcome: Outcome,
  ): Promise<number | undefined> {
    const state = new Map(events.flatMap((event) => event.state.map((entry) => [entry.key, entry])));
    const plain: AppendBatch = {
      session,
      incarnation: expected.incarnation,
      expectedSeq: expected.seq,
      lease: this.#calls.leases.ruleFor(session),
      events: events.map(({ stored }) => stored),
      lastUpdateTime: events.at(-1)?.stored.timestamp ?? 0,
      state: byScope(state.values()),
    };
    // Before a connection or a lock is taken, bound to the session that the statement requires.
    const encoding = this.#database.code((texts) => encodedBatch(texts, plain, expected.origin));
    const batch = isPromise(encoding) ? await encoding : encoding;
    if (batch !== plain) for (const { json } of batch.events) refuseTooLarge(json, this.#calls.options.maxEventBytes);
    const { events: store } = this.#stores;
    try {
      return store.appendsInOneStatement(batch)
        ? await this.#database.append(batch, { outcome })
        : await this.#database.transaction((sql) => store.append(sql, batch), { outcome, sharesCommit: true });
    } catch (error) {
      if (error instanceof UniqueConstraintViolationException) return undefined;
      throw error;
    }
  }

  /** Changes a handle to match a batch that is committed: from here on nothing may throw (contract A11). */
  async #takeOver(
    { handle, key }: Target,
    events: readonly BatchEvent[],
    history: History,
    lastSeq: number,
  ): Promise<void> {
    const revision = revisionOf(handle);
    if (!revision) return;
    const own = events.filter((event) => event.handle === handle);
    const before = lastSeq - events.length;
    if (revision.seq !== before || !hasOnlyReadEvents(handle, revision)) {
      const result = { ...history, lastSeq, replaced: false, wentBack: before < revision.seq };
      if (revision.seq !== before) this.#rebased();
      await this.#update({ handle, key }, own, revision, result, false);
      return;
    }
    try {
      const others = new Map<string, unknown>();
      for (const event of events) {
        if (event.handle === handle) {
          // The handle has it already if its row was lost and it is appended again.
          if (!handle.events.includes(event.event)) handle.events.push(event.event);
          applyWrites(handle.state, event);
          for (const { key } of event.state) others.delete(key);
        } else {
          // An object of its own, as if it had been read.
          const read = decodeEvent(event.stored.json);
          if (read) handle.events.push(read);
          for (const { key, json } of event.state) others.set(key, JSON.parse(json));
        }
      }
      for (const [key, value] of others) setOwn(handle.state, key, value);
      handle.lastUpdateTime = events.at(-1)?.stored.timestamp ?? handle.lastUpdateTime;
      setRevision(handle, history, lastSeq);
    } catch {
      forgetRevision(handle);
    }
  }

  async #appendOne(append: Append, outcome: Outcome): Promise<void> {
    const { handle, key, pending } = append;
    if (tentativeOf(handle)) await this.#settle(append);
    const known = revisionOf(handle);
    const revision = known ?? (await this.#locate(append));
    const events = pending.map(weighing(handle.state));
    const appended = await this.#write(key, events, revision, outcome);
    await this.#calls.announcer.announce();

    // Committed: from here on nothing may throw (contract A11).
    const transaction = this.#database.joined?.current;
    if (transaction) {
      // An event that was stored before the transaction does not show whether it was committed.
      const before = appended.replaced ? (tentativeOf(handle)?.events ?? []) : [];
      setTentative(handle, { transaction, events: [...before, ...pending.map(({ stored }) => stored)] });
    }
    if (appended.damaged) this.#calls.damage.report(key, appended.damaged);
    await this.#update(append, events, revision, appended, known !== undefined);
  }

  /** Writes the events of one call: as a batch, or else one by one under the session's lock. */
  async #write(
    session: SessionKey,
    events: readonly EventWrite[],
    revision: Revision,
    outcome: Outcome,
  ): Promise<Appended> {
    const { incarnation, origin } = revision;
    const seq = this.#calls.options.onStaleSession === 'reject' ? revision.seq : undefined;
    const lastSeq = await this.#writeBatch(session, { incarnation, origin, seq }, events, outcome);
    if (lastSeq !== undefined)
      return { incarnation, origin, lastSeq, replaced: false, wentBack: lastSeq - events.length < revision.seq };

    const locked = new LockedAppend(this.#calls, session, revision, outcome);
    const appended = await this.#database.transaction((sql) => locked.write(sql, events), { outcome });
    if (appended.replaced) await confirm(this.#database, outcome);
    return appended;
  }

  /** Changes a handle to match its own events, and reads what it missed. */
  async #update(
    { handle, key }: Target,
    events: readonly AppendedEvent[],
    revision: Revision,
    appended: Appended,
    isKnown: boolean,
  ): Promise<void> {
    const { incarnation, lastSeq, replaced, wentBack } = appended;
    const inStep = !replaced && incarnation === revision.incarnation && lastSeq - events.length === revision.seq;
    try {
      // A handle that only has events that were read cannot have this one, so its events need not be searched. In a long
      // session the search takes longer than the append.
      const isNew = !replaced && hasOnlyReadEvents(handle, revision);
      for (const appended of events) {
        const { event } = appended;
        // The handle has it already if its row was lost and it is appended again.
        if (isNew && !handle.events.includes(event)) handle.events.push(event);
        else placeEvent(handle, event);
        if (replaced) continue;
        applyWrites(handle.state, appended);
        handle.lastUpdateTime = appended.stored.timestamp;
      }
      if (!inStep && isKnown && !replaced) this.#rebased();
      if (inStep && isKnown) setRevision(handle, appended, lastSeq);
      else
        await this.#catchUp({ handle, key }, revision, events, {
          isAnew: incarnation !== revision.incarnation || wentBack,
        });
    } catch {
      // Somebody froze the handle during the append, so it stays behind; the next append is refused.
      forgetRevision(handle);
    }
  }

  /**
   * The revision of a handle that was not read by a service (a clone, an object literal): that of its last stored
   * event.
   */
  async #locate({ handle, key }: Target): Promise<Revision> {
    const last = handle.events.at(-1);
    return this.#database.run(async (sql) => {
      const head = await this.#stores.sessions.head(sql, key);
      if (!head) throw new SessionNotFoundError(key.sessionId);
      const stored = last && (await this.#stores.events.find(sql, key, last.id));
      return { incarnation: head.incarnation, origin: head.origin, seq: stored?.seq ?? 0, eventCount: UNREAD };
    });
  }

  /**
   * Reads what a handle missed, after the lock is gone (contract E2, E3).
   *
   * @param options.isAnew whether the events that the handle has read are not the session's history any more, so that all of it is read.
   */
  async #catchUp(
    { handle, key }: Target,
    revision: Revision,
    pending: readonly PendingEvent[],
    { isAnew }: { isAnew: boolean },
  ): Promise<void> {
    // Should the reading fail, the next append has to find the handle behind.
    setRevision(handle, isAnew ? UNKNOWN : revision, revision.seq);
    try {
      await this.#database.run(async (sql) => {
        const { reader } = this.#stores;
        const since = await reader.readAfter(sql, key, isAnew ? 0 : revision.seq);
        // Deleted and created again since the append.
        const isAnother = isAnew || (since && since.incarnation !== revision.incarnation) === true;
        const read = isAnother && !isAnew ? await reader.read(sql, key) : since;
        if (!read) return;
        const [state, missed] = [readState(read.state), readEvents(read)];
        // A host's transaction may not see what it follows: the handle stays behind until the next append.
        if (this.#database.isJoined && missed.damaged.events.length > 0) return;
        if (isAnother) forgetWrites(handle.state);
        catchUp(handle, pending, { head: read, state: state.value, missed: missed.value, isAnew: isAnother });
        this.#calls.damage.report(key, missed.damaged, state.damaged);
      });
    } catch (error) {
      this.#database.report(error, { operation: 'catchUp', key });
      // The events are committed, so this call has succeeded; the handle stays behind and catches up with its next
      // append.
    }
  }
}

/** @returns what tells, of events one after the other, which of their writes count (contract A8). */
function weighing(handleState: Record<string, unknown>): (event: PendingEvent) => AppendedEvent {
  const winning = winningKeys(handleState);
  return (event) => {
    const keys = winning(event.delta);
    const state = event.writes.filter(({ key }) => keys.has(key));
    if (state.length === event.writes.length) return { ...event, state };
    const lost = event.writes.flatMap(({ key }) => (keys.has(key) ? [] : [key]));
    return { ...event, state, stored: { ...event.stored, superseded: JSON.stringify(lost) } };
  };
}

function applyWrites(state: Record<string, unknown>, { delta, state: winning }: AppendedEvent): void {
  if (Object.keys(delta.values).length > 0)
    applyDelta(
      state,
      delta,
      winning.map(({ key }) => key),
    );
}
