import type { Event } from '@google/adk';
import { MikroORM } from '@mikro-orm/core';
import { once } from 'node:events';
import { AdkEvent, AdkSession, adkEntities } from '../../../entities/index.js';
import { createDatabase, databasesOfExamples, type TestDatabase } from '../../support/servers.js';
import { useExample } from './example.js';
import { summary } from './support.js';

const { start, run } = useExample('examples/recover.ts');

/** What is printed, without what differs from run to run: X is the worker that the lease chose first, Y the other one. */
function storyOf(output: string): string[] {
  const [, first] = /worker ([AB]) \S+ \S+ has it/.exec(output) ?? [];
  return output
    .split('\n')
    .slice(3)
    .map((line) => line.replace(/ ─+$/, '').trim())
    .filter(Boolean)
    .map((line) =>
      line
        .replaceAll(/(?<=worker )[AB]/g, (worker) => (worker === first ? 'X' : 'Y'))
        .replaceAll(/(?<=token |pid |kill -9 )\d+/g, 'N')
        .replace(/\d+\.\d s/, 'S s'),
    );
}

const STORY = [
  '── TWO WORKERS ASK FOR ONE SESSION',
  'lease  worker X (pid N) has it, token N; worker Y (pid N) waits',
  'log    1  user    “Pay invoice 17: 240 euros to Vienna Print.”',
  'log    2  office  calls pay_invoice(invoice: "17", euros: 240)',
  'bank   the money has left; worker X is about to hear of it',
  '✖ kill -9 N  worker X has ended by SIGKILL, without a goodbye',
  '── THE LEASE RUNS OUT',
  'lease  worker Y has it, token N, S s after the kill',
  'it answers the call that was left open, and has the agent go on',
  'log    3  office  pay_invoice → error: "The run of this tool was interrupted…',
  'log    4  user    “Please go on.”',
  'log    5  office  calls find_payment(invoice: "17")',
  'log    6  office  find_payment → paid: true, euros: 240',
  'log    7  office  “Invoice 17 is paid: 240 euros.”',
  'lease  given back by worker Y, nobody has it',
  'bank   invoice 17 was paid once',
];

const EVENTS = [
  'user Pay invoice 17: 240 euros to Vienna Print.',
  'office calls pay_invoice',
  expect.stringMatching(/^office pay_invoice → \{"error":"The run of this tool was interrupted .*"\}$/),
  'user Please go on.',
  'office calls find_payment',
  'office find_payment → {"paid":true,"euros":240}',
  'office Invoice 17 is paid: 240 euros.',
];

describe.each(databasesOfExamples())('the recovery example on %s', (name) => {
  let database: TestDatabase;
  let orm: MikroORM | undefined;
  beforeEach(async () => {
    database = await createDatabase(name);
  });
  afterEach(async () => {
    await orm?.close(true);
    orm = undefined;
    await database.drop();
  });

  test('prints what happens, and the tables hold it', async () => {
    const { output, errors, exitCode } = await run(name === 'sqlite' ? {} : { ADK_DATABASE_URL: database.url });

    expect({ errors, exitCode }).toEqual({ errors: '', exitCode: 0 });
    expect(storyOf(output)).toEqual(STORY);
    expect(output.split('\n').filter((line) => line.length > 80 && !line.startsWith('database'))).toEqual([]);
    // 1 and 2, unless both asked in the same moment: then one of them has used up a token for nothing.
    const [first = 0, second = 0] = [...output.matchAll(/token (\d+)/g)].map(([, token]) => Number(token));
    expect(first).toBeGreaterThan(0);
    expect(second).toBeGreaterThan(first);

    const [, file] = /^database {2}SQLite, (.*)$/m.exec(output) ?? [];
    orm = await MikroORM.init({ ...database.options, ...(file && { dbName: file }), entities: adkEntities() });
    const em = orm.em.fork();
    expect(await em.find(AdkSession, {})).toMatchObject([
      { appName: 'office', userId: 'ada', lastSeq: 7, leaseHolder: null, leaseExpires: null, leaseToken: second },
    ]);
    const rows = await em.find(AdkEvent, {}, { orderBy: { seq: 'asc' } });
    expect(rows.map(({ seq }) => seq)).toEqual([1, 2, 3, 4, 5, 6, 7]);
    const events = rows.map(({ data }) => data as Event);
    expect(events.map(summary)).toEqual(EVENTS);

    // The first worker's run has written nothing since the takeover; the repair is part of it, and the second's work.
    const [killed, ...others] = new Set(events.map(({ invocationId }) => invocationId));
    expect(events.map(({ invocationId }) => invocationId === killed)).toEqual([
      ...[true, true, true],
      ...[false, false, false, false],
    ]);
    expect(others).toHaveLength(1);
  });
});

describe('the recovery example', () => {
  test('leaves no process behind when it is killed itself', async () => {
    const example = start();
    for await (const chunk of example.stdout.setEncoding('utf8')) {
      if (String(chunk).includes('the money has left')) example.kill('SIGKILL');
    }
    // The end of the output is the end of all that could write to it.
    expect(example.signalCode).toBe('SIGKILL');
  });

  test('fails when nobody is left to take over', async () => {
    const example = start();
    const ended = once(example, 'exit');
    let output = '';
    for await (const chunk of example.stdout.setEncoding('utf8')) {
      output += String(chunk);
      const [, waiting] = /\(pid (\d+)\) waits/.exec(String(chunk)) ?? [];
      if (waiting) process.kill(Number(waiting), 'SIGKILL');
    }
    await ended;
    expect(storyOf(output)).toEqual(STORY.slice(0, storyOf(output).length));
    expect(output).not.toContain('was paid once');
    expect(example.exitCode).toBe(1);
  });
});
