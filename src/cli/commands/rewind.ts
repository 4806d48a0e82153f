import { MikroOrmSessionService } from '../../sessions/session-service.js';
import type { SessionWork } from '../run.js';
import { UsageError } from '../usage-error.js';
import { counted, quoted } from '../../operations/words.js';
import { pointOf, type PointFlags } from './history-point.js';

export const rewind: SessionWork<PointFlags & { yes?: true }> = async (
  { em, codec, terminal, signal },
  key,
  { yes, ...point },
) => {
  if (point.at === undefined && point.before === undefined) throw new UsageError('rewind needs --at or --before.');
  const question = `This deletes the events of ${quoted(key.sessionId)} after that. Go on?`;
  if (!yes && !(await terminal.confirm(question, signal))) {
    terminal.note('Nothing was deleted.');
    return 'failed';
  }
  const session = await new MikroOrmSessionService(em, codec).rewindSession(key, pointOf(point));
  await terminal.result({ ...key, events: session.events.length }, () => [
    `Session ${quoted(key.sessionId)} has ${counted(session.events.length, 'event')} now.`,
  ]);
  return undefined;
};
