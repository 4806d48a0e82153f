import { TransactionPropagation, type EntityManager } from '@mikro-orm/core';
import {
  EventLog,
  SessionMaintenance,
  SessionProjection,
  type CompleteLogEntry,
  type SessionProjectionOptions,
} from '../../src/index.js';
import { Backup } from '../support/backup.js';
import type { OwnStore } from '../support/harnesses/harness.js';
import { HostNote } from '../support/harnesses/host-note.js';
import { observed } from './log-tools.js';
import { Suite, onInnodb, withConnections, type OwnContext } from './rule.js';
import { afterCommit, count, deadlock, errorOf, expectCode, range, saying, until } from './tools.js';

/** Tests of section J: what a host makes of the complete log in tables of its own. */
export const projectionSuite = new Suite({ isOfDialect: true });

type Query = OwnStore['query'];

/** A ledger of applied entries: one that is applied twice has two rows. */
const ledgerOf = (query: Query) => ({
  make: () => query('create table ledger (entry varchar(60) not null)'),
  add: async (entries: readonly CompleteLogEntry[], tx: EntityManager) => {
    const rows = entries.map(() => '(?)').join(', ');
    await query(`insert into ledger (entry) values ${rows}`, entries.map(textOf), tx);
  },
  clear: async (tx: EntityManager) => {
    await query('delete from ledger', [], tx);
  },
  rows: async () => (await query<{ entry: string }>('select entry from ledger order by entry')).map((row) => row.entry),
});

const textOf = ({ sessionId, change, seq }: CompleteLogEntry) => `${sessionId} ${change ?? seq}`;

/** The ledger after each entry of some sessions was applied once. */
const expected = (sessions: readonly string[], events: number) =>
  sessions.flatMap((id) => [`${id} created`, ...range(events).map((i) => `${id} ${i + 1}`)]).sort();

const filled = async ({ service }: Pick<OwnStore, 'service'>, sessionId: string, events: number) => {
  const session = await service.createSession({ appName: 'app', userId: 'alice', sessionId });
  return count(service, session, events);
};

/** A store of its own, with a projection into its ledger. */
async function projecting({ scratch }: Pick<OwnContext, 'scratch'>) {
  const store = await scratch();
  const ledger = ledgerOf(store.query);
  await ledger.make();
  const options = { name: 'ledger', apply: ledger.add, clear: ledger.clear };
  const on = (em: EntityManager, changed: Partial<SessionProjectionOptions> = {}) =>
    new SessionProjection(em, { ...options, ...changed });
  return {
    store,
    ledger,
    on,
    /** Of another ORM. */
    other: store.peer.em.fork(),
    get projection() {
      return on(store.orm.em);
    },
  };
}

type Projecting = Awaited<ReturnType<typeof projecting>>;

projectionSuite.own('J5', 'a projection applies each entry once, and continues from its cursor', async (context) => {
  const { store, ledger, on, projection } = await projecting(context);
  await filled(store, 'a', 3);
  await projection.catchUp();
  expect(await ledger.rows()).toEqual(expected(['a'], 3));
  await filled(store, 'b', 2);
  await on(store.orm.em).catchUp();
  await projection.catchUp();
  expect(await ledger.rows()).toEqual([...expected(['a'], 3), ...expected(['b'], 2)]);
});

projectionSuite.own('J5', 'two that run at once apply each entry once between them', async (context) => {
  const { store, ledger, on } = await projecting(context);
  const other = context.harness.hasConnections ? await store.connect() : store.orm;
  const ems = [store.orm.em, other.em];
  const sessions = range(5).map(String);
  for (const sessionId of sessions) {
    const session = await store.service.createSession({ appName: 'app', userId: 'alice', sessionId });
    await store.service.appendEvents({ session, events: range(100).map((i) => saying(String(i))) });
  }
  await Promise.all(ems.map((em) => on(em).catchUp()));
  expect(await ledger.rows()).toEqual(expected(sessions, 100));
});

projectionSuite.own('J5', 'a transaction applies 400 entries at most', async (context) => {
  const { store, on } = await projecting(context);
  const key = { appName: 'app', userId: 'alice', sessionId: 'a' };
  const session = await store.service.createSession(key);
  await store.service.appendEvents({ session, events: range(250).map((i) => saying(String(i))) });
  for (const a of range(250)) await store.service.updateState({ ...key, set: { a } });
  const sizes: number[] = [];
  const apply = async (entries: readonly CompleteLogEntry[]) => void sizes.push(entries.length);
  await on(store.orm.em, { apply }).catchUp();
  expect(sizes.reduce((sum, size) => sum + size)).toBe(501);
  expect(Math.max(...sizes)).toBeLessThanOrEqual(400);
});

projectionSuite.own('J5', 'a transaction whose answer is lost is not repeated', async (context) => {
  const { store, ledger, on } = await projecting(context);
  await filled(store, 'a', 3);
  let commits = 0;
  const lost = Object.assign(new Error('lost'), { code: 'ECONNRESET' });
  await on(
    afterCommit(store.orm.em, () => {
      if (commits++ === 0) throw lost;
    }),
  ).catchUp();
  expect(commits).toBe(1);
  expect(await ledger.rows()).toEqual(expected(['a'], 3));
});

projectionSuite.own(
  'J5',
  'an error of apply is thrown unchanged and not reported, and nothing of its transaction stays',
  async (context) => {
    const { store, ledger, on, projection } = await projecting(context);
    await filled(store, 'a', 3);
    const mistake = new Error('a mistake of the host');
    const reported: unknown[] = [];
    const failing = on(store.orm.em, {
      onError: (error) => reported.push(error),
      apply: async (entries, tx) => {
        await ledger.add(entries, tx);
        throw mistake;
      },
    });
    expect(await errorOf(failing.catchUp())).toBe(mistake);
    expect(reported).toEqual([]);
    expect(await ledger.rows()).toEqual([]);
    await projection.catchUp();
    expect(await ledger.rows()).toEqual(expected(['a'], 3));
  },
);

projectionSuite.own(
  'J5',
  'an error of another source that apply throws is not treated as one of the database',
  async (context) => {
    const { store, ledger, on, projection } = await projecting(context);
    await filled(store, 'a', 3);
    for (const code of ['ECONNREFUSED', '40001', '40P01', 'ER_LOCK_DEADLOCK', 'SQLITE_BUSY']) {
      const mistake = Object.assign(new Error('a search server'), { code });
      let calls = 0;
      const apply = async (entries: readonly CompleteLogEntry[], tx: EntityManager) => {
        calls++;
        await ledger.add(entries, tx);
        throw mistake;
      };
      expect(await errorOf(on(store.orm.em, { apply }).catchUp())).toBe(mistake);
      expect(calls).toBe(1);
    }
    await projection.catchUp();
    expect(await ledger.rows()).toEqual(expected(['a'], 3));
  },
);

projectionSuite.own('J5', 'nothing is reported as done if the server did not commit it', async (context) => {
  const { store, ledger, on, projection } = await projecting(context);
  await filled(store, 'a', 1);
  const session = await store.service.createSession({ appName: 'app', userId: 'alice', sessionId: 'b' });
  for (const n of range(5))
    await store.service.appendEvents({ session, events: range(100).map((i) => saying(`${n} ${i}`)) });
  const all = [...expected(['a'], 1), ...expected(['b'], 500)].sort();
  let calls = 0;
  /** Catches the error of a statement, after which PostgreSQL makes a rollback of the commit. */
  const catching = async (work: () => Promise<void>, tx: EntityManager) => {
    if (++calls > 20) throw new Error('It is done again and again');
    await work();
    await store.query('insert into ledger (entry) values (null)', [], tx).catch(() => undefined);
  };
  const careless = on(store.orm.em, {
    apply: (entries, tx) => catching(() => ledger.add(entries, tx), tx),
    clear: (tx) => catching(() => ledger.clear(tx), tx),
  });
  /** Whether it was done; if not, there was an error. */
  const isDone = (call: Promise<void>) =>
    call.then(
      () => true,
      (error: unknown) => {
        expect(error).toMatchObject({
          code: 'ADK_DATABASE',
          outcome: 'none',
          message: expect.stringMatching(/caught/),
        });
        return false;
      },
    );
  expect(await isDone(careless.catchUp())).toBe((await ledger.rows()).length > 0);
  await projection.catchUp();
  expect(await ledger.rows()).toEqual(all);
  expect(await isDone(careless.transactional((tx) => catching(() => ledger.clear(tx), tx)))).toBe(
    (await ledger.rows()).length === 0,
  );
  expect(await isDone(careless.rebuild())).toBe((await ledger.rows()).length === 0);
  await projection.rebuild();
  await projection.catchUp();
  expect(await ledger.rows()).toEqual(all);
});

for (const [what, apply, isRetried] of [
  [
    'catches a deadlock and writes after it',
    async ({ store, ledger, other }, entries, tx) => {
      await ledger.add(entries, tx);
      await deadlock(store, tx, other).catch(() => undefined);
      await ledger.add(entries, tx);
    },
    false,
  ],
  [
    'writes before a deadlock that it catches',
    async ({ store, ledger, other }, entries, tx) => {
      await ledger.add(entries, tx);
      await deadlock(store, tx, other).catch(() => undefined);
    },
    false,
  ],
  [
    'starts statements together of which one meets a deadlock',
    async ({ store, ledger, other }, entries, tx) => {
      await deadlock(store, tx, other, () => ledger.add(entries, tx));
    },
    true,
  ],
] satisfies [string, (of: Projecting, ...args: Parameters<Projecting['ledger']['add']>) => Promise<void>, boolean][]) {
  projectionSuite.own(
    'J5',
    `a projection whose apply ${what} applies each entry once`,
    async (context) => {
      const given = await projecting(context);
      const { store, ledger, on, projection } = given;
      await filled(store, 'a', 3);
      let calls = 0;
      const meeting = on(store.orm.em, {
        apply: (entries, tx) => (++calls > 1 ? ledger.add(entries, tx) : apply(given, entries, tx)),
      });
      await (isRetried ? meeting.catchUp() : expectCode(meeting.catchUp(), 'ADK_DATABASE', /caught/));
      expect(calls).toBe(isRetried ? 2 : 1);
      expect(await ledger.rows()).toEqual(isRetried ? expected(['a'], 3) : []);
      await projection.catchUp();
      expect(await ledger.rows()).toEqual(expected(['a'], 3));
      // The connection is as it was.
      await filled(store, 'b', 1);
    },
    onInnodb,
  );
}

projectionSuite.own('J5', 'a transaction that apply begins beside its own is refused at once', async (context) => {
  const { store, ledger, on, projection } = await projecting(context);
  await filled(store, 'a', 3);
  const em = store.orm.em.fork();
  for (const begin of [
    () => em.transactional(async () => undefined),
    () => em.begin(),
    (tx: EntityManager) =>
      tx.transactional(async () => undefined, { propagation: TransactionPropagation.REQUIRES_NEW }),
  ]) {
    const apply = async (entries: readonly CompleteLogEntry[], tx: EntityManager) => {
      await ledger.add(entries, tx);
      await begin(tx);
    };
    await expectCode(on(store.orm.em, { apply }).catchUp(), 'ADK_INSIDE_TRANSACTION', /tx/);
  }
  expect(await ledger.rows()).toEqual([]);
  await on(store.orm.em, {
    apply: (entries, tx) => tx.transactional((inner) => ledger.add(entries, inner)),
  }).catchUp();
  expect(await ledger.rows()).toEqual(expected(['a'], 3));
  await projection.catchUp();
  expect(await ledger.rows()).toEqual(expected(['a'], 3));
});

projectionSuite.own('J5', 'entities of the host are written with the cursor', async (context) => {
  const { store, on } = await projecting(context);
  await filled(store, 'a', 2);
  const apply = async (entries: readonly CompleteLogEntry[], tx: EntityManager) => {
    for (const entry of entries) tx.persist(tx.create(HostNote, { id: entry.seq, text: textOf(entry) }));
    await store.service.withEntityManager(tx).createSession({ appName: 'applied', userId: 'alice' });
  };
  const filter = { appName: 'app' };
  await on(store.orm.em, { apply, filter }).catchUp();
  await on(store.orm.em, { apply, filter }).catchUp();
  expect((await store.service.listSessions({ appName: 'applied' })).sessions).toHaveLength(1);
  expect(await store.query('select text from host_notes order by id')).toEqual([
    { text: 'a created' },
    { text: 'a 1' },
    { text: 'a 2' },
  ]);
});

projectionSuite.own('J5', 'when the log went back, the rows are cleared and rebuilt', async (context) => {
  const { store, ledger, projection } = await projecting(context);
  const session = await store.service.createSession({ appName: 'app', userId: 'alice', sessionId: 'a' });
  await count(store.service, session, 2);
  await new EventLog(store.orm.em).head();
  const backup = await Backup.of(store);
  await store.service.appendEvent({ session, event: saying('lost') });
  await projection.catchUp();
  // Not all tables are restored: with the host's, the cursor would be that of the rows.
  const [row] = await store.query<{ log_cursor: string }>('select log_cursor from adk_projections');
  await backup.restore();
  await store.query("insert into adk_projections (name, version, log_cursor, update_time) values ('ledger', 9, ?, 0)", [
    row!.log_cursor,
  ]);
  await filled(store, 'b', 1);
  await projection.catchUp();
  expect(await ledger.rows()).toEqual([...expected(['a'], 2), ...expected(['b'], 1)]);

  await new SessionMaintenance(store.orm.em).beginLogEpoch();
  await store.query("insert into ledger (entry) values ('left behind')");
  await projection.catchUp();
  expect(await ledger.rows()).toEqual([...expected(['a'], 2), ...expected(['b'], 1)]);
});

projectionSuite.own('J5', 'rebuild clears the rows, and builds them again', async (context) => {
  const { store, ledger, projection } = await projecting(context);
  await filled(store, 'a', 3);
  await projection.catchUp();
  await projection.rebuild();
  expect(await ledger.rows()).toEqual([]);
  expect(await SessionProjection.list(store.orm.em)).toMatchObject([{ cursor: undefined, behind: 4 }]);
  await projection.catchUp();
  expect(await ledger.rows()).toEqual(expected(['a'], 3));
});

projectionSuite.own(
  'J5',
  'entries that were read before a deletion of the host are read again',
  async (context) => {
    const { store, ledger, on } = await projecting(context);
    await filled(store, 'a', 3);
    let heads = 0;
    // The user is erased after the entries were read: then the log asks for its head once more.
    const before = async (text: string) => {
      if (!text.includes("'pending'") || ++heads !== 2) return;
      await new SessionMaintenance(store.peer.em).eraseUser({ userId: 'alice' });
      await on(store.peer.em).transactional(ledger.clear);
    };
    await on(observed(store.orm.em, before).em).catchUp();
    expect(heads).toBeGreaterThan(2);
    expect((await ledger.rows()).filter((entry) => entry.startsWith('a '))).toEqual([]);
  },
  withConnections,
);

projectionSuite.own('J5', 'watch applies what comes until its signal fires', async (context) => {
  const { store, ledger, on } = await projecting(context);
  const stop = new AbortController();
  const watching = on(store.orm.em).watch({ signal: stop.signal });
  await filled(store, 'a', 2);
  await until(async () => (await ledger.rows()).length === 3);
  stop.abort();
  await watching;
  await filled(store, 'b', 1);
  expect(await ledger.rows()).toEqual(expected(['a'], 2));
});

projectionSuite.own('J5', 'list says how far each projection is behind, whatever its filter', async (context) => {
  const { store, ledger, projection } = await projecting(context);
  const filter = { appName: 'another' };
  const filtered = new SessionProjection(store.orm.em, {
    name: 'filtered',
    filter,
    apply: ledger.add,
    clear: ledger.clear,
  });
  expect(await SessionProjection.list(store.orm.em)).toEqual([]);
  await filled(store, 'a', 3);
  await filtered.catchUp();
  await projection.catchUp();
  await filled(store, 'b', 1);
  const head = await new EventLog(store.orm.em).head();
  const all = await SessionProjection.list(store.orm.em);
  expect(all).toMatchObject([
    { name: 'filtered', behind: 2, cursor: { position: 3 } },
    { name: 'ledger', behind: 2, cursor: { position: 3 } },
  ]);
  expect(all.every(({ updateTime }) => updateTime > 0)).toBe(true);
  expect(head.position).toBe(4);
  expect(await ledger.rows()).toEqual(expected(['a'], 3));
});

projectionSuite.own('J5', 'an invalid projection is refused', async ({ orm, service }) => {
  const parts = { name: 'x', apply: async () => {}, clear: async () => {} };
  for (const [changed, code] of [
    [{ name: '' }, 'ADK_INVALID_KEY'],
    [{ name: undefined }, 'ADK_INVALID_KEY'],
    [{ apply: undefined }, 'ADK_INVALID_ARGUMENT'],
    [{ clear: 1 }, 'ADK_INVALID_ARGUMENT'],
    [{ other: 1 }, 'ADK_INVALID_ARGUMENT'],
    [{ filter: { limit: 1 } }, 'ADK_INVALID_ARGUMENT'],
    [{ filter: { user: 'alice' } }, 'ADK_INVALID_ARGUMENT'],
    [{ filter: { appName: '' } }, 'ADK_INVALID_KEY'],
  ] as const) {
    await expectCode(
      Promise.resolve().then(() => new SessionProjection(orm.em, { ...parts, ...changed } as never)),
      code,
    );
  }
  const projection = new SessionProjection(orm.em, { ...parts, filter: { appName: 'none' } });
  await orm.em.fork().transactional(async (tx) => {
    for (const call of [() => projection.catchUp(), () => projection.watch(), () => projection.rebuild()])
      await expectCode(call(), 'ADK_INSIDE_TRANSACTION');
    // The host's own transaction continues.
    await service.withEntityManager(tx).createSession({ appName: 'refused', userId: 'alice' });
  });
});
