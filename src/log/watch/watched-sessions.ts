import { sessionHeads } from '../../database/statements/sessions.js';
import type { SessionHead } from '../../database/statements/stored-session.js';
import type { Database } from '../../database/calls/database.js';
import { sessionIdentity, type SessionKey } from '../../model/keys.js';
import { chunksOf } from '../../model/pages.js';

interface WatchedSession {
  readonly key: SessionKey;
  watchers: number;
  /** As of the last poll; undefined while there is no such session. */
  head: SessionHead | undefined;
}

/** How many sessions one statement has at most: SQLite refuses expressions deeper than 1,000. */
const SESSIONS_AT_ONCE = 200;

/** The sessions that are watched one by one, with their heads. */
export class WatchedSessions {
  readonly #database: Database;
  readonly #sessions = new Map<string, WatchedSession>();
  #added = 0;

  constructor(database: Database) {
    this.#database = database;
  }

  /** How many watchers have ever been added. */
  get added(): number {
    return this.#added;
  }

  add(key: SessionKey): WatchedSession {
    const session = this.#sessions.get(sessionIdentity(key)) ?? { key, watchers: 0, head: undefined };
    session.watchers++;
    this.#sessions.set(sessionIdentity(key), session);
    this.#added++;
    return session;
  }

  leave(session: WatchedSession): void {
    if (--session.watchers === 0) this.#sessions.delete(sessionIdentity(session.key));
  }

  /** Reads the heads of all watched sessions. @returns whether one has changed. */
  async poll(signal: AbortSignal): Promise<boolean> {
    const watched = [...this.#sessions.values()];
    let isChanged = false;
    for (const some of chunksOf(watched, SESSIONS_AT_ONCE)) {
      const keys = some.map(({ key }) => key);
      const found = await this.#database.run((sql) => sessionHeads(sql, keys), { signal });
      const heads = new Map(found.map(({ key, head }) => [sessionIdentity(key), head]));
      for (const session of some) {
        const head = heads.get(sessionIdentity(session.key));
        if (head?.incarnation === session.head?.incarnation && head?.lastSeq === session.head?.lastSeq) continue;
        session.head = head;
        isChanged = true;
      }
    }
    return isChanged;
  }
}
