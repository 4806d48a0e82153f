import { p, type InferEntity } from '@mikro-orm/core';
import { key } from './columns.js';
import { sharedEntity } from './mikro-orm.js';
import { naming, type Naming } from './naming.js';

/** A number that only grows: the last position of the event log, or the last fencing token of a lease. */
export const adkCounter = ({ table }: Naming) =>
  sharedEntity({
    name: 'AdkCounter',
    ...table('counters'),
    properties: {
      name: key('name', 32).primary(),
      value: p.bigint('number').fieldName('value'),
    },
  });

export const AdkCounter = adkCounter(naming());
export type AdkCounter = InferEntity<typeof AdkCounter>;
