import type { InferEntity } from '@mikro-orm/core';
import { KEY_LENGTHS } from '../src/model/keys.js';
import { json, key } from './columns.js';
import { sharedEntity } from './mikro-orm.js';
import { naming, type Naming } from './naming.js';

/** One `user:` key, shared by the sessions of a user in an app; stored without the prefix. */
export const adkUserState = ({ table }: Naming) =>
  sharedEntity({
    name: 'AdkUserState',
    ...table('user_states'),
    properties: {
      appName: key('app_name', KEY_LENGTHS.appName).primary(),
      userId: key('user_id', KEY_LENGTHS.userId).primary(),
      key: key('state_key', KEY_LENGTHS.stateKey).primary(),
      value: json('value'),
      /** The event that wrote the value; null when it was set at creation or outside a run. */
      eventId: key('event_id', KEY_LENGTHS.eventId).nullable(),
    },
  });

export const AdkUserState = adkUserState(naming());
export type AdkUserState = InferEntity<typeof AdkUserState>;
