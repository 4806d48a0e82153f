import type { Event, Session } from '@google/adk';
import { MikroORM } from '@mikro-orm/core';
import pg from 'pg';
import { adkEntities } from '../../entities/index.js';
import { MikroOrmSessionService, type PostgresqlOptions } from '../../src/index.js';
import type { SessionKey } from '../../src/model/keys.js';
import type { TestDatabase } from '../../test/support/servers.js';
import { fillAdkTables } from './adk-tables.js';
import type { Contender, SessionContent } from './contender.js';
import type { BareDriver } from './drivers/bare-driver.js';

/** The measured methods of `MikroOrmSessionService`, which the version before the last migration has, too. */
export type Service = Pick<
  MikroOrmSessionService,
  'createSession' | 'getSession' | 'listSessions' | 'deleteSession' | 'appendEvent' | 'appendEvents'
>;

/** `MikroOrmSessionService` of this package. */
export class Ours implements Contender<Session> {
  readonly name = 'ours';
  /** The arguments for another one like it. */
  readonly parts: [MikroORM, TestDatabase, BareDriver, () => Promise<void>];
  readonly #database: TestDatabase;
  readonly #filler: BareDriver;
  readonly #end: () => Promise<void>;
  readonly #service: Service;
  readonly #connected: MikroORM[] = [];

  constructor(
    readonly orm: MikroORM,
    database: TestDatabase,
    filler: BareDriver,
    end: () => Promise<void>,
    service: Service = new MikroOrmSessionService(orm.em),
  ) {
    this.#database = database;
    this.#filler = filler;
    this.#end = end;
    this.#service = service;
    this.parts = [orm, database, filler, end];
  }

  /** Opens one more ORM on the database, as in another process. It is closed with this one. */
  async connect(): Promise<MikroORM> {
    const orm = await MikroORM.init({ ...this.#database.options, entities: adkEntities() });
    this.#connected.push(orm);
    return orm;
  }

  /** Opens a connection that listens for notifications; undefined if the server has none. */
  listen(): PostgresqlOptions['listen'] | undefined {
    return this.#database.name === 'postgresql' ? () => new pg.Client(this.#database.url) : undefined;
  }

  fill(sessions: Iterable<SessionContent>): Promise<void> {
    return fillAdkTables(this.#filler, sessions);
  }

  async open({ key }: SessionContent): Promise<Session> {
    const session = await this.#service.getSession(key);
    if (!session) throw new Error('The session was not filled.');
    return session;
  }

  create(key: SessionKey, state: Record<string, unknown>): Promise<Session> {
    return this.#service.createSession({ ...key, state });
  }

  append(session: Session, event: Event): Promise<Event> {
    return this.#service.appendEvent({ session, event });
  }

  appendAll(session: Session, events: readonly Event[]): Promise<unknown> {
    return this.#service.appendEvents({ session, events });
  }

  async read(key: SessionKey, newest?: number): Promise<number> {
    const session = await this.#service.getSession({ ...key, config: { numRecentEvents: newest } });
    return session?.events.length ?? 0;
  }

  async list(appName: string, limit: number): Promise<number> {
    const { sessions } = await this.#service.listSessions({ appName, limit, order: 'desc' });
    return sessions.length;
  }

  delete(key: SessionKey): Promise<void> {
    return this.#service.deleteSession(key);
  }

  async close(): Promise<void> {
    for (const orm of this.#connected) await orm.close(true);
    await this.#end();
  }
}
