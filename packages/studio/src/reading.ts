import {
  writtenState,
  Database,
  type Run,
  type Sql,
  currentLease,
  type StoredLease,
  loggedEvent,
  stateThen,
  nextApp,
  findSummaries,
  storedSession,
  type StoredSession,
} from '../../../src/internal.js';
import { NO_TOKENS, addTokens, tokensOf } from '../../../src/conversation/tokens.js';
import {
  SessionLeases,
  EventLog,
  MikroOrmArtifactService,
  InvalidArgumentError,
  type SessionKey,
  type CommonOptions,
  type ReadEventsRequest,
  MikroOrmSessionService,
  SessionNotFoundError,
  type EventPage,
  type OpenCall,
} from '../../../src/index.js';
import type { TokenCounts } from '../../../src/conversation/tokens.js';
import type { CodecOptions } from '../../../src/model/options.js';
import type { StudioOptions } from './options.js';
import { decode, decodeEvent, given, isRecord } from '../../../src/model/json.js';
import { sessionIdentity } from '../../../src/model/keys.js';
import { rangeIn } from '../../../src/model/pages.js';
import { MAX_SEQ, gapsIn } from '../../../src/model/seq-ranges.js';
import { SCOPES, prefixed, type Scope, type StateEntry } from '../../../src/model/state.js';
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
  type WritingEvent,
} from './browsing.js';
import type { StudioScope } from './guard.js';
import { LastDay } from './last-day.js';

/** How many rows a page of a list has. */
export const PAGE = 50;

/** How many events a page of a conversation has. */
export const EVENTS = 40;

/** How many events of a session are read at most to count its tokens, unless the visitor asks for it. */
const COUNTED = 200;

/** How many changes a page of a conversation has at most. */
const CHANGES = 200;

/** How many events are read to see what a session does now. */
const NEWEST = 30;

/** An event with its number, and when the database stored it. */
type ReadEvent = EventPage['events'][number];

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
  state: ShownState;
}

/** Which part of a conversation is read. */
interface Part {
  /** The events before this number. */
  before?: number | undefined;
  /** The events after this number. */
  after?: number | undefined;
  /** The event whose state is shown. Without `before` and `after`, the page with this event is read. */
  at?: number | undefined;
}

export class Reading {
  readonly service: MikroOrmSessionService;
  readonly artifacts: MikroOrmArtifactService;
  readonly log: EventLog;
  readonly lastDay: LastDay;
  readonly database: Database;
  readonly options: Pick<CommonOptions, 'onError' | 'telemetry'> & CodecOptions;
  readonly #leases: SessionLeases;
  readonly #read: Run;
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
      ...given({ toolApps }),
      // So that what a visitor deletes can be restored, and only the first answer to a call counts.
      ...{ deletion: 'soft', onAnsweredCall: 'reject' },
      // The page names the events that cannot be read.
      ...{ onDamagedEvent: 'skip', onDamage: () => undefined },
    });
    this.artifacts = new MikroOrmArtifactService(em, options);
    this.log = new EventLog(em, options);
    this.#leases = new SessionLeases(em, given({ onError: options.onError, telemetry: options.telemetry }));
    this.lastDay = new LastDay(this.log);
    this.database = new Database(em, options);
    this.#read = this.database.reader('studio');
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

  /** @returns a page of the users of an app, and one more if another page follows. */
  users(appName: string, { userId }: StudioScope, after: string): Promise<NamedUpdate[]> {
    return this.#read(async (sql) =>
      userId === undefined
        ? usersAfter(sql, appName, after, PAGE + 1)
        : [await this.#update(sql, userId, { appName, userId })],
    );
  }

  async #update(sql: Sql, name: string, of: { appName: string; userId: string | undefined }): Promise<NamedUpdate> {
    const [newest] = await findSummaries(sql, given(of), { after: undefined, limit: 1 });
    return { name, lastUpdateTime: newest?.lastUpdateTime };
  }

  /** @returns a function that gives the size of each of these sessions. */
  async sizes(
    sessions: readonly (SessionKey & { eventCount: number })[],
  ): Promise<(key: SessionKey) => Size | undefined> {
    const sizes = await this.#read((sql) => sampledSizes(sql, sessions));
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

  /** @returns a page of a conversation, or undefined if there is no such session. */
  async conversation(key: SessionKey, scope: StudioScope, part: Part): Promise<Conversation | undefined> {
    const session = await this.session(key);
    if (!session) return undefined;
    const { from, upTo, entries } = await this.#entries(session, requestOf(session, part));
    // A change follows the event with its number. On the first page there are also changes with 0, before any event.
    const first = from <= session.firstSeq ? 0 : from;
    const range = { from: first, upTo, limit: CHANGES };
    const changes = await this.#read((sql) => changesOf(sql, key, range));
    const at = session.deletedAt === undefined ? part.at : undefined;
    if (at !== undefined && (at > session.lastSeq || at < session.firstSeq - 1))
      throw new InvalidArgumentError(`The events have the numbers ${session.firstSeq} to ${session.lastSeq}.`);
    const state = await this.#state(session, scope, at);
    const others = await this.#others(key, scope);
    return { session, others, from, upTo, entries, changes, state };
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

  async #entries(
    session: StoredSession,
    request: ReadEventsRequest,
  ): Promise<Pick<Conversation, 'from' | 'upTo' | 'entries'>> {
    // The events of a soft-deleted session cannot be read until it is restored.
    if (session.deletedAt !== undefined) return { ...rangeIn(session, request), entries: [] };
    const page = await this.service.readEvents(session.key, request);
    const range = rangeIn(page, request);
    const numbers = page.events.map(({ seq }) => seq);
    const missing = gapsIn(numbers, range.from - 1, range.upTo).map((gap): Entry => ({ seq: gap.from, to: gap.to }));
    return { ...range, entries: [...page.events, ...missing].sort((a, b) => a.seq - b.seq) };
  }

  /** @returns the tokens of all events of a session; undefined if there are many and `readsAll` is false. */
  async tokens(
    { session, entries, from, upTo }: Conversation,
    { readsAll }: { readsAll: boolean },
  ): Promise<TokenCounts | undefined> {
    const { key, firstSeq, lastSeq } = session;
    const isWhole = from <= firstSeq && upTo >= lastSeq;
    if (!isWhole && !readsAll && lastSeq - firstSeq >= COUNTED) return undefined;
    const sum = { ...NO_TOKENS };
    for await (const { event } of isWhole ? entries : this.log.session(key).since(0))
      addTokens(sum, (event && tokensOf(event)) ?? NO_TOKENS);
    return sum;
  }

  /** @param at shows the session's own state as it was after this event; state of user and app is always the current one. */
  async #state(session: StoredSession, scope: StudioScope, at: number | undefined): Promise<ShownState> {
    const { key } = session;
    const isFar = at !== undefined && at < session.lastSeq && at - session.firstSeq >= MOST_REPLAYED;
    const past =
      at === undefined
        ? undefined
        : isFar
          ? { state: [], isWhole: true }
          : await this.database.call({ operation: 'studio', key }, () =>
              this.database.snapshot((sql) => stateThen(sql, session, at)),
            );
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
        for (const name of Object.keys(stateOf(change))) times.set(name, Math.max(change.time, times.get(name) ?? 0));
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
    return this.#leases.held({ ...given({ appName, userId }), limit });
  }

  /** @returns the calls that wait in some apps, the oldest first, at most `limit` of each. */
  async waiting(apps: readonly string[], { userId }: StudioScope, limit: number): Promise<OpenCall[]> {
    const found: OpenCall[] = [];
    for (const appName of apps) {
      const { calls } = await this.service.findOpenCalls({ appName, limit, ...given({ userId }) });
      found.push(...calls);
    }
    return found.sort((one, other) => one.timestamp - other.timestamp);
  }

  /** @returns the newest lease of a session, and how many of its calls wait. */
  async busy(key: SessionKey): Promise<{ lease: StoredLease | undefined; waits: number }> {
    return this.#read(async (sql) => ({ lease: await currentLease(sql, key), waits: await countWaiting(sql, key) }));
  }

  /** @returns the newest events of a session, as many as say what it does now; none if it is gone. */
  async newestEvents(key: SessionKey): Promise<ReadEvent[]> {
    const page = await this.service.readEvents(key, { limit: NEWEST }).catch((error: unknown) => {
      if (error instanceof SessionNotFoundError) return undefined;
      throw error;
    });
    return page?.events ?? [];
  }

  /** Checks the next sessions after one. @returns those whose row says another number of events than there are. */
  miscounted(after: SessionKey | undefined): Promise<CheckedSessions> {
    return this.#read((sql) => miscountedAfter(sql, after));
  }
}

/** @returns the state that a change has set; keys have their prefixes. */
export function stateOf({ kind, data }: TimedChange): Record<string, unknown> {
  const recorded = data === null ? undefined : decode(data)?.value;
  const set = kind === 'state' && isRecord(recorded) ? recorded['set'] : recorded;
  return isRecord(set) && (kind === 'state' || kind === 'created') ? set : {};
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
