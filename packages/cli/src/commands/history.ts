import type { EntityManager } from '@mikro-orm/core';
import {
  InvalidArgumentError,
  SessionNotFoundError,
  type SessionKey,
  type HistoryPoint,
  MikroOrmSessionService,
} from '../../../../src/index.js';
import { counted, quoted } from '../../../studio/src/operations/words.js';
import { Database, storedSession } from '../../../../src/internal.js';
import { Unfinished, UsageError } from '../errors.js';
import type { SessionWork } from '../run.js';

export const fork: SessionWork<HistoryPoint & { as?: string }> = async (
  { em, codec, services, terminal },
  key,
  options,
) => {
  const service = new MikroOrmSessionService(em, { ...codec, ...services });
  const made = await atPoint(options, () => service.forkSession(key, options));
  await terminal.result({ ...key, sessionId: made.id, events: made.events.length }, () => [
    `Made session ${quoted(made.id)} with ${counted(made.events.length, 'event')}.`,
  ]);
};

export const rewind: SessionWork<HistoryPoint & { includeLeased?: boolean }> = async (
  { em, codec, services, terminal, confirm },
  key,
  point,
) => {
  if (point.at === undefined && point.beforeInvocationId === undefined)
    throw new UsageError('rewind needs --at or --before.');
  const service = new MikroOrmSessionService(em, { ...codec, ...services });
  await confirm(() => rewindQuestion(em, service, key, point));
  const session = await atPoint(point, () => service.rewindSession(key, point));
  await terminal.result({ ...key, events: session.events.length }, () => [
    `Session ${quoted(key.sessionId)} has ${counted(session.events.length, 'event')} now.`,
  ]);
};

/** Brings back a session that was soft-deleted. */
export const restore: SessionWork<object> = async ({ em, codec, services, terminal }, key) => {
  const deleted = await new Database(em).reader('restore')((sql) => storedSession(sql, key));
  if (deleted && deleted.deletedAt === undefined)
    throw new Unfinished(`Session ${quoted(key.sessionId)} is not deleted.`);
  await new MikroOrmSessionService(em, { ...codec, ...services }).restoreSession(key);
  await terminal.result(key, () => [`Session ${quoted(key.sessionId)} is back.`]);
};

async function rewindQuestion(
  em: EntityManager,
  service: MikroOrmSessionService,
  key: SessionKey,
  point: HistoryPoint,
): Promise<string> {
  const row = await new Database(em).reader('rewind')((sql) => storedSession(sql, key));
  const session = await service.getSession(key);
  if (!session || !row) throw new SessionNotFoundError(key.sessionId);
  const { events } = session;
  const { lastSeq } = row;
  const before = events.findIndex(({ invocationId }) => invocationId === point.beforeInvocationId);
  // Of a point that is not there, the call itself says so.
  const kept = point.at ?? (before === -1 ? lastSeq : lastSeq - events.length + before);
  const deleted = kept < lastSeq ? `events ${kept + 1} to ${lastSeq}` : 'no event';
  return `This deletes ${deleted} of ${quoted(key.sessionId)}, and sets its state to that after event ${kept}. Continue?`;
}

/** @throws UsageError if both ways to name a point are given, or no event is of the invocation. */
export async function atPoint<T>({ at, beforeInvocationId }: HistoryPoint, work: () => Promise<T>): Promise<T> {
  if (at !== undefined && beforeInvocationId !== undefined) throw new UsageError('Give either --at or --before.');
  try {
    return await work();
  } catch (error) {
    const isMissing = error instanceof InvalidArgumentError && error.names.includes('beforeInvocationId');
    if (beforeInvocationId === undefined || !isMissing) throw error;
    throw new UsageError(`--before ${quoted(beforeInvocationId)}: no such invocation.`);
  }
}
