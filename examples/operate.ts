/**
 * A year of conversations, and what is done with them. Run it with `npm run example:operate`.
 *
 * An SQLite file has about a thousand conversations of three apps. The operator counts what is stored, deletes old sessions,
 * continues one conversation differently from its middle, and moves everything to another database.
 */
import { createEvent, type Event } from '@google/adk';
import { MikroORM } from '@mikro-orm/core';
import assert from 'node:assert/strict';
import { createReadStream, createWriteStream } from 'node:fs';
import { mkdtemp, readFile, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { AdkSession } from '../entities/index.js';
import { databaseOptions } from '../mikro-orm.config.js';
import { adkEntities, adkServices, migrate, type SessionMaintenance, type SessionStats } from '../src/index.js';
import * as print from './print.js';

const DAY = 24 * 3_600_000;

/** Who talks how much. A turn is a question and an answer. */
const APPS = [
  { appName: 'support', users: 120, conversations: 1_100, turns: 4 },
  { appName: 'travel', users: 70, conversations: 600, turns: 3 },
  { appName: 'tutor', users: 25, conversations: 300, turns: 9 },
];
const CONVERSATIONS = APPS.reduce((sum, { conversations }) => sum + conversations, 0);
/** How many conversations one transaction writes. */
const AT_ONCE = 100;

const AGES = [
  { name: 'this week', from: 0, to: 7 },
  { name: 'this month', from: 7, to: 30 },
  { name: 'this quarter', from: 30, to: 90 },
  { name: 'half a year', from: 90, to: 180 },
  { name: 'a year', from: 180, to: 366 },
];

const TRIP = { appName: 'travel', userId: 'ada', sessionId: 'lisbon' };
const TALK: [author: string, text: string, stateDelta?: Record<string, unknown>][] = [
  ['user', 'Take me to Lisbon.'],
  ['travel', 'By plane in 4 hours, or by train in 2 days?', { city: 'Lisbon', step: 'choose' }],
  ['user', 'By plane.'],
  ['travel', 'Booked: OS 351.', { step: 'booked', flight: 'OS 351' }],
];
const OTHER_WAY: typeof TALK = [
  ['user', 'By train.'],
  ['travel', 'Booked: EN 421, a berth.', { step: 'booked', train: 'EN 421' }],
];

const folder = await mkdtemp(join(tmpdir(), 'adk-operate-'));
const file = (name: string) => join(folder, name);

async function openOrm(name: string): Promise<MikroORM> {
  const orm = await MikroORM.init({ ...(await databaseOptions(`sqlite:${file(name)}`)), entities: adkEntities() });
  await migrate(orm);
  return orm;
}

const orm = await openOrm('operate.sqlite');
const { sessionService, maintenance } = adkServices(orm.em);
const now = Date.now();

print.title({ title: 'A year of conversations, and what is done with them', database: `SQLite, ${folder}` });

// Step 1. The conversations, with time stamps as after a year of use. A hundred of them share a transaction of ours, which the
// service joins, so that they wait for the disk only once.
print.heading('FILL');
let filled = 0;
for (const { appName, users, conversations, turns } of APPS) {
  for (let i = 0; i < conversations;) {
    await orm.em.transactional(async (tx) => {
      const service = sessionService.withEntityManager(tx);
      for (const end = i + AT_ONCE; i < Math.min(end, conversations); i++) {
        const session = await service.createSession({ appName, userId: `user-${i % users}`, state: { topic: i % 7 } });
        // More are young than old, and every 50th is long.
        const age = Math.floor(365 * (i / conversations) ** 1.5) + 0.5;
        const events = conversation(appName, i % 50 === 0 ? turns * 10 : turns, now - age * DAY);
        await service.appendEvents({ session, events });
        print.gauge('filled', ++filled, CONVERSATIONS);
      }
    });
  }
}
const trip = await sessionService.createSession(TRIP);
await sessionService.appendEvents({ session: trip, events: eventsOf(TALK) });

// Step 2. Count what is stored. The database adds up; no content is read into this process.
print.heading('STATS');
const before = await maintenance.stats();
const apps = await maintenance.stats({ groupBy: 'app' });
const sizeBefore = await fileBytes();
describe(before);
print.bars(
  'SESSIONS BY APP',
  "stats({ groupBy: 'app' })",
  apps.map(({ appName, sessions, events, eventBytes }) => ({
    name: appName,
    value: sessions,
    more: `${count(events)} events, ${megabytes(eventBytes)}`,
  })),
);
const agesBefore = await ages();
print.bars('WHEN THEY ENDED', 'table adk_sessions, last_update_time', agesBefore);

// Step 3. Delete what nobody has touched for 90 days. First a dry run, to see how much that is.
print.heading('PRUNE');
const old = { idleFor: 90 * DAY };
const { done: planned } = await maintenance.prune({ ...old, dryRun: true });
print.note(`dryRun: ${count(planned.sessions)} sessions with ${count(planned.events)} events would go`);
const pruned = await maintenance.prune({
  ...old,
  onProgress: ({ done }) => print.gauge('pruned', done['sessions'] ?? 0, planned.sessions),
});
print.note(`in ${pruned.batches} short transactions, between which agents go on writing`);
print.bars(
  'BEFORE AND AFTER',
  '░ is gone',
  (await ages()).map(({ name, value }, i) => ({ name, value, of: agesBefore[i]?.value })),
);

// Step 4. SQLite keeps the free space for new rows. `vacuum` returns it to the disk, but needs the file for itself.
const after = await maintenance.stats();
const sizeAfter = await fileBytes();
await orm.em.getConnection().execute('vacuum');
const contents = ({ eventBytes, stateBytes }: SessionStats) => eventBytes + stateBytes;
print.bars(
  'SIZES',
  '░ is gone',
  [
    { name: 'contents', value: contents(after), of: contents(before) },
    { name: 'the file', value: sizeAfter, of: sizeBefore },
    { name: 'after vacuum', value: await fileBytes(), of: sizeBefore },
  ].map((row) => ({ ...row, shown: megabytes(row.value) })),
);

// Step 5. Continue differently from an earlier point, with the state at that point. The session itself does not change.
print.heading('FORK');
const fork = await sessionService.forkSession(TRIP, { at: 2, as: 'lisbon-by-train' });
print.said('fork', `after event 2 of ${TRIP.sessionId}, with the state of then:`);
print.said('', JSON.stringify(fork.state));
await sessionService.appendEvents({ session: fork, events: eventsOf(OTHER_WAY) });
for (const sessionId of [TRIP.sessionId, fork.id]) {
  const session = await sessionService.getSession({ ...TRIP, sessionId });
  assert(session);
  await print.events(orm.em.fork(), session);
  print.note(`  state of ${sessionId}: ${JSON.stringify(session.state)}`);
}

// Step 6. Export: one record after the other, each a line of a file.
print.heading('EXPORT AND IMPORT');
const exported = await exportTo('export.jsonl', maintenance);
print.said('export', `${count(exported.records)} records, ${megabytes(exported.bytes)}, in export.jsonl`);

// Step 7. Import into any other database. Here it is a second file; it could be a server.
const copy = await openOrm('copy.sqlite');
const { maintenance: copyMaintenance } = adkServices(copy.em);
const { done: imported } = await copyMaintenance.importSessions(recordsOf('export.jsonl'), {
  onProgress: ({ done }) => print.gauge('imported', done['records'] ?? 0, exported.records),
});
print.said('import', `${count(imported.sessions)} sessions with ${count(imported.events)} events, in copy.sqlite`);

// Step 8. The proof: an export from there is the same file.
await exportTo('copy.jsonl', copyMaintenance);
assert.deepEqual(await readFile(file('copy.jsonl')), await readFile(file('export.jsonl')));
print.said('proof', 'exported from there, the file is the same, byte for byte');
await Promise.all([orm.close(), copy.close()]);

function conversation(appName: string, turns: number, end: number): Event[] {
  const talk = Array.from({ length: turns }, (_, turn): typeof TALK => [
    ['user', `Question ${turn + 1}: what does it say about this, and where can I find more of it?`],
    [appName, `Answer ${turn + 1}. ${'It says that it depends, and why. '.repeat(8)}`, { turn: turn + 1 }],
  ]);
  return eventsOf(talk.flat(), end);
}

/** One a minute, the last of them at the end. */
function eventsOf(talk: typeof TALK, end = now): Event[] {
  return talk.map(([author, text, stateDelta = {}], i) =>
    createEvent({
      author,
      timestamp: end - (talk.length - 1 - i) * 60_000,
      content: { role: author === 'user' ? 'user' : 'model', parts: [{ text }] },
      actions: { stateDelta, artifactDelta: {}, requestedAuthConfigs: {}, requestedToolConfirmations: {} },
    }),
  );
}

/** The entities can be queried like your own. */
async function ages() {
  const em = orm.em.fork();
  return Promise.all(
    AGES.map(async ({ name, from, to }) => {
      const lastUpdateTime = { $lte: now - from * DAY, $gt: now - to * DAY };
      return { name, value: await em.count(AdkSession, { lastUpdateTime }) };
    }),
  );
}

async function exportTo(name: string, from: SessionMaintenance) {
  const written = { records: 0, bytes: 0 };
  const lines = async function* () {
    for await (const record of from.exportSessions()) {
      const line = `${JSON.stringify(record)}\n`;
      written.records++;
      written.bytes += Buffer.byteLength(line);
      yield line;
    }
  };
  await pipeline(lines, createWriteStream(file(name)));
  return written;
}

/** Read line by line, so the file may have any size. Since Node.js 24, `readline` also splits texts, at U+2028 and U+2029. */
async function* recordsOf(name: string): AsyncGenerator {
  let line = '';
  for await (const chunk of createReadStream(file(name), 'utf8')) {
    const [end = '', ...others] = String(chunk).split('\n');
    line += end;
    for (const next of others) {
      yield JSON.parse(line);
      line = next;
    }
  }
}

function describe({ sessions, users, events, eventsPerSession: { median, percentile95, largest } }: SessionStats) {
  print.note(`stored: ${count(sessions)} sessions of ${users} users with ${count(events)} events`);
  print.note(`events a session: median ${median}, 95 % have ${percentile95} at most, the largest ${largest}`);
}

async function fileBytes(): Promise<number> {
  // Until then, new data is in a file beside it.
  await orm.em.getConnection().execute('pragma wal_checkpoint(truncate)');
  return (await stat(file('operate.sqlite'))).size;
}

function count(number: number): string {
  return number.toLocaleString('en-US');
}

function megabytes(bytes: number): string {
  return `${(bytes / 1e6).toFixed(1)} MB`;
}
