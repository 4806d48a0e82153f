import { MikroOrmSessionService } from '../../sessions/session-service.js';
import type { Work } from '../run.js';
import { counted, quoted } from '../words.js';
import { pointOf, type PointFlags } from './history-point.js';

export const fork: Work<[string, string, string, PointFlags & { as?: string }]> = async (
  { em, terminal },
  appName,
  userId,
  sessionId,
  { as, ...point },
) => {
  const key = { appName, userId, sessionId };
  const made = await new MikroOrmSessionService(em).forkSession(key, {
    ...pointOf(point),
    as,
  });
  await terminal.result({ appName, userId, sessionId: made.id, events: made.events.length }, () => [
    `Made session ${quoted(made.id)} with ${counted(made.events.length, 'event')}.`,
  ]);
  return undefined;
};
