import { p, type InferEntity } from '@mikro-orm/core';
import { KEY_LENGTHS } from '../src/model/keys.js';
import { key, optionalJson, time } from './columns.js';
import { sharedEntity } from './mikro-orm.js';
import { naming, type Naming } from './naming.js';

/**
 * An entry of the event log other than an appended event, such as a created session, or state that was set outside a run. It has no
 * foreign key, because a deletion is emitted after the session is gone.
 */
export const adkChange = ({ named, table }: Naming) =>
  sharedEntity({
    name: 'AdkChange',
    ...table('changes'),
    properties: {
      appName: key('app_name', KEY_LENGTHS.appName).primary(),
      /** Empty for state of the app. */
      userId: key('user_id', KEY_LENGTHS.userId).primary(),
      /** Empty for state of the app or the user. */
      sessionId: key('session_id', KEY_LENGTHS.sessionId).primary(),
      /**
       * Numbers the changes of a session in their order; the session's row counts them. For state of user or app and, below 0, for
       * a deletion, there is no such row: each process counts from a random number.
       */
      id: p.bigint('number').fieldName('change_id').primary().autoincrement(false).unsigned(false),
      kind: p.string().fieldName('kind').length(16),
      /** The number of the session's newest event at that time. */
      seq: p.integer().fieldName('seq'),
      /** The number of a rewritten event. */
      eventSeq: p.integer().fieldName('event_seq').nullable(),
      /** By the database's clock. */
      time: time('time'),
      /** The new state; of `trimmed`, the state before the first remaining event. If null, readers get what the tables contain. */
      data: optionalJson('data'),
      /** The position of the event before it in the log; null until a reader of the log has assigned it. */
      position: p.bigint('number').fieldName('position').nullable(),
      /** Its number among all changes: 1, 2, 3 …; null until it has a position. */
      number: p.bigint('number').fieldName('number').nullable(),
    },
    indexes: [{ name: named('changes_number'), properties: ['number', 'id'] }],
  });

export const AdkChange = adkChange(naming());
export type AdkChange = InferEntity<typeof AdkChange>;
