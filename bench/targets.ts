import type { DatabaseName } from '../test/support/servers.js';
import type { Results } from './results.js';

/** A line of the table of targets in issue 3. */
interface Target {
  title: string;
  databases: readonly DatabaseName[];
  /** The id of a case or of a comparison. */
  of: string;
  measure: 'timesAsFast' | 'timesTheFloor' | 'comparison';
  atLeast?: number;
  atMost?: number;
}

export interface Verdict {
  title: string;
  database: DatabaseName;
  wanted: string;
  /** Undefined where it was not measured. */
  found: number | undefined;
  isMet: boolean;
}

const SERVERS = ['postgresql', 'mysql', 'mariadb'] as const;
const ALL = ['better-sqlite', ...SERVERS] as const;

const TARGETS: readonly Target[] = [
  {
    title: 'Append with one session key, against the peer',
    databases: ALL,
    of: 'append',
    measure: 'timesAsFast',
    atLeast: 10,
  },
  {
    title: 'Append with one session key, against the floor',
    databases: SERVERS,
    of: 'append',
    measure: 'timesTheFloor',
    atMost: 1.5,
  },
  {
    title: 'Append with one session key, against the floor',
    databases: ['better-sqlite'],
    of: 'append',
    measure: 'timesTheFloor',
    atMost: 6,
  },
  {
    title: 'Append to a long history, against a short one',
    databases: ALL,
    of: 'append-long-history',
    measure: 'comparison',
    atMost: 1.2,
  },
  {
    title: 'Append with 1 MB of other state, against 1 KB',
    databases: ALL,
    of: 'append-large-state',
    measure: 'comparison',
    atMost: 1.2,
  },
  { title: 'Read 1,000 events, against the peer', databases: ALL, of: 'read-1000', measure: 'timesAsFast', atLeast: 4 },
  {
    title: 'Read 1,000 events, against the floor',
    databases: ALL,
    of: 'read-1000',
    measure: 'timesTheFloor',
    atMost: 1.5,
  },
  {
    title: 'Newest 20 of a long history, against of 1,000',
    databases: ALL,
    of: 'newest-of-long-history',
    measure: 'comparison',
    atMost: 1.5,
  },
  {
    title: 'Page of 50 among many sessions, against 1,000',
    databases: ALL,
    of: 'list-of-many',
    measure: 'comparison',
    atMost: 1.5,
  },
  {
    title: '16 concurrent sessions, against the peer',
    databases: ALL,
    of: 'concurrent-sessions',
    measure: 'timesAsFast',
    atLeast: 8,
  },
  {
    title: '8 writers on one session, against the peer',
    databases: ALL,
    of: 'concurrent-writers',
    measure: 'timesAsFast',
    atLeast: 5,
  },
];

export function verdicts(results: Results): Verdict[] {
  return TARGETS.flatMap(({ title, databases, of, measure, atLeast, atMost }) =>
    databases.map((database) => {
      const found =
        measure === 'comparison'
          ? results.comparisons.find((item) => item.database === database && item.id === of)?.ratio
          : results.cases.find((item) => item.database === database && item.id === of)?.[measure];
      const value = found?.median;
      const isMet = value !== undefined && value >= (atLeast ?? 0) && value <= (atMost ?? Infinity);
      const wanted = atLeast === undefined ? `≤ ${atMost}` : `≥ ${atLeast}`;
      return { title, database, wanted, found: value, isMet };
    }),
  );
}
