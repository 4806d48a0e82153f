import { SCOPES } from '../../model/state.js';
import type { DialectSql } from '../dialects/dialect.js';
import { numberOf, textOf } from '../sql/row-values.js';
import type { Sql } from '../sql/sql.js';
import { stateTable, type Tables } from '../sql/tables.js';

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
  /** The bytes of artifacts' contents, by table. */
  artifactBytes: readonly ByApp[];
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

/** What is counted, of which rows. */
interface Count {
  what: string;
  table: string;
  condition?: string;
}

/** The statements of statistics; the server adds up. */
export class StatsStore {
  readonly #tables: Tables;
  readonly #text: ReturnType<typeof texts>;

  constructor(sql: DialectSql, tables: Tables) {
    this.#tables = tables;
    this.#text = texts(sql, tables);
  }

  async count(sql: Sql, owner: Owner): Promise<Counts> {
    const { sessions, events, eventParts, artifacts, artifactVersions, artifactParts } = this.#tables;
    const { bytes } = this.#text;
    const byApp = (count: Count) => this.#byApp(sql, owner, count);
    const counted = await this.#sessionCounts(sql, owner);
    const users = await byApp({ what: 'count(distinct user_id)', table: sessions });
    const deleted = await byApp({ what: 'count(*)', table: sessions, condition: "status <> 'active'" });
    const eventBytes = [
      await byApp({ what: bytes('data'), table: events }),
      await byApp({ what: bytes('text'), table: eventParts }),
    ];
    const stateBytes: ByApp[] = [];
    for (const scope of SCOPES) {
      if (scope === 'app' && owner.userId !== undefined) continue;
      stateBytes.push(await byApp({ what: bytes('value'), table: stateTable(this.#tables, scope) }));
    }
    const artifactCount = await byApp({ what: 'count(*)', table: artifacts });
    const artifactBytes: ByApp[] = [];
    // No database reads the bytes for that.
    for (const table of [artifactVersions, artifactParts])
      artifactBytes.push(await byApp({ what: 'coalesce(sum(length(data)), 0)', table }));
    return {
      ...{ sessions: counted, users, deleted, eventBytes, stateBytes },
      ...{ artifacts: artifactCount, artifactBytes },
    };
  }

  async #sessionCounts(sql: Sql, owner: Owner): Promise<SessionCount[]> {
    const { where, values } = ofOwner(owner);
    const rows = await sql.all<CountRow>(
      `${this.#text.selectCounts}${where} group by app_name, last_seq - first_seq + 1`,
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

  async #byApp(sql: Sql, owner: Owner, { what, table, condition }: Count): Promise<ByApp> {
    const { where, values } = ofOwner(owner, condition);
    const rows = await sql.all<{ app_name: string; total: number | string }>(
      `select app_name, ${what} as total from ${table}${where} group by app_name`,
      values,
    );
    return new Map(rows.map((row) => [textOf(row.app_name), numberOf(row.total)]));
  }
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

function texts(sql: DialectSql, { sessions }: Tables) {
  // A deletion that has begun has overwritten it.
  const updated = `case when status <> 'ending' then last_update_time else create_time end`;
  return {
    selectCounts: `select app_name, last_seq - first_seq + 1 as events, count(*) as sessions,
      min(${updated}) as oldest, max(${updated}) as newest from ${sessions}`,
    bytes: (column: string) => `coalesce(sum(${sql.byteLength(column)}), 0)`,
  };
}
