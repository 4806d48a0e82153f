import type { ByApp, Counts } from './counts.js';

/** What is stored, soft-deleted sessions included. */
export interface SessionStats {
  sessions: number;
  /** How many of them are soft-deleted, see `deletion: 'soft'`. */
  deletedSessions: number;
  /** How many users have sessions. ADK keeps the users of different apps apart, so that one of two apps counts twice. */
  users: number;
  events: number;
  /** Bytes of the events' contents, as UTF-8. */
  eventBytes: number;
  /** Bytes of the state's values, as UTF-8. */
  stateBytes: number;
  /** Artifacts of sessions and users, each with all its versions. */
  artifacts: number;
  /** Bytes of the artifacts' contents, of all versions, as they are stored; also of those that are being saved from streams. */
  artifactBytes: number;
  /** Saves of artifacts from streams that have not ended: under way, or abandoned. `prune` removes those that got nothing for a day. */
  uploads: number;
  memories: number;
  /** Bytes of the memories’ contents, as UTF-8. */
  memoryBytes: number;
  /** The mean is 0 without sessions, and so are the others. */
  eventsPerSession: { mean: number; median: number; percentile95: number; largest: number };
  /** The `lastUpdateTime` of the session that was updated first, in ms since 1970; absent without sessions. */
  oldestUpdate?: number;
  newestUpdate?: number;
}

export interface AppStats extends SessionStats {
  appName: string;
}

export function statsByApp(counts: Counts): AppStats[] {
  const maps = [counts.users, ...counts.stateBytes, counts.artifacts, counts.uploads, counts.memories];
  const apps = new Set([...counts.sessions.map(({ appName }) => appName), ...maps.flatMap((map) => [...map.keys()])]);
  return [...apps].sort().map((appName) => ({ appName, ...statsOf(counts, (app) => app === appName) }));
}

export function statsOf(counts: Counts, isMeant: (appName: string) => boolean = () => true): SessionStats {
  const total = (...maps: readonly ByApp[]) =>
    maps.flatMap((map) => [...map]).reduce((sum, [appName, number]) => (isMeant(appName) ? sum + number : sum), 0);
  const found = counts.sessions.filter(({ appName }) => isMeant(appName)).sort((a, b) => a.events - b.events);
  const sessions = found.reduce((sum, each) => sum + each.sessions, 0);
  const events = found.reduce((sum, each) => sum + each.events * each.sessions, 0);
  /** The number of events that so large a part of the sessions has at most. */
  const percentile = (part: number) => {
    let below = 0;
    return found.find((each) => (below += each.sessions) >= part * sessions)?.events ?? 0;
  };
  return {
    sessions,
    deletedSessions: total(counts.deleted),
    users: total(counts.users),
    events,
    eventBytes: total(...counts.eventBytes),
    stateBytes: total(...counts.stateBytes),
    artifacts: total(counts.artifacts),
    artifactBytes: total(...counts.artifactBytes),
    uploads: total(counts.uploads),
    memories: total(counts.memories),
    memoryBytes: total(counts.memoryBytes),
    eventsPerSession: {
      mean: sessions === 0 ? 0 : events / sessions,
      median: percentile(0.5),
      percentile95: percentile(0.95),
      largest: found.at(-1)?.events ?? 0,
    },
    // Math.min(…) would not do: an argument list is limited.
    ...(found.length > 0 && {
      oldestUpdate: found.reduce((oldest, each) => Math.min(oldest, each.oldestUpdate), Infinity),
      newestUpdate: found.reduce((newest, each) => Math.max(newest, each.newestUpdate), -Infinity),
    }),
  };
}
