import { randomNumbers } from '../payloads.js';

const SEED = 20_261_122;

const DAY = 24 * 3_600_000;

/** The number of days on which sessions began. */
export const DAYS = 400;

/** The time between two events, in ms. */
const STEP = 60_000;

/**
 * By Zipf's law the session of rank r has 1 / r^0.7265 of the events of the longest one. With 10,000,000 events in 200,000
 * sessions, the longest has 100,000, and half of the sessions have 23 or fewer. With fewer events, in proportionally fewer
 * sessions, the usual ones are just as long.
 */
const EXPONENT = 0.7265;

const SESSIONS_PER_USER = 10;

const APPS = [
  { name: 'travel', part: 0.7 },
  { name: 'support', part: 0.2 },
  { name: 'billing', part: 0.1 },
];

/** The app that most sessions are of. */
export const BIG_APP = 'travel';

/** The label of every tenth session, and that of one in 10,000. */
export const COMMON_LABEL = { topic: 'refund' };
export const RARE_LABEL = { topic: 'complaint' };

/** The size of a population. */
export interface Size {
  events: number;
  sessions: number;
}

/** A session to fill the tables with. */
export interface Conversation {
  /** 1, 2, 3 … by the time of creation. */
  ordinal: number;
  appName: string;
  userId: string;
  sessionId: string;
  incarnation: string;
  length: number;
  createTime: number;
  /** Between two events, in ms. */
  step: number;
  title: string | null;
  labels: string | null;
}

/** @returns the same sessions for the same size, except for their times, in the order of creation. */
export function conversations({ events, sessions }: Size, now: number): Conversation[] {
  const random = randomNumbers(SEED);
  return shuffled(lengths(events, sessions), random).map((length, i) => {
    const createTime = Math.floor(now - (1 - i / sessions) * DAYS * DAY);
    return {
      ...conversation(i + 1, sessions, random),
      length,
      createTime,
      // The last event is not later than now.
      step: Math.max(1, Math.min(STEP, Math.floor((now - createTime) / (length + 1)))),
      title: i % 2 === 0 ? `Conversation ${i + 1} about a flight to Lisbon` : null,
      labels: labelsOf(i + 1),
    };
  });
}

/** @returns a day's sessions of the usual length, which were last used before all others. */
export function oldDay({ events, sessions }: Size, now: number, firstOrdinal: number): Conversation[] {
  const random = randomNumbers(SEED + firstOrdinal);
  return Array.from({ length: Math.max(1, Math.round(sessions / DAYS)) }, (_, i) => ({
    ...conversation(firstOrdinal + i, sessions, random),
    length: Math.round(events / sessions),
    createTime: now - 2 * DAYS * DAY,
    step: 1_000,
    title: null,
    labels: null,
  }));
}

function conversation(ordinal: number, sessions: number, random: () => number) {
  // Squared, so that few users have many sessions.
  const user = Math.floor(Math.ceil(sessions / SESSIONS_PER_USER) * random() ** 2);
  return {
    ordinal,
    appName: appOf(random()),
    userId: `user-${String(user).padStart(6, '0')}`,
    sessionId: uuid(random),
    incarnation: uuid(random),
  };
}

/** @returns how many events each session has, the longest first; `events` in all. */
function lengths(events: number, sessions: number): number[] {
  const weights = Array.from({ length: sessions }, (_, i) => (i + 1) ** -EXPONENT);
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  const found = weights.map((weight) => Math.max(1, Math.floor((events * weight) / total)));
  let rest = events - found.reduce((sum, length) => sum + length, 0);
  if (rest < 0) throw new Error(`There are too few events for ${sessions} sessions.`);
  for (let i = 0; rest > 0; i = (i + 1) % sessions, rest--) found[i]!++;
  return found;
}

function shuffled(values: number[], random: () => number): number[] {
  for (let i = values.length - 1; i > 0; i--) {
    const other = Math.floor(random() * (i + 1));
    [values[i], values[other]] = [values[other]!, values[i]!];
  }
  return values;
}

function appOf(part: number): string {
  let below = 0;
  return APPS.find((app) => part < (below += app.part))?.name ?? BIG_APP;
}

function labelsOf(ordinal: number): string | null {
  if (ordinal % 10 === 0) return JSON.stringify(COMMON_LABEL);
  return ordinal % 10_000 === 77 ? JSON.stringify(RARE_LABEL) : null;
}

function uuid(random: () => number): string {
  const hex = Array.from({ length: 4 }, () =>
    Math.floor(random() * 2 ** 32)
      .toString(16)
      .padStart(8, '0'),
  ).join('');
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join('-');
}
