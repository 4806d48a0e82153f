import { p, type InferEntity } from '@mikro-orm/core';
import { ofSession } from './adk-session.js';
import { text } from './columns.js';
import { sharedEntity } from './mikro-orm.js';
import { naming, type Naming } from './naming.js';

/** A piece of the JSON of an event that is too large for one packet to a MySQL or MariaDB server. */
export const adkEventPart = ({ named, table }: Naming) =>
  sharedEntity({
    name: 'AdkEventPart',
    ...table('event_parts'),
    properties: {
      // A foreign key to the event would make the database search this table for each deleted event, even if none is in parts.
      session: () => ofSession(named('event_parts_session')),
      /** The number of the event. */
      seq: p.integer().fieldName('seq').primary().autoincrement(false),
      part: p.integer().fieldName('part').primary().autoincrement(false),
      text: text('text'),
    },
  });

export const AdkEventPart = adkEventPart(naming());
export type AdkEventPart = InferEntity<typeof AdkEventPart>;
