import { p, type InferEntity } from '@mikro-orm/core';
import { KEY_LENGTHS } from '../src/model/keys.js';
import { bytes, json, key, optionalBytes, text, time } from './columns.js';
import { sharedEntity } from './mikro-orm.js';
import { naming, type Naming } from './naming.js';

/** What an agent remembers: the text of an event, or one that the host has added. No foreign key, since it outlives its session. */
export const adkMemory = ({ named, table }: Naming) =>
  sharedEntity({
    name: 'AdkMemory',
    ...table('memories'),
    properties: {
      appName: key('app_name', KEY_LENGTHS.appName).primary(),
      /** Empty if it is for all users of the app. */
      userId: key('user_id', KEY_LENGTHS.userId).primary(),
      /** Empty if it belongs to no session. */
      sessionId: key('session_id', KEY_LENGTHS.sessionId).primary(),
      /** The event's id, or that of the memory. */
      id: key('memory_id', KEY_LENGTHS.memoryId).primary(),
      /** The number of the event in its session, if a projection has added it. */
      seq: p.integer().fieldName('seq').nullable(),
      /** When it was said. */
      time: time('time'),
      /** When it was added, or replaced, by the database's clock. */
      createTime: time('create_time'),
      /** It cannot be found before this time, by the database's clock, since its session may continue. */
      settles: time('settles').nullable(),
      /** It cannot be found from this time on, by the database's clock. */
      expires: time('expires').nullable(),
      /** Its words. Before `data`, which a search does not read. */
      words: bytes('words'),
      /** The name of the model that made `embedding`. */
      model: text('model').nullable(),
      /** The vector of its meaning, from the host's `embed`. */
      embedding: optionalBytes('embedding'),
      /** Content, author and metadata. */
      data: json('data'),
    },
    indexes: [{ name: named('memories_expires'), properties: ['appName', 'expires'] }],
  });

export const AdkMemory = adkMemory(naming());
export type AdkMemory = InferEntity<typeof AdkMemory>;
