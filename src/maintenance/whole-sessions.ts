import type { Sql } from '../database/dialects/dialect.js';
import { beginDeletion, deleteSessionRow } from '../database/statements/sessions.js';
import type { KeptSession } from '../database/statements/walk.js';
import { NOTHING_DONE, type Deletion, type DeletionRun, type Done, type Task } from './deletion-run.js';
import { dropFirst, numbersBefore } from './first-events.js';

/** What one transaction did to a session that takes several. */
type PartDone = Done & { isOver: boolean };

/** Deletes sessions with everything that is stored of them. */
export class WholeSessions implements Deletion {
  readonly #run: DeletionRun;
  readonly #isMeant: (session: KeptSession) => boolean;

  constructor(run: DeletionRun, isMeant: (session: KeptSession) => boolean) {
    this.#run = run;
    this.#isMeant = isMeant;
  }

  plan(session: KeptSession): Task | undefined {
    // An interrupted deletion is continued whatever the conditions: nobody else would finish it.
    if (session.status !== 'ending' && !this.#isMeant(session)) return undefined;
    const events = Math.max(0, session.lastSeq - session.firstSeq + 1);
    return { session, events, rows: events + 1 };
  }

  async delete(sql: Sql, { session }: Task): Promise<Done> {
    const { locked, skipped } = await this.#lock(sql, session);
    if (!locked) return { ...NOTHING_DONE, skipped };
    await deleteSessionRow(sql, locked.key, locked.incarnation);
    return { sessions: 1, events: locked.lastSeq - locked.firstSeq + 1, skipped };
  }

  async deleteLarge({ session }: Task): Promise<void> {
    const { batches, write } = this.#run;
    for (let isOver = false; !isOver && (await batches.mayBegin());) {
      const done = await write((sql) => this.#deletePart(sql, session));
      const { isOver: isLast, ...counts } = done;
      batches.add(counts);
      isOver = isLast;
    }
  }

  async #deletePart(sql: Sql, session: KeptSession): Promise<PartDone> {
    const { locked, skipped } = await this.#lock(sql, session);
    if (!locked) return { ...NOTHING_DONE, skipped, isOver: true };
    if (locked.status === 'ending') return this.#deleteSome(sql, locked);
    // Before the first event is deleted, so that nobody sees an incomplete session, even if this call is interrupted.
    await beginDeletion(sql, locked);
    return { ...NOTHING_DONE, isOver: false };
  }

  /** Deletes the first events of a session whose deletion has begun, and the session with its last ones. */
  async #deleteSome(sql: Sql, { key, incarnation, lastSeq }: KeptSession): Promise<PartDone> {
    const { size } = this.#run.batches;
    const numbers = await numbersBefore(sql, key, lastSeq + 1, size);
    const last = numbers.at(-1);
    const isOver = last === undefined || numbers.length < size;
    if (isOver) await deleteSessionRow(sql, key, incarnation);
    else await dropFirst(sql, key, last + 1, numbers);
    return { sessions: isOver ? 1 : 0, events: numbers.length, skipped: 0, isOver };
  }

  /** @returns the locked session, if it is still the same one and still meets the conditions. */
  async #lock(sql: Sql, session: KeptSession): Promise<{ locked?: KeptSession; skipped: number }> {
    const { locked, skipped } = await this.#run.lock(sql, session);
    if (!locked || !this.plan(locked)) return { skipped };
    return locked.incarnation === session.incarnation ? { locked, skipped } : { skipped: 1 };
  }
}
