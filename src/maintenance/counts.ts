import { isOpenUpload } from '../artifacts/uploads.js';
import type { Sql } from '../database/dialects/dialect.js';
import { numberOf, textOf } from '../database/sql/row-values.js';
import { stateTable } from '../database/sql/tables.js';
import { SCOPES } from '../model/state.js';

/** Counts by the database, soft-deleted sessions included. */
export interface Counts {
  sessions: readonly SessionCount[];
  /** How many users have sessions. */
  users: ByApp;
  /** How many sessions are soft-deleted. */
  deleted: ByApp;
  /** The bytes of the events' contents, by table. */
  eventBytes: readonly ByApp[];
  /** The bytes of the state of sessions, users and apps; of one user without the app's. */
  stateBytes: readonly ByApp[];
  artifacts: ByApp;
  /** Saves from streams that have not ended. */
  uploads: ByApp;
  /** The bytes of artifacts' contents, by table. */
  artifactBytes: readonly ByApp[];
  memories: ByApp;
  memoryBytes: ByApp;
}

/** How many sessions have a number of events. */
interface SessionCount {
  appName: string;
  events: number;
  sessions: number;
  oldestUpdate: number;
  newestUpdate: number;
}

/** A number for each app. */
export type ByApp = ReadonlyMap<string, number>;

/** Which rows a count takes in. */
interface Owner {
  appName?: string | undefined;
  userId?: string | undefined;
}

/** The server adds up. */
export async function countAll(sql: Sql, owner: Owner): Promise<Counts> {
  const { tables, dialect } = sql;
  const byApp = async (what: string, table: string, condition?: string): Promise<ByApp> => {
    const { where, values } = ofOwner(owner, condition);
    const rows = await sql.all<{ app_name: string; total: number | string }>(
      `select app_name, ${what} as total from ${table}${where} group by app_name`,
      values,
    );
    return new Map(rows.map((row) => [textOf(row.app_name), numberOf(row.total)]));
  };
  const bytes = (column: string) => `coalesce(sum(${dialect.sql.byteLength(column)}), 0)`;
  const sessions = await sessionCounts(sql, owner);
  const users = await byApp('count(distinct user_id)', tables.sessions);
  const deleted = await byApp('count(*)', tables.sessions, "status <> 'active'");
  const eventBytes = [await byApp(bytes('data'), tables.events), await byApp(bytes('text'), tables.eventParts)];
  const stateBytes: ByApp[] = [];
  for (const scope of SCOPES) {
    if (scope === 'app' && owner.userId !== undefined) continue;
    stateBytes.push(await byApp(bytes('value'), stateTable(tables, scope)));
  }
  const artifacts = await byApp('count(*)', tables.artifacts, 'last_version >= 0');
  const uploads = await byApp('count(*)', `${tables.artifactVersions} as v`, isOpenUpload(tables.artifactVersions));
  const artifactBytes: ByApp[] = [];
  // No database reads the bytes for that.
  for (const table of [tables.artifactVersions, tables.artifactParts])
    artifactBytes.push(await byApp('coalesce(sum(length(data)), 0)', table));
  const memories = await byApp('count(*)', tables.memories);
  const memoryBytes = await byApp(bytes('data'), tables.memories);
  return { sessions, users, deleted, eventBytes, stateBytes, artifacts, uploads, artifactBytes, memories, memoryBytes };
}

async function sessionCounts(sql: Sql, owner: Owner): Promise<SessionCount[]> {
  const { where, values } = ofOwner(owner);
  // A deletion that has begun has overwritten the time of the last update.
  const updated = `case when status <> 'ending' then last_update_time else create_time end`;
  const rows = await sql.all<CountRow>(
    `select app_name, last_seq - first_seq + 1 as events, count(*) as sessions, min(${updated}) as oldest,
      max(${updated}) as newest from ${sql.tables.sessions}${where} group by app_name, last_seq - first_seq + 1`,
    values,
  );
  return rows.map((row) => ({
    appName: textOf(row.app_name),
    events: numberOf(row.events),
    sessions: numberOf(row.sessions),
    oldestUpdate: numberOf(row.oldest),
    newestUpdate: numberOf(row.newest),
  }));
}

function ofOwner({ appName, userId }: Owner, condition?: string): { where: string; values: unknown[] } {
  const conditions = [
    ...(condition === undefined ? [] : [condition]),
    ...(appName === undefined ? [] : ['app_name = ?']),
    ...(userId === undefined ? [] : ['user_id = ?']),
  ];
  return {
    where: conditions.length > 0 ? ` where ${conditions.join(' and ')}` : '',
    values: [appName, userId].filter((value) => value !== undefined),
  };
}

interface CountRow {
  app_name: string;
  events: number | string;
  sessions: number | string;
  oldest: number | string;
  newest: number | string;
}
