import {
  writtenState,
  Database,
  type SqlRunner,
  type Sql,
  currentLease,
  type StoredLease,
  loggedEvent,
  stateThen,
  supersededKeys,
  nextApp,
  findSummaries,
  storedSession,
  type StoredSession,
} from '../../../src/internal.js';
import { DAY_MS } from './operations/days.js';
import { happenedAt, laneName } from './operations/durations.js';
import { NO_TOKENS, addTokens, tokensOf } from './operations/tokens.js';
import {
  SessionLeases,
  EventLog,
  MikroOrmArtifactService,
  MikroOrmMemoryService,
  type DamagedMemoryError,
  InvalidArgumentError,
  type SessionKey,
  type CommonOptions,
  type FindSessionsRequest,
  type ReadEventsRequest,
  MikroOrmSessionService,
  SessionNotFoundError,
  type EventPage,
  type OpenCall,
  type SessionSummary,
  type LogEntry,
  type SessionLogCursor,
  LogWentBackError,
} from '../../../src/index.js';
import type { TokenCounts } from './operations/tokens.js';
import type { CodecOptions } from '../../../src/model/options.js';
import type { StudioOptions } from './options.js';
import { decodeEvent, withoutUndefined, recordOf } from '../../../src/model/json.js';
import { Calls, callsIn, type Call } from '../../../src/conversation/calls.js';
import { beginsTurn } from '../../../src/model/turn.js';
import { sessionIdentity } from '../../../src/model/keys.js';
import { rangeIn } from '../../../src/model/pages.js';
import { recordedState } from '../../../src/model/past-state.js';
import { MAX_SEQ, gapsIn } from '../../../src/model/seq-ranges.js';
import { SCOPES, prefixed, scopeOf, type Scope, type StateEntry } from '../../../src/model/state.js';
import type { EntityManager } from '@mikro-orm/core';
import { miscountedAfter, type CheckedSessions } from './operations/health.js';
import {
  appsAfter,
  changesElsewhere,
  changesOf,
  countWaiting,
  sampledSizes,
  usersAfter,
  writersOf,
  type NamedUpdate,
  type Size,
  type TimedChange,
  type Waits,
  type WritingEvent,
} from './browsing.js';
import { SEARCHED_DAYS, findInEvents, findInMemories, type Finding } from './found.js';
import type { StudioScope } from './guard.js';
import { StateFollower, type StateChange } from './state-changes.js';
import { Recent, failuresIn, type Failure } from './recent.js';

const HOUR_MS = 3_600_000;

/** How many hours the first page is about. */
export const HOURS = 24;

/** How many days are counted for the usage. */
export const DAYS = 30;

/** How many rows a page of a list has. */
export const PAGE = 50;

/** How many events a page of a conversation has. */
export const EVENTS = 40;

/** How many events of a session are read at most for a page to count its tokens. */
const COUNTED = 5_000;

/** Of how many sessions the tokens are kept, and how many branches of each. */
const MOST_KEPT = 1_000;

/** How many events are read at most for a page of one branch. */
const MOST_FILTERED = 2_000;

/** How many changes a page of a conversation has at most. */
const CHANGES = 200;

/** How many events are read to see what a session does now. */
const NEWEST = 30;

/** In how many events before an answer its call is looked for. */
const BEFORE_ANSWER = 10;

/** An event with its number, and when the database stored it. */
export type ReadEvent = EventPage['events'][number];

/** How many keys of the state are shown for each scope. */
const KEYS = 200;

/** How many events are read at most to compute the state as of an event. */
export const MOST_REPLAYED = 10_000;

/** An event of a conversation, or the range of events that cannot be read. */
export type Entry = (ReadEvent & { to?: undefined }) | { seq: number; to: number; event?: undefined };

/** A value of the state, and who wrote it. */
export interface ShownValue {
  /** With the prefix of its scope. */
  key: string;
  json: string;
  /** Absent if the application set the value, or its event was not found. */
  writer?: { session: SessionKey; seq: number; timestamp: number; author: string };
  /** Whether an event wrote the value, but was not found. */
  isFromElsewhere: boolean;
  /** If the application set it: when. */
  setAt?: number;
}

export interface ShownState {
  values: Record<Scope, ShownValue[]>;
  /** How many keys of each scope are not shown. */
  more: Record<Scope, number>;
  /** Why the state as of an event may be incomplete: too many events come before it, or a row cannot be read. */
  lacks?: 'tooMany' | 'damaged' | undefined;
}

export interface Conversation {
  session: StoredSession;
  /** The sessions of other apps with the same user and id, the oldest first: its caller or its tools. */
  others: StoredSession[];
  /** The numbers of the page's first and last event. */
  from: number;
  upTo: number;
  entries: Entry[];
  changes: TimedChange[];
  /** What each event, by its number, and each change has changed in the state, the oldest first. */
  written: ReadonlyMap<number | TimedChange, readonly StateChange[]>;
  state: ShownState;
}

/** Events of a session, in their order, and the range of their numbers. */
type EntryRange = Pick<Conversation, 'from' | 'upTo' | 'entries'>;

/** Which part of a conversation is read. */
interface Part {
  /** The events before this number. */
  before?: number | undefined;
  /** The events after this number. */
  after?: number | undefined;
  /** The event whose state is shown. Without `before` and `after`, the page with this event is read. */
  at?: number | undefined;
  /** Only the events of this branch, or of this agent without one, and the answers to its calls. */
  branch?: string | undefined;
}

/** Which sessions to find. */
export interface SessionsRequest extends Omit<FindSessionsRequest, 'appName' | 'after' | 'limit'> {
  /** Only sessions that have each word of this in their id, title, user or app. */
  named?: string;
}

/** What a session does, and since when: in ms since 1970. */
interface Doing {
  call: Call | undefined;
  /** The number of the event that made the call, otherwise of the newest one. */
  seq: number;
  since: number;
  turnSince: number | undefined;
}

export class Reading {
  readonly service: MikroOrmSessionService;
  readonly artifacts: MikroOrmArtifactService;
  readonly log: EventLog;
  /** By hour. */
  readonly lastDay: Recent;
  /** By day of the events' stamps, as `usageOf`. */
  readonly lastMonth: Recent;
  readonly database: Database;
  readonly options: Pick<CommonOptions, 'onError' | 'telemetry'> & CodecOptions;
  /** The tokens and branches of sessions up to a cursor, by `sessionIdentity`. */
  readonly #used = new Map<
    string,
    { cursor: SessionLogCursor | number; tokens: TokenCounts; branches: Set<unknown> }
  >();
  readonly #leases: SessionLeases;
  readonly #read: SqlRunner;
  readonly #toolApps: readonly string[] | undefined;
  readonly #onAnswer: StudioOptions['onAnswer'];

  constructor(
    readonly em: EntityManager,
    {
      toolApps,
      onAnswer,
      ...options
    }: Pick<CommonOptions, 'onError' | 'telemetry'> & CodecOptions & Pick<StudioOptions, 'toolApps' | 'onAnswer'>,
  ) {
    this.options = options;
    this.#onAnswer = onAnswer;
    this.#toolApps = toolApps;
    this.service = new MikroOrmSessionService(em, {
      ...options,
      ...withoutUndefined({ toolApps }),
      // So that what a visitor deletes can be restored, and only the first answer to a call counts.
      ...{ deletion: 'soft', onAnsweredCall: 'reject' },
      // The page names the events that cannot be read.
      ...{ onDamagedEvent: 'skip', onDamage: () => undefined },
    });
    this.artifacts = new MikroOrmArtifactService(em, options);
    this.log = new EventLog(em, options);
    this.#leases = new SessionLeases(em, withoutUndefined({ onError: options.onError, telemetry: options.telemetry }));
    this.database = new Database(em, options);
    this.#read = this.database.reader('studio');
    const hours = { size: HOUR_MS, count: HOURS, timeOf: happenedAt, keepsFailures: true };
    this.lastDay = new Recent(this.log, hours, this.#read);
    const timeOf = ({ event }: LogEntry) => event?.timestamp;
    const days = { size: DAY_MS, count: DAYS, timeOf, keepsSessions: true };
    this.lastMonth = new Recent(this.log, days, this.#read);
  }

  /** @param onDamage gets each memory that cannot be read. */
  memories(onDamage: (error: DamagedMemoryError) => void): MikroOrmMemoryService {
    return new MikroOrmMemoryService(this.em, { ...this.options, onDamage });
  }

  /** @returns the sessions of an app or a user in which a text is found, by `sessionIdentity`, and where was searched. */
  async find(
    owner: { appName?: string; userId?: string },
    query: string,
  ): Promise<{ found: ReadonlyMap<string, Finding>; where: string }> {
    const { found, isWhole } = await findInEvents(this.log, owner, query, this.#read);
    const { appName, userId } = owner;
    const remembered =
      appName === undefined || userId === undefined
        ? undefined
        : await findInMemories(
            this.memories(() => undefined),
            { appName, userId },
            query,
          );
    const events = isWhole ? `events of ${SEARCHED_DAYS} days` : 'newest events';
    const where = `Searched: the ${events}${remembered ? ', and what is remembered of the user' : '. With an app and a user, memories are searched, too'}.`;
    // What an event says has a place to go to.
    return { found: new Map([...(remembered ?? []), ...found]), where };
  }

  /** Whether the host wants to know of answers. */
  get tellsHost(): boolean {
    return this.#onAnswer !== undefined;
  }

  /** Tells the host that a visitor has answered a call, without waiting for what it does. */
  answered(key: SessionKey): void {
    const call = async () => {
      await this.#onAnswer?.({ ...key });
    };
    call().catch((error: unknown) => this.database.report(error, { operation: 'onAnswer', key }));
  }

  /** @returns a page of the visible apps, and one more if another page follows. */
  apps({ appName, userId }: StudioScope, after: string): Promise<NamedUpdate[]> {
    return this.#read(async (sql) => {
      if (appName !== undefined) return [await this.#update(sql, appName, { appName, userId })];
      if (userId === undefined) return appsAfter(sql, after, PAGE + 1);
      const apps: NamedUpdate[] = [];
      for (let name = after; apps.length <= PAGE;) {
        const next = await nextApp(sql, name, 'sessions');
        if (next === undefined) break;
        name = next;
        const app = await this.#update(sql, name, { appName: name, userId });
        // The visitor may not learn of apps in which the visible user has no sessions.
        if (app.lastUpdateTime !== undefined) apps.push(app);
      }
      return apps;
    });
  }

  /** @returns all visible apps, by name. */
  async allApps(scope: StudioScope): Promise<string[]> {
    const names: string[] = [];
    let page: NamedUpdate[];
    do {
      page = await this.apps(scope, names.at(-1) ?? '');
      names.push(...page.map(({ name }) => name));
    } while (page.length > PAGE);
    return names;
  }

  /** @returns the next sessions of an app after one. */
  summaries(
    request: SessionsRequest & { appName: string },
    page: { after: SessionSummary | undefined; limit: number },
  ): Promise<SessionSummary[]> {
    return this.#read((sql) => findSummaries(sql, request, page));
  }

  /** @returns a page of the users of an app, and one more if another page follows. */
  users(appName: string, { userId }: StudioScope, after: string): Promise<NamedUpdate[]> {
    return this.#read(async (sql) =>
      userId === undefined
        ? usersAfter(sql, appName, after, PAGE + 1)
        : [await this.#update(sql, userId, { appName, userId })],
    );
  }

  async #update(sql: Sql, name: string, of: { appName: string; userId: string | undefined }): Promise<NamedUpdate> {
    const [newest] = await findSummaries(sql, withoutUndefined(of), { after: undefined, limit: 1 });
    return { name, lastUpdateTime: newest?.lastUpdateTime };
  }

  /** @returns a function that gives the size of each of these sessions. */
  async sizes(
    sessions: readonly (SessionKey & { eventCount: number })[],
  ): Promise<(key: SessionKey) => Size | undefined> {
    const sizes = new Map<string, Size>();
    // A statement has a part for each session, of which databases allow some hundred.
    for (let i = 0; i < sessions.length; i += PAGE) {
      const of = await this.#read((sql) => sampledSizes(sql, sessions.slice(i, i + PAGE)));
      for (const [id, each] of of) sizes.set(id, each);
    }
    return (key) => sizes.get(sessionIdentity(key));
  }

  /** @returns the row of a session, soft-deleted or not, or undefined. */
  session(key: SessionKey): Promise<StoredSession | undefined> {
    return this.#read((sql) => storedSession(sql, key));
  }

  /** @returns the JSON of an event, or undefined. */
  eventJson(key: SessionKey, seq: number): Promise<string | undefined> {
    return this.#read(async (sql) => (await loggedEvent(sql, key, seq))?.json ?? undefined);
  }

  /**
   * @returns why something failed, and the call of the tool if it is among the events just before its answer; undefined if the event is
   *   gone, or does not say so any more.
   */
  async whyFailed({
    session,
    seq,
    kind,
    what,
    nth,
  }: Failure): Promise<{ why: string; call: Call | undefined } | undefined> {
    const calls = new Calls();
    // Those that cannot be read are left out.
    const events = await this.newestEvents(session, { before: seq + 1, limit: BEFORE_ANSWER });
    const effects = events.map((each) => ({ ...each, responses: calls.add(each.seq, each.event).responses }));
    const own = effects.find((each) => each.seq === seq);
    const failure = own && failuresIn(recordOf(own.event))[nth];
    if (!own || failure?.kind !== kind || failure.what !== what) return undefined;
    const call = [...own.responses].find(([response]) => response === failure.functionResponse)?.[1];
    return { why: failure.why, call: call?.isMissing === true ? undefined : call };
  }

  /** @returns whether a user has sessions in an app. */
  async hasSessions(appName: string, userId: string): Promise<boolean> {
    return (await this.#read((sql) => this.#update(sql, userId, { appName, userId }))).lastUpdateTime !== undefined;
  }

  /** @returns a page of a conversation, or undefined if there is no such session. */
  async conversation(key: SessionKey, scope: StudioScope, part: Part): Promise<Conversation | undefined> {
    const session = await this.session(key);
    if (!session) return undefined;
    const { branch } = part;
    const page: EntryRange & { read?: EntryRange } =
      branch === undefined
        ? await this.#entries(session, requestOf(session, part))
        : await this.#ofBranch(session, branch, part);
    const { from, upTo, entries, read = page } = page;
    const { changes, written } = await this.#written(session, read, MOST_FILTERED);
    const at = session.deletedAt === undefined ? part.at : undefined;
    if (at !== undefined && (at > session.lastSeq || at < session.firstSeq - 1))
      throw new InvalidArgumentError(`The events have the numbers ${session.firstSeq} to ${session.lastSeq}.`);
    const state = await this.#state(session, scope, at);
    const others = await this.#others(key, scope);
    return { session, others, from, upTo, entries, changes: branch === undefined ? changes : [], written, state };
  }

  /** @returns the newest changes of a session's state, up to an event, the oldest first, and the number of the first event that was read. */
  async stateChanges(
    session: StoredSession,
    upTo: number | undefined,
  ): Promise<{ from: number; found: StateChange[] }> {
    const before = upTo === undefined ? {} : { before: upTo + 1 };
    const read = await this.#entries(session, { ...before, limit: MOST_FILTERED });
    const { written } = await this.#written(session, read, MOST_REPLAYED);
    return { from: read.from, found: [...written.values()].flat() };
  }

  /** @param most how many earlier events are read at most for the values before. */
  async #written(
    session: StoredSession,
    { from, upTo, entries }: EntryRange,
    most: number,
  ): Promise<Pick<Conversation, 'changes' | 'written'>> {
    const { key, firstSeq } = session;
    // A change follows the event with its number. On the first page there are also changes with 0, before any event.
    const first = from <= firstSeq ? 0 : from;
    const changes = await this.#read((sql) => changesOf(sql, key, { from: first, upTo, limit: CHANGES }));
    const superseded = await this.#read((sql) => supersededKeys(sql, key, { from, upTo }));
    const steps: { at: number; source: number | TimedChange; event?: object }[] = [
      ...entries.flatMap(({ seq, event }) => (event ? { at: seq, source: seq, event } : [])),
      ...changes.map((change) => ({ at: change.seq + 0.5, source: change })),
    ];
    steps.sort((one, other) => one.at - other.at);
    const follow = (base?: readonly StateEntry[]) => {
      const follower = new StateFollower(base);
      return new Map(
        steps.map(({ source, event = {} }) => [
          source,
          typeof source === 'number'
            ? follower.ofEvent(source, event, superseded.get(source))
            : follower.ofChange(source),
        ]),
      );
    };
    const written = follow(from <= 1 ? [] : undefined);
    const needsBase = [...written.values()].some((of) =>
      of.some(({ isOldKnown, key: name }) => !isOldKnown && scopeOf(name).scope === 'session'),
    );
    if (!needsBase || from - firstSeq > most) return { changes, written };
    const then = await this.#stateThen(session, from - 1);
    return { changes, written: then.isWhole ? follow(then.state) : written };
  }

  /** @returns the state of a session, its user and its app as it is after an event; undefined if others have come since. */
  stateAfter(key: SessionKey, seq: number): Promise<StateEntry[] | undefined> {
    return this.database.call({ operation: 'studio', key }, () =>
      this.database.snapshot(async (sql) => {
        const session = await storedSession(sql, key);
        if (session?.lastSeq !== seq) return undefined;
        const state: StateEntry[] = [];
        for (const scope of SCOPES)
          for (const entry of await writtenState(sql, key, scope))
            state.push({ ...entry, key: prefixed(scope, entry.key) });
        return state;
      }),
    );
  }

  #stateThen(session: StoredSession, at: number): ReturnType<typeof stateThen> {
    return this.database.call({ operation: 'studio', key: session.key }, () =>
      this.database.snapshot((sql) => stateThen(sql, session, at)),
    );
  }

  /** Searches some apps by name, with `toolApps` only for tools and callers. None for a visitor of one app. */
  async #others(key: SessionKey, scope: StudioScope): Promise<StoredSession[]> {
    const found: StoredSession[] = [];
    if (scope.appName !== undefined) return found;
    let after = '';
    for (let n = 0; n < PAGE; n++) {
      const appName = await this.#read((sql) => nextApp(sql, after, 'sessions'));
      if (appName === undefined) break;
      after = appName;
      const isTool = (app: string) => this.#toolApps?.includes(app) === true;
      if (appName === key.appName || (this.#toolApps && isTool(appName) === isTool(key.appName))) continue;
      const other = await this.session({ ...key, appName });
      if (other) found.push(other);
    }
    return found.sort((one, other) => one.createTime - other.createTime);
  }

  async #entries(session: StoredSession, request: ReadEventsRequest): Promise<EntryRange> {
    // The events of a soft-deleted session cannot be read until it is restored.
    if (session.deletedAt !== undefined) return { ...rangeIn(session, request), entries: [] };
    const page = await this.service.readEvents(session.key, request);
    const range = rangeIn(page, request);
    const numbers = page.events.map(({ seq }) => seq);
    const missing = gapsIn(numbers, range.from - 1, range.upTo).map((gap): Entry => ({ seq: gap.from, to: gap.to }));
    return { ...range, entries: [...page.events, ...missing].sort((a, b) => a.seq - b.seq) };
  }

  /** Like `#entries`, of a branch alone: as many events as a page has, if there are so many among those that are read. */
  async #ofBranch(
    session: StoredSession,
    branch: string,
    { before, after, at }: Part,
  ): Promise<EntryRange & { read: EntryRange }> {
    const isForward = after !== undefined;
    const request = isForward ? { after } : withoutUndefined({ before });
    const { from, upTo, entries } = await this.#entries(session, { ...request, limit: MOST_FILTERED });
    const calls = new Calls();
    const made = new Set<number>();
    const found = entries.filter(({ seq, event }) => {
      if (!event) return false;
      const answered = [...calls.add(seq, event).responses.values()];
      const isOwn = laneName(event) === branch || answered.some((call) => made.has(call.seq));
      if (isOwn) made.add(seq);
      return isOwn;
    });
    const shown = isForward ? found.slice(0, EVENTS) : found.slice(-EVENTS);
    const [first, last] = [shown[0]?.seq ?? from, shown.at(-1)?.seq ?? upTo];
    if (at !== undefined && !isForward && before === undefined && at < first)
      return this.#ofBranch(session, branch, { after: at - 1 });
    const isWhole = shown.length === found.length;
    return {
      read: { from, upTo, entries },
      from: isForward || isWhole ? from : first,
      upTo: isForward && !isWhole ? last : upTo,
      entries: shown,
    };
  }

  /**
   * @returns the tokens of a session, how many branches it has, and whether all events are counted. They are counted once; the next call
   *   adds what is new.
   * @param most how many events are read at most.
   */
  async used(
    key: SessionKey,
    most = COUNTED,
  ): Promise<{ tokens: TokenCounts; branches: number; isWhole: boolean; read: number }> {
    const id = sessionIdentity(key);
    const known = this.#used.get(id);
    let cursor = known?.cursor ?? 0;
    let tokens = { ...(known?.tokens ?? NO_TOKENS) };
    const branches = new Set(known?.branches);
    let count = 0;
    try {
      for await (const entry of this.log.session(key).since(cursor, { limit: most })) {
        if (entry.change) {
          tokens = { ...NO_TOKENS };
          branches.clear();
        } else if (entry.event) {
          addTokens(tokens, tokensOf(entry.event) ?? NO_TOKENS);
          if (entry.event.branch && branches.size < MOST_KEPT) branches.add(entry.event.branch);
        }
        cursor = entry.cursor;
        count++;
      }
    } catch (error) {
      if (!(error instanceof LogWentBackError)) throw error;
      this.#used.delete(id);
      return { tokens: { ...NO_TOKENS }, branches: 0, isWhole: false, read: count };
    }
    // The last one that was read is the last one to be forgotten.
    this.#used.delete(id);
    if (cursor !== 0) this.#used.set(id, { cursor, tokens, branches });
    const [oldest] = this.#used.keys();
    if (oldest !== undefined && this.#used.size > MOST_KEPT) this.#used.delete(oldest);
    return { tokens, branches: branches.size, isWhole: count < most, read: count };
  }

  /** @returns how many branches of a session `used` has counted for an earlier page: nothing is read. */
  knownBranches(key: SessionKey): number {
    return this.#used.get(sessionIdentity(key))?.branches.size ?? 0;
  }

  /** @param at shows the session's own state as it was after this event; state of user and app is always the current one. */
  async #state(session: StoredSession, scope: StudioScope, at: number | undefined): Promise<ShownState> {
    const { key } = session;
    const isFar = at !== undefined && at < session.lastSeq && at - session.firstSeq >= MOST_REPLAYED;
    const past =
      at === undefined ? undefined : isFar ? { state: [], isWhole: true } : await this.#stateThen(session, at);
    const lacks = isFar ? 'tooMany' : past?.isWhole === false ? 'damaged' : undefined;
    const values: Record<Scope, ShownValue[]> = { session: [], user: [], app: [] };
    const more: Record<Scope, number> = { session: 0, user: 0, app: 0 };
    for (const each of SCOPES) {
      const isPast = each === 'session' && past !== undefined;
      const stored = isPast ? past.state : await this.#read((sql) => writtenState(sql, key, each));
      const entries = stored.toSorted((a, b) => (a.key < b.key ? -1 : 1)).slice(0, KEYS);
      more[each] = stored.length - entries.length;
      values[each] = await this.#withWriters(key, each, entries, scope);
    }
    return { values, more, lacks };
  }

  async #withWriters(
    key: SessionKey,
    scope: Scope,
    entries: readonly StateEntry[],
    visible: StudioScope,
  ): Promise<ShownValue[]> {
    const ids = [...new Set(entries.flatMap(({ eventId }) => eventId ?? []))];
    const written = await this.#read((sql) => writersOf(sql, key, scope, ids, visible));
    const writers = new Map(written.map((event) => [event.id, event]));
    const setOutside = entries.filter(({ eventId }) => eventId === null).map((entry) => prefixed(scope, entry.key));
    const times = await this.#timesOfChanges(key, scope, setOutside, visible);
    return entries.map(({ key: name, json, eventId }): ShownValue => {
      const event = eventId === null ? undefined : writers.get(eventId);
      const setAt = eventId === null ? times.get(prefixed(scope, name)) : undefined;
      return {
        key: prefixed(scope, name),
        json,
        isFromElsewhere: eventId !== null && !event,
        ...(event && { writer: writerOf(event) }),
        ...(setAt !== undefined && { setAt }),
      };
    });
  }

  /** @returns when the application set keys, if the newest changes of the session, the user, the app or other sessions say it. */
  async #timesOfChanges(
    key: SessionKey,
    scope: Scope,
    names: readonly string[],
    visible: StudioScope,
  ): Promise<Map<string, number>> {
    const times = new Map<string, number>();
    const note = (changes: readonly TimedChange[]) => {
      for (const change of changes)
        for (const name of Object.keys(recordedState(change).set ?? {}))
          times.set(name, Math.max(change.time, times.get(name) ?? 0));
    };
    if (names.length === 0) return times;
    const owners: SessionKey[] = [key];
    // State of user and app that was passed to `createSession` is recorded at the session.
    if (scope !== 'session') owners.unshift({ ...key, sessionId: '', ...(scope === 'app' && { userId: '' }) });
    const range = { from: 0, upTo: MAX_SEQ, limit: CHANGES };
    for (const owner of owners) note(await this.#read((sql) => changesOf(sql, owner, range)));
    if (scope !== 'session' && !names.every((name) => times.has(name)))
      note(await this.#read((sql) => changesElsewhere(sql, key, scope, visible, CHANGES)));
    return times;
  }

  /** @returns at most `limit` leases, those that were taken first at the beginning. */
  heldLeases({ appName, userId }: StudioScope, limit: number): ReturnType<SessionLeases['held']> {
    return this.#leases.held({ ...withoutUndefined({ appName, userId }), limit });
  }

  /** @returns the calls that wait in some apps for a person or, answered, for the agent: the oldest first, at most `limit` of each. */
  async waiting(
    apps: readonly string[],
    { userId }: StudioScope,
    { waitsFor, limit }: { waitsFor: 'person' | 'agent'; limit: number },
  ): Promise<OpenCall[]> {
    const found: OpenCall[] = [];
    for (const appName of apps) {
      const request = { appName, limit, ...withoutUndefined({ userId }) };
      const { calls } = await (waitsFor === 'person'
        ? this.service.findOpenCalls(request)
        : this.service.findAnsweredCalls(request));
      found.push(...calls);
    }
    return found.sort((one, other) => one.timestamp - other.timestamp);
  }

  /** @returns the newest lease of a session, and which of its calls wait. */
  async busy(key: SessionKey): Promise<{ lease: StoredLease | undefined; waits: Waits }> {
    return this.#read(async (sql) => ({
      lease: await currentLease(sql, key),
      waits: (await countWaiting(sql, [key])).get(sessionIdentity(key)) ?? {},
    }));
  }

  /** @returns a function that gives which calls of each of these sessions wait. */
  async waitsOf(sessions: readonly SessionKey[]): Promise<(key: SessionKey) => Waits> {
    const waits = await this.#read((sql) => countWaiting(sql, sessions));
    return (key) => waits.get(sessionIdentity(key)) ?? {};
  }

  /** @returns the newest events of a session, as many as say what it does now; none if it is gone. */
  async newestEvents(key: SessionKey, request: ReadEventsRequest = { limit: NEWEST }): Promise<ReadEvent[]> {
    const page = await this.service.readEvents(key, request).catch((error: unknown) => {
      if (error instanceof SessionNotFoundError) return undefined;
      throw error;
    });
    return page?.events ?? [];
  }

  /** @returns what a session that is held does now: an open call, or none while a model answers; undefined if it has no events. */
  async doing(key: SessionKey): Promise<Doing | undefined> {
    const events = await this.newestEvents(key);
    const last = events.at(-1);
    if (!last) return undefined;
    const storedAt = (seq: number) => {
      const found = events.find((each) => each.seq === seq) ?? last;
      return found.appendTime ?? found.event.timestamp;
    };
    const call = callsIn(events).open.findLast(({ isMissing }) => !isMissing);
    const turn = events.findLast(({ event }) => beginsTurn(event));
    const seq = call?.seq ?? last.seq;
    return { call, seq, since: storedAt(seq), turnSince: turn && storedAt(turn.seq) };
  }

  /** Checks the next sessions after one. @returns those whose row says another number of events than there are. */
  miscounted(after: SessionKey | undefined): Promise<CheckedSessions> {
    return this.#read((sql) => miscountedAfter(sql, after));
  }
}

function writerOf({ session, seq, timestamp, json }: WritingEvent): ShownValue['writer'] {
  const author: unknown = decodeEvent(json ?? undefined)?.author;
  return { session, seq, timestamp, author: typeof author === 'string' ? author : '' };
}

function requestOf({ lastSeq }: StoredSession, { before, after, at }: Part): ReadEventsRequest {
  if (before !== undefined) return { before, limit: EVENTS };
  if (after !== undefined) return { after, limit: EVENTS };
  // An event among the newest is shown on the newest page, which is the page that visitors know.
  const isOlder = at !== undefined && at <= lastSeq - EVENTS;
  return { ...(isOlder && { after: Math.max(0, at - EVENTS / 2) }), limit: EVENTS };
}
