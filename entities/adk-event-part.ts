import { defineEntity, p, type InferEntity } from '@mikro-orm/core';
import { AdkEvent } from './adk-event.js';
import { text } from './columns.js';
import { withCollatedType, withSharedClass } from './mikro-orm.js';
import { naming, type Naming } from './naming.js';

/** A piece of the JSON of an event that is too large for one packet to a MySQL or MariaDB server. */
export const adkEventPart = ({ named, table }: Naming) =>
  withSharedClass(
    defineEntity({
      name: 'AdkEventPart',
      ...table('event_parts'),
      properties: {
        event: () =>
          withCollatedType(p.manyToOne(AdkEvent))
            .primary()
            .joinColumns('app_name', 'user_id', 'session_id', 'seq')
            .foreignKeyName(named('event_parts_event'))
            .index(false)
            .deleteRule('cascade')
            .updateRule('no action'),
        part: p.integer().fieldName('part').primary().autoincrement(false),
        text: text('text'),
      },
    }),
  );

export const AdkEventPart = adkEventPart(naming());
export type AdkEventPart = InferEntity<typeof AdkEventPart>;
