import { MikroORM } from '@mikro-orm/core';
import { SqliteDriver } from '@mikro-orm/sqlite';
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { AdkEvent, AdkSession, AdkSessionState, adkEntities } from '../../../entities/index.js';
import type { ExportRecord } from '../../../src/model/records.js';
import { useExample } from './example.js';

const DAY = 24 * 3_600_000;

const example = useExample('examples/operate.ts');
const drawing = useExample('test/contract/runner/drawing-process.ts');

/** The numbers in the line that begins with a text. */
function numbersIn(output: string, start: string): number[] {
  const line = output.split('\n').find((line) => line.trim().startsWith(start)) ?? '';
  return [...line.slice(line.indexOf(start) + start.length).matchAll(/\d[\d,]*/g)].map(([number]) =>
    Number(number.replaceAll(',', '')),
  );
}

interface DrawnBar {
  full: number;
  light: number;
  value: number;
}

/** The bars below a heading, by name. */
function barsBelow(output: string, heading: string): Record<string, DrawnBar> {
  const [, below = ''] = output.split(heading);
  const [, ...lines] = below.split('\n\n')[0]?.split('\n') ?? [];
  return Object.fromEntries(
    lines.flatMap((line) => {
      const [, name = '', bar = '', value = ''] = /^ {4}(.{12}) (.{30}) +([\d,.]+)/.exec(line) ?? [];
      const length = (of: string) => bar.split(of).length - 1;
      return name
        ? [[name.trim(), { full: length('█'), light: length('░'), value: Number(value.replace(',', '')) }]]
        : [];
    }),
  );
}

const sum = (bars: Record<string, DrawnBar>) => Object.values(bars).reduce((total, { value }) => total + value, 0);

describe('the example of operation', () => {
  const opened: MikroORM[] = [];
  afterEach(async () => {
    for (const orm of opened.splice(0)) await orm.close(true);
  });

  const open = async (file: string) => {
    const orm = await MikroORM.init({ driver: SqliteDriver, dbName: file, entities: adkEntities() });
    opened.push(orm);
    return orm;
  };

  test('prints what the files hold', async () => {
    const { output, errors, exitCode } = await example.run();

    expect({ errors, exitCode }).toEqual({ errors: '', exitCode: 0 });
    expect(output.split('\n').filter((line) => line.length > 80 && !line.startsWith('database'))).toEqual([]);
    expect(output).not.toContain('\x1b');
    expect(output).not.toContain('\r');
    const headings = [...output.matchAll(/^── ([A-Z ]+) ─+$/gm)].map(([, heading]) => heading);
    expect(headings).toEqual(['FILL', 'STATS', 'PRUNE', 'FORK', 'EXPORT AND IMPORT']);

    const [, place = ''] = /^database {2}SQLite, (.*)$/m.exec(output) ?? [];
    const em = (await open(path.join(place, 'operate.sqlite'))).em.fork();
    const sessions = await em.find(AdkSession, {}, { orderBy: { appName: 'asc', userId: 'asc', id: 'asc' } });
    const events = await em.count(AdkEvent, {});

    const [all = 0, users, allEvents = 0] = numbersIn(output, 'stored:');
    const [gone = 0, goneEvents = 0] = numbersIn(output, 'dryRun:');
    expect(all).toBe(2_001);
    expect(users).toBe(216);
    expect(gone).toBeGreaterThan(all / 3);
    // The fork is one more, of two events of its past and two of its own.
    expect(sessions).toHaveLength(all - gone + 1);
    expect(events).toBe(allEvents - goneEvents + 4);
    expect(Math.min(...sessions.map(({ lastUpdateTime }) => Number(lastUpdateTime)))).toBeGreaterThan(
      Date.now() - 91 * DAY,
    );

    const byApp = barsBelow(output, 'SESSIONS BY APP');
    expect(byApp).toEqual({
      support: { full: 30, light: 0, value: 1_100 },
      travel: { full: 16, light: 0, value: 601 },
      tutor: { full: 8, light: 0, value: 300 },
    });
    const [before, after] = [barsBelow(output, 'WHEN THEY ENDED'), barsBelow(output, 'BEFORE AND AFTER')];
    expect(sum(before)).toBe(all);
    expect(sum(after)).toBe(all - gone);
    for (const age of ['this week', 'this month', 'this quarter']) expect(after[age]).toEqual(before[age]);
    for (const age of ['half a year', 'a year'])
      expect(after[age]).toEqual({ full: 0, light: before[age]?.full, value: 0 });
    expect(before['a year']?.value).toBeGreaterThan(0);

    const ofTrip = { appName: 'travel', userId: 'ada' };
    const stateOf = async (id: string) =>
      Object.fromEntries(
        (await em.find(AdkSessionState, { session: { ...ofTrip, id } })).map(({ key, value }) => [key, value]),
      );
    expect(await stateOf('lisbon')).toEqual({ city: 'Lisbon', step: 'booked', flight: 'OS 351' });
    expect(await stateOf('lisbon-by-train')).toEqual({ city: 'Lisbon', step: 'booked', train: 'EN 421' });
    const idsOf = async (id: string) =>
      (await em.find(AdkEvent, { session: { ...ofTrip, id } }, { orderBy: { seq: 'asc' } })).map(({ id }) => id);
    const [trip, fork] = [await idsOf('lisbon'), await idsOf('lisbon-by-train')];
    expect([trip.length, fork.length]).toEqual([4, 4]);
    expect(fork.map((id) => trip.includes(id))).toEqual([true, true, false, false]);

    const file = await readFile(path.join(place, 'export.jsonl'), 'utf8');
    const records = file
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line) as ExportRecord);
    expect(numbersIn(output, 'export ')[0]).toBe(records.length);
    const of = (type: ExportRecord['type']) => records.filter((record) => record.type === type).length;
    expect([of('session'), of('event')]).toEqual([sessions.length, events]);
    expect(numbersIn(output, 'import ').slice(0, 2)).toEqual([sessions.length, events]);

    const copy = (await open(path.join(place, 'copy.sqlite'))).em.fork();
    const copied = await copy.find(AdkSession, {}, { orderBy: { appName: 'asc', userId: 'asc', id: 'asc' } });
    const summary = ({ appName, userId, id, lastSeq, createTime, lastUpdateTime }: AdkSession) =>
      [appName, userId, id, lastSeq, createTime, lastUpdateTime].join(' ');
    expect(copied.map(summary)).toEqual(sessions.map(summary));
    const contents = (each: typeof em) =>
      each
        .getConnection()
        .execute('select app_name, user_id, session_id, seq, event_id, data from adk_events order by 1, 2, 3, 4');
    expect(await contents(copy)).toEqual(await contents(em));
  });

  test.each([
    ['with colours on a terminal', {}, true],
    ['without them when NO_COLOR is set', { NO_COLOR: '1' }, false],
  ])('draws %s', async (_name, environment, isColored) => {
    const terminal = ['--import', 'data:text/javascript,process.stdout.isTTY = true'];
    const { output, errors } = await drawing.run(environment, [...terminal, drawing.path]);
    expect(errors).toBe('');
    expect(output.includes('\x1b')).toBe(isColored);
    // One line, written over.
    expect(output.split('\n').at(-2)?.split('\r')).toHaveLength(3);
  });
});
