import type { Event, Session } from '@google/adk';
import type { EntityManager } from '@mikro-orm/core';
import {
  MikroOrmSessionService,
  AlreadyExistsError,
  SessionMaintenance,
  SessionNotFoundError,
} from '../../../src/index.js';
import type { CodecOptions } from '../../../src/model/options.js';
import { SLOTS, type Delta, type EventContent, type Operation, type Slot } from './operations.js';
import { Reference, isShared } from './reference.js';

/** The same handle on both services. */
interface Handle {
  slot: Slot;
  ours: Session;
  reference: Session;
  /** The version of the session that it has seen. */
  version: number;
}

/**
 * Runs operations on this package's service and on ADK's `InMemorySessionService`, and compares what they show after
 * each. Where the contract departs from the reference on purpose, the reference is given what it needs to come to the
 * contract's answer; each such line names the rule.
 */
export class Pair {
  readonly #ours: MikroOrmSessionService;
  readonly #oursSoftly: MikroOrmSessionService;
  readonly #maintenance: SessionMaintenance;
  readonly #reference: Reference;
  readonly #appName: string;
  readonly #handles: Handle[] = [];
  /** Counts the writes to each session. A session that was created again gets a new count. */
  readonly #versions = new Map<Slot, number>();
  /** Those of soft-deleted sessions. */
  readonly #softDeletedVersions = new Map<Slot, number>();
  /** Which event wrote each key last. */
  readonly #writers = new Map<string, string>();
  #count = 0;

  constructor(em: EntityManager, appName: string, options: CodecOptions = {}) {
    this.#ours = new MikroOrmSessionService(em, options);
    this.#oursSoftly = new MikroOrmSessionService(em, { ...options, deletion: 'soft' });
    this.#maintenance = new SessionMaintenance(em, options);
    this.#reference = new Reference(appName);
    this.#appName = appName;
  }

  async run(operation: Operation): Promise<void> {
    switch (operation.do) {
      case 'create':
      case 'getOrCreate':
        return this.#create(operation);
      case 'open':
        return this.#open(operation.slot);
      case 'delete':
        return this.#delete(operation.slot);
      case 'delete softly':
        return this.#softDelete(operation.slot);
      case 'restore':
        return this.#restore(operation.slot);
      case 'erase user':
        return this.#eraseUser(operation.slot);
      case 'prune':
        return this.#prune();
      case 'update state':
        return this.#updateState(operation);
      case 'trim':
        return this.#trim(operation);
      case 'rewind':
        return this.#rewind(operation);
      case 'fork':
        return this.#fork(operation);
      case 'read':
        return this.#read(operation);
      case 'list':
        return this.#list(operation);
    }
    const handle = this.#handles[operation.handle % this.#handles.length]!;
    switch (operation.do) {
      case 'append':
        return this.#append(handle, operation);
      case 'replace newest':
        return this.#replaceNewest(handle, operation.event);
      case 'retry':
        return this.#retry(handle, operation.event);
      case 'append partial':
        return this.#appendPartial(handle, operation.event);
      case 'write temp':
        for (const session of [handle.ours, handle.reference]) {
          session.state[`temp:${operation.key}`] = structuredClone(operation.value);
        }
    }
  }

  /** Compares everything there is. */
  async compareAll(slots: readonly Slot[]): Promise<void> {
    for (const slot of slots) await this.#compareStored(slot);
    await this.#list({});
  }

  /** Compares the session's own state after each of its events. */
  async comparePasts(slot: Slot): Promise<void> {
    if (!this.#versions.has(slot)) return;
    const { first, last } = this.#reference.numbers(slot);
    for (let at = first; at <= last; at++) {
      const fork = await this.#ours.forkSession(this.#key(slot), { at, as: `past ${at}` });
      const own = Object.entries(fork.state).filter(([key]) => !isShared(key));
      expect([at, Object.fromEntries(own)]).toEqual([at, { ...this.#reference.past(slot, at) }]);
      await this.#ours.deleteSession({ ...this.#key(slot), sessionId: fork.id });
    }
  }

  #key(slot: Slot) {
    return { appName: this.#appName, ...slot };
  }

  #referenceAt(slot: Slot): Promise<Session | undefined> {
    return this.#reference.getSession(this.#key(slot));
  }

  async #create({ do: what, slot, state }: Operation & { do: 'create' | 'getOrCreate' }): Promise<void> {
    const request = { ...this.#key(slot), state: structuredClone(state) };
    if (this.#versions.has(slot)) {
      if (what === 'getOrCreate') {
        await this.#open(slot, await this.#ours.getOrCreateSession(request));
      } else {
        // D1: the reference overwrites the session.
        await expect(this.#ours.createSession(request)).rejects.toThrow(AlreadyExistsError);
        await this.#compareStored(slot);
      }
      return;
    }

    // C5: both take the time of creation from the clock. Each session gets another time, so that the order of a list is defined.
    const now = jest.spyOn(Date, 'now').mockReturnValue(1.75e12 + this.#count++);
    try {
      const ours = await (what === 'create'
        ? this.#ours.createSession(request)
        : this.#ours.getOrCreateSession(request));
      await this.#createInReference(slot, structuredClone(state));
      this.#begin(slot);
      await this.#open(slot, ours);
    } finally {
      now.mockRestore();
    }
  }

  /** A session that was not there. One that was soft-deleted is gone. */
  #begin(slot: Slot): void {
    this.#changed(slot);
    this.#softDeletedVersions.delete(slot);
  }

  /** B1: the reference keeps `app:` and `user:` keys of a new session in the session; another one appends them. */
  async #createInReference(slot: Slot, state: Delta): Promise<void> {
    const shared = Object.entries(state).filter(([key, value]) => isShared(key) && value !== undefined);
    const other = await this.#reference.createSession({ ...this.#key(slot), sessionId: 'for shared state' });
    const event = { id: 'e', timestamp: 1, actions: { stateDelta: Object.fromEntries(shared) } } as unknown as Event;
    await this.#reference.appendEvent({ session: other, event });
    await this.#reference.deleteSession({ ...this.#key(slot), sessionId: other.id });
    for (const [key] of shared) this.#writers.set(writerKey(slot, key), 'created');

    const own = Object.entries(state).filter(([key]) => !isShared(key));
    await this.#reference.createSession({ ...this.#key(slot), state: Object.fromEntries(own) });
  }

  /** Reads a session, compares it, and keeps it as a handle. */
  async #open(slot: Slot, opened?: Session): Promise<void> {
    const ours = opened ?? (await this.#ours.getSession(this.#key(slot)));
    const reference = await this.#referenceAt(slot);
    expect(ours && view(ours)).toEqual(reference && view(reference));
    if (!ours || !reference) return;
    this.#handles.push({ slot, ours, reference, version: this.#versions.get(slot)! });
  }

  async #delete(slot: Slot): Promise<void> {
    await this.#ours.deleteSession(this.#key(slot));
    await this.#reference.deleteSession(this.#key(slot));
    this.#versions.delete(slot);
    await this.#compareStored(slot);
  }

  async #softDelete(slot: Slot): Promise<void> {
    await this.#oursSoftly.deleteSession(this.#key(slot));
    await this.#reference.softDelete(slot);
    const version = this.#versions.get(slot);
    if (version !== undefined) this.#softDeletedVersions.set(slot, version);
    this.#versions.delete(slot);
    await this.#compareStored(slot);
  }

  async #restore(slot: Slot): Promise<void> {
    const restore = this.#ours.restoreSession(this.#key(slot));
    const version = this.#softDeletedVersions.get(slot);
    if (version === undefined) {
      if (this.#versions.has(slot)) await restore;
      else await expect(restore).rejects.toThrow(SessionNotFoundError);
    } else {
      await restore;
      this.#reference.restore(slot);
      // K3: a handle from before the deletion continues.
      this.#versions.set(slot, version);
      this.#softDeletedVersions.delete(slot);
    }
    await this.#compareStored(slot);
  }

  async #eraseUser({ userId }: Slot): Promise<void> {
    await this.#maintenance.eraseUser({ appName: this.#appName, userId, pauseMs: 0 });
    await this.#reference.eraseUser(userId);
    for (const slot of SLOTS.filter((other) => other.userId === userId)) {
      this.#versions.delete(slot);
      this.#softDeletedVersions.delete(slot);
      await this.#compareStored(slot);
    }
  }

  async #prune(): Promise<void> {
    await this.#maintenance.prune({ appName: this.#appName, deletedFor: 0, pauseMs: 0 });
    this.#reference.prune();
    this.#softDeletedVersions.clear();
    for (const slot of SLOTS) await this.#compareStored(slot);
  }

  async #updateState({ slot, state, removed }: Operation & { do: 'update state' }): Promise<void> {
    const isStored = ([key, value]: [string, unknown]) => value !== undefined && !key.startsWith('temp:');
    const set = Object.fromEntries(Object.entries(state).filter(isStored));
    const remove = removed.filter((key) => !key.startsWith('temp:') && !Object.hasOwn(set, key));
    const update = this.#ours.updateState({ ...this.#key(slot), set: structuredClone(set), remove });
    const keys = [...Object.keys(set), ...remove];
    if (!this.#versions.has(slot) && !keys.every(isShared)) {
      await expect(update).rejects.toThrow(SessionNotFoundError);
    } else {
      await update;
      this.#reference.updateState(slot, structuredClone(set), remove);
      for (const key of keys) this.#writers.set(writerKey(slot, key), 'updated');
      if (!keys.every(isShared)) this.#changed(slot);
    }
    await this.#compareStored(slot);
  }

  async #trim({ slot, keepLast }: Operation & { do: 'trim' }): Promise<void> {
    await this.#maintenance.trim({ ...this.#key(slot), keepLast, pauseMs: 0 });
    if (!this.#versions.has(slot)) return;
    this.#reference.trim(slot, keepLast);
    await this.#compareStored(slot);
    this.#changed(slot);
  }

  async #rewind({ slot, at }: Operation & { do: 'rewind' | 'fork' }): Promise<void> {
    if (!this.#versions.has(slot)) {
      await expect(this.#ours.rewindSession(this.#key(slot), { at })).rejects.toThrow(SessionNotFoundError);
      return;
    }
    const { first, last } = this.#reference.numbers(slot);
    const seq = first + (at % (last - first + 1));
    const rewound = await this.#ours.rewindSession(this.#key(slot), { at: seq });
    if (seq < last) {
      this.#reference.rewind(slot, seq);
      this.#changed(slot);
    }
    expect(view(rewound)).toEqual(view(await this.#compareStored(slot)));
  }

  /** To the slot after it that has the same user, or to itself, which is taken. */
  async #fork({ slot, at }: Operation & { do: 'rewind' | 'fork' }): Promise<void> {
    const slots = SLOTS.filter(({ userId }) => userId === slot.userId);
    const to = slots[(slots.indexOf(slot) + 1) % slots.length]!;
    if (!this.#versions.has(slot)) {
      const fork = this.#ours.forkSession(this.#key(slot), { as: to.sessionId });
      await expect(fork).rejects.toThrow(SessionNotFoundError);
      return;
    }
    const { first, last } = this.#reference.numbers(slot);
    const seq = first + (at % (last - first + 1));
    const now = jest.spyOn(Date, 'now').mockReturnValue(1.75e12 + this.#count++);
    try {
      const fork = this.#ours.forkSession(this.#key(slot), { at: seq, as: to.sessionId });
      if (this.#versions.has(to)) {
        await expect(fork).rejects.toThrow(AlreadyExistsError);
        return;
      }
      const ours = await fork;
      await this.#reference.fork(slot, to, seq);
      this.#begin(to);
      await this.#open(to, ours);
      await this.#compareStored(slot);
    } finally {
      now.mockRestore();
    }
  }

  async #append(handle: Handle, { events, how }: Operation & { do: 'append' }): Promise<void> {
    const version = this.#versions.get(handle.slot);
    const stored = await this.#referenceAt(handle.slot);
    const taken = new Set(stored?.events.map(({ id }) => id));
    const named = events.map((content) => ({ content, id: this.#newId(content, taken) }));
    const ours = named.map(({ content, id }) => eventOf(content, id));

    const append = async () => {
      if (how === 'in one transaction') {
        await this.#ours.appendEvents({ session: handle.ours, events: ours });
      } else if (how === 'in parallel') {
        // A9: they take effect in the order of the calls.
        const appends = ours.map((event) => this.#ours.appendEvent({ session: handle.ours, event }));
        await Promise.allSettled(appends);
        await Promise.all(appends);
      } else {
        for (const event of ours) await this.#ours.appendEvent({ session: handle.ours, event });
      }
    };

    if (version === undefined || !stored) {
      // D3: the reference only warns, and changes the handle.
      const before = view(handle.ours);
      await expect(append()).rejects.toThrow(SessionNotFoundError);
      expect(view(handle.ours)).toEqual(before);
      return;
    }

    // E2: a handle that is behind catches up, which the reference's would not.
    const inStep = handle.version === version;
    const session = inStep ? handle.reference : stored;
    for (const { content, id } of named) {
      await this.#reference.appendEvent({ session, event: eventOf(content, id, true) });
      this.#noteWriter(handle.slot, content.stateDelta ?? {}, id);
    }
    const before = stateOf(handle.ours);
    await append();
    this.#written(handle);

    for (const event of ours) expect(handle.ours.events).toContain(event);
    const fresh = await this.#compareStored(handle.slot);
    if (inStep) expect(view(handle.ours)).toEqual(view(handle.reference));
    else await this.#compareCaughtUp(handle, before, fresh, ours);
  }

  /** A5, with other content than the stored one. */
  async #replaceNewest(handle: Handle, content: EventContent): Promise<void> {
    const stored = await this.#referenceAt(handle.slot);
    const newest = stored?.events.at(-1);
    if (!stored || !newest) return;
    // J4: the same content changes nothing. The reference sets the time of the update, which after a fork is another one.
    if (JSON.stringify(eventOf(content, newest.id, true)) === JSON.stringify(newest))
      return this.#retry(handle, stored.events.length - 1);

    // A value that the event had already must not undo what another session wrote since; the reference does that.
    const kept = Object.entries(content.stateDelta ?? {}).filter(
      ([key, value]) =>
        JSON.stringify(value ?? null) !== JSON.stringify(newest.actions?.stateDelta[key]) ||
        this.#writers.get(writerKey(handle.slot, key)) === this.#writer(handle.slot, newest.id),
    );
    const replacement = content.stateDelta ? { ...content, stateDelta: Object.fromEntries(kept) } : content;

    await this.#reference.appendEvent({ session: stored, event: eventOf(replacement, newest.id, true) });
    this.#noteWriter(handle.slot, replacement.stateDelta ?? {}, newest.id);
    const ours = eventOf(replacement, newest.id);
    const before = stateOf(handle.ours);
    await this.#ours.appendEvent({ session: handle.ours, event: ours });
    this.#written(handle);

    expect(handle.ours.events).toContain(ours);
    await this.#compareCaughtUp(handle, before, await this.#compareStored(handle.slot), [ours]);
  }

  /** A5: the same event once more, from a caller that did not get the answer, changes nothing. The reference rolls back. */
  async #retry(handle: Handle, index: number): Promise<void> {
    const stored = await this.#ours.getSession(this.#key(handle.slot));
    const event = stored?.events[index % stored.events.length];
    if (!event) return;

    const before = stateOf(handle.ours);
    await this.#ours.appendEvent({ session: handle.ours, event });
    handle.version = this.#versions.get(handle.slot)!;
    await this.#compareCaughtUp(handle, before, await this.#compareStored(handle.slot), []);
  }

  async #appendPartial(handle: Handle, content: EventContent): Promise<void> {
    const before = view(handle.ours);
    const event = { ...eventOf(content, 'partial'), partial: true };
    const copy = structuredClone(event);
    expect(await this.#ours.appendEvent({ session: handle.ours, event })).toBe(event);
    expect(event).toEqual(copy);
    expect(view(handle.ours)).toEqual(before);
    await this.#compareStored(handle.slot);
  }

  async #read({ slot, numRecentEvents, afterEvent }: Operation & { do: 'read' }): Promise<void> {
    const all = await this.#referenceAt(slot);
    const chosen = all && afterEvent && all.events[afterEvent.event % all.events.length];
    const afterTimestamp = chosen && chosen.timestamp + afterEvent.nudge;
    const config = { ...(numRecentEvents !== undefined && { numRecentEvents }), ...(chosen && { afterTimestamp }) };
    const ours = await this.#ours.getSession({ ...this.#key(slot), config });

    if (afterTimestamp) {
      // C4: exclusive, and of every event; the reference includes the time itself and looks back to the last earlier event.
      all.events = all.events.filter((event) => event.timestamp > afterTimestamp).slice(-(numRecentEvents ?? 0));
      expect(ours && view(ours)).toEqual(view(all));
    } else {
      const reference = await this.#reference.getSession({ ...this.#key(slot), config });
      expect(ours && view(ours)).toEqual(reference && view(reference));
    }
  }

  async #list({ do: _do, userId, order = 'asc', ...paging }: Partial<Operation & { do: 'list' }>): Promise<void> {
    const request = { appName: this.#appName, ...(userId !== undefined && { userId }), ...definedOnly(paging) };
    const ours = await this.#ours.listSessions({ ...request, ...(order === 'desc' && { order }) });
    const reference = await this.#reference.listSessions({ ...request, order });
    const { sessions, ...page } = ours;
    const { sessions: expected, ...expectedPage } = reference;
    expect(page).toEqual(expectedPage);

    // D5: by id in bytes where the times are equal; the reference compares ids as its locale has them.
    const { sessions: all } = await this.#reference.listSessions({
      appName: this.#appName,
      ...(userId !== undefined && { userId }),
      order,
    });
    all.sort(
      (a, b) =>
        (order === 'desc' ? b.lastUpdateTime - a.lastUpdateTime : a.lastUpdateTime - b.lastUpdateTime) ||
        Buffer.compare(Buffer.from(a.id), Buffer.from(b.id)) ||
        Buffer.compare(Buffer.from(a.userId), Buffer.from(b.userId)),
    );
    const { limit, offset = 0, page: number } = paging;
    const start = limit !== undefined && number !== undefined ? (number - 1) * limit : offset;
    const slice = all.slice(start, limit === undefined ? undefined : start + limit);
    expect(sessions).toHaveLength(expected.length);
    // D5: with the merged state, which the reference leaves empty.
    const filled = await Promise.all(
      slice.map((session) => this.#referenceAt({ userId: session.userId, sessionId: session.id })),
    );
    expect(sessions.map(view)).toEqual(filled.map((session) => ({ ...view(session!), events: [] })));
  }

  /** @returns the stored session. */
  async #compareStored(slot: Slot): Promise<Session> {
    const ours = await this.#ours.getSession(this.#key(slot));
    const reference = await this.#referenceAt(slot);
    expect(ours && view(ours)).toEqual(reference && view(reference));
    return ours!;
  }

  /**
   * Compares a handle that has caught up with a session as it is stored: its events and the session's state are equal
   * (B4). A shared key that no event wrote is what it was before, or as stored.
   */
  async #compareCaughtUp(handle: Handle, before: Delta, fresh: Session, appended: readonly Event[]): Promise<void> {
    const expected = view(fresh);
    const actual = view(handle.ours);
    expect({ ...actual, state: {} }).toEqual({ ...expected, state: {} });

    const written = new Set(appended.flatMap((event) => Object.keys(event.actions?.stateDelta ?? {})));
    const state = stateOf(handle.ours);
    const stored = stateOf(fresh);
    for (const key of new Set([...Object.keys(state), ...Object.keys(stored), ...Object.keys(before)])) {
      const value = own(state, key);
      if (key.startsWith('temp:')) expect([key, value]).toEqual([key, own(before, key)]);
      else if (written.has(key) || !isShared(key)) {
        expect([key, value]).toEqual([key, own(stored, key)]);
      } else expect([own(before, key), own(stored, key)]).toContain(value);
    }

    const reference = (await this.#referenceAt(handle.slot))!;
    reference.state = structuredClone(handle.ours.state);
    handle.reference = reference;
  }

  /** Storing an event of the session again is another operation. */
  #newId({ id }: EventContent, taken: Set<string>): string {
    const chosen = ['e', 'E', 'e ', '__proto__', '😀'][id];
    const unused = chosen === undefined || taken.has(chosen) ? `event ${this.#count++}` : chosen;
    taken.add(unused);
    return unused;
  }

  #changed(slot: Slot): number {
    this.#versions.set(slot, ++this.#count);
    return this.#count;
  }

  #written(handle: Handle): void {
    handle.version = this.#changed(handle.slot);
  }

  #noteWriter(slot: Slot, delta: Delta, eventId: string): void {
    for (const key of Object.keys(delta)) {
      this.#writers.set(writerKey(slot, key), this.#writer(slot, eventId));
    }
  }

  #writer({ userId, sessionId }: Slot, eventId: string): string {
    return JSON.stringify([userId, sessionId, eventId]);
  }
}

function writerKey({ userId, sessionId }: Slot, key: string): string {
  if (key.startsWith('app:')) return JSON.stringify([key]);
  return JSON.stringify(key.startsWith('user:') ? [key, userId] : [key, userId, sessionId]);
}

/** C1: the reference keeps `undefined` in a delta, which in JSON would be a lost key; ours makes it null. */
function eventOf({ fields, timestamp, stateDelta }: EventContent, id: string, forReference = false): Event {
  const delta =
    stateDelta && Object.entries(stateDelta).map(([key, value]) => [key, forReference ? (value ?? null) : value]);
  const event = { ...fields, id, timestamp, ...(delta && { actions: { stateDelta: Object.fromEntries(delta) } }) };
  return structuredClone(event) as unknown as Event;
}

/** What a session shows, as text where the order of keys and the own property `__proto__` matter. */
function view(session: Session) {
  const { appName, userId, id, events, lastUpdateTime } = session;
  const state = stateOf(session);
  return { appName, userId, id, lastUpdateTime, state, events: events.map((event) => JSON.stringify(event)) };
}

/** The text of each value; a map would hide `__proto__` no more than an object without a prototype does. */
function stateOf({ state }: Session): Record<string, string> {
  const texts: Record<string, string> = Object.create(null);
  for (const key of Object.keys(state).sort()) {
    const text: string | undefined = JSON.stringify(state[key]);
    if (text !== undefined) texts[key] = text;
  }
  return texts;
}

function own(state: Delta, key: string): unknown {
  return Object.hasOwn(state, key) ? state[key] : undefined;
}

function definedOnly<T extends object>(object: T): { [K in keyof T]?: Exclude<T[K], undefined> } {
  return Object.fromEntries(Object.entries(object).filter(([, value]) => value !== undefined)) as never;
}
