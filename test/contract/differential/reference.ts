import { InMemorySessionService, type CreateSessionRequest, type Session } from '@google/adk';
import type { Delta, Slot } from './operations.js';

/** What `InMemorySessionService` keeps. */
interface Kept {
  sessions: Record<string, Record<string, Record<string, Session>>>;
  userState: Record<string, Record<string, Delta>>;
  appState: Record<string, Delta>;
}

/** A session with what its past is made of beside its events, which ADK's service does not keep. */
interface Known {
  session: Session;
  createTime: number;
  /** How many of the oldest events were trimmed. */
  trimmed: number;
  /** The session's own state before its first event. */
  base: Delta;
  /** State that was set outside a run, with the number of the previous event. */
  outside: readonly { at: number; set: Delta; remove: readonly string[] }[];
}

/** ADK's service for one app, with what the contract adds to it, written in the plainest way. */
export class Reference extends InMemorySessionService {
  readonly #appName: string;
  readonly #known = new Map<string, Known>();
  /** The soft-deleted sessions. */
  readonly #softDeleted = new Map<string, Known>();

  constructor(appName: string) {
    super();
    this.#appName = appName;
  }

  override async createSession(request: CreateSessionRequest): Promise<Session> {
    const created = await super.createSession(request);
    const session = this.#stored(slotOf(created));
    this.#keep(created, {
      session,
      createTime: session.lastUpdateTime,
      trimmed: 0,
      base: ownOf(session.state),
      outside: [],
    });
    return created;
  }

  override async appendEvent(request: Parameters<InMemorySessionService['appendEvent']>[0]) {
    const event = await super.appendEvent(request);
    this.#unshare(slotOf(request.session));
    return event;
  }

  /** Shared state is merged in when a session is read. */
  #unshare(slot: Slot): void {
    const known = this.#known.get(idOf(slot));
    if (known) known.session.state = ownOf(known.session.state);
  }

  /** K4 */
  numbers(slot: Slot): { first: number; last: number } {
    const { trimmed, session } = this.#get(slot);
    return { first: trimmed, last: trimmed + session.events.length };
  }

  /** B6 */
  updateState(slot: Slot, set: Delta, remove: readonly string[]): void {
    for (const [name, value] of Object.entries(set)) {
      const { state, key } = this.#stateOf(slot, name);
      Object.defineProperty(state, key, { value, configurable: true, enumerable: true, writable: true });
    }
    for (const name of remove) {
      const { state, key } = this.#stateOf(slot, name);
      Reflect.deleteProperty(state, key);
    }
    const known = this.#known.get(idOf(slot));
    if (!known) return;
    this.#unshare(slot);
    const keys = remove.filter((name) => !isShared(name));
    if (Object.keys(ownOf(set)).length + keys.length > 0) this.#setOutside(known, ownOf(set), keys);
  }

  #setOutside(known: Known, set: Delta, remove: readonly string[]): void {
    const at = known.trimmed + known.session.events.length;
    known.outside = [...known.outside, { at, set: structuredClone(set), remove }];
  }

  /** K3 */
  async softDelete(slot: Slot): Promise<void> {
    const known = this.#known.get(idOf(slot));
    if (!known) return;
    this.#softDeleted.set(idOf(slot), known);
    await this.deleteSession(this.#key(slot));
  }

  isSoftDeleted(slot: Slot): boolean {
    return this.#softDeleted.has(idOf(slot));
  }

  /** K3 */
  restore(slot: Slot): void {
    const known = this.#softDeleted.get(idOf(slot));
    if (!known) return;
    (this.#kept.sessions[this.#appName] ??= nothing())[slot.userId] ??= nothing();
    this.#kept.sessions[this.#appName]![slot.userId]![slot.sessionId] = known.session;
    this.#keep(known.session, known);
  }

  /** K1, of soft-deleted sessions */
  prune(): void {
    this.#softDeleted.clear();
  }

  /** K1 */
  async eraseUser(userId: string): Promise<void> {
    for (const { session } of [...this.#known.values(), ...this.#softDeleted.values()]) {
      if (session.userId !== userId) continue;
      this.#softDeleted.delete(idOf(slotOf(session)));
      await this.deleteSession(this.#key(slotOf(session)));
    }
    const users = this.#kept.userState[this.#appName];
    if (users) Reflect.deleteProperty(users, userId);
  }

  override async deleteSession(request: Parameters<InMemorySessionService['deleteSession']>[0]): Promise<void> {
    await super.deleteSession(request);
    this.#known.delete(idOf(request));
  }

  /** K2 */
  trim(slot: Slot, keepLast: number): void {
    const known = this.#get(slot);
    const dropped = Math.max(0, known.session.events.length - keepLast);
    if (dropped === 0) return;
    const first = known.trimmed + dropped;
    known.base = this.past(slot, first);
    known.outside = known.outside.filter(({ at }) => at > first);
    known.session.events.splice(0, dropped);
    known.trimmed = first;
  }

  /** @returns the session's own state as it was after an event. */
  past(slot: Slot, at: number): Delta {
    const known = this.#get(slot);
    return structuredClone(at === this.numbers(slot).last ? ownOf(known.session.state) : replayed(known, at));
  }

  /** K4 */
  rewind(slot: Slot, at: number): void {
    const known = this.#get(slot);
    const { session, trimmed } = known;
    const state = this.past(slot, at);
    const newest = session.events[at - trimmed - 1]?.timestamp ?? (at === 0 ? known.createTime : undefined);
    if (session.events.length > at - trimmed && newest !== undefined) session.lastUpdateTime = newest;
    session.events.length = at - trimmed;
    session.state = state;
    known.outside = known.outside.filter((change) => change.at <= at);
  }

  /** K4 */
  async fork(from: Slot, to: Slot, at: number): Promise<void> {
    const source = this.#get(from);
    const state = this.past(from, at);
    await this.createSession({ ...this.#key(to), state: structuredClone(state) });
    const copy = this.#get(to);
    copy.session.events.push(...structuredClone(source.session.events.slice(0, at - source.trimmed)));
    copy.trimmed = source.trimmed;
    copy.base = structuredClone(source.base);
    copy.outside = source.outside.filter((change) => change.at <= at);
    // What an event left that was appended again with other content.
    const explained = replayed(copy, at);
    const left = Object.entries(state).filter(([key, value]) => !isSame(explained[key], value));
    const gone = Object.keys(explained).filter((key) => !Object.hasOwn(state, key));
    if (left.length + gone.length > 0) this.#setOutside(copy, Object.fromEntries(left), gone);
  }

  #keep(session: Session, known: Known): void {
    const id = idOf(slotOf(session));
    this.#softDeleted.delete(id);
    this.#known.set(id, known);
    this.#unshare(slotOf(session));
  }

  #get(slot: Slot): Known {
    const known = this.#known.get(idOf(slot));
    if (!known) throw new Error('The reference has no such session.');
    return known;
  }

  #stored({ userId, sessionId }: Slot): Session {
    return this.#kept.sessions[this.#appName]![userId]![sessionId]!;
  }

  #stateOf(slot: Slot, name: string): { state: Delta; key: string } {
    const { appState, userState } = this.#kept;
    const key = name.slice(name.indexOf(':') + 1);
    if (name.startsWith('app:')) return { state: (appState[this.#appName] ??= nothing()), key };
    if (!name.startsWith('user:')) return { state: this.#get(slot).session.state, key: name };
    const users = (userState[this.#appName] ??= nothing());
    return { state: (users[slot.userId] ??= nothing()), key };
  }

  #key({ userId, sessionId }: Slot) {
    return { appName: this.#appName, userId, sessionId };
  }

  /** Its fields are private. */
  get #kept(): Kept {
    return this as unknown as Kept;
  }
}

/** In which `__proto__` is a key like any other. */
const nothing = <T>(): Record<string, T> => Object.create(null) as Record<string, T>;

export function isShared(key: string): boolean {
  return key.startsWith('app:') || key.startsWith('user:');
}

/** K4: the past of a session is what its rows say. */
function replayed({ session, trimmed, base, outside }: Known, at: number): Delta {
  const state = new Map(Object.entries(base));
  for (let seq = trimmed; seq <= at; seq++) {
    const delta = seq > trimmed ? (session.events[seq - trimmed - 1]!.actions?.stateDelta ?? {}) : {};
    for (const [key, value] of Object.entries(ownOf(delta))) state.set(key, value);
    for (const { set, remove } of outside.filter((change) => change.at === seq)) {
      for (const [key, value] of Object.entries(set)) state.set(key, value);
      for (const key of remove) state.delete(key);
    }
  }
  return Object.fromEntries(state);
}

const ownOf = (state: Delta): Delta =>
  Object.fromEntries(Object.entries(state).filter(([key]) => !isShared(key) && !key.startsWith('temp:')));

const isSame = (one: unknown, other: unknown) => JSON.stringify(one) === JSON.stringify(other);

const slotOf = ({ userId, id }: Session): Slot => ({ userId, sessionId: id });

const idOf = ({ userId, sessionId }: Slot) => JSON.stringify([userId, sessionId]);
