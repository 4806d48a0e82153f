import { oldTokens, removeTokens } from '../database/calls/retry-tokens.js';
import { databaseTime } from '../database/statements/clock.js';
import type { OwnedRows } from '../owned/owned-rows.js';
import type { StoredSession } from '../database/statements/stored-session.js';
import type { Walk } from '../database/statements/walk.js';
import type { MaintenanceResult } from '../model/results.js';
import type { DeletionRun } from './deletion-run.js';
import type { PruneOptions } from './options.js';
import { WholeSessions } from './whole-sessions.js';

/** How long nobody has continued an import before `prune` removes what it has left: a day. */
const ABANDONED_MS = 86_400_000;

/** How many retry tokens one transaction removes at most. */
const MOST_TOKENS = 1_000;

/** See `SessionMaintenance.prune`. */
export async function prune(
  run: DeletionRun<'memories'>,
  options: PruneOptions,
  kinds: readonly OwnedRows[],
): Promise<MaintenanceResult<'sessions' | 'events' | 'memories'>> {
  const { appName, userId, idleFor, sessionsOlderThan, deletedFor } = options;
  const now = await run.read(databaseTime);
  const before = (ms: number | undefined) => (ms === undefined ? undefined : now - ms);
  const [idleSince, createdUpTo, deletedUpTo] = [before(idleFor), before(sessionsOlderThan), before(deletedFor)];
  const isSelected = ({ lastUpdateTime, touchedAt = 0, createTime, deletedAt }: StoredSession) =>
    (idleSince === undefined || Math.max(lastUpdateTime, touchedAt) <= idleSince) &&
    (createdUpTo === undefined || createTime <= createdUpTo) &&
    (deletedUpTo === undefined || (deletedAt !== undefined && deletedAt <= deletedUpTo));

  // There is no index by creation or deletion: on PostgreSQL, each append would have to write it.
  const walk: Omit<Walk, 'appName'> =
    userId === undefined && idleSince !== undefined ? { by: 'update', upTo: idleSince } : { by: 'key', userId };

  return run.run(
    () => run.batches.result,
    async () => {
      await run.walk(new WholeSessions(run, (session) => isAbandoned(session, now) ?? isSelected(session)), {
        appName,
        ...walk,
      });
      for (const kind of kinds)
        if (kind.rows?.expire) await run.deleteRows(kind, { appName, userId, areExpired: true });
      if (run.batches.isDryRun) return;
      const tokensAtOnce = Math.min(run.batches.size, MOST_TOKENS);
      await run.drain(
        () => run.read((sql) => oldTokens(sql, now, tokensAtOnce)),
        async (sql, tokens) => {
          await removeTokens(sql, now, tokens);
          return {};
        },
      );
    },
  );
}

/** @returns whether nobody continues the import of a session; undefined if it is not being imported. @param now by the database's clock. */
const isAbandoned = ({ status, deletedAt }: StoredSession, now: number) =>
  status === 'importing' ? (deletedAt ?? now) <= now - ABANDONED_MS : undefined;
