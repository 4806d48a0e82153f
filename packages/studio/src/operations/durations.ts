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

/** @returns when each event had ended, by its number: the time of its append, if the events around it say that this fits. */
export function endsOf(events: readonly (Appended & { seq: number })[]): Map<number, number> {
  const lanes = new Map<string, (Appended & { seq: number })[]>();
  for (const each of events) {
    const name = laneName(each.event);
    const lane = lanes.get(name);
    if (lane) lane.push(each);
    else lanes.set(name, [each]);
  }
  const ends = new Map<number, number>();
  for (const lane of lanes.values()) {
    let isKnown = true;
    for (const [i, each] of lane.entries()) {
      const following = lane[i + 1];
      const end = endOf(each, following && stampOf(following.event));
      // Nothing follows the last one: it was stored late if the one before it was.
      if (following) isKnown = end !== undefined;
      ends.set(each.seq, (isKnown ? end : undefined) ?? stampOf(each.event));
    }
  }
  return ends;
}
