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
export function endOf({ event, appendTime }: Appended, next = Infinity): number | undefined {
  const stamp = stampOf(event);
  if (recordOf(event)['author'] === 'user') return stamp;
  if (appendTime === undefined || appendTime - stamp > LONGEST_MS || appendTime - CLOCKS_MS > next) return undefined;
  return Math.max(stamp, Math.min(appendTime, next));
}

/** @returns how long the model took that made an event, in ms; undefined if nobody knows. */
export function modelMs(appended: Appended): number | undefined {
  const end = endOf(appended);
  return end === undefined ? undefined : end - stampOf(appended.event);
}

/** @returns how long a call took until the event that answers it, in ms. If it is not known when one was stored, their stamps say so. */
export function toolMs(made: Appended, answered: Appended): number {
  const [start, end] = [endOf(made), endOf(answered)];
  const stamps = stampOf(answered.event) - stampOf(made.event);
  return Math.max(0, start === undefined || end === undefined ? stamps : end - start);
}
