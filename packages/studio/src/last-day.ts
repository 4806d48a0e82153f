import { isFailedResponse } from '../../../src/conversation/failed-response.js';
import { NO_TOKENS, addTokens, tokensOf, type TokenCounts } from '../../../src/conversation/tokens.js';
import { LogWentBackError, type EventLog, type LogCursor, type SessionKey } from '../../../src/index.js';
import { recordOf } from '../../../src/model/json.js';
import { sessionIdentity } from '../../../src/model/keys.js';
import { partsOf } from '../../../src/model/turn.js';
import { textOrJson } from './operations/words.js';
import type { StudioScope } from './guard.js';

const HOUR_MS = 3_600_000;

export const HOURS = 24;

/** How many events are read at most for a page. The next page continues. */
const AT_ONCE = 20_000;

/** How many failures are kept. */
const KEPT = 200;

/** A tool or a model that failed. */
interface Failure {
  session: SessionKey;
  seq: number;
  time: number;
  /** The name of the tool, or the agent whose model failed. */
  what: string;
  why: string;
}

/** What happened in an app within the last day. */
export interface Activity extends TokenCounts {
  appName: string;
  /** The events of each hour, the oldest first. */
  byHour: number[];
}

interface Counted extends TokenCounts {
  appName: string;
  userId: string;
  events: number;
}

type Entry = ReturnType<EventLog['since']> extends AsyncIterable<infer Each> ? Each : never;

/**
 * Counts the events of the last 24 hours. Each event is read once: the counts are kept, and a page adds the entries that the log
 * has gained since the page before it. Copies of forks are not counted.
 */
export class LastDay {
  #cursor: LogCursor | number | undefined;
  /** By hour, then by app and user. */
  #hours = new Map<number, Map<string, Counted>>();
  #failures: Failure[] = [];
  #reading: Promise<boolean> | undefined;

  constructor(readonly log: EventLog) {}

  /** @returns whether everything was read; otherwise the next call continues. */
  update(): Promise<boolean> {
    this.#reading ??= this.#update().finally(() => (this.#reading = undefined));
    return this.#reading;
  }

  /** The apps of the visitor with events, in no order. */
  activity(scope: StudioScope): Activity[] {
    const now = hourOf(Date.now());
    const apps = new Map<string, Activity>();
    for (const [hour, counts] of this.#hours)
      for (const counted of counts.values()) {
        const at = HOURS - 1 - (now - hour);
        if (!isVisible(scope, counted) || at < 0) continue;
        const app = apps.get(counted.appName) ?? {
          ...{ appName: counted.appName, ...NO_TOKENS },
          byHour: Array.from({ length: HOURS }, () => 0),
        };
        apps.set(counted.appName, app);
        addTokens(app, counted);
        app.byHour[at] = (app.byHour[at] ?? 0) + counted.events;
      }
    return [...apps.values()];
  }

  /** The newest failure of each tool in each session, with how often it has failed there; the newest first. */
  failures(scope: StudioScope): (Failure & { times: number })[] {
    const since = Date.now() - HOURS * HOUR_MS;
    const found = new Map<string, Failure & { times: number }>();
    for (const failure of this.#failures.toReversed()) {
      if (failure.time < since || !isVisible(scope, failure.session)) continue;
      const id = `${sessionIdentity(failure.session)}\0${failure.what}`;
      found.set(id, { ...(found.get(id) ?? failure), times: (found.get(id)?.times ?? 0) + 1 });
    }
    return [...found.values()];
  }

  async #update(): Promise<boolean> {
    const oldest = hourOf(Date.now()) - HOURS + 1;
    for (const hour of this.#hours.keys()) if (hour < oldest) this.#hours.delete(hour);
    let count = 0;
    try {
      this.#cursor ??= await this.#firstPosition(oldest * HOUR_MS);
      for await (const entry of this.log.since(this.#cursor, { limit: AT_ONCE })) {
        this.#add(entry, oldest);
        this.#cursor = entry.cursor;
        count++;
      }
    } catch (error) {
      if (!(error instanceof LogWentBackError)) throw error;
      [this.#cursor, this.#hours, this.#failures] = [undefined, new Map<number, Map<string, Counted>>(), []];
      return false;
    }
    return count < AT_ONCE;
  }

  /** Positions and times increase together, so that 20 looks find the first of a million. */
  async #firstPosition(since: number): Promise<number> {
    let [before, after] = [0, (await this.log.head()).position];
    while (after - before > 50) {
      const middle = Math.floor((before + after) / 2);
      let time = since;
      for await (const entry of this.log.since(middle, { limit: 1 })) time = timeOf(entry) ?? since;
      if (time < since) before = middle;
      else after = middle;
    }
    return before;
  }

  #add(entry: Entry, oldest: number): void {
    const { appName, userId, sessionId, seq, event, copied } = entry;
    const time = timeOf(entry);
    if (copied || !event || time === undefined || hourOf(time) < oldest) return;
    const hour = this.#hours.get(hourOf(time)) ?? new Map<string, Counted>();
    this.#hours.set(hourOf(time), hour);
    // A name has no NUL.
    const id = `${appName}\0${userId}`;
    const counted = hour.get(id) ?? { appName, userId, events: 0, ...NO_TOKENS };
    hour.set(id, counted);
    counted.events++;
    addTokens(counted, tokensOf(event) ?? NO_TOKENS);
    for (const { what, why } of failuresIn(recordOf(event)))
      this.#failures.push({ session: { appName, userId, sessionId }, seq, time, what, why });
    this.#failures.splice(0, this.#failures.length - KEPT);
  }
}

const isVisible = ({ appName, userId }: StudioScope, of: { appName: string; userId: string }) =>
  (appName ?? of.appName) === of.appName && (userId ?? of.userId) === of.userId;

const hourOf = (ms: number) => Math.floor(ms / HOUR_MS);

const timeOf = ({ appendTime, event }: Entry) => appendTime ?? event?.timestamp;

function failuresIn(event: Readonly<Record<string, unknown>>): Pick<Failure, 'what' | 'why'>[] {
  const { errorCode, errorMessage, author } = event;
  const ofTools = partsOf(event).flatMap(({ functionResponse }) => {
    const { name, response } = recordOf(functionResponse);
    return isFailedResponse(response) ? failure(name, reasonIn(recordOf(response))) : [];
  });
  const ofModel = errorCode ? [failure(author, errorMessage ?? errorCode)] : [];
  return [...ofTools, ...ofModel];
}

const failure = (what: unknown, why: unknown) => ({
  what: textOrJson(what).slice(0, SHOWN),
  why: textOrJson(why).slice(0, SHOWN),
});

/** How many characters of a name or a reason are kept. */
const SHOWN = 160;

const reasonIn = (response: Readonly<Record<string, unknown>>) =>
  textOrJson(response['error'] || response['message'] || response);
