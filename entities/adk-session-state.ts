import type { InferEntity } from '@mikro-orm/core';
import { KEY_LENGTHS } from '../src/model/keys.js';
import { ofSession } from './adk-session.js';
import { json, key } from './columns.js';
import { sharedEntity } from './mikro-orm.js';
import { naming, type Naming } from './naming.js';

/** One key of a session's state. */
export const adkSessionState = ({ named, table }: Naming) =>
  sharedEntity({
    name: 'AdkSessionState',
    ...table('session_states'),
    properties: {
      session: () => ofSession(named('session_states_session')),
      key: key('state_key', KEY_LENGTHS.stateKey).primary(),
      value: json('value'),
      /** The event that wrote the value; null when it was set at creation or outside a run. */
      eventId: key('event_id', KEY_LENGTHS.eventId).nullable(),
    },
  });

export const AdkSessionState = adkSessionState(naming());
export type AdkSessionState = InferEntity<typeof AdkSessionState>;
