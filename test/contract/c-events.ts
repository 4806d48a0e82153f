import type { Event } from '@google/adk';
import fc from 'fast-check';
import { AdkSession, AdkSessionState } from '../../entities/index.js';
import { SessionMaintenance } from '../../src/index.js';
import { EVENT_RULES } from '../../packages/session-contract/src/event-rules.js';
import { DAMAGED_BY_JSON, JSON_RULES } from '../../packages/session-contract/src/json-rules.js';
import { keyOf } from '../support/harnesses/harness.js';
import { expectOfRandom } from '../support/random.js';
import { Suite } from './rule.js';
import { read } from './log-tools.js';
import { errorOf, eventOf, expectCode, idsOf, nested, nestedText, range, saying, textsOf } from './tools.js';

export const eventSuite = new Suite();
eventSuite.publish([...JSON_RULES, ...EVENT_RULES]);

eventSuite.own('C1', 'more values than a statement takes come back', async ({ create, service, fresh }) => {
  const session = await create();
  const ids = range(6_000).map((n) => `e${n}`);
  const stateDelta = Object.fromEntries(ids.map((id) => [id, 1]));
  const events = ids.map((id, i) => eventOf({ id, ...(i === 0 && { actions: { stateDelta } }) }));
  await service.appendEvents({ session, events });
  const read = await fresh(session);
  expect(idsOf(read)).toEqual(ids);
  expect(Object.keys(read.state)).toHaveLength(ids.length);
  await service.updateState({ ...keyOf(session), remove: ids });
  expect((await fresh(session)).state).toEqual({});
});

eventSuite.own('C1', 'a payload of 20 MB comes back', async ({ create, append, fresh }) => {
  // Odd, so that pieces begin in the middle of a pair.
  const text = `x${'😀é'.repeat(3_500_000)}`;
  const session = await create();
  await append(session, { content: { parts: [{ text }] } });
  const [loaded] = (await fresh(session)).events;
  expect(loaded?.content?.parts?.[0]?.text === text).toBe(true);
});

eventSuite.own('C1', 'appendEvents takes large and small events at once', async ({ service, create, fresh }) => {
  const session = await create();
  const events = range(8).map((i) => saying(`${i}`.repeat(i % 3 ? 100 : 2_400_000)));
  await service.appendEvents({ session, events });
  const read = await fresh(session);
  expect(textsOf(read).map((text) => [text?.charAt(0), text?.length])).toEqual(
    textsOf({ events }).map((text) => [text?.charAt(0), text?.length]),
  );
  expect(textsOf(await fresh(session, { numRecentEvents: 2 }))).toHaveLength(2);
});

/** The place in the value that JSON would damage. */
const INNER_PATHS: Readonly<Record<string, string>> = {
  'a Set in a class': '.sides',
  'a cycle': '.self.cycle',
  'a toJSON that gives NaN': '.a',
};

for (const [title, value] of DAMAGED_BY_JSON) {
  eventSuite.own('C2', `the error names the path of ${title}`, async ({ create, append }) => {
    const session = await create();
    const cart = { cart: [1, 2, 3, { qty: value }] };
    const path = `cart[3].qty${INNER_PATHS[title] ?? ''}`;
    const starts = (name: string) =>
      expect.objectContaining({ path: name, message: expect.stringContaining(`${name} is `) });
    await expect(append(session, { delta: cart })).rejects.toEqual(starts(`actions.stateDelta.${path}`));
    await expect(append(session, { output: cart })).rejects.toEqual(starts(`output.${path}`));
    await expect(create({ state: cart })).rejects.toEqual(starts(`state.${path}`));
    await expectCode(append(session, { output: cart }), 'ADK_UNSERIALIZABLE_VALUE');
  });
}

eventSuite.own(
  'C2',
  'actions and a state delta that are a Map are refused by name',
  async ({ service, create, stored }) => {
    const session = await create();
    const before = await stored(keyOf(session));
    const map: object = new Map([['a', 1]]);
    for (const [path, actions] of [
      ['actions', map],
      ['actions.stateDelta', { stateDelta: map }],
    ]) {
      const event = { ...saying('x'), actions: actions as Event['actions'] };
      const error = await errorOf(service.appendEvent({ session, event }));
      expect(error).toMatchObject({
        code: 'ADK_UNSERIALIZABLE_VALUE',
        path,
        message: expect.stringContaining('a Map'),
      });
    }
    expect(await stored(keyOf(session))).toEqual(before);
  },
);

eventSuite.own(
  'C2',
  'a value that is nested too deeply is refused with its path, before anything is written',
  async (context) => {
    const { app, orm, service, create, stored, fresh } = context;
    const session = await create();
    const key = keyOf(session);
    const before = await stored(key);
    const maintenance = new SessionMaintenance(orm.em);
    const record = { type: 'app', appName: app };
    /** On a stack that is nearly full. */
    const below = (frames: number, work: () => Promise<unknown>): Promise<unknown> =>
      frames === 0 ? work() : below(frames - 1, work);
    let frames = 0;
    const most = () => {
      frames++;
      most();
    };
    expect(most).toThrow(RangeError);
    for (const levels of [1_001, 5_000, 200_000]) {
      const deep = nested(levels);
      const path = (start: string) => expect.objectContaining({ path: expect.stringMatching(start) });
      const calls: [work: () => Promise<unknown>, path: RegExp][] = [
        [() => service.appendEvent({ session, event: { ...eventOf(), output: deep } }), /^output\.v\.v/],
        [
          () => service.appendEvent({ session, event: eventOf({ actions: { stateDelta: { deep } } }) }),
          /^actions\.stateDelta\.deep/,
        ],
        [() => create({ state: { 'app:deep': deep } }), /^state\.app:deep/],
        [() => service.updateState({ ...key, set: { deep } }), /^set\.deep/],
      ];
      for (const [work, start] of calls)
        for (const depth of [0, Math.floor(frames * 0.5)])
          await expect(below(depth, work)).rejects.toEqual(path(start.source));
      await expectCode(
        maintenance.importSessions([{ ...record, state: [{ key: 'deep', value: deep, eventId: null }] }]),
        'ADK_INVALID_ARGUMENT',
        /^Record 1: state\.deep/,
      );
    }
    expect(await stored(key)).toEqual(before);

    // What is taken can be read, recorded, forked, exported and imported.
    const [inEvent, inState] = [nested(990), nested(1_000)];
    await service.appendEvent({ session, event: { ...eventOf({ id: 'deep' }), output: inEvent } });
    await service.appendEvent({ session, event: eventOf({ actions: { stateDelta: { delta: inEvent } } }) });
    await service.updateState({ ...key, set: { deep: inState } });
    const other = await create({ sessionId: 'given', state: { deep: inState } });
    const fork = await service.forkSession(key, { as: 'fork' });
    await service.rewindSession({ ...key, sessionId: 'fork' }, { at: 1 });
    for (const { id } of [session, other])
      expect(JSON.stringify((await fresh({ ...session, id })).state['deep'])).toBe(nestedText(1_000));
    expect(JSON.stringify((await fresh(fork)).events[0]!.output)).toBe(nestedText(990));
    const records = await read(maintenance.exportSessions({ appName: app }));
    for (const id of [session.id, 'fork', 'given']) await service.deleteSession({ ...key, sessionId: id });
    expect(await maintenance.importSessions(records)).toMatchObject({ done: { sessions: 3 } });
    expect(await read(maintenance.exportSessions({ appName: app }))).toEqual(records);
  },
);

/** Within what a `Date` can hold. */
const time = fc.oneof(
  fc.double({ min: 1, max: 4e12, noNaN: true }),
  fc.double({ min: -8.64e15, max: 8.64e15, noNaN: true }).filter((n) => Math.abs(n) >= 1e-3),
  fc.integer({ min: 1, max: 2 ** 41 }).map((n) => n + 1 / 3),
  fc.integer({ min: 2 ** 40, max: 2 ** 41 }).map((n) => n + 2 ** -12),
);

eventSuite.own(
  'C3',
  'any random time is exact in the tables, where filters read it',
  async ({ harness, app, service, create, query }) => {
    const times = fc.array(time, { minLength: 300, maxLength: 300 }).map((some) => [57.57842848181674, ...some]);
    const expectExact = async (some: number[]) => {
      const session = await create();
      await service.appendEvents({ session, events: some.map((timestamp) => eventOf({ timestamp })) });
      const rows = await query<{ at: number | string }>(
        `select ${harness.columns.double('timestamp')} as at from adk_events where app_name = ? and session_id = ? order by seq`,
        [app, session.id],
      );
      expect(rows.map(({ at }) => Number(at))).toEqual(some);
    };
    await expectOfRandom('times in tables', times, expectExact, { runs: 1 });
    const [row] = await query<{ create_time: number }>('select create_time from adk_sessions where app_name = ?', [
      app,
    ]);
    expect(row?.create_time).toBeGreaterThan(0);
  },
);

eventSuite.own('C1', 'the entities give JSON as it was stored', async ({ app, create, peer }) => {
  const values = { text: '5', number: 5, quoted: '"5"', nothing: null, list: ['5', 5], tiny: 1e-7 };
  await create({ state: values });
  const em = peer.em.fork();
  const rows = await em.find(AdkSessionState, { session: { appName: app } });
  expect(Object.fromEntries(rows.map(({ key, value }) => [key, value]))).toEqual(values);
  // A session without labels, and an event in parts, have no JSON.
  const [session] = await em.find(AdkSession, { appName: app });
  expect(session?.labels).toBeNull();
  em.getUnitOfWork().computeChangeSets();
  expect(em.getUnitOfWork().getChangeSets()).toEqual([]);
});

eventSuite.own('C4', 'numbers that are not a count are refused', async ({ create, fresh }) => {
  const session = await create();
  for (const numRecentEvents of [-1, 1.5, Infinity]) {
    await expectCode(fresh(session, { numRecentEvents }), 'ADK_INVALID_ARGUMENT');
  }
});
