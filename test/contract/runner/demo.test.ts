import { MikroORM } from '@mikro-orm/core';
import {
  AdkAppState,
  AdkArtifact,
  AdkEvent,
  AdkMemory,
  AdkSession,
  AdkSessionState,
  AdkUserState,
  adkEntities,
} from '../../../entities/index.js';
import { createDatabase, databasesOfExamples, type TestDatabase } from '../../support/servers.js';
import { useExample } from './example.js';
import { everythingStored } from './support.js';

const PROGRAM = 'examples/demo.ts';
const { run } = useExample(PROGRAM);

/** The lines of a part of the output, without what differs from run to run. */
function part(output: string, heading: string): string[] {
  const last = output.split(heading).at(-1)!;
  return last
    .split('\n\n')[0]!
    .split('\n')
    .slice(1)
    .filter(Boolean)
    .map((line) => line.trim());
}

const EVENTS = [
  'seq  author  what',
  '1  user    “I need a flight from Vienna to Lisbon on Friday.”',
  '2  travel  calls find_flights(from: "VIE", to: "LIS", day: "Friday")',
  '3  travel  find_flights → flights: [3 of them]',
  '4  travel  calls ask_user(question: "At 06:25, 09:40 or 17:55?") (paused)',
  expect.stringMatching(/^─── kill -9 ─+$/),
  '5  user    ask_user → answer: "The 09:40, please. A window seat."',
  '6  travel  calls book_flight(flight: "OS 351", seat: "window")',
  expect.stringMatching(/^7  travel  book_flight → flight: "OS 351", seat: "window"/),
  expect.stringMatching(/^8  travel  “Booked: OS 351 on Friday/),
];

describe.each(databasesOfExamples())('the demo on %s', (name) => {
  let database: TestDatabase;
  let orm: MikroORM | undefined;
  beforeEach(async () => {
    database = await createDatabase(name);
  });
  afterEach(async () => {
    await orm?.close(true);
    await database.drop();
  });

  test('prints what happens, and the tables hold it', async () => {
    // On SQLite as `npm run demo` runs it.
    const { output, errors, exitCode } =
      name === 'sqlite' ? await run({}, ['--import', 'tsx', PROGRAM]) : await run({ ADK_DATABASE_URL: database.url });

    expect({ errors, exitCode }).toEqual({ errors: '', exitCode: 0 });
    expect(output.split('\n').filter((line) => line.length > 80 && !line.startsWith('database'))).toEqual([]);
    expect(output).toMatch(/PROCESS 1 [^]*✖ kill -9 \d+ {2}process 1 has ended by SIGKILL[^]*PROCESS 2 /);
    expect(part(output, 'WHAT THE MODEL WAS SHOWN LAST')).toHaveLength(3);
    expect(part(output, 'WHAT THE MODEL WAS SHOWN FIRST IN THIS PROCESS')).toEqual([
      'user   “I need a flight from Vienna to Lisbon on Friday.”',
      'model  calls find_flights(from: "VIE", to: "LIS", day: "Friday")',
      'user   find_flights → flights: [3 of them]',
      'model  calls ask_user(question: "At 06:25, 09:40 or 17:55?")',
      'user   ask_user → answer: "The 09:40, please. A window seat."',
    ]);
    expect(part(output, 'EVENTS  table')).toEqual(EVENTS);

    const [, file] = /^database {2}SQLite, (.*)$/m.exec(output) ?? [];
    orm = await MikroORM.init({ ...database.options, ...(file && { dbName: file }), entities: adkEntities() });
    const em = orm.em.fork();
    const sessions = await em.find(AdkSession, {}, { orderBy: { createTime: 'asc' } });
    expect(sessions).toMatchObject([8, 2].map((lastSeq) => ({ appName: 'travel', userId: 'ada', lastSeq })));
    const ofFirst = { session: { id: sessions[0]!.id } };
    expect((await em.find(AdkEvent, ofFirst, { orderBy: { seq: 'asc' } })).map(({ seq }) => seq)).toEqual([
      1, 2, 3, 4, 5, 6, 7, 8,
    ]);
    // A file, and what the next conversation remembers.
    expect(await em.find(AdkArtifact, {})).toMatchObject([{ filename: 'ticket.txt', lastVersion: 0 }]);
    expect(output).toContain('the agent has written ticket.txt: version 0, 29 bytes');
    expect(JSON.stringify(await em.find(AdkMemory, {}))).toContain('a window seat');
    expect(output.split('THE NEXT CONVERSATION')[1]).toContain('agent  A window seat.');
    expect(await em.find(AdkAppState, {})).toMatchObject([{ key: 'searches', value: 1 }]);
    expect(await em.find(AdkUserState, {})).toMatchObject([{ key: 'home_airport', value: 'VIE' }]);
    expect((await em.find(AdkSessionState, {}, { orderBy: { key: 'asc' } })).map(({ key }) => key)).toEqual([
      'booking',
      'flights',
    ]);
    expect(await everythingStored(orm)).not.toMatch(/temp:|raw_reply/);
  });
});
