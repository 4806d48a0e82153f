import type { SessionKey } from '../../model/keys.js';
import type { Dialect, Sql } from '../dialects/dialect.js';
import { SESSION_WHERE, sessionValues, type Tables } from '../tables.js';

/** Reads the content of events that are too large for one packet, and so are kept in parts. */
export class EventParts {
  readonly #select: string;
  readonly #underLock: string;

  constructor(dialect: Dialect, { events, eventParts }: Tables) {
    this.#select = `select part, coalesce(text, ${dialect.jsonText('data')}) as text from ${events}
      left join ${eventParts} using (app_name, user_id, session_id, seq) where ${SESSION_WHERE} and seq = ? order by part`;
    this.#underLock = dialect.underLock;
  }

  /**
   * Reads an event's row once more, with its parts: since the first time it may have been replaced, or deleted.
   *
   * @param isLocked whether the caller holds the session's lock.
   * @returns null where the row has lost its content or a part of it; undefined where the row is gone.
   */
  async read(sql: Sql, session: SessionKey, seq: number, isLocked = false): Promise<string | null | undefined> {
    const rows = await sql.all<PartRow>(this.#select + (isLocked ? this.#underLock : ''), [
      ...sessionValues(session),
      seq,
    ]);
    const [first] = rows;
    if (!first) return undefined;
    // Not in parts any more, or without any.
    if (first.part === null) return first.text;
    // Without the last part the JSON ends too early, which is seen when it is parsed.
    return rows.every(({ part }, i) => part === i) ? rows.map(({ text }) => text).join('') : null;
  }
}

interface PartRow {
  part: number | null;
  text: string | null;
}
