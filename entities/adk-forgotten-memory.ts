import type { InferEntity } from '@mikro-orm/core';
import { KEY_LENGTHS } from '../src/model/keys.js';
import { key, time } from './columns.js';
import { sharedEntity } from './mikro-orm.js';
import { naming, type Naming } from './naming.js';

/** Marks a memory that was forgotten, so that its event is not remembered again. */
export const adkForgottenMemory = ({ table }: Naming) =>
  sharedEntity({
    name: 'AdkForgottenMemory',
    ...table('forgotten_memories'),
    properties: {
      appName: key('app_name', KEY_LENGTHS.appName).primary(),
      /** Empty if it was for all users of the app. */
      userId: key('user_id', KEY_LENGTHS.userId).primary(),
      /** Empty if it was forgotten in all sessions. */
      sessionId: key('session_id', KEY_LENGTHS.sessionId).primary(),
      id: key('memory_id', KEY_LENGTHS.memoryId).primary(),
      /** When it was forgotten, by the database's clock. */
      createTime: time('create_time'),
    },
  });

export const AdkForgottenMemory = adkForgottenMemory(naming());
export type AdkForgottenMemory = InferEntity<typeof AdkForgottenMemory>;
