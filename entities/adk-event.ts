import { p, type InferEntity } from '@mikro-orm/core';
import { KEY_LENGTHS } from '../src/model/keys.js';
import { ofSession } from './adk-session.js';
import { optionalJson, key, text, time } from './columns.js';
import { sharedEntity } from './mikro-orm.js';
import { naming, type Naming } from './naming.js';

/** An event of a session; `seq` is its number in the order of appends. */
export const adkEvent = ({ named, table }: Naming) =>
  sharedEntity({
    name: 'AdkEvent',
    ...table('events'),
    properties: {
      session: () => ofSession(named('events_session')),
      /** 1, 2, 3 … without gaps inside the session. */
      seq: p.integer().fieldName('seq').primary().autoincrement(false),
      id: key('event_id', KEY_LENGTHS.eventId),
      timestamp: time('timestamp'),
      /** Whether a turn begins with it, see `beginsTurn`. Before `data`: SQLite reads through everything before a column. */
      beginsTurn: p.boolean().fieldName('begins_turn').default(false),
      /** When the database stored it, by its own clock, in ms; null if it comes from a store that did not keep this. */
      appendTime: time('append_time').nullable(),
      /** The event; null if it is kept in parts, see `AdkEventPart`. */
      data: optionalJson('data'),
      /** JSON: the keys of its delta whose writes were older than those of an earlier event (contract A8); mostly null. */
      superseded: text('superseded').nullable(),
      /** Its position among the events of all sessions; null until a reader of the log has assigned it. */
      position: p.bigint('number').fieldName('position').nullable(),
    },
    indexes: [{ name: named('events_position'), properties: ['position', 'seq'] }],
    uniques: [{ name: named('events_event_id'), properties: ['session', 'id'] }],
  });

export const AdkEvent = adkEvent(naming());
export type AdkEvent = InferEntity<typeof AdkEvent>;
