import { isFailedResponse } from '../../../src/conversation/failed-response.js';
import { LogWentBackError, type EventLog, type LogCursor, type LogEntry, type SessionKey } from '../../../src/index.js';
import type { SqlRunner } from '../../../src/internal.js';
import { recordOf } from '../../../src/model/json.js';
import { sessionIdentity } from '../../../src/model/keys.js';
import { partsOf } from '../../../src/model/turn.js';
import { tokenSum } from './operations/prices.js';
import { ModelTimes } from './operations/durations.js';
import { addCounted, countedOf, timeOf, type Counted } from './operations/usage.js';
import { textOrJson } from './operations/words.js';
import { breathe } from './patience.js';
import { broughtAt, firstStoredSince } from './browsing.js';
import type { StudioScope } from './guard.js';

/** How many events are read at most for a page. */
export const AT_ONCE = 20_000;

/** How many events are counted before other requests are answered. */
const AT_A_STRETCH = 100;

/** In how many positions at once is looked for events that were stored later than those behind them. */
const LOOKED_AT = 50_000;

/** How many failures are kept of each user in an app. */
const KEPT = 200;

/** How many counts are kept. With more users or sessions than that, the oldest hours or days are dropped. */
const MOST_COUNTS = 200_000;

/** What the events of a session count, apart from the copies of a fork. */
export interface SessionCounts {
  tokens: number;
  failures: number;
}

/** A tool or a model that failed. Its reason is read again when it is shown: the event may have been erased. */
export interface Failure {
  session: SessionKey;
  seq: number;
  time: number;
  kind: 'tool' | 'model';
  /** The name of the tool, or the agent whose model failed. */
  what: string;
  /** Which of those in its event. */
  nth: number;
}

/** Failures of one tool or model in one session. */
export interface FailureGroup extends Pick<Failure, 'kind' | 'what'> {
  session: SessionKey;
}

/** How the time is divided. */
interface Span {
  /** The length of a part, in ms. */
  size: number;
  /** How many parts are kept, the current one included. */
  count: number;
  /** Undefined if the event has none. */
  timeOf: (entry: LogEntry) => number | undefined;
  /** Whether failures are kept, too. */
  keepsFailures?: boolean;
  /** Whether the counts of each session are kept, too. */
  keepsSessions?: boolean;
}

/** Sums by part of the span, and by names. */
class Parts<Sum> {
  readonly byPart = new Map<number, Map<string, Sum>>();
  /** The newest part that was dropped, since there were too many sums. */
  dropped = -Infinity;

  /** @param merge adds to the sum that there is. */
  add(part: number, id: string, first: Sum, merge: (sum: Sum) => void): void {
    if (part <= this.dropped) return;
    const sums = this.byPart.get(part) ?? new Map<string, Sum>();
    this.byPart.set(part, sums);
    const sum = sums.get(id);
    if (sum) merge(sum);
    else sums.set(id, first);
  }

  /** Drops what is before a part, and the oldest parts while there are too many sums. */
  drop(before: number): void {
    for (const part of this.byPart.keys()) if (part < before) this.byPart.delete(part);
    while ([...this.byPart.values()].reduce((sum, { size }) => sum + size, 0) > MOST_COUNTS && this.byPart.size > 1) {
      this.dropped = Math.min(...this.byPart.keys());
      this.byPart.delete(this.dropped);
    }
  }
}

/**
 * Counts the events of the last hours or days. Each event is read once: the counts are kept, and a page adds the entries that the
 * log has gained since the page before it. Copies of forks are not counted.
 */
export class Recent {
  #cursor: LogCursor | number | undefined;
  /** By what `Counted` has names for. */
  #counts = new Parts<Counted>();
  #modelTimes = this.#newTimes();
  #sessions = new Parts<SessionCounts>();
  /** The events that cannot be read, or have no time, by user and when they were stored. */
  #unreadable = new Parts<{ appName: string; userId: string; events: number }>();
  /** By user, the oldest first. */
  #failures = new Map<string, Failure[]>();
  #reading: Promise<boolean> | undefined;

  constructor(
    readonly log: EventLog,
    readonly span: Span,
    readonly read: SqlRunner,
  ) {}

  /** @returns whether everything was read; otherwise the next call continues. */
  update(): Promise<boolean> {
    this.#reading ??= this.#update().finally(() => (this.#reading = undefined));
    return this.#reading;
  }

  /** The counts of what a visitor may see. `at` is the part: 0 is the oldest, `span.count - 1` the current one. */
  *counts({ appName, userId }: StudioScope): Iterable<{ at: number; counted: Counted }> {
    const oldest = this.#oldest();
    for (const [part, counts] of this.#counts.byPart)
      for (const counted of this.#isWithin(part) ? counts.values() : [])
        if (isVisible({ appName, userId }, counted)) yield { at: part - oldest, counted };
  }

  /** How many events of what a visitor may see are counted nowhere. */
  unreadable(scope: StudioScope): number {
    let count = 0;
    for (const [part, sums] of this.#unreadable.byPart)
      for (const sum of this.#isWithin(part) ? sums.values() : []) if (isVisible(scope, sum)) count += sum.events;
    return count;
  }

  /** What each session has used within the span, by `sessionIdentity`. */
  ofSessions(): ReadonlyMap<string, SessionCounts> {
    const sums = new Map<string, SessionCounts>();
    for (const [part, counts] of this.#sessions.byPart)
      for (const [id, { tokens, failures }] of this.#isWithin(part) ? counts : []) {
        const sum = sums.get(id) ?? { tokens: 0, failures: 0 };
        sums.set(id, { tokens: sum.tokens + tokens, failures: sum.failures + failures });
      }
    return sums;
  }

  /** The failures that are kept; the newest first. */
  failures(scope: StudioScope): Failure[] {
    const found: Failure[] = [];
    for (const [owner, failures] of this.#failures) {
      const kept = failures.filter(({ time }) => this.#partOf(time) >= this.#oldest());
      if (kept.length === 0) this.#failures.delete(owner);
      for (const failure of kept.toReversed()) {
        if (!this.#isWithin(this.#partOf(failure.time))) continue;
        if (!isVisible(scope, failure.session)) break;
        found.push(failure);
      }
    }
    return found.sort((one, other) => other.time - one.time);
  }

  /** Whether there may be failures that were not kept, since a user has too many. */
  areFailuresCut(scope: StudioScope): boolean {
    return [...this.#failures.values()].some(
      ([oldest, ...others]) =>
        oldest &&
        others.length === KEPT - 1 &&
        this.#isWithin(this.#partOf(oldest.time)) &&
        isVisible(scope, oldest.session),
    );
  }

  /** How many of the oldest parts were dropped, since there were too many counts. */
  get missing(): number {
    return Math.max(0, this.#counts.dropped - this.#oldest() + 1);
  }

  #partOf = (ms: number) => Math.floor(ms / this.span.size);

  /** Not so for events with a stamp in the future, which count when that has come. */
  #isWithin = (part: number) => part >= this.#oldest() && part <= this.#partOf(Date.now());

  #oldest = () => this.#partOf(Date.now()) - this.span.count + 1;

  async #update(): Promise<boolean> {
    const oldest = this.#oldest();
    let count = 0;
    try {
      this.#cursor ??= await positionBefore(this.log, oldest * this.span.size, this.read);
      for await (const entry of this.log.since(this.#cursor, { limit: AT_ONCE })) {
        if (!entry.copied) this.#add(entry);
        this.#cursor = entry.cursor;
        if (++count % AT_A_STRETCH === 0) await breathe();
      }
    } catch (error) {
      if (!(error instanceof LogWentBackError)) throw error;
      this.#cursor = undefined;
      this.#counts = new Parts();
      this.#modelTimes = this.#newTimes();
      this.#sessions = new Parts();
      this.#unreadable = new Parts();
      this.#failures.clear();
      return false;
    }
    for (const parts of [this.#counts, this.#sessions, this.#unreadable]) parts.drop(oldest);
    return count < AT_ONCE;
  }

  #newTimes() {
    return new ModelTimes(({ part, counted }: { part: number; counted: Counted }, ms) =>
      this.#count(part, timeOf(counted, ms)),
    );
  }

  #count(part: number, counted: Counted): void {
    const { appName, userId, agent, model } = counted;
    // A name has no NUL.
    const id = [appName, userId, agent, model].join('\0');
    this.#counts.add(part, id, { ...counted }, (sum) => addCounted(sum, counted));
  }

  #add(entry: LogEntry): void {
    const { appName, userId, sessionId, seq, event } = entry;
    const counted = countedOf(entry);
    const time = counted ? this.span.timeOf(entry) : entry.appendTime;
    if (time === undefined) return;
    const part = this.#partOf(time);
    if (part < this.#oldest()) return;
    // A name has no NUL.
    const owner = `${appName}\0${userId}`;
    if (!counted || !event) {
      this.#unreadable.add(part, owner, { appName, userId, events: 1 }, (sum) => sum.events++);
      return;
    }
    this.#count(part, counted);
    this.#modelTimes.follow(entry, { ...entry, event }, { part, counted });
    const { keepsFailures, keepsSessions } = this.span;
    const session = { appName, userId, sessionId };
    const found = keepsFailures || keepsSessions ? failuresIn(recordOf(event)) : [];
    if (keepsSessions) {
      const [tokens, failures] = [tokenSum(counted), found.length];
      this.#sessions.add(part, sessionIdentity(session), { tokens, failures }, (sum) => {
        sum.tokens += tokens;
        sum.failures += failures;
      });
    }
    if (!keepsFailures || found.length === 0) return;
    const kept = [
      ...(this.#failures.get(owner) ?? []),
      ...found.map(({ kind, what }, nth) => ({ session, seq, time, kind, what, nth })),
    ];
    // What a host has copied from elsewhere is stored late.
    kept.sort((one, other) => one.time - other.time);
    this.#failures.set(owner, kept.slice(-KEPT));
  }
}

const isVisible = ({ appName, userId }: StudioScope, of: { appName: string; userId: string }) =>
  (appName ?? of.appName) === of.appName && (userId ?? of.userId) === of.userId;

/**
 * Positions increase with the times at which events were stored here, so that 20 looks find the first of a million. Imports and
 * forks keep the times of earlier appends: of an event that seems to be old, it is read whether it was brought so. If nobody had read the
 * log for long, its events got their positions at once, and not in the order of their appends: what was stored since may stand before
 * older events.
 *
 * @returns the position before the first event that was stored at this time or later.
 */
export async function positionBefore(log: EventLog, since: number, read: SqlRunner): Promise<number> {
  let [least, most] = [0, (await log.head()).position];
  while (least < most) {
    const middle = Math.floor((least + most) / 2);
    let earlier: number | undefined;
    for await (const entry of log.since(middle, { limit: 1 }))
      if ((appendOf(entry) ?? since) < since && ((await read((sql) => broughtAt(sql, entry))) ?? 0) < since)
        earlier = entry.cursor.position;
    if (earlier === undefined) most = middle;
    else least = earlier;
  }
  for (let upTo = least; upTo > 0; upTo -= LOOKED_AT) {
    const first = await read((sql) => firstStoredSince(sql, since, { after: upTo - LOOKED_AT, upTo }));
    if (first === undefined) break;
    least = first - 1;
  }
  return least;
}

/** When an event was stored, as far as that is known. */
const appendOf = ({ appendTime, event }: LogEntry): number | undefined => appendTime ?? event?.timestamp;

interface Failed extends Pick<Failure, 'kind' | 'what'> {
  why: string;
  /** What the tool has returned. */
  functionResponse?: unknown;
}

/** What failed in an event, and why. */
export function failuresIn(event: Readonly<Record<string, unknown>>): Failed[] {
  const { errorCode, errorMessage, author } = event;
  const ofTools = partsOf(event).flatMap(({ functionResponse }) => {
    const { name, response } = recordOf(functionResponse);
    return isFailedResponse(response)
      ? { ...failure('tool', name, reasonIn(recordOf(response))), functionResponse }
      : [];
  });
  const ofModel = errorCode
    ? [failure('model', author, [errorCode, errorMessage].filter(Boolean).map(textOrJson).join(': '))]
    : [];
  return [...ofTools, ...ofModel];
}

/** @returns the newest failure of each group, with how often it has failed. */
export function newestOfGroups(failures: readonly Failure[]): (Failure & { times: number })[] {
  const found = new Map<string, Failure & { times: number }>();
  for (const failure of failures) {
    const id = groupOf(failure);
    const group = found.get(id);
    if (group) group.times++;
    else found.set(id, { ...failure, times: 1 });
  }
  return [...found.values()];
}

// A name has no NUL.
export const groupOf = ({ session, kind, what }: FailureGroup): string =>
  `${sessionIdentity(session)}\0${kind}\0${what}`;

const failure = (kind: Failure['kind'], what: unknown, why: unknown): Failed => ({
  kind,
  what: textOrJson(what).slice(0, SHOWN),
  why: textOrJson(why).slice(0, SHOWN),
});

/** How many characters of a name or a reason are kept. */
const SHOWN = 160;

/** @returns what a failed tool says about why. */
export const reasonIn = (response: Readonly<Record<string, unknown>>): string =>
  textOrJson(response['error'] || response['message'] || response).slice(0, SHOWN);
