import type { CreateEventParams } from '@google/adk';
import { MikroOrmSessionService, SessionMaintenance } from '../../src/index.js';
import type { Codec } from '../../src/codecs/index.js';
import { keyOf } from '../support/harnesses/harness.js';
import { Suite, type OwnContext } from './rule.js';
import { eventOf, expectCode, range } from './tools.js';

/** What `getSession` gives a Runner of a long session. */
export const turnsSuite = new Suite({ isOfDialect: true });

const CODEC: Codec = { name: 'turns', encode: (data) => ({ data }), decode: ({ data }) => data };

const says = (author: string) => ({ author, content: { parts: [{ text: 'Go.' }] } });
const responds = (author: string) => ({ author, content: { parts: [{ functionResponse: { id: 'a', name: 'ask' } }] } });

/** Events, and whether a turn begins with them. */
const EVENTS: readonly [CreateEventParams, boolean][] = [
  [says('agent'), false],
  [says('user'), true],
  [responds('agent'), false],
  [responds('user'), false],
  [{ author: 'user' }, false],
  [{ author: 'user', content: { parts: [] } }, false],
];

/** The number of each event in an app that begins a turn. */
async function beginnings({ query }: Pick<OwnContext, 'query'>, app: string): Promise<Record<string, number[]>> {
  const rows = await query<{ user_id: string; session_id: string; seq: number; begins_turn: unknown }>(
    'select user_id, session_id, seq, begins_turn from adk_events where app_name = ? order by user_id, session_id, seq',
    [app],
  );
  const found: Record<string, number[]> = {};
  for (const { session_id: id, seq, begins_turn: begins } of rows) {
    found[id] ??= [];
    if (begins === true || Number(begins) === 1) found[id].push(seq);
  }
  return found;
}

turnsSuite.own('K7', "an event's row says whether a turn begins with it, however it was written", async (context) => {
  const { app, orm, service, create, scratch, query } = context;
  const events = () => EVENTS.map(([event]) => eventOf(event));
  const expected = EVENTS.flatMap(([, begins], i) => (begins ? [i + 1] : []));

  const one = await create({ sessionId: 'one by one' });
  for (const event of events()) await service.appendEvent({ session: one, event });
  await service.appendEvents({ session: await create({ sessionId: 'in a batch' }), events: events() });
  const many = await Promise.all(range(24).map((i) => create({ sessionId: `beside ${i}` })));
  for (const event of events()) {
    await Promise.all(many.map((session) => service.appendEvent({ session, event: { ...event } })));
  }
  await orm.em.transactional(async (tx) => {
    const joined = service.withEntityManager(tx);
    await joined.appendEvents({
      session: await joined.createSession({ appName: app, userId: 'alice', sessionId: 'joined' }),
      events: events(),
    });
  });
  await service.forkSession(keyOf(one), { as: 'forked' });
  const encoding = new MikroOrmSessionService(orm.em, { codec: CODEC });
  const encoded = await encoding.createSession({ appName: app, userId: 'bob', sessionId: 'encoded' });
  await encoding.appendEvents({ session: encoded, events: events() });
  await encoding.forkSession(keyOf(encoded), { as: 'encoded and forked' });
  const rewritten = await create({ sessionId: 'rewritten' });
  const all = events();
  await service.appendEvents({ session: rewritten, events: all });
  await service.appendEvent({ session: rewritten, event: { ...eventOf(says('user')), id: all[0]!.id } });
  await service.appendEvent({ session: rewritten, event: { ...eventOf(says('agent')), id: all[1]!.id } });

  const found = await beginnings({ query }, app);
  expect(found).toEqual(Object.fromEntries(Object.keys(found).map((id) => [id, id === 'rewritten' ? [1] : expected])));
  expect(Object.keys(found)).toHaveLength(31);

  const target = await scratch();
  const maintenance = new SessionMaintenance(target.orm.em, { codec: CODEC });
  const source = new SessionMaintenance(orm.em, { codec: CODEC });
  await maintenance.importSessions(source.exportSessions({ appName: app }));
  expect(await beginnings(target, app)).toEqual(found);
});

/** `u` begins a turn, `a` is of an agent, `r` an answer of the user. */
const LIVED = 'aauaaauruaruaaaaaaauua';

const OF_LETTER = { u: says('user'), a: says('agent'), r: responds('user') };

const eventsOf = (letters: string) =>
  letters
    .split('')
    .map((letter, i) => eventOf({ ...OF_LETTER[letter as 'u' | 'a' | 'r'], id: `e${i + 1}`, timestamp: i }));

/** The numbers of the events that a bound of `newest` gives of a session whose first kept event is `first`. */
function turnsOf(letters: string, newest: number, first = 1): number[] {
  const cut = letters.length - newest + 1;
  const begins = letters.split('').flatMap((letter, i) => (letter === 'u' && i + 1 >= first ? [i + 1] : []));
  const begin = cut <= first ? first : (begins.findLast((seq) => seq <= cut) ?? begins[0] ?? cut);
  return range(letters.length - begin + 1).map((i) => begin + i);
}

turnsSuite.own('K7', 'the result of defaultNumRecentEvents begins with a turn, wherever it is cut', async (context) => {
  const { app, orm, service, create, append } = context;
  const encoding = new MikroOrmSessionService(orm.em, { codec: CODEC });
  const given = async (sessionId: string, newest: number, codec?: Codec) => {
    const bounded = new MikroOrmSessionService(orm.em, { defaultNumRecentEvents: newest, ...(codec && { codec }) });
    const { events } = (await bounded.getSession({ appName: app, userId: 'alice', sessionId }))!;
    return events.map(({ id }) => Number(id.slice(1)));
  };
  for (const [sessionId, letters] of Object.entries({ lived: LIVED, 'an agent alone': 'aaaara', one: 'u', none: '' })) {
    await service.appendEvents({ session: await create({ sessionId }), events: eventsOf(letters) });
    for (const newest of [...range(letters.length + 2).map((n) => n + 1), 2 ** 31]) {
      expect([newest, await given(sessionId, newest)]).toEqual([newest, turnsOf(letters, newest)]);
    }
  }
  const encoded = await encoding.createSession({ appName: app, userId: 'alice', sessionId: 'encoded' });
  await encoding.appendEvents({ session: encoded, events: eventsOf(LIVED) });
  expect(await given('encoded', 3, CODEC)).toEqual(turnsOf(LIVED, 3));

  // A trim has left the end of a turn.
  await new SessionMaintenance(orm.em).trim({ appName: app, userId: 'alice', sessionId: 'lived', keepLast: 18 });
  for (const newest of range(20).map((n) => n + 1)) {
    expect([newest, await given('lived', newest)]).toEqual([newest, turnsOf(LIVED, newest, 5)]);
  }
  // A handle that has not read all of it continues as any other.
  const bounded = new MikroOrmSessionService(orm.em, { defaultNumRecentEvents: 2, onStaleSession: 'reject' });
  const handle = (await bounded.getSession({ appName: app, userId: 'alice', sessionId: 'lived' }))!;
  await append(handle, { id: 'e23' }, bounded);
  expect(handle.events.map(({ id }) => id)).toEqual(['e21', 'e22', 'e23'].slice(-handle.events.length));
});

turnsSuite.own('K7', 'of large events, too', async ({ orm, create, service, harness }) => {
  const session = await create();
  const events = eventsOf('uaua').map((event) => ({ ...event, output: 'x'.repeat(900_000) }));
  for (const event of events) await service.appendEvent({ session, event });
  const bounded = new MikroOrmSessionService(orm.em, { defaultNumRecentEvents: 1 });
  expect((await bounded.getSession(keyOf(session)))!.events).toEqual(
    (await service.getSession(keyOf(session)))!.events.slice(2),
  );
  expect(harness.columns.keepLargeEventsInParts).toBeDefined();
});

turnsSuite.own('K7', 'a row that is missing among them is damage, and one before them is not', async (context) => {
  const { orm, create, service, query } = context;
  const bounded = new MikroOrmSessionService(orm.em, { defaultNumRecentEvents: 2 });
  const lost = async (letters: string, ...seqs: number[]) => {
    const session = await create();
    await service.appendEvents({ session, events: eventsOf(letters) });
    for (const seq of seqs) await query('delete from adk_events where session_id = ? and seq = ?', [session.id, seq]);
    return bounded.getSession(keyOf(session));
  };
  expect((await lost('uauaaa', 2))!.events).toHaveLength(4);
  for (const [letters, ...seqs] of [
    ['uauaaa', 4],
    ['uauaaa', 6],
    ['aaaa', 3],
    ['aaaa', 3, 4],
  ] as const) {
    await expectCode(lost(letters, ...seqs), 'ADK_DAMAGED_SESSION');
  }
});
