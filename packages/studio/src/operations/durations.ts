import { recordOf } from '../../../../src/model/json.js';

/** How much the clocks of the application and of the database may differ, in ms. */
const CLOCKS_MS = 60_000;

/** How long a request to a model, or tools that run side by side, may have taken, in ms. */
const LONGEST_MS = 3_600_000;

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

/** @returns how long the model took that made an event, in ms; undefined if nobody knows. */
export function modelMs(appended: Appended): number | undefined {
  const end = endOf(appended);
  return end === undefined ? undefined : end - stampOf(appended.event);
}

/** @returns the branch of an event, or its author. */
export function laneName(event: object): string {
  const { branch, author } = recordOf(event);
  return [branch, author].find((each): each is string => typeof each === 'string' && each !== '') ?? 'unknown';
}

/** When each event had ended: the time of its append, if the events around it say that this fits. */
export class Ends {
  readonly #ends = new Map<number, number>();
  /** The newest event of each lane. */
  readonly #newest = new Map<string, Appended & { seq: number }>();

  /** Adds the next event, which also says more about the one before it. */
  add(added: Appended & { seq: number }): void {
    const lane = laneName(added.event);
    const before = this.#newest.get(lane);
    const end = before && endOf(before, stampOf(added.event));
    if (before) this.#ends.set(before.seq, end ?? stampOf(before.event));
    // Nothing follows the last one: it was stored late if the one before it was.
    const isKnown = !before || end !== undefined;
    this.#ends.set(added.seq, (isKnown ? endOf(added) : undefined) ?? stampOf(added.event));
    this.#newest.set(lane, added);
  }

  /** @param seq the number of an event. @returns in ms since 1970; undefined if the event was not added. */
  of(seq: number): number | undefined {
    return this.#ends.get(seq);
  }
}
