import type { Sql } from '../database/dialects/dialect.js';
import { allOf, ifGiven, type Condition, numberOf, textOf } from '../database/sql/values.js';
import { IS_WHOLE } from '../database/statements/stored-session.js';
import type { OwnedRows, Sum, SumName } from '../owned/owned-rows.js';
import type { OwnerOptions } from './options.js';

/** What is stored, including soft-deleted sessions. */
export interface SessionStats {
  sessions: number;
  /** How many of them are soft-deleted, see `deletion: 'soft'`, or about to be deleted for good. */
  deletedSessions: number;
  /** How many users have sessions. A user of two apps counts twice, since ADK keeps users of different apps apart. */
  users: number;
  events: number;
  /** Bytes of the events' contents in UTF-8. */
  eventBytes: number;
  /** Bytes of the state's values in UTF-8. */
  stateBytes: number;
  /** Artifacts of sessions and users; all versions of one count once. */
  artifacts: number;
  /** Stored bytes of all versions of artifacts. */
  artifactBytes: number;
  memories: number;
  /** Bytes of the memories' contents in UTF-8. */
  memoryBytes: number;
  /** All are 0 if there are no sessions. */
  eventsPerSession: { mean: number; median: number; percentile95: number; largest: number };
  /** The earliest `lastUpdateTime` of a session, in ms since 1970; absent if there are no sessions. */
  oldestUpdate?: number;
  newestUpdate?: number;
}

type AppCounts = Awaited<ReturnType<typeof countAll>>;

/** @returns how many sessions of an app have a certain number of events, and the sums of all kinds by name and app. */
export async function countAll(sql: Sql, owner: OwnerOptions, kinds: readonly OwnedRows[]) {
  const { where, values } = ofOwner(owner);
  // While a session is deleted or imported, it has another time of the last update.
  const updated = `case when ${IS_WHOLE} then last_update_time else create_time end`;
  const rows = await sql.all(
    `select app_name, last_seq - first_seq + 1 as events, count(*) as sessions, min(${updated}) as oldest,
      max(${updated}) as newest from ${sql.tables.sessions}${where} group by app_name, last_seq - first_seq + 1`,
    values,
  );
  const sessions = rows.map((row) => ({
    appName: textOf(row['app_name']),
    events: numberOf(row['events']),
    sessions: numberOf(row['sessions']),
    oldestUpdate: numberOf(row['oldest']),
    newestUpdate: numberOf(row['newest']),
  }));
  const sums = new Map<string, Map<string, number>>();
  for (const { sums: sumsOf } of kinds)
    for (const [name, parts] of Object.entries(sumsOf?.(sql, owner) ?? {})) {
      const byApp = sums.get(name) ?? new Map<string, number>();
      for (const part of parts)
        for (const [app, sum] of await summed(sql, owner, part)) byApp.set(app, (byApp.get(app) ?? 0) + sum);
      sums.set(name, byApp);
    }
  return { sessions, sums };
}

async function summed(sql: Sql, owner: OwnerOptions, [what, table, condition]: Sum): Promise<[string, number][]> {
  const { where, values } = ofOwner(owner, condition);
  const rows = await sql.all(`select app_name, ${what} as total from ${table}${where} group by app_name`, values);
  return rows.map((row) => [textOf(row['app_name']), numberOf(row['total'])]);
}

function ofOwner({ appName, userId }: OwnerOptions, condition?: string) {
  const more: Condition | undefined = condition === undefined ? undefined : [condition];
  const { where, values } = allOf(more, ifGiven('app_name = ?', appName), ifGiven('user_id = ?', userId));
  return { where: where && ` where ${where}`, values };
}

export function statsByApp(counts: AppCounts): (SessionStats & { appName: string })[] {
  const named = [...counts.sums.values()].flatMap((sum) => [...sum.keys()]);
  const apps = new Set([...counts.sessions.map(({ appName }) => appName), ...named]);
  return [...apps].sort().map((appName) => ({ appName, ...statsOf(counts, (app) => app === appName) }));
}

export function statsOf(counts: AppCounts, isSelected: (appName: string) => boolean = () => true): SessionStats {
  const total = (sum: ReadonlyMap<string, number>) =>
    [...sum].reduce((all, [appName, number]) => (isSelected(appName) ? all + number : all), 0);
  const sums = [...counts.sums].map(([name, sum]) => [name, total(sum)] as const);
  const found = counts.sessions.filter(({ appName }) => isSelected(appName)).sort((a, b) => a.events - b.events);
  const sessions = found.reduce((sum, each) => sum + each.sessions, 0);
  const events = found.reduce((sum, each) => sum + each.events * each.sessions, 0);
  /** @returns the number of events that this part of the sessions does not exceed. */
  const percentile = (part: number) => {
    let below = 0;
    return found.find((each) => (below += each.sessions) >= part * sessions)?.events ?? 0;
  };
  return {
    sessions,
    events,
    ...(Object.fromEntries(sums) as Record<SumName, number>),
    eventsPerSession: {
      mean: sessions === 0 ? 0 : events / sessions,
      median: percentile(0.5),
      percentile95: percentile(0.95),
      largest: found.at(-1)?.events ?? 0,
    },
    // Not with Math.min(…): the number of arguments is limited.
    ...(found.length > 0 && {
      oldestUpdate: found.reduce((oldest, each) => Math.min(oldest, each.oldestUpdate), Infinity),
      newestUpdate: found.reduce((newest, each) => Math.max(newest, each.newestUpdate), -Infinity),
    }),
  };
}
