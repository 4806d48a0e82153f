import { createEvent, type BaseSessionService } from '@google/adk';
import { randomBytes } from 'node:crypto';
import { keyOf, type RuleContext } from './rule.js';

/** What the rules do with two services on one store. */
export function helpersOf(
  service: BaseSessionService,
  another: BaseSessionService,
): Pick<RuleContext, 'app' | 'create' | 'append' | 'fresh'> {
  // A store that is used again has those of earlier runs.
  const app = `app-${randomBytes(5).toString('hex')}`;
  return {
    app,
    create: (request) => service.createSession({ appName: app, userId: 'alice', ...request }),
    append: (session, { delta, ...params } = {}, by = service) =>
      by.appendEvent({
        session,
        event: createEvent({
          author: 'agent',
          ...params,
          actions: { ...params.actions, ...(delta && { stateDelta: delta }) },
        }),
      }),
    fresh: async (session, config) => {
      const read = await another.getSession({ ...keyOf(session), ...(config && { config }) });
      if (!read) throw new Error(`There is no session ${session.id}`);
      return read;
    },
  };
}
