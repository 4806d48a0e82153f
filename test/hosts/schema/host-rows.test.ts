import { mkdir, symlink } from 'node:fs/promises';
import path from 'node:path';
import { createEvent } from '@google/adk';
import { MikroORM, defineEntity, p, type Options } from '@mikro-orm/core';
import { AdkEvent, AdkSession, adkEntities } from '../../../entities/index.js';
import { AdkMigrator, adkMigrations } from '../../../migrations/index.js';
import { migrate } from '../../../migrations/migrate.js';
import { examine } from '../../../packages/studio/src/internal.js';
import { InvalidArgumentError, MikroOrmSessionService, SessionMaintenance, adkServices } from '../../../src/index.js';
import type { ExportRecord } from '../../../src/model/records.js';
import { DATABASES } from '../../support/harnesses/databases.js';
import { isMikroOrm7 } from '../../support/mikro-orm.js';
import { availableDatabases, databasesOf, type TestDatabase } from '../../support/servers.js';
import {
  MIGRATIONS,
  appliedMigrations,
  checkMigrations,
  createMigration,
  dialectOf,
  emptyDatabase,
  emptyFolder,
  later,
  migrationOf,
  openHost,
  query,
  quietDriver,
  sessionRow,
  updateSchema,
} from './support.js';

/** The code of docs/migrations.md for MikroORM 7 without `AdkMigrator`. */
function comparedAsOurs<Builder extends { ignoreSchemaChanges(...changes: never[]): unknown }>(relation: Builder) {
  const changes = ['type', 'collation'];
  return isMikroOrm7 ? (Reflect.apply(relation.ignoreSchemaChanges, relation, changes) as Builder) : relation;
}

/** A host's entities that refer to our tables, and entities that refer to those. `next` makes a later version. */
function hostEntities({ next = false } = {}) {
  const text = () => (next ? p.string().default('') : p.string().nullable());
  const Ticket = defineEntity({
    name: 'Ticket',
    properties: {
      id: p.integer().primary(),
      title: text(),
      session: () =>
        comparedAsOurs(
          p
            .manyToOne(AdkSession)
            .joinColumns('app_name', 'user_id', 'session_id')
            .foreignKeyName('ticket_session')
            .deleteRule('cascade'),
        ),
    },
  });
  const Note = defineEntity({
    name: 'Note',
    properties: { id: p.integer().primary(), text: text(), ticket: () => p.manyToOne(Ticket).deleteRule('cascade') },
  });
  const Mark = defineEntity({
    name: 'Mark',
    properties: {
      id: p.integer().primary(),
      event: () =>
        comparedAsOurs(
          p.manyToOne(AdkEvent).joinColumns('app_name', 'user_id', 'session_id', 'seq').deleteRule('cascade'),
        ),
      note: () => p.manyToOne(Note).deleteRule('cascade'),
    },
  });
  return [Ticket, Note, Mark];
}

async function writeRows({ em }: MikroORM): Promise<void> {
  await em.fork().insert(AdkSession, sessionRow('ada'));
  for (const sql of [
    `insert into adk_events (app_name, user_id, session_id, seq, event_id, timestamp)
      values ('app', 'ada', 'session', 1, 'e', 1)`,
    "insert into ticket (id, app_name, user_id, session_id, title) values (1, 'app', 'ada', 'session', 'Refund')",
    "insert into note (id, text, ticket_id) values (1, 'Called', 1)",
    "insert into mark (id, app_name, user_id, session_id, seq, note_id) values (1, 'app', 'ada', 'session', 1, 1)",
  ])
    await query(em, sql);
}

const ALL_ROWS = [{ title: 'Refund', text: 'Called', event_id: 'e' }];

const readRows = ({ em }: MikroORM) =>
  query(
    em,
    `select t.title, n.text, e.event_id from mark m join note n on n.id = m.note_id join ticket t on t.id = n.ticket_id
      join adk_events e on e.session_id = m.session_id and e.seq = m.seq`,
  );

/** A host's table whose rows refer to sessions, with a rule, as MikroORM makes them. */
const referringWith = (name: string, rule: 'cascade' | 'set null' | 'restrict' | 'no action') =>
  defineEntity({
    name,
    properties: {
      id: p.integer().primary(),
      session: () =>
        comparedAsOurs(
          p
            .manyToOne(AdkSession)
            .joinColumns('app_name', 'user_id', 'session_id')
            .foreignKeyName(`${name}_session`)
            .nullable()
            .updateRule('no action')
            .deleteRule(rule),
        ),
    },
  });

describe.each(availableDatabases())('K1 K3 foreign keys of the host, on %s', (name) => {
  const RULES = { gone: 'cascade', loose: 'set null', strict: 'restrict', plain: 'no action' } as const;
  const tables = Object.keys(RULES) as (keyof typeof RULES)[];
  const key = { appName: 'app', userId: 'ada' };

  async function open() {
    const database = await emptyDatabase(name);
    const marking = defineEntity({
      name: 'marking',
      properties: {
        id: p.integer().primary(),
        event: () =>
          comparedAsOurs(
            p
              .manyToOne(AdkEvent)
              .joinColumns('of_app', 'of_user', 'of_session', 'of_seq')
              .foreignKeyName('marking_event')
              .deleteRule('restrict'),
          ),
      },
    });
    const [gone, ...others] = tables.map((table) => referringWith(table, RULES[table]));
    const note = defineEntity({
      name: 'note',
      properties: { id: p.integer().primary(), gone: () => p.manyToOne(gone!).deleteRule('no action') },
    });
    const line = defineEntity({
      name: 'line',
      properties: { id: p.integer().primary(), chained: () => p.manyToOne(chained).deleteRule('restrict') },
    });
    const chained = defineEntity({
      name: 'chained',
      properties: { id: p.integer().primary(), gone: () => p.manyToOne(gone!).deleteRule('cascade') },
    });
    const entities = [gone!, ...others, marking, note, chained, line];
    const orm = await openHost(database, { entities });
    await updateSchema(orm);
    const told: unknown[] = [];
    const service = new MikroOrmSessionService(orm.em);
    const maintenance = new SessionMaintenance(orm.em, { onError: (error) => told.push(error) });
    const create = async (sessionId: string, count = 1) => {
      const session = await service.createSession({ ...key, sessionId });
      const events = Array.from({ length: count }, (_, i) => createEvent({ author: 'agent', timestamp: i + 1 }));
      await service.appendEvents({ session, events });
    };
    let id = 0;
    const refer = (table: string, sessionId: string) =>
      query(
        orm.em,
        `insert into ${table} (id, app_name, user_id, session_id) values (${++id}, 'app', 'ada', '${sessionId}')`,
      );
    const left = async () =>
      (await query<{ session_id: string }>(orm.em, 'select session_id from adk_sessions order by 1')).map(
        ({ session_id }) => session_id,
      );
    return { orm, told, service, maintenance, create, refer, left, database };
  }

  const named = (table: string, constraint: string) => ({
    table,
    constraint: dialectOf(name) === 'sqlite' ? expect.stringMatching(/^\(.*session.*\)$/) : constraint,
  });
  const rows = (table: keyof typeof RULES, count: number) => ({
    ...named(table, `${table}_session`),
    // InnoDB calls both rules by one name or the other.
    rule: RULES[table] === 'no action' ? expect.stringMatching(/^(no action|restrict)$/) : RULES[table],
    rows: count,
  });

  test('are counted by their rule, and what they keep is left whole and named', async () => {
    const { orm, told, service, maintenance, create, refer, left } = await open();
    for (const id of ['1', '2', 'strict', 'plain', 'marked', '3']) await create(id);
    await create('large', 25);
    await create('large strict', 25);
    for (const table of tables) if (table === 'strict' || table === 'plain') await refer(table, table);
    await refer('strict', 'large strict');
    for (const id of ['1', 'large']) for (const table of ['gone', 'gone', 'loose']) await refer(table, id);
    await query(
      orm.em,
      "insert into marking (id, of_app, of_user, of_session, of_seq) values (1, 'app', 'ada', 'marked', 1)",
    );

    const kept = (sessionId: string, table: string) => ({ ...key, sessionId, ...named(table, `${table}_session`) });
    const expected = {
      ...{ done: { sessions: 4, events: 28 }, skipped: 4, more: false },
      kept: expect.arrayContaining([
        kept('strict', 'strict'),
        kept('plain', 'plain'),
        kept('large strict', 'strict'),
        { ...kept('marked', 'marking'), ...named('marking', 'marking_event') },
      ]),
      referring: expect.arrayContaining([rows('gone', 4), rows('loose', 2), rows('strict', 2), rows('plain', 1)]),
    };
    expect(await maintenance.prune({ idleFor: 0, batchSize: 10, dryRun: true })).toMatchObject(expected);
    expect(await left()).toHaveLength(8);
    const pruned = await maintenance.prune({ idleFor: 0, batchSize: 10 });
    expect(pruned).toMatchObject(expected);
    expect(pruned.kept).toHaveLength(4);
    expect(pruned.referring).toHaveLength(5);
    expect(await left()).toEqual(['large strict', 'marked', 'plain', 'strict']);
    expect((await service.getSession({ ...key, sessionId: 'large strict' }))?.events).toHaveLength(25);
    expect(await query(orm.em, 'select id from gone')).toEqual([]);
    expect(await query(orm.em, 'select session_id from loose')).toEqual([{ session_id: null }, { session_id: null }]);
    // No statement was tried that a key refuses.
    expect(told).toEqual([]);

    await expect(maintenance.eraseUser({ userId: 'ada' })).rejects.toMatchObject({
      code: 'ADK_USER_NOT_ERASED',
      result: { skipped: 4, kept: { length: 4 } },
    });
    for (const table of ['strict', 'plain', 'marking']) await query(orm.em, `delete from ${table}`);
    const erased = await maintenance.eraseUser({ userId: 'ada' });
    expect(erased).toMatchObject({ done: { sessions: 4 }, skipped: 0 });
    expect(erased).not.toHaveProperty('kept');
    expect(erased).not.toHaveProperty('referring');
  });

  const ofColumn = (table: string, column: string, more: object) => ({
    ...{ table, constraint: dialectOf(name) === 'sqlite' ? `(${column})` : expect.any(String), ...more },
  });

  test('rows that refer to the host’s rows are counted, and keep their session whole', async () => {
    const { orm, told, maintenance, create, refer, left } = await open();
    for (const id of ['1', '2', 'noted', '3', 'lined']) await create(id);
    await create('large', 25);
    for (const id of ['1', 'noted', 'lined', 'large']) await refer('gone', id);
    for (const values of ['(1, 1)', '(2, 1)', '(3, 3)', '(4, 4)'])
      await query(orm.em, `insert into chained (id, gone_id) values ${values}`);
    await query(orm.em, 'insert into note (id, gone_id) values (1, 2)');
    await query(orm.em, 'insert into line (id, chained_id) values (1, 3), (2, 4)');
    const keptBy = (sessionId: string, table: string, column: string) => ofColumn(table, column, { ...key, sessionId });
    const expected = {
      ...{ done: { sessions: 3, events: 3 }, skipped: 3, more: false },
      kept: expect.arrayContaining([
        keptBy('noted', 'note', 'gone_id'),
        keptBy('lined', 'line', 'chained_id'),
        keptBy('large', 'line', 'chained_id'),
      ]),
      referring: expect.arrayContaining([
        rows('gone', 1),
        ofColumn('chained', 'gone_id', { rule: 'cascade', rows: 2 }),
        ofColumn('note', 'gone_id', { rule: expect.stringMatching(/^(no action|restrict)$/), rows: 1 }),
        ofColumn('line', 'chained_id', { rule: 'restrict', rows: 2 }),
      ]),
    };
    expect(await maintenance.prune({ idleFor: 0, batchSize: 10, dryRun: true })).toMatchObject(expected);
    const pruned = await maintenance.prune({ idleFor: 0, batchSize: 10 });
    expect(pruned).toMatchObject(expected);
    expect(pruned.referring).toHaveLength(4);
    expect(await left()).toEqual(['large', 'lined', 'noted']);
    expect(await query(orm.em, "select seq from adk_events where session_id = 'large'")).toHaveLength(25);
    // Only the database knows whether these rows go along.
    expect(told).not.toEqual([]);
  });

  test('a row counts for each way to it, and a key of a table to itself for its first step', async () => {
    const { orm, maintenance, create, refer } = await open();
    await create('1');
    await refer('gone', '1');
    const to = (target: string, ...columns: readonly string[]) =>
      columns.map((column) => `foreign key (${column}) references ${target} (id) on delete cascade`).join(', ');
    // As MikroORM makes such a column.
    const int = ['mysql', 'mariadb'].includes(dialectOf(name)) ? 'int unsigned' : 'int';
    for (const text of [
      `create table twig (id ${int} primary key, gone_id ${int}, other_id ${int}, parent_id ${int},
        ${to('gone', 'gone_id', 'other_id')}, ${to('twig', 'parent_id')})`,
      `create table leaf (id ${int} primary key, twig_id ${int}, ${to('twig', 'twig_id')})`,
      'insert into twig (id, gone_id, other_id, parent_id) values (1, 1, 1, null)',
      'insert into twig (id, gone_id, other_id, parent_id) values (2, null, null, 1), (3, null, null, 2)',
      'insert into leaf (id, twig_id) values (1, 1)',
    ])
      await query(orm.em, text);
    const counted = [
      rows('gone', 1),
      ofColumn('twig', 'gone_id', { rule: 'cascade', rows: 1 }),
      ofColumn('twig', 'other_id', { rule: 'cascade', rows: 1 }),
      ofColumn('twig', 'parent_id', { rule: 'cascade', rows: 2 }),
      ofColumn('leaf', 'twig_id', { rule: 'cascade', rows: 2 }),
    ];
    for (const dryRun of [true, false]) {
      const { referring } = await maintenance.prune({ idleFor: 0, dryRun });
      expect(referring).toHaveLength(counted.length);
      expect(referring).toEqual(expect.arrayContaining(counted));
    }
    expect(await query(orm.em, 'select id from twig union all select id from leaf')).toEqual([]);
  });

  // Elsewhere it depends on the order of the keys.
  if (dialectOf(name) === 'sqlite')
    test('a row that goes along with its session in another way does not keep it', async () => {
      const { orm, maintenance, create, refer, left } = await open();
      await create('both');
      await refer('gone', 'both');
      await query(orm.em, 'alter table note add column other_id int references gone (id) on delete cascade');
      await query(orm.em, 'insert into note (id, gone_id, other_id) values (1, 1, 1)');
      // It is tried alone, in a transaction of its own, which counts like any other.
      await create('free');
      const one = { done: { sessions: 1 }, skipped: 0, batches: 1 };
      expect(await maintenance.prune({ idleFor: 0, maxBatches: 1 })).toMatchObject({ ...one, more: true });
      expect(await left()).toHaveLength(1);
      expect(await maintenance.prune({ idleFor: 0, maxBatches: 1 })).toMatchObject({ ...one, more: false });
      expect(await left()).toEqual([]);
    });

  test('rows that refer to events keep them from a trim, whole and named', async () => {
    const { orm, maintenance, create, left } = await open();
    await create('free', 4);
    await create('marked', 4);
    await create('large', 25);
    for (const [id, session] of ['marked', 'large', 'free'].entries())
      await query(
        orm.em,
        `insert into marking (id, of_app, of_user, of_session, of_seq) values (${id + 1}, 'app', 'ada', '${session}', ${session === 'free' ? 4 : 2})`,
      );
    const of = named('marking', 'marking_event');
    const expected = {
      ...{ done: { sessions: 1, events: 3 }, skipped: 2 },
      kept: ['large', 'marked'].map((sessionId) => ({ ...key, sessionId, ...of })),
      referring: [{ ...of, rule: 'restrict', rows: 2 }],
    };
    expect(await maintenance.trim({ keepLast: 1, batchSize: 10, dryRun: true })).toMatchObject(expected);
    expect(await maintenance.trim({ keepLast: 1, batchSize: 10 })).toMatchObject(expected);
    const counts = await query(
      orm.em,
      'select session_id, count(*) as n from adk_events group by session_id order by 1',
    );
    expect(counts.map(Object.values).map(([, n]) => Number(n))).toEqual([1, 25, 4]);
    expect(await left()).toHaveLength(3);
  });

  test('rows that refer to a session by other columns than its names are counted', async () => {
    const { orm, maintenance, create } = await open();
    await create('1');
    await create('2');
    await query(orm.em, 'create unique index own_origin on adk_sessions (origin)');
    const reference = 'foreign key (origin) references adk_sessions (origin) on delete cascade';
    if (dialectOf(name) === 'sqlite') await query(orm.em, `create table seen (origin text, ${reference})`);
    else {
      await query(orm.em, 'create table seen as select origin from adk_sessions where 1 = 0');
      await query(orm.em, `alter table seen add constraint seen_origin ${reference}`);
    }
    await query(orm.em, 'insert into seen (origin) select origin from adk_sessions');
    const expected = {
      done: { sessions: 2 },
      referring: [ofColumn('seen', 'origin', { rule: 'cascade', rows: 2 })],
    };
    expect(await maintenance.prune({ idleFor: 0, dryRun: true })).toMatchObject(expected);
    expect(await maintenance.prune({ idleFor: 0 })).toMatchObject(expected);
  });

  (name === 'postgresql' ? test : test.skip)(
    'an account that may not read the host’s tables skips and names',
    async () => {
      const { orm, database, create, refer, left } = await open();
      await create('1');
      await create('strict');
      await create('large', 25);
      await refer('strict', 'strict');
      await refer('gone', '1');
      const url = new URL(String(database.options.clientUrl));
      const [account, password] = [`account_${url.pathname.slice(-10)}`, 'secret'];
      const { create: statements, drop } = DATABASES.postgresql.server.account({
        ...{ name: account, password, database: url.pathname.slice(1), rights: 'select, insert, update, delete' },
      });
      for (const statement of [...statements, `revoke all on strict, loose from ${account}`])
        await query(orm.em, statement);
      try {
        Object.assign(url, { username: account, password });
        const limited = await openHost({ ...database, options: { ...database.options, clientUrl: url.href } });
        const kept = (sessionId: string) => ({ ...key, sessionId, table: 'strict', constraint: 'strict_session' });
        const pruned = await new SessionMaintenance(limited.em).prune({ idleFor: 0, batchSize: 10 });
        expect(pruned).toMatchObject({
          ...{ done: { sessions: 1 }, skipped: 2, kept: expect.arrayContaining([kept('strict'), kept('large')]) },
          referring: expect.arrayContaining([
            { table: 'strict', constraint: 'strict_session', rule: 'restrict' },
            { table: 'loose', constraint: 'loose_session', rule: 'set null' },
            rows('gone', 1),
          ]),
        });
        expect(await left()).toEqual(['large', 'strict']);
        expect(await query(orm.em, "select seq from adk_events where session_id = 'large'")).toHaveLength(25);
        await limited.close(true);
      } finally {
        for (const statement of drop) await query(orm.em, statement);
      }
    },
  );

  test('doctor lists them with their rules, and the indexes that they lack', async () => {
    const { orm } = await open();
    const found = async () => {
      for await (const finding of examine(orm.em)) if (finding.check.startsWith('foreign keys')) return finding;
      return undefined;
    };
    const { state, found: text, advice = '' } = (await found())!;
    for (const table of tables)
      expect(text).toMatch(new RegExp(`${table} to adk_sessions \\(.*on delete (${RULES[table]}|no action|restrict)`));
    for (const each of ['marking to adk_events', 'chained to gone', 'line to chained']) expect(text).toContain(each);
    const statements = advice.split('\n').slice(1);
    expect(state).toBe(statements.length > 0 ? 'advice' : 'ok');
    for (const statement of statements) await query(orm.em, statement);
    expect(await found()).toMatchObject({ state: 'ok' });
    // MikroORM makes none on PostgreSQL; InnoDB makes its own.
    expect(statements.length > 0).toBe(/postgresql|pglite/.test(name));
  });
});

describe.each(availableDatabases())('K1 the tables of a host that owned lists, on %s', (name) => {
  const Ticket = defineEntity({
    name: 'Ticket',
    properties: {
      id: p.bigint().primary().autoincrement(false),
      appName: p.string().fieldName('app'),
      userId: p.string(),
      title: p.string(),
      due: p.datetime(),
      secret: p.string().hidden(),
    },
  });
  const Note = defineEntity({
    name: 'Note',
    properties: {
      id: p.integer().primary(),
      app: p.string(),
      person: p.string(),
      ticket: () => p.manyToOne(Ticket).deleteRule('restrict'),
    },
  });
  const owned = [
    { entity: Note, appName: 'app', userId: 'person' },
    { entity: Ticket, appName: 'appName', userId: 'userId' },
  ];
  const due = new Date('2026-11-27T20:00:00Z');

  async function opened() {
    const orm = await openHost(await emptyDatabase(name), { entities: [Ticket, Note] });
    await updateSchema(orm);
    const em = orm.em.fork();
    for (const [id, appName, userId] of [
      ['1', 'shop', 'ada'],
      ['2', 'shop', 'ada'],
      ['3', 'shop', 'bob'],
      ['4', 'desk', 'ada'],
      // Other names, which the collation of a host's column may take for the same (contract D6).
      ['5', 'Shop', 'ada'],
      ['6', 'shop', 'Ada'],
    ]) {
      await em.insert(Ticket, { id, appName, userId, title: `Lamp ${id}`, due, secret: 'x' } as never);
      await em.insert(Note, { id: Number(id), app: appName, person: userId, ticket: id } as never);
    }
    const count = async () => [await orm.em.fork().count(Ticket), await orm.em.fork().count(Note)];
    const services = adkServices(orm.em, { owned });
    for (const userId of ['ada', 'bob']) await services.sessionService.createSession({ appName: 'shop', userId });
    return { orm, count, ...services };
  }

  test('eraseUser counts their rows in a dry run, and deletes them before the sessions', async () => {
    const { count, maintenance } = await opened();
    const ofAda = { done: { sessions: 1, Ticket: 4, Note: 4 } };
    expect(await maintenance.eraseUser({ userId: 'ada', dryRun: true })).toMatchObject({ ...ofAda, batches: 1 });
    expect(await count()).toEqual([6, 6]);
    const inShop = { appName: 'shop', userId: 'ada' };
    const one = await maintenance.eraseUser({ ...inShop, batchSize: 1, maxBatches: 1 });
    expect(one).toMatchObject({ done: { sessions: 0, Ticket: 0, Note: 1 } });
    expect(await count()).toEqual([6, 5]);
    const rest = await maintenance.eraseUser({ ...inShop, maxBatches: 2 });
    expect(rest).toMatchObject({ done: { sessions: 0, Ticket: 2, Note: 1 } });
    expect(await maintenance.eraseUser({ userId: 'ada' })).toMatchObject({ done: { sessions: 1, Ticket: 2, Note: 2 } });
    expect(await count()).toEqual([2, 2]);
  });

  test('the export of a person has their rows as JSON, and an import leaves them out', async () => {
    const { orm, count, maintenance } = await opened();
    const records: ExportRecord[] = [];
    for await (const record of maintenance.exportSessions({ userId: 'ada' })) records.push(record as ExportRecord);
    const rows = records.flatMap((record) => (record.type === 'owned' && record.entity === 'Ticket' ? [record] : []));
    expect(JSON.parse(JSON.stringify(rows))).toEqual(rows);
    expect(rows.map(({ appName, userId, row }) => ({ appName, userId, ...row, id: String(row['id']) }))).toEqual(
      [
        ['Shop', '5'],
        ['desk', '4'],
        ['shop', '1'],
        ['shop', '2'],
      ].map(([appName, id]) => ({ appName, userId: 'ada', id, title: `Lamp ${id}`, due: due.toISOString() })),
    );
    const everybody: string[] = [];
    for await (const { type } of maintenance.exportSessions()) everybody.push(type);
    expect(everybody).toEqual(['session', 'session']);

    await maintenance.eraseUser({ userId: 'ada' });
    const { done } = await new SessionMaintenance(orm.em).importSessions(records);
    expect([done.sessions, done.records]).toEqual([1, records.length]);
    expect(await count()).toEqual([2, 2]);
  });

  test('an entity or a property that is not there is refused', async () => {
    const { orm } = await opened();
    const [, ticket = owned[0]!] = owned;
    const making = (given: unknown) => () => new SessionMaintenance(orm.em, { owned: [given] } as never);
    expect(making({ ...ticket, appName: 'app' })).toThrow(/Ticket.*no property 'app'/);
    expect(making({ ...ticket, entity: { name: 'Other' } })).toThrow(/does not know Other/);
    expect(making({ entity: Ticket, appName: 'appName' })).toThrow(InvalidArgumentError);
  });
});

describe.each(availableDatabases())('F3 the rows of a host that refers to ours, on %s', (name) => {
  test.each([undefined, { safe: true }])('stay when it updates the schema at each start, with %j', async (options) => {
    const database = await emptyDatabase(name);
    const start = async (version = {}) => {
      const orm = await openHost(database, { entities: hostEntities(version) });
      const difference = await orm.schema.getUpdateSchemaSQL(options);
      await updateSchema(orm, options);
      return { orm, difference };
    };
    const { orm } = await start();
    await writeRows(orm);

    expect((await start()).difference).toBe('');
    expect((await start()).difference).toBe('');
    expect(await readRows(orm)).toEqual(ALL_ROWS);

    // Changes two tables at once.
    expect((await start({ next: true })).difference).not.toBe('');
    expect((await start({ next: true })).difference).toBe('');
    expect(await readRows(orm)).toEqual(ALL_ROWS);
  });

  test.each([true, false])('stay when AdkMigrator writes and runs a folder, snapshot: %p', async (snapshot) => {
    const database = await emptyDatabase(name);
    const folder = await emptyFolder();
    const open = async (version = {}) => {
      const orm = await MikroORM.init({
        ...database.options,
        ...quietDriver,
        entities: [...adkEntities(), ...hostEntities(version)],
        extensions: [AdkMigrator],
        migrations: { path: folder, emit: 'cjs', snapshot, silent: true },
        // See recipes.test.ts.
        dynamicImportProvider: (id) => import(id),
      });
      later(() => orm.close(true));
      return orm;
    };
    const expectNothingToDo = async (version = {}) => {
      const orm = await open(version);
      expect((await createMigration(orm, 'needless')).diff.up).toEqual([]);
      expect(await checkMigrations(orm)).toBe(false);
      expect(await orm.migrator.up()).toEqual([]);
    };
    // The files that MikroORM writes import packages from here.
    await mkdir(path.join(folder, 'node_modules'));
    const scope = path.join(path.dirname(require.resolve('@mikro-orm/core/package.json')), '..');
    await symlink(scope, path.join(folder, 'node_modules/@mikro-orm'), 'junction');

    const first = await open();
    await migrate(first);
    await createMigration(first, 'first');
    await first.migrator.up();
    await writeRows(first);
    await expectNothingToDo();
    await expectNothingToDo();
    expect(await readRows(first)).toEqual(ALL_ROWS);

    const next = await open({ next: true });
    expect((await createMigration(next, 'next')).diff.up).not.toEqual([]);
    expect(await checkMigrations(next)).toBe(!snapshot);
    expect(await next.migrator.up()).toHaveLength(1);
    expect(await readRows(first)).toEqual(ALL_ROWS);
    await expectNothingToDo({ next: true });
    await expectNothingToDo({ next: true });
    expect(await readRows(first)).toEqual(ALL_ROWS);
  });
});

for (const name of databasesOf('sqlite'))
  describe(`F3 migrations of a host's own by AdkMigrator, on ${name}`, () => {
    /** SQLite changes a column by rebuilding its table. */
    const REBUILD = [
      'pragma foreign_keys = off',
      'create table ticket_anew as select * from ticket',
      'drop table ticket',
      'alter table ticket_anew rename to ticket',
      'create unique index ticket_id on ticket (id)',
      'pragma foreign_keys = on',
    ];

    async function withRows(options: Options = {}): Promise<TestDatabase> {
      const database = await emptyDatabase(name);
      const orm = await openHost(database, { ...options, entities: hostEntities() });
      await migrate(orm);
      await updateSchema(orm);
      await writeRows(orm);
      return database;
    }

    const open = (database: TestDatabase, own: Parameters<typeof migrationOf>[0], options: Options = {}) =>
      openHost(database, {
        ...options,
        entities: hostEntities(),
        extensions: [AdkMigrator],
        migrations: {
          migrationsList: [
            ...adkMigrations('sqlite'),
            { name: 'Migration20270101000000_own', class: migrationOf(own) },
          ],
          ...options.migrations,
        },
      });

    test('leave a method of the host’s on the connection where it is', async () => {
      const orm = await open(await withRows(), { up: ['select 1'] });
      const connection = orm.em.getConnection();
      const transactional = jest.spyOn(connection, 'transactional');
      await orm.migrator.up();
      expect(transactional).toHaveBeenCalled();
      expect(connection.transactional).toBe(transactional);
    });

    test.each([true, false])('keep rows up and down, allOrNothing: %p', async (allOrNothing) => {
      const orm = await open(await withRows(), { up: REBUILD, down: REBUILD }, { migrations: { allOrNothing } });
      await orm.migrator.up();
      expect(await readRows(orm)).toEqual(ALL_ROWS);
      await orm.migrator.down();
      expect(await readRows(orm)).toEqual(ALL_ROWS);
      expect(await query(orm.em, 'pragma foreign_keys')).toEqual([{ foreign_keys: 1 }]);
    });

    test.each([true, false])(
      'are rolled back when rows would refer to none, allOrNothing: %p',
      async (allOrNothing) => {
        const deleting = { up: ['delete from ticket'] };
        const orm = await open(await withRows(), deleting, { migrations: { allOrNothing } });
        await expect(orm.migrator.up()).rejects.toThrow(
          'After the migrations 1 rows would refer to rows that no longer',
        );
        expect(await readRows(orm)).toEqual(ALL_ROWS);
        expect(await appliedMigrations(orm)).toEqual(MIGRATIONS);

        // Cascades again, since MikroORM's own connection has its foreign keys back.
        await query(orm.em, 'delete from ticket');
        expect(await query(orm.em, 'select * from mark')).toEqual([]);
      },
    );

    test('run where rows have referred to none before', async () => {
      const orm = await open(await withRows(), { up: ['delete from mark', 'delete from note'] });
      await query(orm.em, 'pragma foreign_keys = off');
      await query(orm.em, 'delete from adk_sessions');
      await orm.migrator.up();
      expect(await query(orm.em, 'select id from ticket')).toEqual([{ id: 1 }]);
    });

    // MikroORM 7 has only one connection.
    (isMikroOrm7 ? test.skip : test)('are refused on a connection that has foreign keys', async () => {
      const orm = await open(await withRows(), { up: REBUILD }, { pool: { min: 0, max: 2 } });
      const connection = orm.em.getConnection();
      const execute = connection.execute.bind(connection);
      await Promise.all([1, 2].map(() => execute('pragma foreign_keys = on')));
      const other = orm.em.fork();
      jest.spyOn(connection, 'execute').mockImplementation(async (...args) => {
        const result: unknown = await execute(...args);
        if (args[0] === 'pragma foreign_keys = off' && !other.isInTransaction()) await other.begin();
        return result;
      });
      await expect(orm.migrator.up()).rejects.toThrow('Foreign keys are on in the transaction');
      await other.rollback();
      expect(await readRows(orm)).toEqual(ALL_ROWS);
      expect(await appliedMigrations(orm)).toEqual(MIGRATIONS);
    });
  });
