import { deleteSessionRow, lockSession, restoreRow, softDeleteRow } from '../database/statements/sessions.js';
import { confirm } from '../database/calls/confirm.js';
import { once } from '../database/calls/once.js';
import type { Outcome } from '../database/calls/retry.js';
import type { Sql } from '../database/dialects/dialect.js';
import { SessionNotFoundError } from '../model/errors.js';
import { checkKeys, checkedSessionKey, toolSessionsOf, type SessionKey } from '../model/keys.js';
import type { ServiceContext } from './service-context.js';

const DELETE = 'deleteSession';

export async function deleteSession(
  service: ServiceContext,
  { appName, userId, sessionId }: SessionKey,
): Promise<void> {
  const key = { appName, userId, sessionId };
  checkKeys(key);
  const { database, leases, options } = service;
  const isSoftDeletion = options.deletion === 'soft';
  const keys = [key, ...toolSessionsOf(key, options.toolApps)];
  await service.write(DELETE, key, async () => {
    // The incarnations that the first attempt has found. It may have been committed: then a retry must not delete what somebody
    // has created since.
    const found = new Map<SessionKey, string | undefined>();
    const work = async (sql: Sql) => {
      for (const key of keys) {
        const locked = await lockSession(sql, key);
        if (!found.has(key)) found.set(key, locked?.incarnation);
        if (!locked || locked.incarnation !== found.get(key)) continue;
        await leases.check(sql, key);
        await (isSoftDeletion ? softDeleteRow(sql, locked) : deleteSessionRow(sql, key));
      }
    };
    // If somebody has restored the session, it has the same incarnation: a retry must not delete it again.
    if (isSoftDeletion) return once(database, work);
    const outcome: Outcome = {};
    await database.transaction(work, { outcome });
    await confirm(database, outcome);
  });
}

export async function restoreSession(service: ServiceContext, session: SessionKey): Promise<void> {
  const key = checkedSessionKey(session);
  const operation = 'restoreSession';
  await service.write(operation, key, () =>
    once(service.database, async (sql) => {
      const restored = await restoreRow(sql, key);
      if (!restored) throw new SessionNotFoundError(key.sessionId);
      // Those of a session that was not deleted may be of an earlier one with its id.
      if (restored.status === 'active') return;
      for (const ofTool of toolSessionsOf(key, service.options.toolApps)) await restoreRow(sql, ofTool);
    }),
  );
}
