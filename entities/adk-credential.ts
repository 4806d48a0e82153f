import type { InferEntity } from '@mikro-orm/core';
import { KEY_LENGTHS } from '../src/model/keys.js';
import { json, key, time } from './columns.js';
import { sharedEntity } from './mikro-orm.js';
import { naming, type Naming } from './naming.js';

/** A token or a key with which a tool logs in for a user. It has no foreign key, since it outlives its session. */
export const adkCredential = ({ table }: Naming) =>
  sharedEntity({
    name: 'AdkCredential',
    ...table('credentials'),
    properties: {
      appName: key('app_name', KEY_LENGTHS.appName).primary(),
      userId: key('user_id', KEY_LENGTHS.userId).primary(),
      /** The name that the tool has given it. */
      credentialKey: key('credential_key', KEY_LENGTHS.credentialKey).primary(),
      /** When it was saved, by the database's clock. */
      updateTime: time('update_time'),
      /** Encrypted. */
      data: json('data'),
    },
  });

export const AdkCredential = adkCredential(naming());
export type AdkCredential = InferEntity<typeof AdkCredential>;
