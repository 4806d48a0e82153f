import type { Sql } from '../database/dialects/dialect.js';
import { beginDeletion, deleteSessionRow } from '../database/statements/sessions.js';
import { storedSession, type StoredSession } from '../database/statements/stored-session.js';
import { toolSessionsOf, type SessionKey } from '../model/keys.js';
import { onlySkipped, type Deletion, type DeletionRun, type BatchCounts, type Task } from './deletion-run.js';
import { dropFirst, numbersBefore } from './first-events.js';

/** What one transaction did to a session that takes several. */
type PartCounts = BatchCounts & { isOver: boolean };

/** A session and those of its tools, under their locks; none if one of them must be left. */
interface Locked {
  sessions: readonly StoredSession[];
  skipped: number;
}

/** Deletes sessions with everything that is stored of them, and with the sessions of their tools. */
export class WholeSessions implements Deletion {
  readonly #run: DeletionRun;
  readonly #isSelected: (session: StoredSession) => boolean;

  constructor(run: DeletionRun, isSelected: (session: StoredSession) => boolean) {
    this.#run = run;
    this.#isSelected = isSelected;
  }

  async plan(session: StoredSession): Promise<Task | undefined> {
    if (!this.#isDue(session)) return undefined;
    let events = eventsOf(session);
    const parts = [{ key: session.key }];
    const { read, batches, isOfAllApps } = this.#run;
    for (const key of this.#toolsOf(session)) {
      const tool = await read((sql) => storedSession(sql, key));
      // A dry run must not count it here and in its own app.
      if (!tool || (batches.isDryRun && isOfAllApps && this.#isDue(tool))) continue;
      events += eventsOf(tool);
      parts.push({ key });
    }
    return { session, events, parts, rows: events + parts.length };
  }

  async delete(sql: Sql, { session }: Task): Promise<BatchCounts> {
    const { sessions, skipped } = await this.#lock(sql, session);
    for (const { key } of sessions) await deleteSessionRow(sql, key);
    const events = sessions.reduce((sum, each) => sum + eventsOf(each), 0);
    return { done: { sessions: sessions.length, events }, skipped };
  }

  async deleteLarge({ session }: Task): Promise<void> {
    const { batches, write } = this.#run;
    if (session.status !== 'ending') {
      if (!(await batches.mayBegin())) return;
      const { sessions, skipped } = await write((sql) => this.#begin(sql, session));
      batches.add({ skipped });
      if (sessions.length === 0) return;
    }
    // The caller's session is the last one, so that an interrupted deletion is continued with all of them.
    let left = [...this.#toolsOf(session), session.key];
    await this.#run.drain(
      () => left,
      async (sql, [key = session.key, ...others]) => {
        const { isOver, ...counts } = await this.#deletePart(sql, key);
        left = isOver ? others : [key, ...others];
        return counts;
      },
    );
  }

  /** An interrupted deletion is continued whatever the conditions: nobody else would finish it. */
  #isDue(session: StoredSession): boolean {
    return session.status === 'ending' || this.#isSelected(session);
  }

  #toolsOf({ key }: StoredSession): SessionKey[] {
    return toolSessionsOf(key, this.#run.toolApps);
  }

  /** Before the first event is deleted, so that nobody sees an incomplete session, even if this call is interrupted. */
  async #begin(sql: Sql, session: StoredSession): Promise<Locked> {
    const locked = await this.#lock(sql, session);
    for (const each of locked.sessions) if (each.status !== 'ending') await beginDeletion(sql, each);
    return locked;
  }

  /** Deletes the first events of a session whose deletion has begun, and the session with its last ones. */
  async #deletePart(sql: Sql, key: SessionKey): Promise<PartCounts> {
    const { locked, skipped } = await this.#run.lock(sql, { key });
    // Somebody has created it again.
    if (locked?.status !== 'ending') return { ...onlySkipped(locked ? 1 : skipped), isOver: true };
    const { lastSeq } = locked;
    const { size } = this.#run.batches;
    const numbers = await numbersBefore(sql, key, lastSeq + 1, size);
    const last = numbers.at(-1);
    const isOver = last === undefined || numbers.length < size;
    if (isOver) await deleteSessionRow(sql, key);
    else await dropFirst(sql, key, last + 1, numbers);
    return { done: { sessions: isOver ? 1 : 0, events: numbers.length }, skipped: 0, isOver };
  }

  /** Locks a session, if it is still the same one and still meets the conditions, and those of its tools. */
  async #lock(sql: Sql, session: StoredSession): Promise<Locked> {
    const { locked, skipped } = await this.#run.lockSame(sql, session, 'incarnation');
    if (!locked || !this.#isDue(locked)) return { sessions: [], skipped };
    const sessions = [locked];
    for (const key of this.#toolsOf(session)) {
      const tool = await this.#run.lock(sql, { key });
      if (tool.skipped > 0) return { sessions: [], skipped: 1 };
      if (tool.locked) sessions.push(tool.locked);
    }
    return { sessions, skipped };
  }
}

const eventsOf = ({ firstSeq, lastSeq }: StoredSession) => Math.max(0, lastSeq - firstSeq + 1);
