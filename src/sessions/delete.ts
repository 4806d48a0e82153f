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
import { checkKeys, checkedSessionKey, type SessionKey } from '../model/keys.js';
import type { SessionCalls } from './session-calls.js';

const DELETE = 'deleteSession';

export async function deleteSession(calls: SessionCalls, { appName, userId, sessionId }: SessionKey): Promise<void> {
  const key = { appName, userId, sessionId };
  checkKeys(key);
  const { database, leases } = calls;
  const isSoftDeletion = calls.options.deletion === 'soft';
  await calls.write(DELETE, key, async () => {
    // Deletes only this incarnation: if the answer is lost, somebody may create the session again before the retry. In a host's
    // transaction there is no retry, and what it reads may be older than the lock.
    const found = database.isJoined ? undefined : await database.run((sql) => sessionHead(sql, key));
    if (!found && !database.isJoined) return;
    const deleteUnderLock = async (sql: Sql) => {
      const locked = await lockSession(sql, key);
      if (!locked || (found && locked.incarnation !== found.incarnation)) return;
      await leases.check(sql, key);
      await (isSoftDeletion ? softDeleteRow(sql, key, locked) : deleteSessionRow(sql, key, locked.incarnation));
    };
    // If somebody has restored the session, it has the same incarnation: a retry must not delete it again.
    if (isSoftDeletion) return once(database, deleteUnderLock);
    const outcome: Outcome = {};
    const isGuarded = !found || leases.ruleFor(key) !== undefined;
    const work = isGuarded ? deleteUnderLock : (sql: Sql) => deleteSessionRow(sql, key, found.incarnation);
    await database.transaction(work, { outcome });
    await confirm(database, outcome);
  });
}

export async function restoreSession(calls: SessionCalls, session: SessionKey): Promise<void> {
  const key = checkedSessionKey(session);
  const operation = 'restoreSession';
  await calls.write(operation, key, () =>
    once(calls.database, async (sql) => {
      if (!(await restoreRow(sql, key))) throw new SessionNotFoundError(key.sessionId);
    }),
  );
}
