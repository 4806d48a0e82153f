import { insertSession } from '../database/stores/session-store.js';
import { randomUUID } from 'node:crypto';
import { recordDeletion } from '../database/stores/change-store.js';
import { DatabaseError } from '../model/errors.js';
import { FAILURES } from '../model/failures.js';
import { sessionIdentity, type SessionKey } from '../model/keys.js';
import type { DeletionRun } from './deletion-run.js';

/** How many sessions one query reads. */
const PAGE = 1_000;

/** How many sessions one transaction takes at most. */
const TOGETHER = 100;

/**
 * Removes from `adk_changes` what is left of sessions of an app, or of one user in it, whose rows somebody has deleted by statements of their own,
 * and records the deletion for readers of the complete log. Such changes hold state, and the log would have entries of sessions that
 * are not there.
 */
export async function removeLeftovers(run: DeletionRun, appName: string, userId: string | undefined): Promise<void> {
  const { read, batches, stores } = run;
  if (batches.isDryRun) return;
  let after: SessionKey | undefined;
  do {
    const page = await read((sql) => stores.leftovers.page(sql, { appName, userId }, after, PAGE));
    let remaining = page.leftovers;
    while (remaining.length > 0) {
      if (!(await batches.mayBegin())) return;
      const group = remaining.slice(0, Math.min(TOGETHER, batches.size));
      const left = new Set((await remove(run, group)).map(sessionIdentity));
      remaining = remaining.filter((session) => !group.includes(session) || left.has(sessionIdentity(session)));
      batches.add();
    }
    after = page.last;
    // A signal ends the walk, also if nothing is left of any session.
  } while (after && (await batches.mayBegin()));
}

/** One transaction. @returns the sessions that have more. */
async function remove({ write, batches, stores }: DeletionRun, sessions: readonly SessionKey[]): Promise<SessionKey[]> {
  try {
    return await write(async (sql) => {
      const origin = randomUUID();
      const lock = { incarnation: origin, origin, firstSeq: 1, lastSeq: 0, lastUpdateTime: 0 };
      // The row is there for this transaction alone. It is the lock that whoever creates the session waits for: otherwise
      // the deletion could come after the creation in the log.
      for (const session of sessions) await insertSession(sql, session, lock);
      const left = await stores.leftovers.forget(sql, sessions, batches.size);
      for (const session of sessions) {
        await stores.leftovers.unlock(sql, session, lock.incarnation);
        if (!left.includes(session)) await recordDeletion(sql, session);
      }
      return left;
    });
  } catch (error) {
    // One of them has been created again. The next call finds the others.
    if (error instanceof DatabaseError && error.reason === FAILURES.duplicate.reason) return [];
    throw error;
  }
}
