import type { InferEntity } from '@mikro-orm/core';
import { key, time } from './columns.js';
import { sharedEntity } from './mikro-orm.js';
import { naming, type Naming } from './naming.js';

/** Left by a transaction that must not be repeated, so that a retry learns that it was committed. */
export const adkRetryToken = ({ table }: Naming) =>
  sharedEntity({
    name: 'AdkRetryToken',
    ...table('retry_tokens'),
    properties: {
      /** Random. A process uses its rows again, each in one transaction at a time. */
      slot: key('slot', 22).primary(),
      /** Random, of the last transaction. */
      token: key('token', 22).primary(),
      /** By the database's clock. */
      updateTime: time('update_time'),
    },
  });

export const AdkRetryToken = adkRetryToken(naming());
export type AdkRetryToken = InferEntity<typeof AdkRetryToken>;
