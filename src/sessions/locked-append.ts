import type { Outcome } from '../database/calls/retry.js';
import type { Sql, StoredEvent } from '../database/dialects/dialect.js';
import { recordChange } from '../database/stores/change-store.js';
import { encodedBatch, keysIn } from '../database/stores/event-store.js';
import type { UnderLock } from '../database/dialects/event-parts.js';
import type { EventContent } from '../database/stores/session-reader.js';
import { lockSession, setLastSeq, setLastUpdateTime, type SessionHead } from '../database/stores/session-store.js';
import type { Stores } from '../database/stores/stores.js';
import { WaitingCalls, effectsOf, type CallEffects } from '../conversation/open-calls.js';
import {
  CallAnsweredError,
  EventConflictError,
  SessionNotFoundError,
  StaleSessionError,
  type Damage,
} from '../model/errors.js';
import { decodeEvent } from '../model/event-codec.js';
import type { SessionKey } from '../model/keys.js';
import { byScope, type StateEntry } from '../model/state.js';
import type { Revision } from './handle.js';
import type { SessionCalls } from './session-calls.js';

/** The result of an append. */
export interface Appended {
  incarnation: string;
  origin: string;
  lastSeq: number;
  /** Whether one of the events was stored before. */
  replaced: boolean;
  /** Whether the session had fewer events than the handle has read: a failover or a restore took it back. */
  wentBack: boolean;
  /** Damage that the append found. */
  damaged?: Damage;
}

/** An event to append, the state that it leaves, and what it does to the calls that wait. */
export interface EventWrite {
  stored: StoredEvent;
  state: readonly StateEntry[];
  calls: CallEffects | undefined;
}

/**
 * An append that cannot be one batch: an event is stored already, opens or answers a call, the session does not exist, or the
 * handle is behind. It locks the session and writes event by event.
 */
export class LockedAppend {
  readonly #calls: SessionCalls;
  readonly #stores: Stores;
  readonly #session: SessionKey;
  readonly #revision: Revision;
  readonly #outcome: Outcome;
  /** The content of events that the tries before have met, by id. */
  readonly #met = new Map<string, string | undefined>();

  constructor(calls: SessionCalls, session: SessionKey, revision: Revision, outcome: Outcome) {
    this.#calls = calls;
    this.#stores = calls.stores;
    this.#session = session;
    this.#revision = revision;
    this.#outcome = outcome;
  }

  /** For a transaction. @throws SessionNotFoundError, StaleSessionError, EventConflictError and those of the lease. */
  async write(sql: Sql, events: readonly EventWrite[]): Promise<Appended> {
    const { events: table } = this.#stores;
    const head = await lockSession(sql, this.#session);
    if (!head) throw new SessionNotFoundError(this.#session.sessionId);
    // What a try of this call has stored is not refused for what came after it (contract O1).
    const stored = events.map((event) => event.stored);
    const isDone =
      this.#outcome.lostAnswer !== undefined &&
      sql.texts.decoded(await table.hasAll(sql, this.#session, stored, { isLocked: true }));
    if (!isDone) await this.#calls.leases.check(sql, this.#session);

    const highest = await table.highestSeq(sql, this.#session, head);
    const uncounted = await this.#countRows(sql, head, highest);
    let lastSeq = Math.max(head.lastSeq, highest);
    const wentBack = this.#revision.seq > lastSeq;

    // Numbers without a row are not events that the handle has missed.
    let unseen = Math.min(head.lastSeq, highest) - this.#revision.seq;
    let replaced = false;
    for (const event of events) {
      const existing = await this.#appendOrReplace(sql, head, lastSeq, event);
      if (!existing) lastSeq++;
      else {
        replaced = true;
        if (existing.seq > this.#revision.seq && existing.seq <= head.lastSeq) unseen--;
      }
    }
    // Checked last, because only now is it known which unseen events are the caller's own. The throw rolls everything
    // back.
    if (!isDone) this.#refuseIfStale(head, unseen > 0 || wentBack);
    return {
      incarnation: head.incarnation,
      origin: head.origin,
      lastSeq,
      replaced,
      wentBack,
      ...(uncounted && { damaged: { events: [uncounted], stateKeys: [] } }),
    };
  }

  /**
   * A row above last_seq has the number that the next append would use, so every append would fail. Now last_seq covers it
   * (contract I4).
   */
  async #countRows(sql: Sql, { lastSeq }: SessionHead, highest: number) {
    if (highest <= lastSeq) return undefined;
    await setLastSeq(sql, this.#session, highest);
    return { from: lastSeq + 1, to: highest, problem: 'uncounted' } as const;
  }

  /** @returns what was stored under the event's id before; undefined if the event is new. */
  async #appendOrReplace(
    sql: Sql,
    head: SessionHead,
    lastSeq: number,
    event: EventWrite,
  ): Promise<EventContent | undefined> {
    const { stored, state } = event;
    const found = await this.#stores.events.find(sql, this.#session, stored.id, { isLocked: true });
    if (found) {
      const existing = sql.texts.decoded(found.content);
      const isOthers = this.#met.has(stored.id) && this.#met.get(stored.id) !== existing.json;
      // A try of this call may have replaced it, and somebody else after that: not to be undone.
      if (isOthers && existing.json !== stored.json && this.#outcome.lostAnswer !== undefined)
        throw this.#calls.database.errorOf(this.#outcome.lostAnswer);
      this.#met.set(stored.id, existing.json);
      await this.#replace(sql, head, existing, event, lastSeq);
      return existing;
    }
    const batch = {
      session: this.#session,
      incarnation: head.incarnation,
      expectedSeq: lastSeq,
      lease: undefined,
      events: [stored],
      lastUpdateTime: stored.timestamp,
      state: byScope(state),
    };
    const seq = await this.#stores.events.append(sql, encodedBatch(sql.texts, batch, head.origin));
    if (seq !== lastSeq + 1) throw new Error(`The session's lock did not hold: ${seq} instead of ${lastSeq + 1}.`);
    if (event.calls) await this.#openAndClose(sql, { seq, ...stored }, event.calls);
    return undefined;
  }

  /** @throws CallAnsweredError with `onAnsweredCall: 'reject'`. */
  async #openAndClose(sql: Sql, event: { seq: number; timestamp: number }, effects: CallEffects): Promise<void> {
    const { openCalls } = this.#stores;
    const attempt = async (options: UnderLock & { areWaiting?: boolean }) => {
      const before = await openCalls.of(sql, this.#session, options);
      const calls = new WaitingCalls(before);
      const [unasked] = calls.add(event, effects);
      return { before, calls, unasked };
    };
    const isStrict = this.#calls.options.onAnsweredCall === 'reject';
    let { before, calls, unasked } = await attempt({ areWaiting: true });
    if (unasked !== undefined) ({ before, calls, unasked } = await attempt({ isLocked: isStrict }));
    const areFound = await openCalls.replace(sql, this.#session, before, calls.all);
    const [answered = ''] = unasked === undefined && areFound ? [] : effects.responds;
    if (isStrict && answered) throw new CallAnsweredError(this.#session.sessionId, unasked ?? answered);
  }

  /**
   * Gives a stored event its new content. Only what changed in its delta has an effect, and if it is not the
   * session's newest event, only on what it wrote last (contract A5).
   */
  async #replace(
    sql: Sql,
    { origin }: SessionHead,
    existing: EventContent,
    { stored, state, calls }: EventWrite,
    lastSeq: number,
  ): Promise<void> {
    if (existing.json === stored.json) return;
    const isNewest = existing.seq === lastSeq;
    const event = decodeEvent(existing.json);
    if (event && this.#calls.options.onRewrittenEvent === 'reject') throw new EventConflictError(stored.id);
    const before = event?.actions?.stateDelta ?? {};
    const changed = state.filter(
      ({ key, json }) => !Object.hasOwn(before, key) || JSON.stringify(before[key]) !== json,
    );
    const session = { ...this.#session, origin };
    const content = { ...stored, superseded: await this.#supersededAgain(sql, existing.seq, stored) };
    await this.#stores.events.replace(sql, session, existing.seq, content);
    // When the old content cannot be read, only keys that this event wrote last may be overwritten.
    await this.#stores.state.set(sql, session, byScope(changed), { ownOnly: !isNewest || !event });
    const change = { session, kind: 'rewritten', seq: lastSeq, eventSeq: existing.seq } as const;
    await recordChange(sql, change);
    if (isNewest) await setLastUpdateTime(sql, session, stored.timestamp);
    if (calls || !event || effectsOf(event)) await this.#stores.openCalls.recount(sql, this.#session);
  }

  /** What has lost since the event was appended has lost to a later one, and was the value until then. */
  async #supersededAgain(sql: Sql, seq: number, { superseded }: StoredEvent): Promise<string | undefined> {
    if (superseded === undefined) return undefined;
    const before = await this.#stores.events.superseded(sql, this.#session, { from: seq, upTo: seq });
    const again = keysIn(superseded).filter((key) => before.get(seq)?.includes(key));
    return again.length > 0 ? JSON.stringify(again) : undefined;
  }

  #refuseIfStale({ incarnation }: SessionHead, isBehind: boolean): void {
    if (this.#calls.options.onStaleSession !== 'reject') return;
    if (isBehind || incarnation !== this.#revision.incarnation) throw new StaleSessionError(this.#session.sessionId);
  }
}
