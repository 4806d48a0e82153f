import type { CreateEventParams } from '@google/adk';
import { MikroOrmSessionService, SessionMaintenance, type Codec } from '../../src/index.js';
import { keyOf } from '../support/harnesses/harness.js';
import { Suite, type OwnContext } from './rule.js';
import { eventOf, range } from './tools.js';

/** What `getSession` gives a Runner of a long session. */
export const turnsSuite = new Suite();

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
  await maintenance.eraseUser({ appName: app, userId: 'bob' });
  const asStored = source.exportSessions({ appName: app, userId: 'bob', texts: 'asStored' });
  await maintenance.importSessions(asStored, { texts: 'asStored' });
  expect(await beginnings(target, app)).toEqual(found);
});
