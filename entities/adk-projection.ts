import { p, type InferEntity } from '@mikro-orm/core';
import { KEY_LENGTHS } from '../src/model/keys.js';
import { key, text, time } from './columns.js';
import { sharedEntity } from './mikro-orm.js';
import { naming, type Naming } from './naming.js';

/** How far a `SessionProjection` has read the log. Its transactions write this row first, so that they wait for each other. */
export const adkProjection = ({ table }: Naming) =>
  sharedEntity({
    name: 'AdkProjection',
    ...table('projections'),
    properties: {
      name: key('name', KEY_LENGTHS.projectionName).primary(),
      /** A fencing token. Each transaction adds 1, so that none applies entries that another one has applied. */
      version: p.bigint('number').fieldName('version'),
      /** JSON of the log's cursor; 0 for the beginning. `cursor` is a word of SQL. */
      cursor: text('log_cursor'),
      /** Of the last transaction, by the database's clock. */
      updateTime: time('update_time'),
    },
  });

export const AdkProjection = adkProjection(naming());
export type AdkProjection = InferEntity<typeof AdkProjection>;
