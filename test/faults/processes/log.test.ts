import { createEvent } from '@google/adk';
import { MikroORM } from '@mikro-orm/core';
import { AdkEvent, adkEntities } from '../../../entities/index.js';
import { EventLog, MikroOrmSessionService, migrate, type LogCursor } from '../../../src/index.js';
import { DATABASES } from '../../support/harnesses/databases.js';
import { availableDatabases, createDatabase, type TestDatabase } from '../../support/servers.js';
import { LogProcess, logWorkerBundle, untilReported } from './log-process.js';
import type { Seen } from './log-worker.js';
import { keyOf } from './protocol.js';
import { upTo } from './tables.js';

const WRITERS = 8;
/** Few, since a file takes one writer at a time, and the others wait. */
const FILE_WRITERS = 4;
const COUNT = process.env['ADK_TEST_LONG'] ? 150 : 12;
const LAST = 'after the kill';
const SESSION_IDS = ['s1', 's2', 's3', 's4'];

interface Opened {
  database: TestDatabase;
  orm: MikroORM;
  writers: LogProcess[];
}

const opened: Opened[] = [];
const processes: LogProcess[] = [];

function startProcess(): LogProcess {
  const started = new LogProcess();
  processes.push(started);
  return started;
}

beforeAll(async () => {
  await logWorkerBundle.build();
  for (const name of availableDatabases()) {
    const database = await createDatabase(name);
    const orm = await MikroORM.init({ ...database.options, entities: adkEntities() });
    opened.push({ database, orm, writers: [] });
    await migrate(orm);
    const service = new MikroOrmSessionService(orm.em);
    for (const sessionId of SESSION_IDS) await service.createSession(keyOf(sessionId));
  }
});

afterAll(async () => {
  await Promise.all(processes.map((each) => each.kill()));
  await logWorkerBundle.remove();
  for (const { database, orm } of opened) {
    await orm.close(true);
    await database.drop();
  }
});

/** The events with positions, read from the table. */
async function stored(orm: MikroORM): Promise<Seen[]> {
  const events = await orm.em.fork().find(AdkEvent, {}, { orderBy: { position: 'asc' } });
  return events.map(({ position, session, seq, id }) => ({ position: position!, sessionId: session.id, seq, id }));
}

// All databases at once, so that one process works on all of them, and one kill counts for each.
test('G1 eight write, also in transactions that stay open or roll back, and three follow, one of which is killed: each sees every committed event once, and all agree', async () => {
  const startReader = (cursorOf: (opened: Opened) => LogCursor | number) => {
    const reader = startProcess();
    for (const each of opened) {
      const { name, url } = each.database;
      reader.start({ kind: 'read', database: { name, url }, cursor: cursorOf(each) });
    }
    return reader;
  };
  const readers = [startReader(() => 0), startReader(() => 0)];
  const victim = startReader(() => 0);
  for (const i of upTo(WRITERS)) {
    const writer = startProcess();
    for (const { database, writers } of opened) {
      const { name, url } = database;
      if (DATABASES[name].kind === 'file' && i > FILE_WRITERS) continue;
      writers.push(writer);
      const label = `writer ${i}`;
      writer.start({ kind: 'write', database: { name, url }, label, sessionIds: SESSION_IDS, count: COUNT });
    }
  }

  // Kills it in the middle of its work on every database.
  await untilReported(() => opened.every(({ database }) => victim.seen(database.name).length >= 10));
  await victim.kill();
  // Even if the writers are done by then, something is left to read.
  for (const { orm } of opened) {
    const service = new MikroOrmSessionService(orm.em);
    const session = (await service.getSession(keyOf('s1')))!;
    await service.appendEvent({ session, event: createEvent({ id: LAST, author: 'agent' }) });
  }
  const heir = startReader(({ database }) => victim.cursor(database.name));

  await untilReported(() =>
    opened.every(({ database, writers }) => writers.every((writer) => writer.committed(database.name) !== undefined)),
  );

  for (const { database, orm, writers } of opened) {
    const { name } = database;
    const { position: head } = await new EventLog(orm.em).head();
    const follows = [
      ...readers.map((reader) => () => reader.seen(name)),
      () => [...victim.seen(name), ...heir.seen(name)],
    ];
    await untilReported(() => follows.every((seen) => seen().at(-1)?.position === head));

    const table = await stored(orm);
    const committed = [LAST, ...writers.flatMap((writer) => writer.committed(name)!)];
    expect({ name, ids: table.map(({ id }) => id).sort() }).toEqual({ name, ids: committed.sort() });
    expect({ name, positions: table.map(({ position }) => position) }).toEqual({ name, positions: upTo(head) });
    for (const sessionId of SESSION_IDS) {
      const seqs = table.filter((row) => row.sessionId === sessionId).map(({ seq }) => seq);
      expect({ name, sessionId, seqs }).toEqual({ name, sessionId, seqs: upTo(seqs.length) });
    }
    for (const seen of follows) expect({ name, seen: seen() }).toEqual({ name, seen: table });
    expect(heir.seen(name).length).toBeGreaterThan(0);
  }
}, 600_000);
