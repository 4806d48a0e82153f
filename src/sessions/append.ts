import type { EventContent } from '../database/sql/values.js';
import type { Event, Session } from '@google/adk';
import type { Append, NonEmpty } from './append-queue.js';
import type { Database } from '../database/calls/database.js';
import { isDuplicate } from '../database/calls/failure-of.js';
import type { Outcome } from '../database/calls/retry.js';
import type { AppendBatch } from '../database/dialects/dialect.js';
import { isOpen, physicalOf } from '../database/orm/host-transaction.js';
import { areStored, encodedBatch, seqOfEvent } from '../database/statements/events.js';
import { readAfter, readSession } from './session-reader.js';
import { sessionHead } from '../database/statements/sessions.js';
import { InsideTransactionError, SessionNotFoundError } from '../model/errors.js';
import { decodeEvent } from '../model/json.js';
import { passingOf } from '../model/failures.js';
import { byScope, setOwn, type StateEntry } from '../model/state.js';
import type { Telemetry } from '../telemetry/telemetry.js';
import { applyDelta, forgetWrites, winningKeys } from './delta.js';
import {
  hasEvent,
  hasOnlyReadEvents,
  keyOf,
  noteState,
  patch,
  placeEvent,
  refuseUnchangeable,
  revisions,
  UNREAD,
  setRevision,
  tentatives,
  type Reading,
  type Revision,
  type Tentative,
} from './handle.js';
import { LockedAppend, type Appended, type EventWrite } from './locked-append.js';
import { pendingEvent, type PendingEvent } from './pending-event.js';
import { eventsOf, readableEvents, readableState } from './read.js';
import type { ServiceContext } from './service-context.js';

type Target = Pick<Append, 'handle' | 'key'>;

/** An event that was appended to a session by another handle of this process. */
export interface AppendedEvent {
  readonly event: Event;
  readonly seq: number;
  readonly by: Session;
}

/** Matches no session, so the handle is behind. */
const UNKNOWN = { incarnation: '', origin: '', lastChange: 0, hasPendingCalls: false };

/** An event of a batch, and the state that it leaves. */
interface BatchEvent extends Pick<PendingEvent, 'event' | 'delta'>, EventWrite {
  readonly handle: Session;
}

const NONE_REFUSED: ReadonlyMap<number, unknown> = new Map();

/** Writes events, and updates the handles to match. */
export class Appender {
  readonly #service: ServiceContext;
  readonly #database: Database;

  constructor(service: ServiceContext) {
    this.#service = service;
    this.#database = service.database;
  }

  /**
   * Appends the events of one call, after all earlier writes to the session.
   *
   * @throws at once, before there is a promise, if an event or the handle must be refused.
   */
  appendEvents(handle: Session, events: readonly Event[], operation: string): Promise<unknown> {
    // Copies the events at once: the caller may change the objects once it has the promise.
    const whole: Event[] = [];
    for (const event of events) if (!event.partial) whole.push(event);
    if (whole.length > 0) refuseUnchangeable(handle, whole);
    const pending: PendingEvent[] = [];
    let concernsCalls = false;
    for (const event of whole) {
      const prepared = pendingEvent(handle, event);
      concernsCalls ||= prepared.concernsCalls;
      pending.push(prepared);
    }
    if (pending.length === 0) return Promise.resolve();
    // Checked before the queue: in its turn, the call could wait for one that waits for that transaction.
    const tentative = tentatives.get(handle);
    if (tentative) this.#refuseBesideTransaction(tentative);
    const key = keyOf(handle);
    return this.#database.call<unknown>({ operation, key }, () => {
      const observed = this.#database.observed;
      const append = { handle, key, pending, concernsCalls, observed, waited: observed?.waiting('queue') };
      // In a joined transaction, the transaction itself puts calls in order.
      if (!this.#database.isJoined) return this.#service.queue.append(this, append);
      append.waited?.();
      return this.append([append]);
    });
  }

  /**
   * Such an append would wait for the lock of that transaction, which may end only after it. Besides, the handle has events that
   * may be rolled back.
   *
   * @throws InsideTransactionError if a transaction that is still open has appended to the handle, and this call does not join
   *   it.
   */
  #refuseBesideTransaction({ transaction }: Tentative): void {
    if (!this.#database.isJoined && isOpen(transaction)) {
      throw new InsideTransactionError(
        'A transaction that is still open has appended to this Session object, and this call does not join it',
      );
    }
  }

  /** With `reject`, each append needs the number of the previous one, so they cannot be written together. */
  canJoin(first: Append, append: Append): boolean {
    const { handle } = append;
    const incarnation = revisions.get(first.handle)?.incarnation;
    return (
      this.#service.options.onStaleSession !== 'reject' &&
      incarnation !== undefined &&
      revisions.get(handle)?.incarnation === incarnation &&
      !tentatives.get(first.handle) &&
      !tentatives.get(handle) &&
      !first.concernsCalls &&
      !append.concernsCalls
    );
  }

  /** Appends prepared events to one session as one batch, and updates the handles to match; see `AppendWriter`. */
  async append(appends: NonEmpty<Append>, outcome: Outcome = {}): Promise<ReadonlyMap<number, unknown>> {
    const [first] = appends;
    const { handle, key } = first;
    // A batch of several has no such handle (`canJoin`).
    if (tentatives.get(handle)) await this.#settle(first);
    // What the handles have read. Another append may update them before this one is committed.
    const known = new Map<Session, Revision | undefined>();
    for (const each of appends) known.set(each.handle, revisions.get(each.handle));
    const revision = known.get(handle) ?? (await this.#locate(first));
    const { events, state } = weighed(appends);
    const stored = events.map((event) => event.stored);
    const { leases, options, announcer } = this.#service;
    let lastSeq: number | undefined;
    try {
      const batch: AppendBatch = {
        session: key,
        incarnation: revision.incarnation,
        expectedSeq: options.onStaleSession === 'reject' ? revision.seq : undefined,
        expectedChange: revision.lastChange,
        lease: leases.isOn ? leases.ruleFor(key) : undefined,
        events: stored,
        lastUpdateTime: stored.at(-1)?.timestamp ?? 0,
        state: byScope(state.values()),
      };
      // Before a connection or a lock is taken: the texts are bound to the session that the statement requires.
      const encoded = options.codec
        ? await this.#database.code((texts) => encodedBatch(texts, batch, revision.origin))
        : batch;
      // Open calls are read and written under the session's lock.
      if (!first.concernsCalls && !revision.hasPendingCalls)
        lastSeq = await this.#service.queue.write(this.#database, encoded, { outcome });
    } catch (error) {
      // An outage is an error of all appends. Any other error belongs to one: write them one by one to find it.
      const isOfAll =
        appends.length === 1 || outcome.lostAnswer !== undefined || passingOf(this.#database.failureOf(error));
      if (isOfAll && !isDuplicate(error)) throw error;
    }
    // Nothing was written: one append must be refused or replaces an event, the first handle is behind, or calls wait.
    if (lastSeq === undefined && appends.length > 1) return this.#appendEach(appends, outcome);
    const appended =
      lastSeq === undefined
        ? await new LockedAppend(this.#service, key, revision, outcome).write(events)
        : appendedOnly(revision, lastSeq);
    if (announcer.notifies || announcer.wakers.size > 0) await announcer.announce();

    // Committed: nothing may throw from here on (contract A11).
    const transaction = this.#database.joined?.current;
    if (transaction) {
      const tentative = tentatives.get(handle);
      const areOthers = tentative && isOthers(tentative, transaction);
      // Nobody will settle the events of the other transaction any more.
      if (areOthers) setRevision(handle, UNKNOWN, revision.seq);
      // `#settle` cannot use an event that was stored before the transaction: it is there after a rollback, too.
      const before = appended.replaced && tentative && !areOthers ? tentative.events : [];
      tentatives.set(handle, { transaction, events: [...before, ...stored] });
    }
    if (appended.damaged) this.#service.reportDamage(key, appended.damaged);
    for (const [updated, before] of known) {
      const catchingUp = this.#update({ handle: updated, key }, events, before ?? revision, appended);
      if (catchingUp) await catchingUp;
    }
    if (this.#database.telemetry) this.#observe(appends, this.#database.telemetry);
    return NONE_REFUSED;
  }

  /** Writes the appends of a batch one by one. Each gets the outcome that is known of the batch. */
  async #appendEach(appends: NonEmpty<Append>, outcome: Outcome): Promise<ReadonlyMap<number, unknown>> {
    const refused = new Map<number, unknown>();
    for (const [i, append] of appends.entries()) {
      try {
        await this.append([append], { ...outcome });
      } catch (error) {
        refused.set(i, error);
      }
    }
    return refused;
  }

  /** Reports appends that were written together to telemetry; the first one has the statements. */
  #observe(appends: NonEmpty<Append>, telemetry: Telemetry): void {
    const { system } = this.#database;
    const size = appends.reduce((sum, { pending }) => sum + pending.length, 0);
    for (const { pending, observed } of appends) {
      const texts = pending.map(({ stored }) => stored.json);
      observed?.appended(telemetry.appended(system, texts), { size, writer: appends[0].observed });
    }
  }

  /** Gives a handle an event that was appended by another one, in the turn of its session and after the commit. */
  async follow(handle: Session, { event, seq, by }: AppendedEvent): Promise<void> {
    const revision = revisions.get(handle);
    const appended = revisions.get(by);
    if (!revision || !appended || seq <= revision.seq) return;
    // The next append of a handle that may not miss anything must find it behind.
    if (this.#service.options.onStaleSession === 'reject' && appended.seq > revision.seq + 1) return;
    const own = { ...pendingEvent(handle, event), handle, state: [] };
    await this.#update({ handle, key: keyOf(handle) }, [own], revision, appendedOnly(appended, appended.seq));
  }

  /** Once the transaction or savepoint that appended to a handle has ended: marks the handle as behind, unless it committed. */
  async #settle({ handle, key }: Target): Promise<void> {
    const tentative = tentatives.get(handle);
    if (tentative) this.#refuseBesideTransaction(tentative);
    const current = this.#database.joined?.current;
    if (!tentative || tentative.transaction === current) return;
    // Another transaction, which is still open: this one cannot see whether its events will be kept.
    if (current && isOthers(tentative, current) && isOpen(tentative.transaction)) return;
    const isKept = await this.#database.run((sql) => areStored(sql, key, tentative.events));
    // Another append has settled the handle meanwhile, or marked it for its own transaction.
    if (tentatives.get(handle) !== tentative) return this.#settle({ handle, key });
    // In a savepoint, the transaction around it may still be rolled back.
    if (isKept && isOpen(tentative.transaction)) return;
    tentatives.delete(handle);
    if (isKept) return;
    setRevision(handle, UNKNOWN, revisions.get(handle)?.seq ?? 0);
    forgetWrites(handle.state);
  }

  /**
   * Updates a handle to match a committed batch, and reads the events that it missed.
   *
   * @param events all events of the batch, also those of other handles.
   * @returns undefined if it has missed nothing.
   */
  #update(
    { handle, key }: Target,
    events: readonly BatchEvent[],
    revision: Revision,
    appended: Appended,
  ): Promise<void> | undefined {
    const { lastSeq, replaced } = appended;
    try {
      const isAsRead = hasOnlyReadEvents(handle, revision);
      const lacks = lackOf(handle, revision, appended, events);
      if (lacks !== 'nothing' && revision.eventCount !== UNREAD && !replaced)
        this.#database.telemetry?.count('rebases', this.#database.system);
      const others: Record<string, unknown> = {};
      for (const { handle: by, event, stored, delta, state } of events) {
        if (by === handle) {
          if (isAsRead && !replaced && !hasEvent(handle, event, revision)) handle.events.push(event);
          else placeEvent(handle, event);
          if (replaced) continue;
          applyDelta(handle.state, delta, state);
          const keys = state.map(({ key }) => key);
          for (const key of keys) delete others[key];
          noteState(handle, delta.values, keys);
        } else if (lacks === 'nothing') {
          // A copy of its own, as if the handle had read it.
          const read = decodeEvent(stored.json);
          if (read) handle.events.push(read);
          for (const { key, json } of state) setOwn(others, key, JSON.parse(json));
        } else continue;
        handle.lastUpdateTime = stored.timestamp;
      }
      const theirs = Object.keys(others);
      for (const key of theirs) setOwn(handle.state, key, others[key]);
      noteState(handle, others, theirs);
      if (lacks === 'nothing') {
        setRevision(handle, appended, lastSeq);
        return undefined;
      }
      const own = events.filter((each) => each.handle === handle);
      const isPartial = revision.isPartial || !isAsRead;
      return this.#catchUp({ handle, key }, { ...revision, isPartial }, own, appended, lacks);
    } catch {
      // Somebody froze the handle during the append. It stays behind, and the next append is refused.
      revisions.delete(handle);
      return undefined;
    }
  }

  /** Finds the revision of a handle that no service has read (a clone, an object literal): that of its last stored event. */
  async #locate({ handle, key }: Target): Promise<Revision> {
    const last = handle.events.at(-1);
    return this.#database.run(async (sql) => {
      const head = await sessionHead(sql, key);
      if (!head) throw new SessionNotFoundError(key.sessionId);
      const seq = (last && (await seqOfEvent(sql, key, last.id))) ?? 0;
      return { ...head, seq, eventCount: UNREAD, isPartial: true, state: new Map() };
    });
  }

  /** Reads what a handle missed (`lacks`, as the append has shown), after the lock was released (contract B4, E2, E3). */
  async #catchUp(
    { handle, key }: Target,
    revision: Revision,
    own: readonly BatchEvent[],
    appended: Appended,
    lacks: Reading,
  ): Promise<void> {
    const { incarnation, seq, isPartial } = revision;
    // If reading fails, the next append must find the handle behind.
    setRevision(handle, lacks === 'anew' ? UNKNOWN : revision, seq);
    const behind = revisions.get(handle);
    // Nothing outside of an open transaction can read what that transaction appended to the handle.
    const tentative = this.#database.isJoined ? undefined : tentatives.get(handle);
    if (tentative && isOpen(tentative.transaction)) return;
    try {
      const missed = lacks === 'missed' ? await this.#database.run((sql) => readAfter(sql, key, seq)) : undefined;
      // Somebody may have done something else since the append.
      // Nor may one of them be lost: what it has set is known from the whole state alone.
      const isEnough =
        missed?.incarnation === incarnation &&
        missed.lastChange === appended.lastChange &&
        !readableEvents(missed).damaged;
      const read = isEnough ? missed : await this.#database.run((sql) => readSession(sql, key));
      // An append in another transaction has updated the handle meanwhile, and found it behind.
      if (!read || revisions.get(handle) !== behind) return;
      const state = readableState(read.state);
      const of = lacks === 'anew' || read.incarnation !== incarnation ? 'anew' : isEnough ? 'missed' : 'whole';
      const has = new Set(isPartial && of !== 'anew' ? handle.events.map(({ id }) => id) : []);
      const isWanted = ({ id, seq: number }: EventContent) =>
        of === 'anew' || !isPartial || number > seq || has.has(id);
      const events = readableEvents({ ...read, events: read.events.filter(isWanted) });
      // The next append notices what was recorded after this one.
      const lastChange = read.incarnation === appended.incarnation ? appended.lastChange : read.lastChange;
      if (of === 'anew') forgetWrites(handle.state);
      patch(handle, own, { head: { ...read, lastChange }, state: state.value, events: eventsOf(events), of });
      this.#service.reportDamage(key, events.damaged, state.damaged);
    } catch (error) {
      this.#database.report(error, { operation: 'catchUp', key });
      // The events are committed, so the call succeeds. The handle stays behind until its next append.
    }
  }
}

/** Whether they are neither in the transaction nor in a savepoint of it. */
const isOthers = ({ transaction }: Tentative, current: object) => physicalOf(transaction) !== physicalOf(current);

/** @returns what a handle must read after a batch was committed. It has the events of the batch. */
function lackOf(
  handle: Session,
  revision: Revision,
  { incarnation, lastSeq, lastChange, ownChanges, replaced, wentBack }: Appended,
  events: readonly BatchEvent[],
): 'nothing' | Reading {
  const before = lastSeq - events.length;
  const isKnown = revision.eventCount !== UNREAD;
  // An append in another transaction updated the handle meanwhile, and that transaction may be rolled back.
  const isShared = revisions.get(handle) !== (isKnown ? revision : undefined);
  const isGone = incarnation !== revision.incarnation || wentBack || (!replaced && before < revision.seq);
  if (isShared || isGone) return 'anew';
  if (!isKnown || lastChange !== revision.lastChange + ownChanges) return 'whole';
  // Events of other handles have no place among those that other code has added or removed.
  const havePlace = hasOnlyReadEvents(handle, revision) || events.every((each) => each.handle === handle);
  return replaced || before > revision.seq || !havePlace ? 'missed' : 'nothing';
}

/** The result of an append to a session in which nothing else has changed. */
function appendedOnly(revision: Revision, lastSeq: number): Appended {
  const { incarnation, origin, lastChange, hasPendingCalls } = revision;
  const [ownChanges, replaced, wentBack] = [0, false, false];
  return { incarnation, origin, lastSeq, lastChange, hasPendingCalls, ownChanges, replaced, wentBack };
}

/** @returns the events of appends, and those of their writes that count (contract A8). */
function weighed(appends: NonEmpty<Append>) {
  const events: BatchEvent[] = [];
  const allState = new Map<string, StateEntry>();
  const weighing = new Map<Session, ReturnType<typeof winningKeys>>();
  for (const { handle, pending } of appends) {
    const winning = weighing.get(handle) ?? winningKeys(handle.state);
    weighing.set(handle, winning);
    for (const event of pending) {
      const keys = winning(event.delta);
      const state: StateEntry[] = [];
      const lost: string[] = [];
      for (const entry of event.writes) {
        if (keys.has(entry.key)) state.push(entry);
        else lost.push(entry.key);
      }
      for (const entry of state) allState.set(entry.key, entry);
      const stored = lost.length > 0 ? { ...event.stored, superseded: JSON.stringify(lost) } : event.stored;
      events.push({ event: event.event, delta: event.delta, handle, stored, state });
    }
  }
  return { events, state: allState };
}
