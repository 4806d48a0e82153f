import type { SessionKey } from '../../../../src/index.js';
import { isRecord, recordOf } from '../../../../src/model/json.js';
import { sessionIdentity } from '../../../../src/model/keys.js';

/** How much the clocks of the application and of the database may differ, in ms. */
const CLOCKS_MS = 60_000;

/** How long a request to a model, or tools that run side by side, may have taken, in ms. */
const LONGEST_MS = 3_600_000;

/** Whether a tool that was called at this time, and has not answered, never will. */
export const isLost = (since: number, now: number): boolean => now - since >= LONGEST_MS;

/** An event, and when the database stored it, if that is known. */
interface Appended {
  event: object;
  appendTime?: number | undefined;
}

/** Zero for what is no time, as other programs may store it. */
export const stampOf = (event: object): number => {
  const { timestamp } = recordOf(event);
  return typeof timestamp === 'number' && Number.isFinite(timestamp) ? timestamp : 0;
};

/**
 * When an event happened: when it was stored, or when it was made if it was stored long after, as by an import or by a host that
 * copies its history.
 */
export function happenedAt({ event, appendTime }: Partial<Appended>): number | undefined {
  const stamp = event && stampOf(event);
  return appendTime === undefined || (stamp !== undefined && appendTime - stamp > LONGEST_MS) ? stamp : appendTime;
}

/**
 * When the work that made an event had ended. ADK stamps a model's event when its request begins, and appends it when the model
 * has answered: then its append says when. An answer of tools has the stamp of the first that ended. An event that was stored long after it was
 * made says nothing: a host may have copied it from another store. That is so if nothing takes so long, or if the same agent had
 * gone on meanwhile.
 *
 * @param next the stamp of the next event of the same agent, if that is known.
 * @returns in ms since 1970; undefined if nobody knows.
 */
function endOf({ event, appendTime }: Appended, next = Infinity): number | undefined {
  const stamp = stampOf(event);
  if (recordOf(event)['author'] === 'user') return stamp;
  // Events of an import, or of another clock, may not be in order.
  const following = next < stamp ? Infinity : next;
  if (appendTime === undefined || appendTime - stamp > LONGEST_MS || appendTime - CLOCKS_MS > following)
    return undefined;
  return Math.max(stamp, Math.min(appendTime, following));
}

/** @returns the branch of an event, or its author. */
export function laneName(event: object): string {
  const { branch, author } = recordOf(event);
  return [branch, author].find((each): each is string => typeof each === 'string' && each !== '') ?? 'unknown';
}

/**
 * @param before the event before it in its lane, which it says more about.
 * @returns when both had ended, in ms since 1970; undefined if nobody knows.
 */
function endsOf(
  before: Appended | undefined,
  added: Appended,
): { before: number | undefined; own: number | undefined } {
  const end = before && endOf(before, stampOf(added.event));
  // Nothing follows the last one: it was stored late if the one before it was.
  return { before: end, own: !before || end !== undefined ? endOf(added) : undefined };
}

/** Of how many lanes the newest event is kept. */
const MOST_LANES = 1_000;

/**
 * How long the models of many sessions took, as the pages of each session show it.
 *
 * @typeParam To what a time is added to.
 */
export class ModelTimes<To> {
  /** The newest event of each lane, without its content, and what was added for it if a model made it. */
  readonly #newest = new Map<string, Appended & { to: To; ms: number | undefined }>();

  /** @param add adds a time; less than nothing if an event took less than it seemed, as the next one of its lane says. */
  constructor(readonly add: (to: To, ms: number) => void) {}

  /** The next event of a session. */
  follow(session: SessionKey, { event, appendTime }: Appended, to: To): void {
    // A name has no NUL.
    const lane = `${sessionIdentity(session)}\0${laneName(event)}`;
    const before = this.#newest.get(lane);
    const { timestamp, author, usageMetadata } = recordOf(event);
    const brief: Appended = { event: { timestamp, author }, appendTime };
    const ends = endsOf(before, brief);
    if (before?.ms !== undefined) this.add(before.to, msUntil(ends.before, before) - before.ms);
    const ms = isRecord(usageMetadata) ? msUntil(ends.own, brief) : undefined;
    if (ms !== undefined) this.add(to, ms);
    // The lanes that are continued last are forgotten last.
    this.#newest.delete(lane);
    this.#newest.set(lane, { ...brief, to, ms });
    const [oldest] = this.#newest.keys();
    if (oldest !== undefined && this.#newest.size > MOST_LANES) this.#newest.delete(oldest);
  }
}

const msUntil = (end: number | undefined, { event }: Appended) => (end === undefined ? 0 : end - stampOf(event));

/** When each event had ended: the time of its append, if the events around it say that this fits. */
export class Ends {
  readonly #ends = new Map<number, number>();
  /** The newest event of each lane. */
  readonly #newest = new Map<string, Appended & { seq: number }>();

  /** Adds the next event, which also says more about the one before it. */
  add(added: Appended & { seq: number }): void {
    const lane = laneName(added.event);
    const before = this.#newest.get(lane);
    const ends = endsOf(before, added);
    if (before) this.#ends.set(before.seq, ends.before ?? stampOf(before.event));
    this.#ends.set(added.seq, ends.own ?? stampOf(added.event));
    this.#newest.set(lane, added);
  }

  /** @param seq the number of an event. @returns in ms since 1970; undefined if the event was not added. */
  of(seq: number): number | undefined {
    return this.#ends.get(seq);
  }
}
