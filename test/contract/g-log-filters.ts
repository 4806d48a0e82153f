import type { Session } from '@google/adk';
import { DamagedEventError, EventLog, MikroOrmSessionService, SessionMaintenance } from '../../src/index.js';
import type { LogFilter, SessionLogFilter } from '../../src/index.js';
import { keyOf } from '../support/harnesses/harness.js';
import { Suite, withConnections, type OwnContext } from './rule.js';
import {
  NEVER_MS,
  following,
  idsIn,
  observed,
  onMysql,
  positionsIn,
  read,
  readSome,
  type AnyEntry,
} from './log-tools.js';
import { eventOf, range, saying, until } from './tools.js';

/** Tests of section G: what a reader leaves out, and what it cannot read. */
export const logFilterSuite = new Suite();

const NAMES = { appName: 'app', userId: 'alice', sessionId: 's' };

/** An event and its session. Names that are missing are those in `NAMES`. */
interface Written extends Partial<typeof NAMES> {
  id: string;
  author?: string;
  branch?: string;
  invocationId?: string;
  timestamp?: number;
}

/** Appends events in this order. */
async function write(service: MikroOrmSessionService, events: readonly Written[]): Promise<void> {
  for (const { appName, userId, sessionId, ...params } of events) {
    const key = { ...NAMES, ...(appName && { appName }), ...(userId && { userId }), ...(sessionId && { sessionId }) };
    const session = await service.getOrCreateSession(key);
    await service.appendEvent({ session, event: eventOf(params) });
  }
}

type Case<Filter> = [filter: Filter, ids: string[]];

/** Expects each filter to let these events through, in `since` and in `watch`. */
async function expectFiltered<Filter extends SessionLogFilter>(
  log: {
    since(cursor: number, filter: Filter): AsyncIterable<AnyEntry>;
    watch(cursor: number, filter: Filter): AsyncIterable<AnyEntry>;
  },
  cases: readonly Case<Filter>[],
): Promise<void> {
  for (const [filter, ids] of cases) {
    expect({ filter, ids: idsIn(await read(log.since(0, filter))).sort() }).toEqual({ filter, ids });
    if (ids.length === 0) continue;
    expect({ filter, ids: idsIn(await readSome(log.watch(0, filter), ids.length)).sort() }).toEqual({ filter, ids });
  }
}

logFilterSuite.own('G3', 'by app, user and session, letter by letter', async ({ scratch }) => {
  const { service, orm } = await scratch();
  await write(service, [
    { id: 'a' },
    { id: 'b', appName: 'App' },
    { id: 'c', appName: 'app%' },
    { id: 'd', userId: 'Alice' },
    { id: 'e', userId: 'alice ' },
    { id: 'f', userId: '_lice' },
    { id: 'g', sessionId: 'S' },
    { id: 'h', sessionId: '%' },
    { id: 'i', sessionId: '\\' },
    { id: 'j', sessionId: "'" },
  ]);
  await expectFiltered<LogFilter>(new EventLog(orm.em), [
    [{}, ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i', 'j']],
    [{ appName: 'app' }, ['a', 'd', 'e', 'f', 'g', 'h', 'i', 'j']],
    [{ appName: 'App' }, ['b']],
    [{ appName: 'app%' }, ['c']],
    [{ appName: '%' }, []],
    [{ userId: 'alice' }, ['a', 'b', 'c', 'g', 'h', 'i', 'j']],
    [{ userId: 'Alice' }, ['d']],
    [{ userId: 'alice ' }, ['e']],
    [{ userId: '_lice' }, ['f']],
    [{ userId: 'a_ice' }, []],
    [{ sessionId: 's' }, ['a', 'b', 'c', 'd', 'e', 'f']],
    [{ sessionId: 'S' }, ['g']],
    [{ sessionId: '%' }, ['h']],
    [{ sessionId: '_' }, []],
    [{ sessionId: '\\' }, ['i']],
    [{ sessionId: "'" }, ['j']],
  ]);
});

logFilterSuite.own(
  'G3',
  'by session tree: the session and its subagents at any depth, and no similar name',
  async ({ scratch }) => {
    const { service, orm } = await scratch();
    const ids = [
      'p',
      'p:sub:x',
      'p:sub:x:sub:y',
      'p:sub:é 🎉',
      'p:sub:x%',
      'P',
      'P:sub:x',
      'p:',
      'p:sub',
      'p:sub:',
      'p:sub;',
      'p:suc:',
      'p:subx',
      'p:SUB:x',
      'px',
      'p%',
      'p%:sub:x',
      'p_:sub:x',
      'p\\:sub:x',
      'o',
      'q:sub:x',
    ];
    await write(
      service,
      ids.map((id) => ({ id, sessionId: id })),
    );
    await expectFiltered<LogFilter>(new EventLog(orm.em), [
      [{ sessionTree: 'p' }, ['p', 'p:sub:', 'p:sub:x', 'p:sub:x%', 'p:sub:x:sub:y', 'p:sub:é 🎉']],
      [{ sessionTree: 'p:sub:x' }, ['p:sub:x', 'p:sub:x:sub:y']],
      [{ sessionTree: 'P' }, ['P', 'P:sub:x']],
      [{ sessionTree: 'p%' }, ['p%', 'p%:sub:x']],
      [{ sessionTree: 'p_' }, ['p_:sub:x']],
      [{ sessionTree: 'p\\' }, ['p\\:sub:x']],
      [{ sessionTree: '%' }, []],
    ]);
  },
);

const EVENTS: Written[] = [
  { id: 'a', author: 'agent', branch: 'root.x', invocationId: 'i1', timestamp: 10 },
  { id: 'b', author: 'Agent', branch: 'Root.x', invocationId: 'I1', timestamp: 10.5 },
  { id: 'c', author: 'sub_agent', branch: 'root_x', invocationId: 'i%', timestamp: 11 },
  { id: 'd', author: 'a%t', branch: 'root%x', invocationId: 'i_', timestamp: 9 },
  { id: 'e', author: 'a\\t', branch: 'root\\x', invocationId: 'i1 ', timestamp: 1e12 },
  { id: 'f', author: 'user', timestamp: 10.25 },
];

const OF_EVENTS: Case<SessionLogFilter>[] = [
  [{}, ['a', 'b', 'c', 'd', 'e', 'f']],
  [{ author: 'agent' }, ['a']],
  [{ author: '%' }, []],
  [{ author: 'a%t' }, ['d']],
  [{ authorSuffix: 'agent' }, ['a', 'c']],
  [{ authorSuffix: '_agent' }, ['c']],
  [{ authorSuffix: '%t' }, ['d']],
  [{ authorSuffix: '\\t' }, ['e']],
  [{ authorSuffix: 'sub' }, []],
  [{ authorSuffix: 't' }, ['a', 'b', 'c', 'd', 'e']],
  [{ branchPrefix: 'root' }, ['a', 'c', 'd', 'e']],
  [{ branchPrefix: 'root_' }, ['c']],
  [{ branchPrefix: 'root%' }, ['d']],
  [{ branchPrefix: 'root\\' }, ['e']],
  [{ branchPrefix: 'R' }, ['b']],
  [{ branchPrefix: 'x' }, []],
  [{ invocationId: 'i1' }, ['a']],
  [{ invocationId: 'i%' }, ['c']],
  [{ invocationId: 'i_' }, ['d']],
  [{ invocationId: '_1' }, []],
  [{ afterTimestamp: 10 }, ['b', 'c', 'e', 'f']],
  [{ afterTimestamp: 10.25 }, ['b', 'c', 'e']],
  [{ afterTimestamp: 11 }, ['e']],
  [{ afterTimestamp: 1e12 }, []],
];

logFilterSuite.own('G3', 'by author, branch, invocation and time, in the whole log', async ({ scratch }) => {
  const { service, orm } = await scratch();
  await write(
    service,
    EVENTS.map((event, i) => ({ ...event, sessionId: `s${i % 2}` })),
  );
  await expectFiltered<LogFilter>(new EventLog(orm.em), OF_EVENTS);
});

logFilterSuite.own(
  'G3',
  "by author, branch, invocation and time, in one session's log",
  async ({ app, orm, service }) => {
    const key = { appName: app, userId: 'alice', sessionId: 's' };
    await write(
      service,
      EVENTS.map((event) => ({ ...event, ...key })),
    );
    await expectFiltered(new EventLog(orm.em).session(key), OF_EVENTS);
  },
);

logFilterSuite.own('G3', 'an entry must match all conditions', async ({ scratch }) => {
  const { service, orm } = await scratch();
  const wanted: Required<Written> = {
    ...NAMES,
    sessionId: 's:sub:x',
    id: 'wanted',
    author: 'my_agent',
    branch: 'root.x',
    invocationId: 'i1',
    timestamp: 20,
  };
  // Each differs in one thing.
  const others: Partial<Written>[] = [
    { appName: 'other' },
    { userId: 'bob' },
    { sessionId: 's' },
    { author: 'my_agent2' },
    { branch: 'route' },
    { invocationId: 'i2' },
    { timestamp: 10 },
  ];
  await write(service, [...others.map((other, i) => ({ ...wanted, ...other, id: `not ${i}` })), wanted]);
  const all: LogFilter = {
    appName: 'app',
    userId: 'alice',
    sessionId: 's:sub:x',
    sessionTree: 's',
    author: 'my_agent',
    authorSuffix: '_agent',
    branchPrefix: 'root',
    invocationId: 'i1',
    afterTimestamp: 10,
    limit: 10,
  };
  await expectFiltered<LogFilter>(new EventLog(orm.em), [
    [all, ['wanted']],
    [{ ...all, sessionId: 's' }, ['not 2']],
    [{ ...all, sessionTree: 'x' }, []],
  ]);
});

logFilterSuite.own('G3', 'a limit ends since and watch after that number of entries', async ({ scratch }) => {
  const { service, orm } = await scratch();
  const session = await service.createSession(NAMES);
  await service.appendEvents({ session, events: range(300).map((i) => eventOf({ author: i % 2 ? 'odd' : 'even' })) });
  const log = new EventLog(orm.em, { pollIntervalMs: NEVER_MS });
  for (const { since, watch } of [log, log.session(NAMES)].map((each) => ({
    since: each.since.bind(each),
    watch: each.watch.bind(each),
  }))) {
    for (const limit of [0, 1, 130]) {
      const odd = { author: 'odd', limit };
      const seqs = range(limit).map((i) => 2 * i + 2);
      expect((await read(since(0, odd))).map(({ seq }) => seq)).toEqual(seqs);
      expect((await read(watch(0, odd))).map(({ seq }) => seq)).toEqual(seqs);
    }
    expect(await read(since(0, { limit: 1_000 }))).toHaveLength(300);
    expect(await read(since(299, { limit: 1_000 }))).toHaveLength(1);
  }
});

logFilterSuite.own('G3', 'a watcher with a filter continues past what it leaves out', async ({ scratch }) => {
  const { service, orm } = await scratch();
  const session = await service.createSession(NAMES);
  const log = new EventLog(orm.em, { pollIntervalMs: NEVER_MS });
  await following(
    (signal) => log.watch(0, { author: 'b' }, { signal }),
    async (seen) => {
      for (const i of range(3)) {
        for (const author of ['a', 'b']) {
          await service.appendEvent({ session, event: eventOf({ id: `${author}${i}`, author }) });
        }
        await until(() => seen.length === i + 1);
      }
      expect(idsIn(seen)).toEqual(['b0', 'b1', 'b2']);
    },
  );
});

logFilterSuite.own('G3', 'an invalid cursor, filter or key is refused at the call', async ({ orm }) => {
  const log = new EventLog(orm.em);
  const session = log.session(NAMES);
  const refused = (code: string, call: () => unknown) => expect(call).toThrow(expect.objectContaining({ code }));
  for (const cursor of [-1, 0.5, NaN, Infinity, 2 ** 53]) {
    for (const call of [log.since, log.watch]) refused('ADK_INVALID_ARGUMENT', () => call.call(log, cursor));
    for (const call of [session.since, session.watch]) refused('ADK_INVALID_ARGUMENT', () => call(cursor));
  }
  const numbers: LogFilter[] = [
    { limit: -1 },
    { limit: 1.5 },
    { limit: NaN },
    { afterTimestamp: NaN },
    { afterTimestamp: Infinity },
  ];
  for (const filter of numbers) {
    for (const call of [log.since, log.watch]) refused('ADK_INVALID_ARGUMENT', () => call.call(log, 0, filter));
    for (const call of [session.since, session.watch]) refused('ADK_INVALID_ARGUMENT', () => call(0, filter));
  }
  const keys: LogFilter[] = [
    { appName: '' },
    { appName: 'x'.repeat(129) },
    { userId: 'x\0' },
    { sessionId: '\ud800' },
    { sessionTree: '' },
    { sessionTree: 'x'.repeat(192) },
  ];
  for (const filter of keys) {
    for (const call of [log.since, log.watch]) refused('ADK_INVALID_KEY', () => call.call(log, 0, filter));
  }
  for (const key of [{ appName: '' }, { userId: 'x\0' }, { sessionId: 'x'.repeat(192) }]) {
    refused('ADK_INVALID_KEY', () => log.session({ ...NAMES, ...key }));
  }
  for (const pollIntervalMs of [0, -1, NaN, Infinity, 2 ** 31]) {
    refused('ADK_INVALID_ARGUMENT', () => new EventLog(orm.em, { pollIntervalMs }));
  }
});

/** What no event can be read from; on PostgreSQL the column takes nothing that is not JSON. */
const BROKEN = ['"secret"', '["secret"]', 'null', '5', 'true', null];
const NOT_JSON = ['', '{"secret": ', 'secret', '{"id":"secret"}}'];

logFilterSuite.own(
  'G4',
  'a damaged row is an entry with an error, and the reader continues after it',
  async (context) => {
    const { service, orm, query } = await context.scratch();
    const broken = [...BROKEN, ...(context.harness.columns.refuseOtherThanJson ? [] : NOT_JSON)];
    const session = await service.createSession(NAMES);
    await service.appendEvents({
      session,
      events: range(broken.length * 2 + 1).map((i) => eventOf({ id: `e${i + 1}` })),
    });
    for (const [i, data] of broken.entries())
      await query('update adk_events set data = ? where seq = ?', [data, 2 * i + 2]);

    const ids = range(broken.length * 2 + 1).map((i) => (i % 2 ? 'error' : `e${i + 1}`));
    const log = new EventLog(orm.em, { pollIntervalMs: NEVER_MS });
    const ofSession = log.session(NAMES);
    const readings = [
      await read(log.since(0)),
      await readSome(log.watch(0), ids.length),
      await read(ofSession.since(0)),
      await readSome(ofSession.watch(0), ids.length),
    ];
    for (const entries of readings) {
      expect(idsIn(entries)).toEqual(ids);
      for (const entry of entries.filter(({ error }) => error)) {
        expect(entry).toMatchObject(NAMES);
        expect(entry.error).toBeInstanceOf(DamagedEventError);
        expect(entry.error).toMatchObject({ code: 'ADK_DAMAGED_EVENT', message: expect.stringContaining('session s') });
        expect(JSON.stringify(entry) + String(entry.error?.stack)).not.toContain('secret');
      }
    }
    expect(positionsIn(readings[0]!)).toEqual(ids.map((_, i) => i + 1));
    // A cursor like any other.
    expect(idsIn(await read(log.since(2, { limit: 1 })))).toEqual(['e3']);
    expect(idsIn(await read(ofSession.since(2, { limit: 1 })))).toEqual(['e3']);
    expect(idsIn(await read(log.since(0, { limit: 2 })))).toEqual(['e1', 'error']);
    // Nobody knows whose it was.
    expect(idsIn(await read(log.since(0, { author: 'nobody' })))).toEqual(broken.map(() => 'error'));
    expect(idsIn(await read(log.since(0, { sessionId: 'another' })))).toEqual([]);
  },
);

logFilterSuite.own('G4', 'fields of another type than an event has do not stop a filter', async ({ scratch }) => {
  const { service, orm, query } = await scratch();
  const session = await service.createSession(NAMES);
  const events = ['a', 'b'].map((id) => eventOf({ id, author: 'agent', branch: 'root', invocationId: 'i' }));
  await service.appendEvents({ session, events });
  await query('update adk_events set data = ? where seq = 1', [
    '{"author": 5, "branch": {"x": 1}, "invocationId": null}',
  ]);
  const log = new EventLog(orm.em);
  for (const filter of [{ author: 'agent' }, { authorSuffix: 't' }, { branchPrefix: 'r' }, { invocationId: 'i' }]) {
    expect(idsIn(await read(log.since(0, filter)))).toEqual(['b']);
  }
});

logFilterSuite.own(
  'G4',
  'a watcher that meets a damaged row while it follows continues',
  async ({ scratch }) => {
    const { service, orm, query } = await scratch();
    const session = await service.createSession(NAMES);
    let isDamaged = false;
    // Between the look that finds the event and the reading.
    const { em } = observed(orm.em, async (text) => {
      if (isDamaged || !/^select position,/.test(text)) return;
      isDamaged = true;
      await query('update adk_events set data = null');
    });
    const log = new EventLog(em, { pollIntervalMs: NEVER_MS });
    await following(
      (signal) => log.watch(0, {}, { signal }),
      async (seen) => {
        await service.appendEvent({ session, event: eventOf({ id: 'a' }) });
        await until(() => seen.length === 1);
        await service.appendEvent({ session, event: eventOf({ id: 'b' }) });
        await until(() => seen.length === 2);
        expect(idsIn(seen)).toEqual(['error', 'b']);
      },
    );
  },
  withConnections,
);

const LARGE = 'x'.repeat(1_500_000);

/** A log on a session with a large event, in parts, between two small ones. */
async function largeEvent({ scratch }: OwnContext, before?: (text: string, session: Session) => Promise<void>) {
  const store = await scratch();
  const session = await store.service.createSession(NAMES);
  const events = [eventOf({ id: 'a' }), saying(LARGE, { id: 'large' }), eventOf({ id: 'b' })];
  await store.service.appendEvents({ session, events });
  const { em } = observed(store.orm.em, before && ((text) => before(text, session)));
  return { ...store, log: new EventLog(em), reader: new MikroOrmSessionService(em) };
}

logFilterSuite.own(
  'G4',
  'an event in parts of which one is lost is damaged',
  async (context) => {
    const { log, query } = await largeEvent(context);
    expect((await query('select 1 from adk_event_parts')).length).toBeGreaterThan(1);
    await query('delete from adk_event_parts where part = 1');
    expect(idsIn(await read(log.since(0)))).toEqual(['a', 'error', 'b']);
    await query('delete from adk_event_parts');
    expect(idsIn(await read(log.since(0)))).toEqual(['a', 'error', 'b']);
    expect(idsIn(await read(log.session(NAMES).since(0)))).toEqual(['a', 'error', 'b']);
  },
  onMysql,
);

logFilterSuite.own(
  'G4',
  'an event in parts that is deleted or replaced while it is read is not damage',
  async (context) => {
    let change: ((session: Session) => Promise<unknown>) | undefined;
    const { log, service } = await largeEvent(context, async (text, session) => {
      if (!text.includes('adk_event_parts')) return;
      await change?.(session);
      change = undefined;
    });
    change = (session) => service.appendEvent({ session, event: saying('small', { id: 'large' }) });
    const entries = await read(log.since(0));
    expect(idsIn(entries)).toEqual(['a', 'large', 'b']);
    expect(entries[1]?.event?.content?.parts).toEqual([{ text: 'small' }]);

    const session = (await service.getSession(NAMES))!;
    await service.appendEvent({ session, event: saying(LARGE, { id: 'large' }) });
    change = () => service.deleteSession(keyOf(session));
    // The batch had the others already.
    expect(idsIn(await read(log.since(0)))).toEqual(['a', 'b']);
  },
  onMysql,
);

logFilterSuite.own(
  'C6',
  'an event in parts that is trimmed while a page is read is not damage',
  async (context) => {
    let change: (() => Promise<unknown>) | undefined;
    const { orm, reader } = await largeEvent(context, async (text) => {
      if (!text.includes('adk_event_parts')) return;
      const trim = change;
      change = undefined;
      await trim?.();
    });
    change = () => new SessionMaintenance(orm.em).trim({ ...NAMES, keepLast: 1 });
    const page = await reader.readEvents(NAMES, { after: 0 });
    expect(page).toMatchObject({ events: [{ seq: 3, event: { id: 'b' } }], firstSeq: 3, lastSeq: 3 });
  },
  onMysql,
);
