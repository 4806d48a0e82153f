import { createEvent, type Event, type Session } from '@google/adk';
import { EventLog, SessionMaintenance } from '../../../src/index.js';
import { HARNESSES } from '../../support/harnesses/index.js';
import { keyOf, type OwnStore } from '../../support/harnesses/harness.js';

/** What each operation sends to the server, and so how often it waits for it: promises about speed that need no clock. */
const inTransaction = (...statements: string[]) => ['begin', ...statements, 'commit'];

/** `insert into "adk_events" (…) …` becomes `insert events`. */
function inShort(text: string): string {
  const [start = ''] = /^(begin not atomic|\w+)/i.exec(text.trim()) ?? [];
  if (!/^(select|insert|update|delete)$/i.test(start)) return start.toLowerCase();
  // The table of a query in a query counts if there is no other.
  const table = tableIn(text.replace(/\(select [^()]*\)/gi, '')) ?? tableIn(text) ?? '';
  return `${start.toLowerCase()} ${table}`;
}

const tableIn = (text: string) => /\b(?:from|into|update)\s+(?:\S+\.)?["`]?adk_(\w+)/i.exec(text)?.[1];

const saying = (text: string, delta: Record<string, unknown> = {}): Event =>
  createEvent({ author: 'agent', content: { parts: [{ text }] }, actions: { stateDelta: delta } });

const harnesses = Object.entries(HARNESSES).filter(([, { hasConnections }]) => hasConnections);

describe.each(harnesses)('%s', (_name, harness) => {
  if (!harness.isAvailable()) {
    test.skip('is not available', () => undefined);
    return;
  }

  const { append, lock } = harness.statements;
  let store: OwnStore;
  let session: Session;

  beforeAll(async () => {
    store = await harness.open();
    session = await store.service.createSession({ appName: 'app', userId: 'alice' });
    // The first append of each kind also prepares the connection.
    for (const delta of [{}, { a: 0 }, { a: 0, 'user:a': 0, 'app:a': 0 }]) {
      await store.service.appendEvent({ session, event: saying('first', delta) });
    }
  });
  afterAll(() => store.close());

  async function statements(work: () => Promise<unknown>): Promise<string[]> {
    return (await store.recorded(work)).map(({ text }) => inShort(text));
  }

  test.each([
    ['without a delta', {}, []],
    ['with a session key', { a: 1 }, ['session']],
    ['with two session keys', { a: 1, b: 1 }, ['session']],
    ['with keys in all scopes', { a: 1, 'user:a': 1, 'app:a': 1 }, ['session', 'user', 'app']],
  ])('B3 an append %s', async (_name, delta, scopes) => {
    expect(await statements(() => store.service.appendEvent({ session, event: saying('x', delta) }))).toEqual(
      append(scopes),
    );
  });

  const testOnPostgresql = harness.dialect === 'postgresql' ? test : test.skip;

  testOnPostgresql('E9 appends to 64 sessions at once are two statements', async () => {
    const sessions = await Promise.all(
      Array.from({ length: 64 }, () => store.service.createSession({ appName: 'app', userId: 'alice' })),
    );
    const round = () =>
      Promise.all(sessions.map((at) => store.service.appendEvent({ session: at, event: saying('x', { a: 1 }) })));
    expect(await statements(round)).toEqual(['with', 'with']);
  });

  test('an append of a hundred events is no more statements than of one', async () => {
    const events = Array.from({ length: 100 }, (_, i) => saying(String(i), { a: i }));
    expect(await statements(() => store.service.appendEvents({ session, events }))).toEqual(append(['session']));
  });

  test('E2 an append with a handle that is behind is one statement more', async () => {
    const behind = (await store.service.getSession(keyOf(session)))!;
    await store.service.appendEvents({ session, events: Array.from({ length: 30 }, () => saying('missed')) });
    const found = await statements(() => store.service.appendEvent({ session: behind, event: saying('x', { a: 1 }) }));
    expect(found).toEqual([...append(['session']), 'select sessions']);
  });

  test('D8 getSession is one statement, whatever is asked for', async () => {
    for (const config of [
      undefined,
      { numRecentEvents: 5 },
      { afterTimestamp: 1 },
      { numRecentEvents: 5, afterTimestamp: 1 },
    ]) {
      const read = () => store.service.getSession({ ...keyOf(session), ...(config && { config }) });
      expect(await statements(read)).toEqual(['select sessions']);
    }
  });

  test('listSessions is two or three statements, whatever the page', async () => {
    for (let i = 0; i < 20; i++) {
      await store.service.createSession({ appName: 'list', userId: `user ${i % 3}`, state: { a: 1, 'user:b': i } });
    }
    const list = (page: object) => statements(() => store.service.listSessions({ appName: 'list', ...page }));
    expect(await list({})).toEqual(['select sessions', 'select session_states']);
    expect(await list({ limit: 50 })).toEqual(['select sessions', 'select session_states']);
    expect(await list({ limit: 6, page: 4, order: 'desc' })).toEqual(['select sessions', 'select session_states']);
    for (const page of [
      { limit: 2 },
      { limit: 15 },
      { limit: 5, page: 3 },
      { offset: 10 },
      { limit: 5, userId: 'user 1' },
    ]) {
      expect(await list(page)).toEqual(['select sessions', 'select session_states', 'select sessions']);
    }
  });

  test('createSession is a transaction with one statement for the session, one for each scope and one for the log', async () => {
    const create = (state?: Record<string, unknown>) => () =>
      store.service.createSession({ appName: 'app', userId: 'alice', ...(state && { state }) });
    expect(await statements(create())).toEqual(inTransaction('insert sessions', 'insert changes', 'select sessions'));
    expect(await statements(create({ a: 1, b: 1, 'user:a': 1, 'app:a': 1 }))).toEqual(
      inTransaction(
        'insert sessions',
        'insert session_states',
        'insert user_states',
        'insert app_states',
        'insert changes',
        'select sessions',
      ),
    );
  });

  test('deleteSession is a transaction of five statements, whatever the session holds', async () => {
    for (const count of [0, 50]) {
      const key = keyOf(await store.service.createSession({ appName: 'app', userId: 'alice', state: { a: 1 } }));
      const filled = (await store.service.getSession(key))!;
      await store.service.appendEvents({ session: filled, events: Array.from({ length: count }, () => saying('x')) });
      expect(await statements(() => store.service.deleteSession(key))).toEqual(
        inTransaction(lock, 'delete sessions', 'delete artifacts', 'delete changes', 'insert changes'),
      );
    }
  });

  test('G2 reading 1,000 events of the log takes a statement for 200, and one to see how far it goes', async () => {
    const { service, orm } = store;
    await service.appendEvents({ session, events: Array.from({ length: 1_000 }, () => saying('x')) });
    const log = new EventLog(orm.em);
    const { position } = await log.head();
    const read = async () => {
      for await (const { error } of log.since(position - 1_000)) expect(error).toBeUndefined();
    };
    expect(await statements(read)).toEqual(['select counters', ...Array<string>(5).fill('select events')]);
  });

  test('L1 an import of a new session is one transaction of nine statements', async () => {
    const maintenance = new SessionMaintenance(store.orm.em);
    const imported = async (sessionId: string) => {
      const key = { appName: 'import', userId: 'alice', sessionId };
      const session = { type: 'session', ...key, createTime: 1, lastUpdateTime: 2, firstSeq: 1, lastSeq: 20 };
      const events = Array.from({ length: 20 }, (_, i) => ({ type: 'event', ...key, seq: i + 1, event: saying('x') }));
      const records = [{ ...session, state: [{ key: 'a', value: 1, eventId: null }] }, ...events];
      const sent = await statements(() => maintenance.importSessions(records));
      // Of the isolation, on MySQL and MariaDB.
      return sent.filter((statement) => statement !== 'set');
    };
    // The first one also prepares the connection, and leaves a retry token.
    await imported('first');
    const inserts = ['insert sessions', 'insert events', 'insert changes', 'insert session_states'];
    expect(await imported('second')).toEqual([
      // The last two tell readers of the log to take the session as it is.
      ...inTransaction(
        // The retry token of the import before.
        'update retry_tokens',
        lock,
        ...inserts,
        ...Array<string>(2).fill('update sessions'),
        'insert changes',
      ),
    ]);
  });
});
