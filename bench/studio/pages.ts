import { BIG_APP, COMMON_LABEL, RARE_LABEL } from '../growth/conversations.js';
import { LONGEST, MANY } from './population.js';

/** A page that is measured. */
export interface Page {
  title: string;
  path: string;
  /** Measures the page behind this link instead. */
  follow?: 'next' | 'prev';
  /** A page that reads as much as its button says, and may take long. */
  isAskedFor?: true;
}

const query = (path: string, values: Record<string, string | number>) =>
  `${path}?${new URLSearchParams(Object.entries(values).map(([name, value]): [string, string] => [name, String(value)])).toString()}`;

const sessions = (filter: Record<string, string> = {}) => query('/sessions', { app: BIG_APP, ...filter });
const longest = (values: Record<string, number> = {}, path = '/session') =>
  query(path, { app: LONGEST.appName, user: LONGEST.userId, session: LONGEST.sessionId, ...values });
const label = (labels: Record<string, string>) => Object.entries(labels).map((pair) => pair.join('='))[0] ?? '';

const withNext = (title: string, path: string): Page[] => [
  { title, path },
  { title: `${title}, next page`, path, follow: 'next' },
];

export const PAGES: readonly Page[] = [
  ...withNext('apps', '/'),
  ...withNext('users', query('/users', { app: BIG_APP })),
  ...withNext('sessions', sessions()),
  ...withNext('sessions, the oldest first', sessions({ order: 'asc' })),
  ...withNext('sessions of a user', sessions({ user: LONGEST.userId })),
  ...withNext('soft-deleted sessions', sessions({ status: 'deleted' })),
  ...withNext('sessions by a title that half of them have', sessions({ title: 'Lisbon' })),
  { title: 'sessions by a title that one has', path: sessions({ title: 'longest' }) },
  { title: 'sessions by a title that none has', path: sessions({ title: 'nowhere' }) },
  ...withNext('sessions by a label that every tenth has', sessions({ labels: label(COMMON_LABEL) })),
  { title: 'sessions by a label that few have', path: sessions({ labels: label(RARE_LABEL) }) },
  { title: 'sessions by a label that none has', path: sessions({ labels: 'topic=nothing' }) },
  ...withNext('sessions by their last update', sessions({ from: '2020-01-01' })),
  { title: 'conversation', path: longest() },
  { title: 'conversation, older events', path: longest(), follow: 'prev' },
  { title: 'conversation, its first events', path: longest({ after: 0 }) },
  { title: 'conversation, events in the middle', path: longest({ before: MANY / 2 }) },
  { title: 'time line, at the beginning', path: longest({ at: 1 }) },
  { title: 'time line, in the middle', path: longest({ at: MANY / 2 }) },
  { title: 'time line, near the end', path: longest({ at: MANY - 10 }) },
  { title: 'time line, at the end', path: longest({ at: MANY }) },
  { title: 'event', path: longest({ seq: MANY / 2 }, '/event') },
  { title: 'operations', path: '/operations' },
  { title: 'operations: statistics', path: '/operations/stats' },
  { title: 'operations: statistics, counted', path: '/operations/stats?count=1', isAskedFor: true },
  { title: 'operations: doctor', path: '/operations/doctor' },
  { title: 'repair', path: longest({}, '/repair') },
  { title: 'repair, scanned', path: longest({ scan: 1 }, '/repair'), isAskedFor: true },
];
