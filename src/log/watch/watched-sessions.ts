import { sessionHeads } from '../../database/statements/sessions.js';
import type { SessionHead } from '../../database/statements/stored-session.js';
import type { Database } from '../../database/calls/database.js';
import { sessionIdentity, type SessionKey } from '../../model/keys.js';

interface WatchedSession {
  readonly key: SessionKey;
  watchers: number;
  /** As of the last poll; undefined while there is no such session. */
  head: SessionHead | undefined;
}

/** The sessions that are watched one by one, with their heads. */
export class WatchedSessions {
  readonly #database: Database;
  readonly #sessions = new Map<string, WatchedSession>();
  /** How many watchers have ever been added. */
  added = 0;

  constructor(database: Database) {
    this.#database = database;
  }

  add(key: SessionKey): WatchedSession {
    const session = this.#sessions.get(sessionIdentity(key)) ?? { key, watchers: 0, head: undefined };
    session.watchers++;
    this.#sessions.set(sessionIdentity(key), session);
    this.added++;
    return session;
  }

  leave(session: WatchedSession): void {
    if (--session.watchers === 0) this.#sessions.delete(sessionIdentity(session.key));
  }

  /** Reads the heads of all watched sessions. @returns whether one has changed. */
  async poll(signal: AbortSignal): Promise<boolean> {
    const watched = [...this.#sessions.values()];
    let isChanged = false;
    const keys = watched.map(({ key }) => key);
    const found = await this.#database.run((sql) => sessionHeads(sql, keys), { signal });
    const heads = new Map(found.map((head) => [sessionIdentity(head.key), head]));
    for (const session of watched) {
      const head = heads.get(sessionIdentity(session.key));
      if (head?.incarnation === session.head?.incarnation && head?.lastSeq === session.head?.lastSeq) continue;
      session.head = head;
      isChanged = true;
    }
    return isChanged;
  }
}
