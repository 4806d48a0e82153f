import type { MikroORM } from '@mikro-orm/core';
import { positioned } from '../../src/log/positions.js';
import { inLogOrder } from '../../src/model/log-order.js';

/** During `work`, lowers how many events and changes get positions in one transaction. */
export async function inBatchesOf<T>(count: number, work: () => Promise<T>): Promise<T> {
  const { atOnce } = positioned;
  positioned.atOnce = count;
  try {
    return await work();
  } finally {
    positioned.atOnce = atOnce;
  }
}

/** Expects that all rows of an app have places in the log, and that each session's entries are in the order of creation. */
export async function expectOrder({ em }: Pick<MikroORM, 'em'>, appName: string): Promise<void> {
  const rows = async <Row extends KeyRow>(columns: string, table: string): Promise<Row[]> => {
    const select = `select user_id, session_id, seq, position, ${columns} from adk_${table} where app_name = ?`;
    return (await em.getConnection().execute(select, [appName])) as Row[];
  };
  const events = await rows('1 as is_event', 'events');
  const changes = await rows<ChangeRow>('kind, change_id, number', 'changes');
  const place = (row: KeyRow | ChangeRow) => Number(row.position) * 1e6 + ('number' in row ? Number(row.number) : 0);
  for (const id of new Set([...events, ...changes].map(idOf))) {
    const ofSession = <Row extends KeyRow>(all: Row[]) => all.filter((row) => idOf(row) === id);
    const own = { events: ofSession(events), changes: ofSession(changes) };
    const made = [
      ...inLogOrder(
        own.events.sort((a, b) => a.seq - b.seq),
        own.changes.sort((a, b) => Number(a.change_id) - Number(b.change_id)),
      ),
    ].map(({ event, change }) => event ?? change);
    expect(made.filter(({ position }) => position === null)).toEqual([]);
    const logged = [...own.events, ...own.changes].sort((a, b) => place(a) - place(b));
    expect([id, ...logged.map(lineOf)]).toEqual([id, ...made.map(lineOf)]);
  }
}

interface KeyRow {
  user_id: string;
  session_id: string;
  seq: number;
  position: number | string | null;
}

interface ChangeRow extends KeyRow {
  kind: string;
  change_id: number | string;
  number: number | string | null;
}

const idOf = (row: KeyRow) => JSON.stringify([row.user_id, row.session_id]);
const lineOf = (row: KeyRow | ChangeRow) => `${'kind' in row ? row.kind : 'event'} ${row.seq}`;
