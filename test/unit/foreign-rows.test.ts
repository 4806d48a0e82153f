import type { EntityManager } from '@mikro-orm/core';
import { runInNewContext } from 'node:vm';
import { adkGo } from '../../packages/import/src/adk-go.js';
import { adkJs } from '../../packages/import/src/adk-tables.js';
import { recognise } from '../../packages/import/src/recognise.js';
import type { ForeignStore } from '../../packages/import/src/foreign-store.js';
import type { Sql } from '../../src/internal.js';

/** A value that is of another realm, as what a driver under jest with jsdom returns. */
const elsewhere = (code: string, values: object = {}): unknown => runInNewContext(code, { ...values });

const bytes = (...values: number[]) => elsewhere('Uint8Array.from(values)', { values });

test('L2 bytes and times of another realm are read', async () => {
  const actions = bytes(...Buffer.from('{"StateDelta":{"a":1}}'));
  const row = { id: 'e', invocation_id: 'i', author: 'user', timestamp: '2026-01-02 03:04:05+00:00', actions };
  expect(adkGo.event(row)).toMatchObject({ actions: { stateDelta: { a: 1 } } });

  const parseDate = (time: number) => elsewhere('new Date(time)', { time });
  const { times } = adkJs({ getPlatform: () => ({ parseDate }) } as unknown as EntityManager);
  expect(times({ create_time: 1, update_time: 2 }, undefined)).toEqual({ createTime: 1, lastUpdateTime: 2 });

  const columns = ['sessions', 'events', 'app_states', 'user_states'].map((table) => ({
    ...{ table, column: 'actions', type: 'blob' },
  }));
  const store = { columns: async () => columns, someActions: async () => bytes(0x80) };
  await expect(recognise({} as Sql, store as unknown as ForeignStore, {} as EntityManager)).rejects.toThrow('pickled');
});
