import type { EventContent } from '../database/sql/values.js';
import { insertEvents, setState } from '../database/dialects/session-rows.js';
import { Calls, callsOf, concernsCalls, type Call, type Effects, type LongRunningCall } from '../conversation/calls.js';
import { confirm } from '../database/calls/confirm.js';
import type { Outcome } from '../database/calls/retry.js';
import type { Sql, StoredEvent } from '../database/dialects/dialect.js';
import { recordChange } from '../database/statements/changes.js';
import { encodedEvent, findEvent, keysIn, replaceEvent, supersededKeys } from '../database/statements/events.js';
import { readForAppend, setOpenCalls } from '../database/statements/open-calls.js';
import { readSession } from './session-reader.js';
import { lockSession } from '../database/statements/sessions.js';
import { encodedState } from '../database/statements/state.js';
import {
  CallAnsweredError,
  EventConflictError,
  SessionNotFoundError,
  StaleSessionError,
  type Damage,
} from '../model/errors.js';
import { decodeEvent, isRecord } from '../model/json.js';
import type { SessionKey } from '../model/keys.js';
import { byScope, perScope, prefixed, type Scope, type StateEntries, type StateEntry } from '../model/state.js';
import { partsOf } from '../model/turn.js';
import type { Revision } from './handle.js';
import type { ServiceContext } from './service-context.js';

/** The result of an append. */
export interface Appended {
  incarnation: string;
  origin: string;
  lastSeq: number;
  /** The id of the newest recorded change; a replaced event is one. */
  lastChange: number;
  /** Whether it has pending calls now. */
  hasPendingCalls: boolean;
  /** How many changes the append itself has recorded, of events that the handle had read. */
  ownChanges: number;
  /** Whether one of the events was already stored. */
  replaced: boolean;
  /** Whether the session had fewer events than the handle has read, after a failover or a restore. */
  wentBack: boolean;
  /** Damage that the append found. */
  damaged?: Damage;
}

/** An event to append, and the state that it sets. */
export interface EventWrite {
  stored: StoredEvent;
  state: readonly StateEntry[];
}

/** The calls of a session while an append writes to it. */
interface ChangedCalls {
  /** The stored rows. */
  before: readonly LongRunningCall[];
  /** The calls after the new events. */
  calls: Calls;
  /** What the new events do, by their numbers. */
  added: ReadonlyMap<number, Effects>;
  /** Whether the new content of an event may change the calls. */
  isRewritten: boolean;
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
  readonly #service: ServiceContext;
  readonly #session: SessionKey;
  readonly #revision: Revision;
  readonly #outcome: Outcome;
  /** The stored content of events that earlier attempts found, by id. */
  readonly #met = new Map<string, string | undefined>();

  constructor(service: ServiceContext, session: SessionKey, revision: Revision, outcome: Outcome) {
    this.#service = service;
    this.#session = session;
    this.#revision = revision;
    this.#outcome = outcome;
  }

  /** @throws SessionNotFoundError, StaleSessionError, EventConflictError, LeaseLostError, LeaseHeldError. */
  async write(events: readonly EventWrite[]): Promise<Appended> {
    const { database } = this.#service;
    const outcome = this.#outcome;
    const appended = await database.transaction((sql) => this.#write(sql, events), { outcome });
    if (appended.replaced) await confirm(database, outcome);
    return appended;
  }

  async #write(sql: Sql, events: readonly EventWrite[]): Promise<Appended> {
    const { leases } = this.#service;
    const locking = lockSession(sql, this.#session);
    // The lock shows how to read. Otherwise all travel together, the lock first.
    if (sql.behind) await locking;
    const ids = events.map(({ stored }) => stored.id);
    const [head, { found, before, newest }, refused] = await Promise.all([
      locking,
      readForAppend(sql, this.#session, ids),
      leases.check(sql, this.#session).then(
        () => undefined,
        (error: unknown) => ({ error }),
      ),
    ]);
    if (!head) throw new SessionNotFoundError(this.#session.sessionId);
    const session = { ...this.#session, origin: head.origin };
    const contents = new Map<string, EventContent>();
    for (const event of found) contents.set(event.id, event);
    const calls = new Calls(await this.#withSchemas(sql, before, events));
    const added = new Map<number, Effects>();
    let isRewritten = false;
    // An earlier attempt of this call has stored the events: do not refuse them because others came after (contract O1).
    const isDone =
      this.#outcome.lostAnswer !== undefined &&
      events.every(({ stored }) => contents.get(stored.id)?.json === stored.json);
    if (!isDone && refused) throw refused.error;

    const highest = Math.max(newest, head.firstSeq - 1);
    const isCounted = highest <= head.lastSeq;
    const uncounted = isCounted ? undefined : ({ from: head.lastSeq + 1, to: highest, problem: 'uncounted' } as const);
    // Otherwise the next append would use the number of an existing row, and every append would fail (contract I4).
    const columns: Columns = isCounted ? {} : { last_seq: highest };
    let lastSeq = Math.max(head.lastSeq, highest);
    const wentBack = this.#revision.seq > lastSeq;

    // A number without a row is not an event that the handle has missed.
    let unseen = Math.min(head.lastSeq, highest) - this.#revision.seq;
    let replaced = false;
    let { lastChange } = head;
    let ownChanges = 0;
    for (const event of events) {
      const { id, json } = event.stored;
      const existing = contents.get(id);
      const encoded = {
        stored: encodedEvent(sql.texts, session, event.stored),
        state: encodedState(sql.texts, session, byScope(event.state)),
      };
      if (!existing) {
        // The lock is held, so the number is free.
        insertEvents(sql, this.#session, ++lastSeq, [encoded.stored]);
        await setState(sql, this.#session, encoded.state);
        Object.assign(columns, { last_seq: lastSeq, last_update_time: event.stored.timestamp });
        const appended = decodeEvent(json);
        if (appended) added.set(lastSeq, calls.add(lastSeq, appended));
      }
      contents.set(id, { seq: existing?.seq ?? lastSeq, id, json });
      if (existing) {
        const isUnseen = existing.seq > this.#revision.seq && existing.seq <= head.lastSeq;
        if (await this.#replace(sql, existing, event, encoded, lastSeq)) {
          if (existing.seq === lastSeq) columns.last_update_time = event.stored.timestamp;
          isRewritten ||= before.length > 0 || concernsCalls(decodeEvent(json) ?? {});
          lastChange++;
          if (!isUnseen) ownChanges++;
        }
        replaced = true;
        if (isUnseen) unseen--;
      }
    }
    const hasPendingCalls = await this.#writeCalls(sql, { before, calls, added, isRewritten }, columns);
    // Checked last: only now it is known which unseen events are the caller's own. The error rolls everything back.
    const isStale = unseen > 0 || wentBack || head.incarnation !== this.#revision.incarnation;
    if (isStale && !isDone && this.#service.options.onStaleSession === 'reject')
      throw new StaleSessionError(this.#session.sessionId);
    return {
      incarnation: head.incarnation,
      origin: head.origin,
      lastSeq,
      lastChange,
      hasPendingCalls,
      ownChanges,
      replaced,
      wentBack,
      ...(uncounted && { damaged: { events: [uncounted], stateKeys: [] } }),
    };
  }

  /**
   * Adds to the questions that the events answer what their rows lack: the `args` of the call, whose schema decides whether ADK takes an
   * answer. Reads only the events that ask, since others wait for the lock.
   */
  async #withSchemas(sql: Sql, rows: readonly LongRunningCall[], events: readonly EventWrite[]) {
    const responses = events
      .flatMap(({ stored }) => partsOf(decodeEvent(stored.json) ?? {}))
      .map((part) => part['functionResponse']);
    const answered = new Set(responses.filter(isRecord).map(({ id }) => id));
    const known: (LongRunningCall & Partial<Call>)[] = [];
    for (const row of rows) {
      const isNeeded = row.takes === 'schema' && answered.has(row.id);
      const asking = isNeeded ? await findEvent(sql, this.#session, row.seq, { isLocked: true }) : undefined;
      const { args } = callsOf(decodeEvent(asking?.json) ?? {})[row.number] ?? {};
      known.push(isRecord(args) ? { ...row, args } : row);
    }
    return known;
  }

  /**
   * Updates the open calls: the rows after the new events; or, if those do not suffice, the calls of all events.
   *
   * @param columns of the session's row, which it also updates.
   * @returns whether calls are pending.
   * @throws CallAnsweredError with `onAnsweredCall: 'reject'`.
   */
  async #writeCalls(sql: Sql, { before, calls, added, isRewritten }: ChangedCalls, columns: Columns): Promise<boolean> {
    const isStrict = this.#service.options.onAnsweredCall === 'reject';
    const isUnsure = isStrict && [...added.values()].some(({ refused }) => refused);
    if (!isRewritten && !isUnsure) return setOpenCalls(sql, this.#session, calls, { before, columns });
    const whole = new Calls();
    const read = await readSession(sql, this.#session);
    for (const { seq, json } of read ? [...read.events, ...read.uncounted] : []) {
      const event = decodeEvent(json);
      const { refused } = event ? whole.add(seq, event) : {};
      if (isStrict && refused && added.has(seq))
        throw new CallAnsweredError(this.#session.sessionId, refused.id, refused.isAnswered);
    }
    return setOpenCalls(sql, this.#session, whole, { before, columns });
  }

  /**
   * Writes the new content of a stored event, unless an earlier attempt of this call did and somebody else replaced it since: theirs
   * stays. State changes only for the keys that differ in its delta and, if it is not the newest
   * event, only for keys that it wrote last (contract A5).
   *
   * @returns whether it recorded a change.
   */
  async #replace(
    sql: Sql,
    existing: EventContent,
    { stored, state }: EventWrite,
    encoded: EncodedWrite,
    lastSeq: number,
  ): Promise<boolean> {
    const isSame = existing.json === stored.json;
    const isOthers = this.#met.has(stored.id) && this.#met.get(stored.id) !== existing.json;
    if (isOthers && !isSame && this.#outcome.lostAnswer !== undefined)
      throw this.#service.database.errorOf(this.#outcome.lostAnswer);
    this.#met.set(stored.id, existing.json);
    if (isSame) return false;
    const isNewest = existing.seq === lastSeq;
    const event = decodeEvent(existing.json);
    if (event && !this.#service.mayRewrite(stored.id)) throw new EventConflictError(stored.id);
    const before = event?.actions?.stateDelta ?? {};
    const written = state.filter(
      ({ key, json }) => !Object.hasOwn(before, key) || JSON.stringify(before[key]) !== json,
    );
    const changed = new Set(written.map(({ key }) => key));
    const isChanged = (scope: Scope) => (entry: StateEntry) => changed.has(prefixed(scope, entry.key));
    const session = { ...this.#session, origin: '' };
    const content = { ...encoded.stored, superseded: await this.#supersededAgain(sql, existing.seq, stored) };
    replaceEvent(sql, session, existing.seq, content);
    // If the old content cannot be read, overwrite only keys that this event wrote last.
    const set = perScope((scope) => encoded.state[scope].filter(isChanged(scope)));
    await setState(sql, session, set, { ownOnly: !isNewest || !event });
    const change = { session, kind: 'rewritten', seq: lastSeq, eventSeq: existing.seq } as const;
    await recordChange(sql, change);
    return true;
  }

  /** Keeps the recorded keys: those that lost since the append lost to a later event, and had their value until then. */
  async #supersededAgain(sql: Sql, seq: number, { superseded }: StoredEvent): Promise<string | undefined> {
    if (superseded === undefined) return undefined;
    const before = await supersededKeys(sql, this.#session, { from: seq, upTo: seq });
    const again = keysIn(superseded).filter((key) => before.get(seq)?.includes(key));
    return again.length > 0 ? JSON.stringify(again) : undefined;
  }
}

/** Those of the session's row that change, to be set at the end. */
type Columns = Partial<Record<'last_seq' | 'last_update_time', number>>;
