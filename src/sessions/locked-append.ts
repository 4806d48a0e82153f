import { setState } from '../database/dialects/session-rows.js';
import { WaitingCalls, callsIn, effectsOf, type CallEffects } from '../conversation/open-calls.js';
import type { Outcome } from '../database/calls/retry.js';
import type { Sql, StoredEvent } from '../database/dialects/dialect.js';
import type { UnderLock } from '../database/dialects/event-parts.js';
import { recordChange } from '../database/statements/changes.js';
import {
  appendBatch,
  encodedEvent,
  findEvent,
  highestSeq,
  keysIn,
  replaceEvent,
  supersededKeys,
} from '../database/statements/events.js';
import { openCallsOf, replaceOpenCalls, setOpenCalls } from '../database/statements/open-calls.js';
import { readSession, type EventContent, type ReadEvents } from '../database/statements/session-reader.js';
import { lockSession, setColumns, type SessionHead } from '../database/statements/sessions.js';
import { encodedState } from '../database/statements/state.js';
import {
  CallAnsweredError,
  EventConflictError,
  SessionNotFoundError,
  StaleSessionError,
  type Damage,
} from '../model/errors.js';
import { decodeEvent } from '../model/json.js';
import type { SessionKey } from '../model/keys.js';
import { byScope, perScope, prefixed, type Scope, type StateEntries, type StateEntry } from '../model/state.js';
import type { Revision } from './handle.js';
import type { SessionCalls } from './session-calls.js';

/** The result of an append. */
export interface Appended {
  incarnation: string;
  origin: string;
  lastSeq: number;
  /** The id of the newest recorded change; a replaced event is one. */
  lastChange: number;
  /** Whether one of the events was already stored. */
  replaced: boolean;
  /** Whether the session had fewer events than the handle has read, after a failover or a restore. */
  wentBack: boolean;
  /** Damage that the append found. */
  damaged?: Damage;
}

/** An event to append, the state that it sets, and the calls that it opens or answers. */
export interface EventWrite {
  stored: StoredEvent;
  state: readonly StateEntry[];
  calls: CallEffects | undefined;
}

/** JSON of events by their numbers; undefined if they cannot be read. */
type EventTexts = Map<number, string | undefined>;

/** A session while an append writes to it. */
interface SessionNow {
  lastSeq: number;
  /** All its events, if its open calls must be computed again. */
  all: EventTexts | undefined;
}

/** What one event writes, encoded. */
interface EncodedWrite {
  stored: StoredEvent;
  state: StateEntries;
}

/**
 * Locks the session and writes event by event, if a batch could not be written: an event is already stored, or opens or answers a
 * call, or the session does not exist, or the handle is behind.
 */
export class LockedAppend {
  readonly #calls: SessionCalls;
  readonly #session: SessionKey;
  readonly #revision: Revision;
  readonly #outcome: Outcome;
  /** The stored content of events that earlier attempts found, by id. */
  readonly #met = new Map<string, string | undefined>();

  constructor(calls: SessionCalls, session: SessionKey, revision: Revision, outcome: Outcome) {
    this.#calls = calls;
    this.#session = session;
    this.#revision = revision;
    this.#outcome = outcome;
  }

  /** @throws SessionNotFoundError, StaleSessionError, EventConflictError, LeaseLostError, LeaseHeldError. */
  write(events: readonly EventWrite[]): Promise<Appended> {
    return this.#calls.database.transaction((sql) => this.#write(sql, events), { outcome: this.#outcome });
  }

  /** @returns all events of the session, before anything is written; undefined if its open calls do not change. */
  async #allEvents(
    sql: Sql,
    events: readonly EventWrite[],
    contents: ReadonlyMap<string, EventContent>,
  ): Promise<EventTexts | undefined> {
    const known = new Map([...contents].map(([id, { json }]) => [id, json]));
    const concernsCalls = events.some(({ stored: { id, json }, calls }) => {
      const [isStored, before] = [known.has(id), known.get(id)];
      known.set(id, json);
      if (!isStored || before === json) return false;
      const event = decodeEvent(before);
      return calls ?? (!event || effectsOf(event));
    });
    return concernsCalls ? textsOf(await readSession(sql, this.#session)) : undefined;
  }

  async #write(sql: Sql, events: readonly EventWrite[]): Promise<Appended> {
    const head = await lockSession(sql, this.#session);
    if (!head) throw new SessionNotFoundError(this.#session.sessionId);
    const session = { ...this.#session, origin: head.origin };
    const contents = new Map<string, EventContent>();
    for (const { stored } of events) {
      const found = await findEvent(sql, session, stored.id, { isLocked: true });
      if (found) contents.set(stored.id, found);
    }
    const all = await this.#allEvents(sql, events, contents);
    // An earlier attempt of this call has stored the events: do not refuse them because others came after (contract O1).
    const isDone =
      this.#outcome.lostAnswer !== undefined &&
      events.every(({ stored }) => contents.get(stored.id)?.json === stored.json);
    if (!isDone) await this.#calls.leases.check(sql, this.#session);

    const highest = await highestSeq(sql, this.#session, head);
    const uncounted = await this.#countRows(sql, head, highest);
    let lastSeq = Math.max(head.lastSeq, highest);
    const wentBack = this.#revision.seq > lastSeq;

    // A number without a row is not an event that the handle has missed.
    let unseen = Math.min(head.lastSeq, highest) - this.#revision.seq;
    let replaced = false;
    let { lastChange } = head;
    for (const event of events) {
      const { id, json } = event.stored;
      const existing = contents.get(id);
      const encoded = {
        stored: encodedEvent(sql.texts, session, event.stored),
        state: encodedState(sql.texts, session, byScope(event.state)),
      };
      if (!existing) await this.#append(sql, head, ++lastSeq, event, encoded);
      contents.set(id, { seq: existing?.seq ?? lastSeq, id, json });
      all?.set(existing?.seq ?? lastSeq, json);
      if (existing) {
        const isUnseen = existing.seq > this.#revision.seq && existing.seq <= head.lastSeq;
        if (await this.#replaceOwn(sql, existing, event, encoded, { lastSeq, all })) lastChange++;
        replaced = true;
        if (isUnseen) unseen--;
      }
    }
    // Checked last: only now it is known which unseen events are the caller's own. The error rolls everything back.
    if (!isDone) this.#refuseIfStale(head, unseen > 0 || wentBack);
    return {
      incarnation: head.incarnation,
      origin: head.origin,
      lastSeq,
      lastChange,
      replaced,
      wentBack,
      ...(uncounted && { damaged: { events: [uncounted], stateKeys: [] } }),
    };
  }

  /**
   * Raises last_seq to the highest number of an event: otherwise the next append would use the number of an existing row, and
   * every append would fail (contract I4).
   */
  async #countRows(sql: Sql, { lastSeq }: SessionHead, highest: number) {
    if (highest <= lastSeq) return undefined;
    await setColumns(sql, this.#session, { last_seq: highest });
    return { from: lastSeq + 1, to: highest, problem: 'uncounted' } as const;
  }

  async #append(
    sql: Sql,
    head: SessionHead,
    seq: number,
    event: EventWrite,
    { stored, state }: EncodedWrite,
  ): Promise<void> {
    const appended = await appendBatch(sql, {
      session: this.#session,
      incarnation: head.incarnation,
      expectedSeq: seq - 1,
      expectedChange: undefined,
      lease: undefined,
      events: [stored],
      lastUpdateTime: stored.timestamp,
      state,
    });
    if (appended !== seq) throw new Error(`The session's lock did not hold: ${appended} instead of ${seq}.`);
    if (event.calls) await this.#openAndClose(sql, { seq, ...stored }, event.calls);
  }

  /** Replaces a stored event, unless an earlier attempt of this call did and somebody else replaced it since: keep their content. */
  async #replaceOwn(
    sql: Sql,
    existing: EventContent,
    event: EventWrite,
    encoded: EncodedWrite,
    now: SessionNow,
  ): Promise<boolean> {
    const { id, json } = event.stored;
    const isOthers = this.#met.has(id) && this.#met.get(id) !== existing.json;
    if (isOthers && existing.json !== json && this.#outcome.lostAnswer !== undefined)
      throw this.#calls.database.errorOf(this.#outcome.lostAnswer);
    this.#met.set(id, existing.json);
    return this.#replace(sql, existing, event, encoded, now);
  }

  /** @throws CallAnsweredError with `onAnsweredCall: 'reject'`. */
  async #openAndClose(sql: Sql, event: { seq: number; timestamp: number }, effects: CallEffects): Promise<void> {
    const attempt = async (options: UnderLock & { areWaiting?: boolean }) => {
      const before = await openCallsOf(sql, this.#session, options);
      const calls = new WaitingCalls(before);
      const [unasked] = calls.add(event, effects);
      return { before, calls, unasked };
    };
    const isStrict = this.#calls.options.onAnsweredCall === 'reject';
    let { before, calls, unasked } = await attempt({ areWaiting: true });
    if (unasked !== undefined) ({ before, calls, unasked } = await attempt({ isLocked: isStrict }));
    const areFound = await replaceOpenCalls(sql, this.#session, before, calls.all);
    const [answered = ''] = unasked === undefined && areFound ? [] : effects.responds;
    if (isStrict && answered) throw new CallAnsweredError(this.#session.sessionId, unasked ?? answered);
  }

  /**
   * Writes the new content of a stored event. State changes only for the keys that differ in its delta and, if it is not the newest
   * event, only for keys that it wrote last (contract A5).
   *
   * @returns whether it recorded a change.
   */
  async #replace(
    sql: Sql,
    existing: EventContent,
    { stored, state, calls }: EventWrite,
    encoded: EncodedWrite,
    { lastSeq, all }: SessionNow,
  ): Promise<boolean> {
    if (existing.json === stored.json) return false;
    const isNewest = existing.seq === lastSeq;
    const event = decodeEvent(existing.json);
    if (event && this.#calls.options.onRewrittenEvent === 'reject') throw new EventConflictError(stored.id);
    const before = event?.actions?.stateDelta ?? {};
    const written = state.filter(
      ({ key, json }) => !Object.hasOwn(before, key) || JSON.stringify(before[key]) !== json,
    );
    const changed = new Set(written.map(({ key }) => key));
    const isChanged = (scope: Scope) => (entry: StateEntry) => changed.has(prefixed(scope, entry.key));
    const session = { ...this.#session, origin: '' };
    const content = { ...encoded.stored, superseded: await this.#supersededAgain(sql, existing.seq, stored) };
    await replaceEvent(sql, session, existing.seq, content);
    // If the old content cannot be read, overwrite only keys that this event wrote last.
    const set = perScope((scope) => encoded.state[scope].filter(isChanged(scope)));
    await setState(sql, session, set, { ownOnly: !isNewest || !event });
    const change = { session, kind: 'rewritten', seq: lastSeq, eventSeq: existing.seq } as const;
    await recordChange(sql, change);
    if (isNewest) await setColumns(sql, session, { last_update_time: stored.timestamp });
    if (all && (calls || !event || effectsOf(event))) await setOpenCalls(sql, session, callsInTexts(all));
    return true;
  }

  /** Keeps the recorded keys: those that lost since the append lost to a later event, and had their value until then. */
  async #supersededAgain(sql: Sql, seq: number, { superseded }: StoredEvent): Promise<string | undefined> {
    if (superseded === undefined) return undefined;
    const before = await supersededKeys(sql, this.#session, { from: seq, upTo: seq });
    const again = keysIn(superseded).filter((key) => before.get(seq)?.includes(key));
    return again.length > 0 ? JSON.stringify(again) : undefined;
  }

  #refuseIfStale({ incarnation }: SessionHead, isBehind: boolean): void {
    if (this.#calls.options.onStaleSession !== 'reject') return;
    if (isBehind || incarnation !== this.#revision.incarnation) throw new StaleSessionError(this.#session.sessionId);
  }
}

const textsOf = ({ events, uncounted }: Pick<ReadEvents, 'events' | 'uncounted'> = NO_EVENTS): EventTexts =>
  new Map([...events, ...uncounted].map(({ seq, json }) => [seq, json]));

const NO_EVENTS = { events: [], uncounted: [] };

function callsInTexts(texts: EventTexts) {
  const events = [...texts].flatMap(([seq, json]) => {
    const event = decodeEvent(json);
    return event ? [{ seq, event }] : [];
  });
  return callsIn(events.sort((a, b) => a.seq - b.seq));
}
