import type { DatabaseName } from '../test/support/servers.js';
import type { Results } from './results.js';

/** A target for a case or a comparison on some databases. */
interface Target {
  title: string;
  databases: readonly DatabaseName[];
  /** The id of a case or of a comparison. */
  of: string;
  measure: 'timesAsFast' | 'timesTheFloor' | 'cpuTimesTheFloor' | 'comparison';
  atLeast?: number;
  atMost?: number;
}

export interface Verdict {
  title: string;
  database: DatabaseName;
  wanted: string;
  /** The measured value; undefined if there is none. */
  found: number | undefined;
  isMet: boolean;
}

const SERVERS = ['postgresql', 'mysql', 'mariadb'] as const;
const ALL = ['better-sqlite', ...SERVERS] as const;

const againstPeer = (of: string, title: string, databases: readonly DatabaseName[], atLeast: number): Target => ({
  title: `${title}, against the peer`,
  databases,
  of,
  measure: 'timesAsFast',
  atLeast,
});

const againstFloor = (of: string, title: string, databases: readonly DatabaseName[], atMost: number): Target => ({
  title: `${title}, against the floor`,
  databases,
  of,
  measure: 'timesTheFloor',
  atMost,
});

const comparison = (of: string, title: string, atMost: number): Target => ({
  title,
  databases: ALL,
  of,
  measure: 'comparison',
  atMost,
});

const TARGETS: readonly Target[] = [
  againstPeer('append', 'Append', ['postgresql', 'mariadb'], 10),
  // The peer waits for the disk as often as the package, and makes as many round trips to MySQL.
  againstPeer('append', 'Append', ['better-sqlite', 'mysql'], 6),
  againstFloor('append', 'Append', SERVERS, 1.3),
  againstFloor('append', 'Append', ['better-sqlite'], 1.6),
  { title: 'Append, CPU against the floor', databases: ALL, of: 'append', measure: 'cpuTimesTheFloor', atMost: 2 },
  againstPeer('concurrent-sessions', '16 sessions at once', SERVERS, 12),
  againstPeer('concurrent-sessions', '16 sessions at once', ['better-sqlite'], 20),
  againstFloor('concurrent-sessions', '16 sessions at once', SERVERS, 1.3),
  againstFloor('concurrent-sessions', '16 sessions at once', ['better-sqlite'], 0.5),
  againstPeer('concurrent-writers', '8 writers of one session', ALL, 10),
  againstFloor('concurrent-writers', '8 writers of one session', ALL, 1),
  againstPeer('append-all-1000', '1,000 events in one call', ALL, 40),
  againstFloor('append-all-1000', '1,000 events in one call', ALL, 1.5),
  againstPeer('read-1000', 'Read 1,000 events', ALL, 10),
  againstFloor('read-1000', 'Read 1,000 events', ALL, 1.1),
  againstFloor('newest-of-100000', 'Newest 20 of 100,000', ALL, 1.5),
  againstPeer('delete-10000', 'Delete a session of 10,000 events', ALL, 1),
  againstFloor('delete-10000', 'Delete a session of 10,000 events', ALL, 1.3),
  comparison('append-long-history', 'Append to a long history, against a short one', 1.2),
  comparison('append-large-state', 'Append with 1 MB of other state, against 1 KB', 1.2),
  comparison('newest-of-long-history', 'Newest 20 of a long history, against of 1,000', 1.5),
  comparison('list-of-many', 'Page of 50 among many sessions, against 1,000', 1.5),
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
