import {
  deleteSessionRow,
  lockSession,
  restoreRow,
  sessionHead,
  softDeleteRow,
} from '../database/statements/sessions.js';
import { confirm } from '../database/calls/confirm.js';
import { once } from '../database/calls/once.js';
import type { Outcome } from '../database/calls/retry.js';
import type { Sql } from '../database/dialects/dialect.js';
import { SessionNotFoundError } from '../model/errors.js';
import { checkKeys, checkedSessionKey, toolSessionsOf, type SessionKey } from '../model/keys.js';
import type { SessionCalls } from './session-calls.js';

const DELETE = 'deleteSession';

export async function deleteSession(calls: SessionCalls, { appName, userId, sessionId }: SessionKey): Promise<void> {
  const key = { appName, userId, sessionId };
  checkKeys(key);
  const { database, leases, options } = calls;
  const isSoftDeletion = options.deletion === 'soft';
  const keys = [key, ...toolSessionsOf(key, options.toolApps)];
  await calls.write(DELETE, key, async () => {
    // Deletes only these incarnations: if the answer is lost, somebody may create a session again before the retry. In a host's
    // transaction there is no retry, and what it reads may be older than the lock.
    const found: { key: SessionKey; incarnation: string | undefined }[] = [];
    for (const key of keys) {
      const head = database.isJoined ? undefined : await database.run((sql) => sessionHead(sql, key));
      if (head || database.isJoined) found.push({ key, incarnation: head?.incarnation });
    }
    if (found.length === 0) return;
    const deleteUnderLock = async (sql: Sql) => {
      for (const { key, incarnation } of found) {
        const locked = await lockSession(sql, key);
        if (!locked || locked.incarnation !== (incarnation ?? locked.incarnation)) continue;
        await leases.check(sql, key);
        await (isSoftDeletion ? softDeleteRow(sql, key, locked) : deleteSessionRow(sql, key, locked.incarnation));
      }
    };
    // If somebody has restored the session, it has the same incarnation: a retry must not delete it again.
    if (isSoftDeletion) return once(database, deleteUnderLock);
    const outcome: Outcome = {};
    const [only, ...others] = found;
    const isGuarded = others.length > 0 || !only?.incarnation || leases.ruleFor(key) !== undefined;
    const work = isGuarded ? deleteUnderLock : (sql: Sql) => deleteSessionRow(sql, only.key, only.incarnation ?? '');
    await database.transaction(work, { outcome });
    await confirm(database, outcome);
  });
}

export async function restoreSession(calls: SessionCalls, session: SessionKey): Promise<void> {
  const key = checkedSessionKey(session);
  const operation = 'restoreSession';
  await calls.write(operation, key, () =>
    once(calls.database, async (sql) => {
      const restored = await restoreRow(sql, key);
      if (!restored) throw new SessionNotFoundError(key.sessionId);
      // Those of a session that was not deleted may be of an earlier one with its id.
      if (restored.status === 'active') return;
      for (const ofTool of toolSessionsOf(key, calls.options.toolApps)) await restoreRow(sql, ofTool);
    }),
  );
}
