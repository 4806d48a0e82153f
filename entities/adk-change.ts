import { defineEntity, p, type InferEntity } from '@mikro-orm/core';
import { KEY_LENGTHS } from '../src/model/keys.js';
import { key, optionalJson, time } from './columns.js';
import { withSharedClass } from './mikro-orm.js';
import { naming, type Naming } from './naming.js';

/**
 * An entry of the event log that is no appended event: a session that was created, state that was set outside a run. It has
 * no foreign key, because a deletion is emitted after the session is gone.
 */
export const adkChange = ({ named, table }: Naming) =>
  withSharedClass(
    defineEntity({
      name: 'AdkChange',
      ...table('changes'),
      properties: {
        appName: key('app_name', KEY_LENGTHS.appName).primary(),
        /** Empty if state of the app alone was changed. */
        userId: key('user_id', KEY_LENGTHS.userId).primary(),
        /** Empty if state of the app or the user was changed. */
        sessionId: key('session_id', KEY_LENGTHS.sessionId).primary(),
        /**
         * In the order in which a session's changes were made, counted by its row. If there is no row, of state of user or app and,
         * below 0, of a deletion, each process counts from a random number.
         */
        id: p.bigint('number').fieldName('change_id').primary().autoincrement(false).unsigned(false),
        kind: p.string().fieldName('kind').length(16),
        /** The number of the session's newest event at that time. */
        seq: p.integer().fieldName('seq'),
        /** The number of the event that was rewritten. */
        eventSeq: p.integer().fieldName('event_seq').nullable(),
        /** By the database's clock. */
        time: time('time'),
        /** State that was given or set; of `trimmed`, the state before the first event that is kept. Null means what the tables hold now. */
        data: optionalJson('data'),
        /** The position of the event that it follows in the log; null until a reader of the log has given it one. */
        position: p.bigint('number').fieldName('position').nullable(),
        /** Its number among all changes: 1, 2, 3 …; positions are those of events. Null until it has a position. */
        number: p.bigint('number').fieldName('number').nullable(),
      },
      indexes: [{ name: named('changes_number'), properties: ['number', 'id'] }],
    }),
  );

export const AdkChange = adkChange(naming());
export type AdkChange = InferEntity<typeof AdkChange>;
