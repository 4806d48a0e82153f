import { MikroORM } from '@mikro-orm/core';
import { DATABASES } from '../../support/harnesses/databases.js';
import { availableDatabases, type TestDatabase } from '../../support/servers.js';
import { LineProcess } from './line-process.js';
import type { Answer, Request } from './major-process.js';
import { MIGRATIONS, TABLES, appliedMigrations, emptyDatabase, later, query, tablesWith } from './support.js';

// Only `npm run test:7` sets these: otherwise there is only one MikroORM.
const { ADK_TEST_MIKRO_ORM_6: six, ADK_TEST_NODE_6: nodeOfSix } = process.env;
const inBoth = six && nodeOfSix ? describe : describe.skip;

type Major = 6 | 7;

inBoth('a database that MikroORM 6 and MikroORM 7 use', () => {
  let processes: Record<Major, LineProcess>;
  let database: TestDatabase;
  let orm: MikroORM;

  beforeAll(() => {
    processes = {
      6: new LineProcess('test/hosts/schema/major-process.ts', { node: nodeOfSix!, cwd: six! }),
      7: new LineProcess('test/hosts/schema/major-process.ts'),
    };
  });

  afterAll(() => Promise.all(Object.values(processes).map((process) => process.end())));

  async function answer(major: Major, command: Request['command'], sessionId?: string): Promise<Answer> {
    const { dialect, kind, columns } = DATABASES[database.name];
    const { keepLargeEventsInParts } = columns;
    const isFile = kind === 'file';
    const request: Request = { command, url: database.url, dialect, isFile, keepLargeEventsInParts, sessionId };
    return JSON.parse(await processes[major].ask(JSON.stringify(request))) as Answer;
  }

  async function ask(major: Major, command: Request['command'], sessionId?: string): Promise<unknown> {
    const answered = await answer(major, command, sessionId);
    if ('error' in answered) throw new Error(`${command} of ${major}: ${answered.error}`);
    return answered.result;
  }

  /** The stored rows, without the values that differ from session to session. */
  async function stored(sessionId: string) {
    const rows = (columns: string, table: string, order: string) =>
      query(orm.em, `select ${columns} from ${table} where session_id = ? order by ${order}`, [sessionId]);
    const { json } = DATABASES[database.name].columns;
    const text = (column: string) => `${json(column)} as ${column}`;
    return {
      sessions: await rows('last_seq, last_update_time', 'adk_sessions', 'session_id'),
      events: await rows(`seq, event_id, timestamp, ${text('data')}`, 'adk_events', 'seq'),
      parts: await rows('seq, part, text', 'adk_event_parts', 'seq, part'),
      states: await rows(`state_key, ${text('value')}, event_id`, 'adk_session_states', 'state_key'),
    };
  }

  test.each(
    availableDatabases().flatMap((name) => [
      { name, first: 6 as const, second: 7 as const },
      { name, first: 7 as const, second: 6 as const },
    ]),
  )('on $name, made by $first, is read, written, migrated and dropped by $second', async ({ name, first, second }) => {
    database = await emptyDatabase(name);
    orm = await MikroORM.init({ ...database.options, entities: [], discovery: { warnWhenNoEntities: false } });
    later(() => orm.close(true));
    expect(await ask(first, 'version')).toMatchObject({ mikroOrm: expect.stringMatching(`^${first}\\.`) });
    expect(await ask(second, 'version')).toMatchObject({ mikroOrm: expect.stringMatching(`^${second}\\.`) });

    // The other needs no further migration.
    expect(await ask(first, 'up')).toEqual(MIGRATIONS);
    await ask(first, 'write', 'by-first');
    expect(await ask(second, 'pending')).toEqual([]);
    expect(await ask(second, 'up')).toEqual([]);
    expect(await ask(second, 'needed')).toBe(false);
    await ask(second, 'migrate');
    expect(await appliedMigrations(orm)).toEqual(MIGRATIONS);
    await ask(second, 'write', 'by-second');
    expect(await stored('by-second')).toEqual(await stored('by-first'));

    // Both at once, as in a deploy, then one after the other.
    const ids = await Promise.all([ask(first, 'append', 'by-both'), ask(second, 'append', 'by-both')]);
    ids.push(await ask(second, 'append', 'by-first'), await ask(first, 'append', 'by-second'));
    const both = await stored('by-both');
    expect(both.events.map((row) => Reflect.get(row, 'event_id')).sort()).toEqual(ids.slice(0, 2).flat().sort());
    expect(both.events.map((row) => Reflect.get(row, 'seq'))).toEqual(Array.from({ length: 20 }, (_, i) => i + 1));
    expect(both.states).toHaveLength(21);
    expect(await ask(first, 'lease', 'by-both')).toBe(1);
    expect(await ask(second, 'lease', 'by-both')).toBe(2);
    expect(await ask(first, 'lease', 'by-first')).toBe(3);

    const read = await ask(first, 'read');
    expect(await ask(second, 'read')).toEqual(read);
    expect(read).toMatchObject({
      sessions: { length: 3 },
      log: { length: both.events.length + 2 * (await stored('by-first')).events.length },
    });
    await ask(second, 'delete', 'by-first');
    expect(await stored('by-first')).toEqual({ sessions: [], events: [], parts: [], states: [] });

    const listed = await answer(second, 'list');
    if (name === 'sqlite' && second === 6) {
      // MikroORM 7 stores times as numbers there, which MikroORM 6 passes to its command unchanged.
      expect(listed).toEqual({ error: expect.stringContaining('toISOString is not a function') });
    } else {
      expect(listed).toEqual({ result: MIGRATIONS.map((name) => [name, '20']) });
    }
    expect(await ask(second, 'down')).toEqual(MIGRATIONS.toReversed());
    expect(await tablesWith('adk_', orm, name)).toEqual([]);
    expect(await ask(first, 'pending')).toEqual(MIGRATIONS);
    await ask(second, 'up');
    await ask(first, 'migrate');
    expect(await tablesWith('adk_', orm, name)).toEqual(TABLES);
    expect(await appliedMigrations(orm)).toEqual(MIGRATIONS);
  });
});
