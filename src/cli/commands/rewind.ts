import { SessionNotFoundError } from '../../model/errors.js';
import { counted, quoted } from '../../operations/words.js';
import { revisionOf } from '../../sessions/handle.js';
import { MikroOrmSessionService } from '../../sessions/session-service.js';
import type { SessionWork } from '../run.js';
import { UsageError } from '../usage-error.js';
import { atPoint, type PointFlags } from './history-point.js';

export const rewind: SessionWork<PointFlags & { yes?: true }> = async (
  { em, codec, terminal, signal },
  key,
  { yes, ...point },
) => {
  if (point.at === undefined && point.before === undefined) throw new UsageError('rewind needs --at or --before.');
  const service = new MikroOrmSessionService(em, codec);
  if (!yes) {
    const session = await service.getSession(key);
    if (!session) throw new SessionNotFoundError(key.sessionId);
    const { events } = session;
    const lastSeq = revisionOf(session)?.seq ?? events.length;
    const before = events.findIndex(({ invocationId }) => invocationId === point.before);
    // Of a point that is not there, the call itself says so.
    const kept = point.at ?? (before === -1 ? lastSeq : lastSeq - events.length + before);
    const deleted = kept < lastSeq ? `events ${kept + 1} to ${lastSeq}` : 'no event';
    const question = `This deletes ${deleted} of ${quoted(key.sessionId)}, and sets its state to that after event ${kept}. Continue?`;
    if (!(await terminal.confirm(question, signal))) {
      terminal.note('Nothing was deleted.');
      return 'failed';
    }
  }
  const session = await atPoint(point, (point) => service.rewindSession(key, point));
  await terminal.result({ ...key, events: session.events.length }, () => [
    `Session ${quoted(key.sessionId)} has ${counted(session.events.length, 'event')} now.`,
  ]);
  return undefined;
};
