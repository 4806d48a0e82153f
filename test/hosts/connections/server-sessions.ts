import { setImmediate, setTimeout } from 'node:timers/promises';
import { MikroORM } from '@mikro-orm/core';
import type { AbstractSqlConnection } from '@mikro-orm/postgresql';
import type { Server } from '../../support/harnesses/database.js';
import { DATABASES, type ServerName } from '../../support/harnesses/databases.js';
import type { TestDatabase } from '../../support/servers.js';

/** A connection to a database, as its server sees it. */
export interface ServerSession {
  id: number;
  inTransaction: boolean;
  waitsForLock: boolean;
}

/** InnoDB refreshes its table of transactions only if nobody has read it for 100 ms. */
const POLL_MS = 120;
const PATIENCE_MS = 20_000;

/** Lists and ends the connections to a database from outside, like an administrator or a failing server. */
export class ServerSessions {
  readonly #statements: Server['connections'];

  private constructor(
    readonly orm: MikroORM,
    readonly database: string,
    { connections }: Server,
  ) {
    this.#statements = connections;
  }

  static async open(database: TestDatabase, name: ServerName): Promise<ServerSessions> {
    const url = new URL(database.url);
    const watched = url.pathname.slice(1);
    // Its own connection must not be in the list.
    const { server } = DATABASES[name];
    url.pathname = server.adminDatabase;
    const { driver } = database.options;
    const orm = await MikroORM.init({
      ...(driver && { driver }),
      clientUrl: url.href,
      entities: [],
      discovery: { warnWhenNoEntities: false },
    });
    return new ServerSessions(orm, watched, server);
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
    // Some may have ended in the meantime.
    for (const id of ids) await this.#execute(this.#statements.end(id), []).catch(() => undefined);
    const deadline = Date.now() + PATIENCE_MS;
    while ((await this.ids()).some((id) => ids.includes(id))) {
      if (Date.now() > deadline) throw new Error('The connections do not end');
    }
    // The pools of this process notice in this turn of the event loop. Until then they would hand out such a connection.
    await setImmediate();
  }

  /** Waits for a condition. @returns the connections that meet it. */
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
