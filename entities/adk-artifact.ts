import { p, type InferEntity } from '@mikro-orm/core';
import { KEY_LENGTHS } from '../src/model/keys.js';
import { key, time } from './columns.js';
import { sharedEntity } from './mikro-orm.js';
import { naming, type Naming } from './naming.js';

/**
 * A file of a session or a user. Each save locks this row, and numbers its version by `lastVersion`. It has no foreign key to the
 * session, which may be in another store.
 */
export const adkArtifact = ({ table }: Naming) =>
  sharedEntity({
    name: 'AdkArtifact',
    ...table('artifacts'),
    properties: {
      appName: key('app_name', KEY_LENGTHS.appName).primary(),
      userId: key('user_id', KEY_LENGTHS.userId).primary(),
      /** Empty for a file of the user. ADK's prefix `user:` is not stored in its name. */
      sessionId: key('session_id', KEY_LENGTHS.sessionId).primary(),
      filename: key('filename', KEY_LENGTHS.filename).primary(),
      lastVersion: p.integer().fieldName('last_version'),
      /** When that version was saved, by the database's clock. */
      updateTime: time('update_time'),
    },
  });

export const AdkArtifact = adkArtifact(naming());
export type AdkArtifact = InferEntity<typeof AdkArtifact>;
