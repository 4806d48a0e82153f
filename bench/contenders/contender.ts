import type { Event } from '@google/adk';
import type { SessionKey } from '../../src/model/keys.js';
import { isMikroOrm7 } from '../../test/support/mikro-orm.js';

/** `ours` is this package, `peer` is `DatabaseSessionService` of `@google/adk`, `floor` the bare driver. */
export type ContenderName = 'ours' | 'peer' | 'floor';

/** There is no peer on MikroORM 7: ADK 2.0.0 needs the drivers of MikroORM 6. */
export const CONTENDERS: readonly ContenderName[] = isMikroOrm7 ? ['ours', 'floor'] : ['ours', 'peer', 'floor'];

/** A session to put into the tables without any service. */
export interface SessionContent {
  key: SessionKey;
  /** With ADK's prefixes. `app:` and `user:` keys only if none are stored yet. */
  state: Record<string, unknown>;
  events: readonly Event[];
}

/** The work of all contenders, each in its own tables. `Handle` is what a contender keeps of a session between appends. */
export interface Contender<Handle = unknown> {
  readonly name: ContenderName;
  /** Fills the tables by plain SQL, in bulk. */
  fill(sessions: Iterable<SessionContent>): Promise<void>;
  /** @param content what the session was filled with. */
  open(content: SessionContent): Promise<Handle>;

  create(key: SessionKey, state: Record<string, unknown>): Promise<unknown>;
  append(handle: Handle, event: Event): Promise<unknown>;
  /** Missing if events can only be appended one by one. */
  appendAll?(handle: Handle, events: readonly Event[]): Promise<unknown>;
  /** @returns how many events were read. */
  read(key: SessionKey, newest?: number): Promise<number>;
  /** The newest sessions of an app. @returns how many there were on the page. */
  list(appName: string, limit: number): Promise<number>;
  delete(key: SessionKey): Promise<unknown>;
  /** Ends the connections and drops the database. */
  close(): Promise<void>;
}

export type Contenders = Record<ContenderName, Contender>;
