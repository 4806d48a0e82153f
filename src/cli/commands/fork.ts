import { MikroOrmSessionService } from '../../sessions/session-service.js';
import type { SessionWork } from '../run.js';
import { counted, quoted } from '../../operations/words.js';
import { atPoint, type PointFlags } from './history-point.js';

export const fork: SessionWork<PointFlags & { as?: string }> = async (
  { em, codec, terminal },
  key,
  { as, ...point },
) => {
  const service = new MikroOrmSessionService(em, codec);
  const made = await atPoint(point, (point) => service.forkSession(key, { ...point, as }));
  await terminal.result({ ...key, sessionId: made.id, events: made.events.length }, () => [
    `Made session ${quoted(made.id)} with ${counted(made.events.length, 'event')}.`,
  ]);
  return undefined;
};
