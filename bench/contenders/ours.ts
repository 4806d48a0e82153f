import type { Event, Session } from '@google/adk';
import type { MikroORM } from '@mikro-orm/core';
import { MikroOrmSessionService } from '../../src/index.js';
import type { SessionKey } from '../../src/keys.js';
import { fillAdkTables } from './adk-tables.js';
import type { Contender, SessionContent } from './contender.js';
import type { BareDriver } from './drivers/bare-driver.js';

/** `MikroOrmSessionService` of this package. */
export class Ours implements Contender<Session> {
  readonly name = 'ours';
  readonly #service: MikroOrmSessionService;
  readonly #filler: BareDriver;
  readonly #close: () => Promise<void>;

  constructor(orm: MikroORM, filler: BareDriver, close: () => Promise<void>) {
    this.#service = new MikroOrmSessionService(orm.em);
    this.#filler = filler;
    this.#close = close;
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

  close(): Promise<void> {
    return this.#close();
  }
}
