import { setTimeout } from 'node:timers/promises';
import { MikroORM } from '@mikro-orm/core';
import type { AbstractSqlConnection } from '@mikro-orm/postgresql';
import type { ServerName, TestDatabase } from '../support/servers.js';

/** A connection to a database, as its server sees it. */
export interface ServerSession {
  id: number;
  inTransaction: boolean;
  waitsForLock: boolean;
}

interface Statements {
  /** Which connections a database has. */
  ids: string;
  /** What they are doing. */
  list: string;
  end(id: number): string;
  /** The limit of a packet, where the server has one. */
  maxPacket?: string;
}

const mysqlFamily = {
  end: (id: number) => `kill ${id}`,
  maxPacket: 'select @@max_allowed_packet as bytes',
};

const STATEMENTS: Record<ServerName, Statements> = {
  postgresql: {
    ids: `select pid as id from pg_stat_activity where backend_type = 'client backend' and datname = ?`,
    list: `select pid as id, xact_start is not null as "inTransaction",
        coalesce(wait_event_type = 'Lock', false) as "waitsForLock"
      from pg_stat_activity where backend_type = 'client backend' and datname = ?`,
    end: (id) => `select pg_terminate_backend(${id})`,
  },
  mysql: {
    ...mysqlFamily,
    // Its older tables fail when a statement that anybody runs holds an emoji.
    ids: 'select processlist_id as id from performance_schema.threads where processlist_db = ?',
    list: `select processlist_id as id,
        exists (select 1 from performance_schema.events_transactions_current as transactions
          where transactions.thread_id = threads.thread_id and state = 'ACTIVE') as inTransaction,
        exists (select 1 from performance_schema.data_lock_waits
          where requesting_thread_id = threads.thread_id) as waitsForLock
      from performance_schema.threads as threads where processlist_db = ?`,
  },
  mariadb: {
    ...mysqlFamily,
    ids: 'select id as id from information_schema.processlist where db = ?',
    list: `select p.id as id, t.trx_id is not null as inTransaction, coalesce(t.trx_state = 'LOCK WAIT', 0) as waitsForLock
      from information_schema.processlist p left join information_schema.innodb_trx t on t.trx_mysql_thread_id = p.id
      where p.db = ?`,
  },
};

/** InnoDB's table of transactions shows the same again, unless nobody has looked for 100 ms. */
const POLL_MS = 120;
const PATIENCE_MS = 20_000;

export const hasPacketLimit = (name: ServerName) => STATEMENTS[name].maxPacket !== undefined;

/** Sees and ends the connections to a database from outside, as an administrator or a failing server does. */
export class ServerSessions {
  readonly #statements: Statements;

  private constructor(
    readonly orm: MikroORM,
    readonly database: string,
    name: ServerName,
  ) {
    this.#statements = STATEMENTS[name];
  }

  static async open(database: TestDatabase, name: ServerName): Promise<ServerSessions> {
    const url = new URL(database.url);
    const watched = url.pathname.slice(1);
    // Not among the connections that it looks at.
    url.pathname = name === 'postgresql' ? 'postgres' : 'information_schema';
    const { driver } = database.options;
    const orm = await MikroORM.init({
      ...(driver && { driver }),
      clientUrl: url.href,
      entities: [],
      discovery: { warnWhenNoEntities: false },
    });
    return new ServerSessions(orm, watched, name);
  }

  async ids(): Promise<number[]> {
    return (await this.#execute<{ id: number | string }>(this.#statements.ids)).map(({ id }) => Number(id));
  }

  async list(): Promise<ServerSession[]> {
    const rows = await this.#execute<Record<keyof ServerSession, unknown>>(this.#statements.list);
    return rows.map(({ id, inTransaction, waitsForLock }) => ({
      id: Number(id),
      inTransaction: Boolean(inTransaction),
      waitsForLock: Boolean(waitsForLock),
    }));
  }

  /** Ends these connections, or all, and waits until they are gone. */
  async end(chosen?: number[]): Promise<void> {
    const ids = chosen ?? (await this.ids());
    // One may have gone by itself in between.
    for (const id of ids) await this.#execute(this.#statements.end(id), []).catch(() => undefined);
    const deadline = Date.now() + PATIENCE_MS;
    while ((await this.ids()).some((id) => ids.includes(id))) {
      if (Date.now() > deadline) throw new Error('The connections do not end');
    }
  }

  /** @returns the connections, when they are as wanted. */
  async until(condition: (sessions: ServerSession[]) => boolean): Promise<ServerSession[]> {
    const deadline = Date.now() + PATIENCE_MS;
    for (;;) {
      const sessions = await this.list();
      if (condition(sessions)) return sessions;
      if (Date.now() > deadline) throw new Error(`Still not: ${condition.toString()}`);
      await setTimeout(POLL_MS);
    }
  }

  /** How many bytes the server takes in one packet. */
  async maxPacket(): Promise<number> {
    const [row] = await this.#execute<{ bytes: number }>(this.#statements.maxPacket!, []);
    return row!.bytes;
  }

  async close(): Promise<void> {
    await this.orm.close(true);
  }

  #execute<Row>(sql: string, values: unknown[] = [this.database]): Promise<Row[]> {
    return (this.orm.em.getConnection() as AbstractSqlConnection).execute<Row[]>(sql, values);
  }
}
