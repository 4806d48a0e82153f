import { createEvent } from '@google/adk';
import { AdkChange, AdkEvent, AdkSession } from '../../../entities/index.js';
import { encryption } from '../../../src/codecs/index.js';
import {
  EventLog,
  adkServices,
  MikroOrmSessionService,
  SessionLeases,
  SessionMaintenance,
  SessionProjection,
} from '../../../src/index.js';
import type { SessionKey } from '../../../src/model/keys.js';
import { miscountedAfter } from '../../../packages/studio/src/operations/health.js';
import { Reading } from '../../../packages/studio/src/reading.js';
import { Recent } from '../../../packages/studio/src/recent.js';
import { Database } from '../../../src/database/calls/database.js';
import { appsAfter, usersAfter } from '../../../packages/studio/src/browsing.js';
import { availableDatabases } from '../../support/servers.js';
import { KEY, tellStory } from './conversation.js';
import { LONGEST, fill } from './filled.js';
import { Served, isCounting, linksOf, openerForTests, query, shown, type Answer, type Site } from './served.js';

const OF_STORY = { app: KEY.appName, user: KEY.userId, session: KEY.sessionId };
const STORY = query('/session', OF_STORY);

/** The numbers of the events on a page. */
const eventsOf = ({ body }: Answer) =>
  [...body.matchAll(/class="event [^"]*"\s+id="e(\d+)"/g)].map(([, seq]) => Number(seq));

/** The values of the state on a page. */
const stateOf = (answer: Answer) =>
  shown({ ...answer, body: `<main>${answer.body.slice(answer.body.indexOf('<aside'))}` });

describe.each(availableDatabases())('on %s', (name) => {
  /** For what depends on no database. */
  const testOfPages = name === availableDatabases()[0] || process.env['ADK_TEST_FULL'] ? test : test.skip;
  const open = openerForTests();
  let served: Served;
  let site: Site;
  beforeAll(async () => {
    served = await Served.open(name);
    site = await served.studio();
    await tellStory(served.service);
  });
  afterAll(() => served.close());

  test('lists apps, users and sessions, finds sessions, and pages', async () => {
    const { service } = served;
    for (let i = 0; i < 52; i++)
      await service.createSession({ appName: 'many', userId: `user ${i % 3}`, sessionId: `s${i}` });
    await service.describeSession(
      { appName: 'many', userId: 'user 1', sessionId: 's1' },
      { title: 'The first', labels: { team: 'red' } },
    );
    const apps = await site.get('/');
    const toApps = linksOf(apps, '/sessions?app=').filter((link) => !link.includes('&'));
    expect([...new Set(toApps)]).toEqual(['/sessions?app=many', '/sessions?app=support']);
    expect(linksOf(await site.get('/users?app=many'), '/sessions?app=many&')).toEqual(
      [0, 1, 2].map((i) => `/sessions?app=many&user=user+${i}`),
    );

    const list = await site.get('/sessions?app=support');
    expect(shown(list)).toMatch(/Refund of order 17 refund-17 team=billing tier=gold 1 waiting ada 9 \d+(\.\d)? kB/);
    const first = await site.get('/sessions?app=many');
    const [next = ''] = linksOf(first, '/sessions?app=many&after=');
    const second = await site.get(next);
    const found = [first, second].map((page) => linksOf(page, '/session?'));
    expect(found.map((links) => new Set(links).size)).toEqual([50, 2]);
    expect(new Set(found.flat()).size).toBe(52);
    expect(linksOf(second, '/sessions?app=many&after=')).toEqual([]);

    const sessionsOf = async (filters: Record<string, string>) =>
      [...new Set(linksOf(await site.get(query('/sessions', { app: 'many', ...filters })), '/session?'))].map((link) =>
        new URLSearchParams(link.split('?')[1]).get('session'),
      );
    expect(await sessionsOf({ find: 'FIRST' })).toEqual(['s1']);
    expect(await sessionsOf({ labels: 'team=red' })).toEqual(['s1']);
    expect(await sessionsOf({ labels: 'team=blue' })).toEqual([]);
    expect(await sessionsOf({ user: 'user 2' })).toHaveLength(17);
    expect(await sessionsOf({ to: '2020-01-01' })).toEqual([]);
    expect(await sessionsOf({ from: '2020-01-01', order: 'asc' })).toHaveLength(50);
    expect(shown(await site.get('/sessions?app=many&find=nowhere'))).toContain('No session fits');
    expect((await site.get('/sessions?app=many&labels=red')).status).toBe(400);
  });

  test('finds sessions by what was said, by tools and by errors, and sorts by what they count', async () => {
    const own = await open(name);
    const { service, orm } = own;
    const call = (tool: string) => ({ parts: [{ functionCall: { id: 'c', name: tool, args: {} } }] });
    const tokens = (promptTokenCount: number) => ({ usageMetadata: { promptTokenCount } });
    const add = async (userId: string, sessionId: string, ...events: Parameters<typeof createEvent>[0][]) => {
      const session = await service.createSession({ appName: 'shop', userId, sessionId });
      await service.appendEvents({ session, events: events.map((each) => createEvent({ author: 'clerk', ...each })) });
    };
    const customMetadata = { trace: 'x'.repeat(5_000) };
    await add('ada', 'lamp', {
      content: { parts: [{ text: 'The desk LAMP is broken.' }] },
      ...tokens(9),
      customMetadata,
    });
    await add('ada', 'tool', { content: call('find_order') }, tokens(7), { content: call('pay') });
    await add('bob', 'error', ...[1, 2].map(() => ({ errorCode: 'E', errorMessage: 'No route to the lamp' })));
    await service.forkSession({ appName: 'shop', userId: 'ada', sessionId: 'tool' }, { at: 2, as: 'fork' });
    const memories = [{ content: { parts: [{ text: 'Ada likes a lamp.' }] } }];
    const { memoryService } = adkServices(orm.em);
    await service.createSession({ appName: 'shop', userId: 'ada', sessionId: 'remembered' });
    await memoryService.addMemory({ appName: 'shop', userId: 'ada', sessionId: 'remembered', memories });
    const site = await own.studio();
    const idsOf = (answer: Answer) => [
      ...new Set(linksOf(answer, '/session?').map((link) => new URLSearchParams(link.split('?')[1]).get('session'))),
    ];
    const found = async (filters: Record<string, string>, at = site) =>
      idsOf(await at.get(query('/sessions', { app: 'shop', ...filters })));
    const searches: [filters: Record<string, string>, sessions: string[]][] = [
      [{ q: 'lamp' }, ['error', 'lamp']],
      [{ q: 'broken  lamp', order: 'asc' }, ['lamp']],
      [{ q: 'lamp', user: 'ada' }, ['lamp', 'remembered']],
      [{ q: 'FIND_order' }, ['fork', 'tool']],
      [{ q: 'find_order', find: 'no' }, []],
      [{ q: 'find_order', find: 'TOO' }, ['tool']],
      [{ q: 'no route' }, ['error']],
    ];
    for (const [filters, sessions] of searches)
      expect([filters, (await found(filters)).sort()]).toEqual([filters, sessions]);
    const orders: [order: string, first: string[]][] = [
      ['events', ['tool']],
      ['tokens', ['lamp', 'tool']],
      ['failures', ['error']],
      // It has one large event.
      ['size', ['lamp']],
      ['-events', ['remembered']],
      ['user', ['remembered']],
      ['-user', ['error']],
      ['title', ['error']],
      ['-title', ['tool']],
    ];
    for (const [order, first] of orders)
      expect([order, (await found({ order })).slice(0, first.length)]).toEqual([order, first]);
    const page = async (filters: Record<string, string>) =>
      shown(await site.get(query('/sessions', { app: 'shop', ...filters })));
    expect(await page({ q: 'lamp', user: 'ada' })).toMatch(
      /events of 7 days, and what is remembered of the user\. .*#1 The desk LAMP is broken/,
    );
    expect(await page({ q: 'lamp', user: 'ada' })).toContain('Ada likes a lamp. from memory');
    expect(await page({ order: 'tokens' })).toMatch(/copies of forks do not count\. .* fork of tool at 2/);
    const limited = await own.studio({ authorize: () => ({ userId: 'bob' }) });
    expect(await found({ q: 'lamp' }, limited)).toEqual(['error']);
    expect(await found({ order: 'tokens' }, limited)).toEqual(['error']);
    for (const order of ['sizes', '-asc', '--size', '-'])
      expect([order, (await site.get(query('/sessions', { app: 'shop', order }))).status]).toEqual([order, 400]);
    // Each heading sorts, and a second click turns it round; the address has the rest of the search.
    const sorted = await site.get('/sessions?app=shop&user=ada&order=size');
    const offered = linksOf(sorted, '/sessions?app=shop&user=ada&order=').map((href) => href.split('order=')[1]);
    expect(offered).toEqual(['title', 'user', 'events', '-size', 'desc']);
    expect(sorted.body).toMatch(/aria-sort="descending">\s*<a class="sort" href="[^"]*">Size/);
    expect((await site.get('/sessions?app=shop&order=user')).body).toMatch(/aria-sort="ascending">\s*<a[^>]*>User/);
    // A sorted list has pages, too.
    for (let i = 0; i < 51; i++) await add('eve', `e${i}`);
    const [next = ''] = linksOf(
      await site.get('/sessions?app=shop&user=eve&order=duration'),
      '/sessions?app=shop&user=eve&order=duration&skip=',
    );
    expect(idsOf(await site.get(next))).toHaveLength(1);
  });

  test('finds sessions of all visible apps by id, title, user and app, in one field', async () => {
    const own = await open(name);
    for (const [appName, userId, sessionId, title] of [
      ['one', 'Ada', 'order-17', undefined],
      ['two', 'bob', 'Order-18', undefined],
      ['two', 'eve', 's3', 'Orders of ÄRZTE'],
      ['three', 'eve', 's4', 'An invoice'],
    ] as const) {
      await own.service.createSession({ appName, userId, sessionId });
      if (title !== undefined) await own.service.describeSession({ appName, userId, sessionId }, { title });
    }
    const found = async (find: string, scope = {}, more = {}) => {
      const site = await own.studio({ authorize: () => scope });
      const page = await site.get(query('/sessions', { names: '{}', find, ...more }));
      const { location } = page.headers;
      const links = location === undefined ? linksOf(page, '/session?') : [location];
      // Whoever fills in nothing else and finds one session is sent to it.
      const isSent = find !== '' && Object.keys(more).length === 0;
      expect([find, scope, page.status]).toEqual([find, scope, isSent && new Set(links).size === 1 ? 303 : 200]);
      return [...new Set(links.map((href) => href.split('session=')[1]))].sort();
    };
    const searches: [find: string, sessions: string[], scope?: object, more?: object][] = [
      ['ORDER', ['Order-18', 'order-17', 's3']],
      ['rder-1', ['Order-18', 'order-17']],
      ['ÄRZTE', ['s3']],
      ['eve', ['s3', 's4']],
      [' ada ', ['order-17']],
      ['%', []],
      // All of the words, each in another place.
      ['ÄRZTE of  EVE two', ['s3']],
      ['order one', ['order-17']],
      ['order bob eve', []],
      ['', ['Order-18', 'order-17', 's3', 's4']],
      ['order', ['Order-18', 's3'], { appName: 'two' }],
      ['s', ['s3', 's4'], { userId: 'eve' }],
      ['order', ['Order-18'], { userId: 'bob' }],
      ['ÄRZTE', [], { userId: 'bob' }],
      ['ÄRZTE', ['s3'], {}, { skip: 0 }],
      ['ÄRZTE', ['s3'], {}, { order: 'size' }],
      ['', ['order-17'], { userId: 'Ada' }],
      ['order', ['s3'], {}, { user: 'eve' }],
      ['order', ['order-17'], {}, { app: 'one' }],
    ];
    for (const [find, sessions, scope, more] of searches)
      expect([find, scope, more, await found(find, scope, more)]).toEqual([find, scope, more, sessions]);
    const site = await own.studio();
    expect((await site.get('/')).body).toMatch(/action="\/sessions" role="search">.*name="find"/s);
    expect(shown(await site.get('/sessions?find=eve'))).toMatch(/Sessions of all apps .* An invoice s4 three eve 0 /);
    // Pages of a list of several apps miss none.
    for (let i = 0; i < 60; i++) await own.service.createSession({ appName: `app${i % 3}`, userId: 'many' });
    const first = await site.get('/sessions?find=many');
    const [next = ''] = linksOf(first, '/sessions?find=many&skip=');
    const ids = [first, await site.get(next)].flatMap((page) => linksOf(page, '/session?'));
    expect(new Set(ids).size).toBe(60);
  });

  test('lists the largest sessions of all apps that a visitor may see', async () => {
    const own = await open(name);
    for (const [appName, userId, length] of [
      ['one', 'ada', 2_000],
      // Databases with limits store it in parts.
      ['two', 'ada', 600_000],
      ['two', 'bob', 5_000],
    ] as const) {
      const session = await own.service.createSession({ appName, userId, sessionId: `${appName}-${userId}` });
      const content = { parts: [{ text: 'x'.repeat(length) }] };
      await own.service.appendEvent({ session, event: createEvent({ author: 'user', content }) });
    }
    const listed = async (scope: { appName?: string; userId?: string }) => {
      const site = await own.studio({ authorize: () => scope });
      return [
        ...new Set(
          linksOf(await site.get('/sessions?order=size'), '/session?').map((href) => href.split('session=')[1]),
        ),
      ];
    };
    expect(await listed({})).toEqual(['two-ada', 'two-bob', 'one-ada']);
    expect(await listed({ appName: 'two' })).toEqual(['two-ada', 'two-bob']);
    expect(await listed({ userId: 'ada' })).toEqual(['two-ada', 'one-ada']);
  });

  testOfPages(
    'refuses what no address of its own has, whatever the parameter',
    async () => {
      const of = { ...OF_STORY, seq: 1, part: 0 };
      const reported: unknown[] = [];
      const site = await served.studio({ allowChanges: true, onError: (error) => reported.push(error) });
      const incarnation = '\0';
      const cursors = [{ seq: 1, incarnation }, { seq: 1e15, incarnation: '' }, { seq: -1 }, [], null, 'x', '\0', 1e15];
      const odd: Record<string, (string | number)[]> = {
        ...Object.fromEntries(['app', 'user', 'session'].map((name) => [name, ['\0', 'a\0b', 'x'.repeat(2_000)]])),
        ...Object.fromEntries(
          ['at', 'before', 'after', 'seq', 'part'].map((name) => [name, ['\0', -1, 1.5, 1e10 - 1, 2 ** 31, 'one']]),
        ),
        find: ['\0', 'x'.repeat(2_000), '%_'],
        labels: ['\0=1', 'a=\0', 'a="\\u0000"', '=', 'a="'],
        from: ['\0', '2026-13-45', '275760-09-14'],
        to: ['\0', 'today'],
        after: ['\0', 'a\0', '\ud800'],
        cursor: cursors.map((cursor) => JSON.stringify(cursor)),
        names: [
          '\0',
          '{"app":"\\u0000"}',
          '{"find":"a\\u0000b"}',
          '{"after":"\\u0000"}',
          '{"seq":9999999999}',
          '{"app":{}}',
        ],
        count: ['\0'],
        q: ['\0', 'x'.repeat(2_000), '%_'],
        skip: ['\0', -1, 1e10 - 1, 'one'],
        order: ['\0', '__proto__', 'tokens'],
        other: ['\0'],
      };
      const paths = [...'/ /users /sessions /session /time /state /event /event.json /part /live /repair'.split(' ')];
      paths.push('/operations', '/operations/stats', '/operations/doctor', '/describe', '/fork', '/rewind');
      for (const path of paths)
        for (const [name, values] of Object.entries(odd))
          for (const value of values) {
            const response = await site.open(query(path, { ...of, [name]: value }));
            response.destroy();
            const status = response.statusCode ?? 0;
            expect([path, name, value, status < 500]).toEqual([path, name, value, true]);
            if (String(value).includes('\0')) expect([path, name, value, status]).toEqual([path, name, value, 400]);
          }
      expect(reported).toEqual([]);
    },
    60_000,
  );

  test('shows what a codec has encoded, with who wrote it', async () => {
    const encoded = await open(name);
    const codec = encryption({ currentKey: 'first', key: () => Buffer.alloc(32, 1) });
    await tellStory(new MikroOrmSessionService(encoded.orm.em, { codec }));
    const rows = await encoded.orm.em.fork().find(AdkEvent, {});
    expect(JSON.stringify(rows)).not.toContain('refund"');
    const text = shown(await (await encoded.studio({ codec })).get(STORY));
    for (const part of [
      /topic "refund"/,
      /Call find_order order: 17, customer: "ada" ✓ 4 s #3 Arguments \{ "order": 17/,
      /#4 by orders/,
    ])
      expect(text).toMatch(part);
    const timeless = (page: string) => page.replace(/\d{4}-\d\d-\d\d [\d:]{8}|just now|\d+ \w+ ago/g, 'time');
    expect(timeless(text)).toBe(timeless(shown(await site.get(STORY))));
    expect(shown(await (await encoded.studio()).get(STORY))).not.toContain('find_order');
  });

  testOfPages('H6 shows what a tool returned in its call, until its response is stored', async () => {
    const { service } = served;
    const key = { appName: 'returned', userId: 'ada', sessionId: 's' };
    const session = await service.createSession(key);
    const add = (params: Parameters<typeof createEvent>[0]) =>
      service.appendEvent({ session, event: createEvent({ author: 'clerk', ...params }) });
    const parts = ['pay', 'mail'].map((id) => ({ functionCall: { id, name: id, args: { to: id } } }));
    await add({ content: { role: 'model', parts } });
    await add({ customMetadata: { adk_mikro_orm_tool_result: { id: 'pay', result: 17 } } });
    const page = query('/session', { app: 'returned', user: 'ada', session: 's' });
    const before = shown(await site.get(page));
    expect(before).toMatch(
      /Call pay to: "pay" ✓ [\d.]+ m?s #2 Arguments \{ "to": "pay" \} Answer #2 \{ "result": 17 \}/,
    );
    expect(before).toMatch(/Call mail to: "mail" no answer yet .*Answer of pay to #1/);
    const responses = ['pay', 'mail'].map((id) => ({ functionResponse: { id, name: id, response: { result: 17 } } }));
    await add({ content: { role: 'user', parts: responses } });
    const after = shown(await site.get(page));
    expect(after).toMatch(
      /Call pay to: "pay" ✓ [\d.]+ m?s #3 Arguments \{ "to": "pay" \} Answer #3 \{ "result": 17 \} Call/,
    );
  });

  test('says in the bar of a session which calls are answered and not yet run, and what was used', async () => {
    const own = await open(name);
    const key = { appName: 'asked', userId: 'ada', sessionId: 's' };
    const session = await own.service.createSession(key);
    const add = (event: Parameters<typeof createEvent>[0]) =>
      own.service.appendEvent({ session, event: createEvent({ author: 'agent', ...event }) });
    const usageMetadata = { promptTokenCount: 20, candidatesTokenCount: 3 };
    const functionCall = { id: 'c', name: 'ask', args: {} };
    const site = await own.studio();
    const bar = async () => {
      const { body, ...answer } = await site.get(query('/session', { app: 'asked', user: 'ada', session: 's' }));
      const begin = body.indexOf('<div class="bar"');
      return shown({ ...answer, body: `<main>${body.slice(begin, body.indexOf('</nav>', begin))}</main>` });
    };
    await add({ content: { parts: [{ functionCall }] }, longRunningToolIds: ['c'], usageMetadata });
    expect(await bar()).toMatch(/s ada 1 waiting 20 tokens in, 3 out Talk/);
    const functionResponse = { id: 'c', name: 'ask', response: { answer: 'yes' } };
    await add({ author: 'user', content: { role: 'user', parts: [{ functionResponse }] } });
    expect(await bar()).toMatch(/s ada 1 answered, not yet run 20 tokens in, 3 out Talk/);
    expect(shown(await site.get('/'))).toMatch(
      /Waits for a person 0 .* Nothing waits for a person\. Answered, not yet run 1 .* ask .* asked \/ ada/,
    );
    // What was counted is kept, unless the session gets another history.
    await add({ content: { parts: [{ text: 'Yes.' }] }, usageMetadata });
    expect(await bar()).toMatch(/s ada 40 tokens in, 6 out Talk/);
    await own.service.rewindSession(key, { at: 1 });
    expect(await bar()).toMatch(/s ada 1 waiting 20 tokens in, 3 out Talk/);
  });

  test('folds each answer into the call of its own branch, whatever the ids', async () => {
    const key = { ...KEY, sessionId: 'branches' };
    const session = await served.service.createSession(key);
    const say = (branch: string | undefined, part: object, author = 'agent') =>
      served.service.appendEvent({
        session,
        event: createEvent({ author, content: { parts: [part] }, ...(branch !== undefined && { branch }) }),
      });
    const call = (who: string) => ({ functionCall: { id: 'call_0', name: 'ask', args: { who } } });
    const answer = (said: string) => ({ functionResponse: { id: 'call_0', name: 'ask', response: { said } } });
    await say('a', call('first'));
    await say('b', call('second'));
    await say('b', answer('second'));
    await say('a', answer('first'));
    await say('a', call('third'));
    await say('a', { functionResponse: { id: 'call_0', name: 'ask' } });
    await say('a', call('fourth'));
    const text = shown(await site.get(query('/session', { ...OF_STORY, session: 'branches' })));
    expect(text).toMatch(
      /Call ask who: "first" ✓ [\d.]+ m?s #4 Arguments \{ "who": "first" \} Answer #4 \{ "said": "first" \}/,
    );
    expect(text).toMatch(
      /Call ask who: "second" ✓ [\d.]+ m?s #3 Arguments \{ "who": "second" \} Answer #3 \{ "said": "second" \}/,
    );
    expect(text).toMatch(/Call ask who: "third" ✓ [\d.]+ m?s #6 Arguments \{ "who": "third" \} Answer #6/);
    expect(text).toMatch(/Call ask who: "fourth" no answer yet/);
    expect(text).toMatch(/Answer of ask to #2 .*Answer of ask to #1 .*Answer of ask to #5/);
  });

  test('shows a conversation as a person reads it', async () => {
    const answer = await site.get(STORY);
    const text = shown(answer);
    expect(eventsOf(answer)).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9]);
    for (const part of [
      /Refund of order 17 .* team=billing tier=gold 9 events/,
      /Session created .* topic "refund" user:language "English" app:shop "open" user 2026-11-22 12:00:04 UTC #1/,
      /Thought The person wants a refund/,
      // The call shows its answer.
      /Call find_order order: 17, customer: "ada" ✓ 4 s #3 Arguments \{ "order": 17, "customer": "ada" \} Answer #3 \{ "order": 17, "item": "Desk lamp"/,
      /Answer of find_order to #2/,
      /orders concierge\.orders .* Code PYTHON print\(59\.90 \* 1\.0\) Result of the code: OUTCOME_OK 59\.9/,
      /Call charge_back amount: 59\.9 ✗ failed 4 s #6 The bank did not answer\. Arguments/,
      /Error MODEL_OVERLOADED: The model is overloaded/,
      /State set by the application .* escalated not set → true user:vip \? → true concierge/,
      /Call ask_approval amount: 59\.9, reason: "arrived broken" waits for an answer .* step not set → "approval"/,
      /Waits for an answer ask_approval \( amount: 59\.9, reason: "arrived broken" \) #8/,
      /order \{"id":17,"total":59\.9\} #2 by concierge/,
      /topic "refund" by the application, \d+ (second|minute)s? ago|topic "refund" by the application, just now/,
      /user:refunds 1 #8 by concierge/,
    ])
      expect(text).toMatch(part);
    const [picture = ''] = answer.body.match(/\/part\?[^"]*/) ?? [];
    expect((await site.get(picture.replaceAll('&amp;', '&'))).headers).toMatchObject({
      'content-type': 'image/png',
      'content-disposition': 'inline; filename="lamp.png"',
    });
    const raw = await site.get(query('/event.json', { ...OF_STORY, seq: 2 }));
    const stored = await served.orm.em.fork().findOneOrFail(AdkEvent, { session: { id: KEY.sessionId }, seq: 2 });
    expect(JSON.parse(raw.body)).toEqual(stored.data);
    expect(shown(await site.get(query('/event', { ...OF_STORY, seq: 2 })))).toContain('"name": "find_order"');
  });

  test('says on an event which model made it, how long it took, and why it ended early', async () => {
    const own = await open(name);
    const key = { appName: 'one', userId: 'ada', sessionId: 's' };
    const session = await own.service.createSession(key);
    const used = (tokens: number, timestamp: number, finishReason: string) =>
      createEvent({
        ...{ author: 'agent', timestamp, content: { parts: [{ text: 'said' }] }, modelVersion: 'gemini-x' },
        ...{ usageMetadata: { candidatesTokenCount: tokens }, finishReason: finishReason as never },
      });
    const day = 86_400_000;
    for (const event of [used(1, Date.now() - 4_000, 'STOP'), used(2, Date.now() - 2 * day, 'MAX_TOKENS')])
      await own.service.appendEvent({ session, event });
    const site = await own.studio();
    const text = shown(await site.get(query('/session', { app: 'one', user: 'ada', session: 's' })));
    expect(text).toMatch(
      /said Why gemini-x, \d(\.\d+)? s · STOP · 0 tokens in, 1 out Model gemini-x, \d(\.\d+)? s · STOP · 0 tokens in, 1 out None: /,
    );
    // Stored two days after it was made: no model takes so long.
    expect(text).toMatch(
      /said ended by MAX_TOKENS Why gemini-x · MAX_TOKENS · 0 tokens in, 2 out Model gemini-x · MAX_TOKENS · 0 tokens/,
    );
    expect(shown(await site.get('/usage?by=model'))).toMatch(/gemini-x one 0 0 3 0 100 % 0 \d(\.\d+)? s/);
    const time = shown(await site.get(query('/time', { app: 'one', user: 'ada', session: 's' })));
    expect(time).toMatch(/models < 1 % 4 s in 2 1 model request not recorded, .*#1 agent 4 s #2 agent model tool/);
  });

  test('says on an event which memories and files tools had loaded for its model', async () => {
    const own = await open(name);
    const session = await own.service.createSession({ appName: 'one', userId: 'ada', sessionId: 's' });
    const answer = (tool: string, response: Record<string, unknown>) => ({
      functionResponse: { id: tool, name: tool, response },
    });
    const call = (tool: string) => ({ functionCall: { id: tool, name: tool, args: {} } });
    const content = { parts: [{ text: 'Likes ' }, { text: 'lamps.' }] };
    const memories = [{ content: 'Has a desk lamp.', author: 'clerk' }, { content }];
    for (const parts of [
      [call('load_memory'), call('load_artifacts')],
      [answer('load_memory', { memories }), answer('load_artifacts', { artifact_names: ['report.pdf'], status: '' })],
      [{ text: 'You like lamps.' }],
      [{ text: 'Nothing more.' }],
    ])
      await own.service.appendEvent({ session, event: createEvent({ author: 'clerk', content: { parts } }) });
    const site = await own.studio();
    const answered = await site.get(query('/session', { app: 'one', user: 'ada', session: 's' }));
    expect(shown(answered)).toMatch(
      /#3 JSON of event 3 You like lamps\. Why model not recorded · after 2 answers of load_memory, load_artifacts · 2 memories · 1 file Answers of tools load_memory \(\) → \{"memories":.* #2 load_artifacts \(\) → \{"artifact_names":\["report\.pdf"\],"status":""\} #2 Memories Has a desk lamp\. clerk Likes lamps\. Files report\.pdf Not recorded: thoughts, model, finish reason, tokens, preloaded memories, which state it read\. All state before it clerk/,
    );
    expect(shown(answered).match(/2 memories/g)).toHaveLength(1);
    expect(linksOf(answered, '/files?')).toContain(
      query('/files', { app: 'one', user: 'ada', session: 's', file: 'report.pdf' }),
    );
  });

  test('shows what a compaction replaces for the model', async () => {
    const key = { appName: 'compacted', userId: 'u', sessionId: 's' };
    const session = await served.service.createSession(key);
    const span = { startTime: Date.UTC(2026, 10, 22, 12, 0, 4), endTime: Date.UTC(2026, 10, 22, 12, 0, 36) };
    const compaction = { isCompacted: true, compactedContent: 'Ada wants her money back.', ...span };
    const event = { ...createEvent({ author: 'system' }), ...compaction };
    await served.service.appendEvent({ session, event });
    expect(shown(await site.get(query('/session', { app: 'compacted', user: 'u', session: 's' })))).toMatch(
      /Compaction: for the model this replaces the events from 2026-11-22 12:00:04 UTC to 2026-11-22 12:00:36 UTC \. Ada wants her money back\./,
    );
  });

  test('names a session once on its page, and says what a model may have read, thought and written', async () => {
    const page = await site.get(STORY);
    expect(shown(page).match(/Refund of order 17/g)).toHaveLength(1);
    expect(page.body.match(/<h1/g)).toHaveLength(1);
    expect(shown(page)).toMatch(
      /Why model not recorded · 1,380 tokens in \(1,024 cached\), 32 out · 1 thought Question Hello! The lamp .* #1 Thoughts The person wants a refund\. .* Model 1,380 tokens in \(1,024 cached\), 32 out None: answers of tools, memories, files\. Not recorded: model, finish reason, preloaded memories, which state it read\./,
    );
    // The newest answer says it at once; so does one that a link leads to.
    const open = (answer: Answer) =>
      answer.body
        .split('<li')
        .filter((each) => /class="fold why" +open/.test(each))
        .map((each) => /id="e(\d+)"/.exec(each)?.[1]);
    expect(open(page)).toEqual(['8']);
    expect(open(await site.get(`${STORY}&at=2`))).toEqual(['2']);
    // So does the newest call or failure, beside the last answer to the same question.
    const key = { ...KEY, sessionId: 'explained' };
    const session = await served.service.createSession(key);
    const asked = { author: 'user', content: { role: 'user', parts: [{ text: 'Where is it?' }] } };
    const called = { content: { parts: [{ functionCall: { id: 'c', name: 'look_up', args: { order: 7 } } }] } };
    const answered = {
      content: { parts: [{ functionResponse: { id: 'c', name: 'look_up', response: { at: 'sea' } } }] },
    };
    const said = { content: { parts: [{ text: 'One moment.' }] } };
    const failed = { errorCode: '429', errorMessage: 'Too many requests.' };
    const explained: string[][] = [];
    for (const event of [asked, called, answered, said, failed, asked, called]) {
      await served.service.appendEvent({ session, event: createEvent({ author: 'agent', ...event }) });
      explained.push(open(await site.get(query('/session', { ...OF_STORY, session: 'explained' }))) as string[]);
    }
    expect(explained).toEqual([[], ['2'], ['2'], ['4'], ['4', '5'], ['4', '5'], ['7']]);
    expect(shown(await site.get(query('/session', { ...OF_STORY, session: 'explained' })))).toMatch(
      /One moment\. Why .* Question Where is it\? #1 Answers of tools look_up \( order: 7 \) → \{"at":"sea"\} #3 None: memories, files\. Not recorded: thoughts, model, /,
    );
    await served.service.deleteSession(key);
  });

  test('says of a long turn what was asked, and what all its branches did, though its page has only its newest events', async () => {
    const own = await open(name);
    const key = { appName: 'one', userId: 'ada', sessionId: 's' };
    const of = { app: 'one', user: 'ada', session: 's' };
    const session = await own.service.createSession(key);
    const begin = Date.now() - 200_000;
    const work = (i: number) => {
      const worker = i % 2 === 0 ? 'fr' : 'pl';
      const tool = { id: `c${i}`, name: 'translate' };
      const about = { author: worker, branch: `fan.${worker}`, timestamp: begin + i * 1_000 };
      return [
        createEvent({ ...about, content: { parts: [{ functionCall: { ...tool, args: { page: i } } }] } }),
        createEvent({
          ...{ ...about, timestamp: about.timestamp + 1_500 },
          content: { parts: [{ functionResponse: { ...tool, response: { success: i !== 4 } } }] },
        }),
      ];
    };
    const question = createEvent({ author: 'user', timestamp: begin, content: { parts: [{ text: 'Translate it.' }] } });
    const pages = Array.from({ length: 40 }, (_, i) => work(i)).flat();
    await own.service.appendEvents({ session, events: [question, ...pages] });
    await own.orm.em.getConnection().execute('update adk_events set append_time = timestamp');
    const site = await own.studio();
    const talk = async () => {
      const { body } = await site.get(query('/session', of));
      const [branches = ''] = /<div id="branches">.*?<\/details>/s.exec(body) ?? [];
      return {
        isOpen: /<details [^>]* open>/.test(branches),
        text: shown({ status: 0, headers: {}, body: `<main>${branches}</main>` }),
        body,
      };
    };
    const { body, ...first } = await talk();
    expect(shown({ status: 0, headers: {}, body })).toMatch(
      / Question Translate it\. #1 Answers of tools translate \( page: 37 \) → /,
    );
    expect(first.isOpen).toBe(true);
    expect(first.text).toMatch(
      /2 branches worked at the same time for 19 s of 40 s Translate it\. fan\.fr 39 s , from 0 ms to 39 s 20 model calls 20 tool calls 30 s tokens not recorded 1 failed translate page: 4 ✗ 1\.5 s .* translate page: 38 ✓ 1\.5 s .* 18 more fan\.pl 39 s , from 1 s to 40 s /,
    );
    // After an answer to another question they are no news.
    const later = createEvent({ author: 'user', content: { parts: [{ text: 'Thank you!' }] } });
    await own.service.appendEvent({ session, event: later });
    expect((await talk()).isOpen).toBe(true);
    const answer = createEvent({ author: 'agent', content: { parts: [{ text: 'Gladly.' }] } });
    await own.service.appendEvent({ session, event: answer });
    expect(await talk()).toMatchObject({
      isOpen: false,
      text: expect.stringMatching('at the same time .* from event #44 ') as string,
    });
  });

  test('says side by side what each branch of a turn did, and in one sentence where the time went', async () => {
    const own = await open(name);
    const key = { appName: 'one', userId: 'ada', sessionId: 's' };
    const session = await own.service.createSession(key);
    const begin = Date.now() - 60_000;
    const add = async (worker: string, at: number, part: object, more: object = {}) =>
      own.service.appendEvent({
        session,
        event: createEvent({
          ...{ author: worker, branch: `fan.${worker}`, timestamp: begin + at * 1_000, content: { parts: [part] } },
          ...more,
        }),
      });
    const usageMetadata = { promptTokenCount: 100, candidatesTokenCount: 5, thoughtsTokenCount: 3 };
    const call = (id: string, q: string) => ({ functionCall: { id, name: 'find_page', args: { q } } });
    const answer = (id: string, response: object) => ({ functionResponse: { id, name: 'find_page', response } });
    await add('fr', 0, call('f', 'un'), { usageMetadata });
    await add('pl', 1, call('p', 'dwa'));
    await add('fr', 9, answer('f', { isError: true, message: 'Rien trouvé.' }));
    await add('fr', 10, { text: 'Rien.' }, { usageMetadata });
    await own.orm.em
      .getConnection()
      .execute('update adk_events set append_time = timestamp + 2000 where seq in (1, 2, 4)');
    await own.orm.em.getConnection().execute('update adk_events set append_time = timestamp where seq = 3');
    const site = await own.studio();
    const of = { app: 'one', user: 'ada', session: 's' };
    const time = await site.get(query('/time', of));
    expect(shown(time)).toMatch(
      /9\d % of the time went to find_page : [\d.]+ \w+ of [\d.]+ \w+\. find_page 9\d % .* in 2 models \d % [\d.]+ s in 3 Longest step: find_page #2 [\d.]+ \w+ , still running from event #1 /,
    );
    expect(shown(time)).toMatch(
      /2 branches worked at the same time for 10 s of [\d.]+ \w+ fan\.fr 12 s , from 0 ms to 12 s 2 model calls 4 s 1 tool call 7 s 216 tokens 1 failed find_page q: "un" ✗ 7 s Rien trouvé\. “ Rien\. ” fan\.pl runs [\d.]+ \w+ 1 model call 2 s 1 tool call [\d.]+ \w+ tokens not recorded find_page q: "dwa" no answer yet fan\.fr/,
    );
    expect(shown(await site.get(query('/session', of)))).toMatch(/Thoughts text not stored/);
    const [toBranches] = linksOf(await site.get(query('/session', of)), '/time?').filter((href) =>
      href.endsWith('#branches'),
    );
    expect(toBranches).toBe(`${query('/time', of)}#branches`);
    expect(time.body).toMatch(/id="branches"/);
    // A fork copies calls that nobody will answer: nothing counts the time since.
    const clock = jest.spyOn(Date, 'now').mockReturnValue(Date.now() + 3_600_000);
    const late = await site.get(query('/time', of));
    const talk = shown(await site.get(query('/session', of)));
    clock.mockRestore();
    expect(talk).toMatch(/Call find_page q: "dwa" never answered .* find_page q: "dwa" never answered Where/);
    expect(shown(late)).toMatch(
      /Longest step: find_page #1 7 s Never answered, not counted: find_page #2 1 h .* 2 branches worked at the same time for 2 s of 12 s fan\.fr 12 s , from 0 ms to 12 s .* fan\.pl 2 s , from 1 s to 3 s 1 model call 2 s 1 tool call tokens not recorded find_page q: "dwa" never answered fan\.fr .* #2 pl 2 s, find_page … never answered/,
    );
    expect(late.body).toMatch(/<title>find_page never answered<\/title>/);
  });

  test('divides the time of a session, so that all shares are 100 %, and names the longest turn and step', async () => {
    const own = await open(name);
    const session = await own.service.createSession({ appName: 'one', userId: 'ada', sessionId: 's' });
    const begin = Date.now() - 600_000;
    const at = (seconds: number, author: string, parts: object[], more: object = {}) =>
      createEvent({ author, timestamp: begin + seconds * 1_000, content: { parts }, ...more });
    const call = (id: string) => ({ functionCall: { id, name: id, args: {} } });
    const answer = (id: string) => ({ functionResponse: { id, name: id, response: {} } });
    await own.service.appendEvents({
      session,
      events: [
        at(0, 'user', [{ text: 'Quickly!' }]),
        at(1, 'agent', [call('look_up')]),
        at(4, 'agent', [answer('look_up')]),
        at(5, 'agent', [{ text: 'Done.' }]),
        at(100, 'user', [{ text: 'And now?' }]),
        // A tool of 6 s and a wait of 16 s begin at once.
        at(102, 'agent', [call('search'), call('ask')], { longRunningToolIds: ['ask'] }),
        at(109, 'agent', [answer('search')]),
        at(119, 'user', [answer('ask')]),
        at(120, 'agent', [{ text: 'That is so.' }]),
      ],
    });
    const connection = own.orm.em.getConnection();
    await connection.execute('update adk_events set append_time = timestamp');
    await connection.execute('update adk_events set append_time = timestamp + 1000 where seq in (2, 4, 6, 9)');
    const site = await own.studio();
    const of = { app: 'one', user: 'ada', session: 's' };
    const time = await site.get(query('/time', of));
    // Between steps: from 0 to 1, 4 to 5, 100 to 102 and 119 to 120.
    expect(shown(time)).toMatch(
      /37 % of the time went to waiting for a person : 10 s of 27 s in 2 turns\. Of the other 17 s, 35 % went to search \. The longest turn took 21 s, 78 %: And now\? waiting for a person 37 % 10 s search 22 % 6 s between steps 19 % 5 s models 15 % 4 s in 4 look_up 7 % 2 s Longest step, waits not counted: search #6 6 s And now/,
    );
    expect(linksOf(time, '#t')).toEqual(['#t5']);
    const [all = ''] = /<p class="shares">.*?<\/p>/s.exec(time.body) ?? [];
    const shares = [...all.matchAll(/(\d+) %/g)].map(([, percent]) => Number(percent));
    expect(shares.reduce((sum, share) => sum + share, 0)).toBe(100);
    // Its model has not answered yet: nothing but the lease says that it runs.
    await own.service.appendEvent({ session, event: at(300, 'user', [{ text: 'Once more!' }]) });
    const key = { appName: 'one', userId: 'ada', sessionId: 's' };
    const lease = await new SessionLeases(own.orm.em).acquire(key, { holder: 'worker 7' });
    expect(shown(await site.get(query('/time', of)))).toMatch(
      /% of the time went between steps, when no tool ran and no model that has answered : 5(\.\d)? min of 5(\.\d)? min in 3 turns\..*The longest turn took 5(\.\d)? min, 9\d %: Once more!/,
    );
    await lease.release();
    expect(shown(await site.get(query('/time', of)))).toMatch(/27 s in 2 turns\..*Once more! .* no answer/);
  });

  test('shows the talk of one branch alone, page by page, and leads back to all', async () => {
    const own = await open(name);
    const session = await own.service.createSession({ appName: 'one', userId: 'ada', sessionId: 's' });
    const of = { app: 'one', user: 'ada', session: 's' };
    const work = (i: number) => {
      const branch = `fan.${i % 3}`;
      const tool = { id: `c${i}`, name: 'look_up' };
      return [
        createEvent({ author: 'agent', branch, content: { parts: [{ functionCall: { ...tool, args: { i } } }] } }),
        // The answer of a person has no branch.
        createEvent({ author: 'user', content: { parts: [{ functionResponse: { ...tool, response: { i } } }] } }),
      ];
    };
    await own.service.appendEvents({ session, events: Array.from({ length: 90 }, (_, i) => work(i)).flat() });
    const site = await own.studio();
    const talk = await site.get(query('/session', of));
    const branch = query('/session', { ...of, branch: 'fan.1' });
    expect(linksOf(talk, branch)).toContain(`${branch}&at=177#e177`);
    expect(linksOf(await site.get(query('/time', of)), branch)).toContain(`${branch}&after=0`);
    // Events of the branch: 3 and 4, 9 and 10, …, 177 and 178.
    const ofBranch = Array.from({ length: 30 }, (_, i) => [6 * i + 3, 6 * i + 4]).flat();
    const newest = await site.get(branch);
    expect(eventsOf(newest)).toEqual(ofBranch.slice(-40));
    expect(shown(newest)).toMatch(/Only fan\.1 Show all .* Call look_up i: 88 ✓ [\d.]+ \w+ #178 /);
    expect(linksOf(newest, query('/session', of))).toContain(query('/session', of));
    const [older = ''] = linksOf(newest, `${branch}&before=`);
    expect(eventsOf(await site.get(older))).toEqual(ofBranch.slice(0, 20));
    const first = await site.get(`${branch}&after=0`);
    expect(eventsOf(first)).toEqual(ofBranch.slice(0, 40));
    expect(eventsOf(await site.get(linksOf(first, `${branch}&after=`)[0] ?? ''))).toEqual(ofBranch.slice(40));
    expect(eventsOf(await site.get(`${branch}&at=9`))).toEqual(ofBranch.slice(2, 42));
    expect(shown(await site.get(query('/session', { ...of, branch: 'none' })))).toContain('No events of this branch');
  });

  test('U2 shows the compaction and the rewind of newer ADKs', async () => {
    const key = { appName: 'newer', userId: 'u', sessionId: 's' };
    const session = await served.service.createSession(key);
    const span = { startTimestamp: Date.UTC(2026, 10, 22, 12), endTimestamp: Date.UTC(2026, 10, 22, 12, 1) };
    const compactedContent = { role: 'model', parts: [{ text: 'Ada wants a refund.' }] };
    const compacted = createEvent({ author: 'user' });
    Object.assign(compacted.actions, { compaction: { ...span, compactedContent } });
    const rewound = createEvent({ author: 'user' });
    Object.assign(rewound.actions, { rewindBeforeInvocationId: 'e-2' });
    await served.service.appendEvents({ session, events: [compacted, rewound] });
    const page = shown(await site.get(query('/session', { app: 'newer', user: 'u', session: 's' })));
    expect(page).toMatch(
      /replaces the events from 2026-11-22 12:00:00 UTC to 2026-11-22 12:01:00 UTC \. Ada wants a refund\./,
    );
    expect(page).toContain('goes back to before e-2');
  });

  test('shows the state as of each event, and who wrote it', async () => {
    const before = stateOf(await site.get(`${STORY}&at=1`));
    expect(before).toContain('topic "refund"');
    expect(before).not.toMatch(/ order |refundable|escalated/);
    const then = stateOf(await site.get(`${STORY}&at=4`));
    expect(then).toMatch(/refundable true #4 by orders/);
    expect(then).not.toMatch(/escalated|step "/);
    expect((await site.get(`${STORY}&at=10`)).status).toBe(400);
    // On a page of its own, too: with links to the events, and a time line that stays on it.
    const alone = await site.get(query('/state', { ...OF_STORY, at: 4 }));
    expect(shown(alone)).toMatch(/Session 3 .* refundable true #4 by orders , .* User \d .* App 1 app:shop "open"/);
    expect(shown(alone)).not.toMatch(/escalated|step "/);
    expect([...new Set(linksOf(alone, `${STORY}&at=4`))]).toEqual([`${STORY}&at=4#e4`]);
    expect(linksOf(alone, query('/state', { ...OF_STORY, at: 5 }))).not.toEqual([]);
    // What each model may have read.
    const read = [1, 3, 4, 6, 7].map((at) => query('/state', { ...OF_STORY, at }));
    expect(linksOf(await site.get(STORY), query('/state', { ...OF_STORY, at: '' }))).toEqual(read);
    // A value that was written by an event of the user's other session.
    const other = await served.service.createSession({ ...KEY, sessionId: 'other' });
    const event = createEvent({ author: 'elsewhere' });
    event.actions.stateDelta['user:mood'] = 'fine';
    await served.service.appendEvent({ session: other, event });
    expect(stateOf(await site.get(STORY))).toMatch(/user:mood "fine" another session, #1 by elsewhere/);
    // Set outside a run, through another session.
    const seen = stateOf(await site.get(query('/session', { ...OF_STORY, session: 'other' })));
    const when = String.raw`by the application, (just now|\d+ (second|minute)s? ago)`;
    for (const value of ['user:language "English"', 'user:vip true', 'app:shop "open"'])
      expect(seen).toMatch(new RegExp(`${value} ${when}`));
  });

  test('lists each change of the state, the newest first, with the value before, by key and page by page', async () => {
    const own = await open(name);
    const key = { appName: 'one', userId: 'ada', sessionId: 's' };
    const of = { app: 'one', user: 'ada', session: 's' };
    const session = await own.service.createSession({ ...key, state: { step: 'begin', kept: true } });
    const write = (stateDelta: Record<string, unknown>) => {
      const event = createEvent({ author: 'clerk' });
      Object.assign(event.actions.stateDelta, stateDelta);
      return event;
    };
    await own.service.appendEvents({ session, events: [write({ step: 'look', 'user:visits': 1 })] });
    await own.service.updateState({ ...key, set: { step: 'check' }, remove: ['kept'] });
    await own.service.appendEvents({
      session: (await own.service.getSession(key))!,
      events: [write({ step: 'pay', 'user:visits': 2 })],
    });
    const site = await own.studio();
    const page = await site.get(query('/state', of));
    expect(shown(page)).toMatch(
      /Changes 8, the newest first .* When user:visits 1 → 2 #2 clerk [^#]* step "check" → "pay" #2 clerk [^#]* kept true → removed the application [^#]* step "look" → "check" the application [^#]* user:visits \? → 1 #1 clerk [^#]* step "begin" → "look" #1 clerk [^#]* (step not set → "begin"|kept not set → true) the application/,
    );
    const one = shown(await site.get(query('/state', { ...of, key: 'step' })));
    expect(one).toMatch(/Changes of step 4, .* All keys .* "check" → "pay" #2 /);
    expect(one).toMatch(/When (step [^→]*→ "\w+" [^→]*){4} Other sessions/);
    // As of an event, and from the card of the talk, where the value before is on an earlier page.
    expect(shown(await site.get(query('/state', { ...of, at: 1 })))).toMatch(/Changes 6, .* step "look" → "check"/);
    const more = Array.from({ length: 150 }, (_, i) => write({ count: i }));
    await own.service.appendEvents({ session: (await own.service.getSession(key))!, events: more });
    const talk = await site.get(query('/session', of));
    expect(shown(talk)).toMatch(/#113 JSON of event 113 count 109 → 110 /);
    expect(linksOf(talk, '/state?')).toContain(query('/state', { ...of, key: 'count' }));
    const newest = await site.get(query('/state', of));
    expect(shown(newest)).toMatch(/count 148 → 149 #152 .* count 49 → 50 #53 /);
    expect(shown(newest)).not.toMatch(/ #52 /);
    const [earlier = ''] = linksOf(newest, query('/state', { ...of, before: '' }));
    expect(shown(await site.get(earlier))).toMatch(/ When count 48 → 49 #52 .* step not set → "begin"/);
    // Of two branches the later write wins: 151 did not.
    await own.orm.em.getConnection().execute(`update adk_events set superseded = '["count"]' where seq = 151`);
    expect(shown(await site.get(query('/state', of)))).toMatch(
      /count 147 → 149 #152 clerk .* count 147 → 148 did not count: a later write was stored first #151/,
    );
  });

  test('says what the state as of an event may lack, and does not read too many events for it', async () => {
    const { service, orm } = served;
    const key = { appName: 'past', userId: 'ada', sessionId: 's' };
    const session = await service.createSession({ ...key, state: { kept: 0 } });
    for (const given of [1, 2, 3]) {
      const event = createEvent({ author: 'agent' });
      event.actions.stateDelta['given'] = given;
      await service.appendEvent({ session, event });
    }
    const asOf = async (at: number) =>
      stateOf(await site.get(query('/session', { app: 'past', user: 'ada', session: 's', at: `${at}` })));
    const execute = (text: string) => orm.em.getConnection().execute(`${text} and app_name = 'past'`);
    expect(await asOf(2)).toMatch(/given 2 #2.*kept 0/);
    expect(await asOf(2)).not.toContain('cannot be read');
    await execute("update adk_events set data = '[]' where seq = 2");
    expect(await asOf(2)).toMatch(/some earlier rows cannot be read.*given 1 #1.*kept 0/);
    expect(await asOf(1)).not.toContain('cannot be read');
    await execute("update adk_sessions set last_seq = 20000 where session_id = 's'");
    const far = await asOf(10_001);
    expect(far).toMatch(/more than 10,000 events come before it/);
    expect(far).not.toContain('given');
    // Otherwise the search for damage would find it.
    await service.deleteSession(key);
  });

  test('shows that an event was rewritten, once', async () => {
    const key = { appName: 'rewritten', userId: 'ada', sessionId: 's' };
    const session = await served.service.createSession(key);
    const event = createEvent({ author: 'agent' });
    for (const stateDelta of [{ left: 1 }, { mood: 'fine' }])
      await served.service.appendEvent({ session, event: { ...event, actions: { ...event.actions, stateDelta } } });
    const text = shown(await site.get(query('/session', { app: 'rewritten', user: 'ada', session: 's' })));
    expect(text).toMatch(/Event rewritten #1/);
    expect(text).not.toContain('by the application');
    expect(text).toMatch(/left 1 #1 by agent/);
  });

  test('has a page of a long session in the document, and links to the others', async () => {
    const key = { appName: 'long', userId: 'ada', sessionId: 'long' };
    const session = await served.service.createSession(key);
    const large = '<&"'.repeat(3_000);
    for (let i = 0; i < 6; i++) {
      const events = Array.from({ length: 20 }, () =>
        createEvent({
          author: 'agent',
          content: { parts: [{ text: large }, { functionCall: { id: 'c', name: 'f', args: { large } } }] },
        }),
      );
      await served.service.appendEvents({ session, events });
    }
    const path = query('/session', { app: 'long', user: 'ada', session: 'long' });
    const newest = await site.get(path);
    const numbers = (from: number, to: number) => Array.from({ length: to - from + 1 }, (_, i) => from + i);
    expect(eventsOf(newest)).toEqual(numbers(81, 120));
    expect(newest.body.length).toBeLessThan(300_000);
    const [older = ''] = linksOf(newest, `${path}&before=`);
    const middle = await site.get(older);
    expect(eventsOf(middle)).toEqual(numbers(41, 80));
    expect(eventsOf(await site.get(linksOf(middle, `${path}&after=`)[0] ?? ''))).toEqual(numbers(81, 120));
    expect(eventsOf(await site.get(`${path}&at=7`))).toContain(7);
    // For many events the size is an estimate from the newest ones.
    expect(shown(await site.get('/sessions?app=long'))).toContain('≈');
    await served.orm.em
      .getConnection()
      .execute('delete from adk_events where session_id = ? and seq in (100, 101)', ['long']);
    expect(shown(await site.get(path))).toContain('Events 100 to 101 cannot be read');
    expect(shown(await site.get(path.replace('/session', '/time')))).toContain('2 events of 1 to 120 cannot be read');
  });

  // Characters that are long in markup or in UTF-8.
  testOfPages.each(['"', '中'])('is never larger than 300 kB, whatever is stored: %s', async (character) => {
    const key = { appName: `large ${character}`, userId: 'ada', sessionId: 'large' };
    const long = character.repeat(4_100);
    const state = Object.fromEntries(
      Array.from({ length: 900 }, (_, i) => [`${['', 'user:', 'app:'][i % 3] ?? ''}key ${i}`, long.slice(0, 300)]),
    );
    const session = await served.service.createSession({ ...key, state });
    for (let i = 0; i < 3; i++) await served.service.updateState({ ...key, set: state });
    const append = async (count: number, textParts: number) => {
      const parts = Array.from({ length: textParts }, () => ({ text: long }));
      const events = Array.from({ length: count }, () => {
        const event = createEvent({ author: long, content: { parts } });
        Object.assign(event.actions.stateDelta, { last: long });
        return event;
      });
      await served.service.appendEvents({ session, events });
    };
    await append(50, 1);
    await append(50, 21);
    const of = { app: key.appName, user: 'ada', session: 'large' };
    const path = query('/session', of);
    const sessions = query('/sessions', { app: key.appName });
    const ids = { appName: `large ${character.repeat(54)}`, userId: character.repeat(60) };
    for (let i = 10; i < 60; i++)
      await served.service.createSession({ ...ids, sessionId: `${character.repeat(58)}${i}` });
    for (const page of [
      path,
      `${path}&before=61`,
      `${path}&before=41`,
      `${path}&at=55`,
      query('/event', { ...of, seq: 55 }),
      query('/state', of),
      sessions,
      query('/sessions', { app: ids.appName }),
    ]) {
      const { status, body } = await site.get(page);
      expect([page, status, Buffer.byteLength(body) < 300_000]).toEqual([page, 200, true]);
    }
    expect(eventsOf(await site.get(path))).toHaveLength(40);
    expect(shown(await site.get(path))).toMatch(/Show event #100 .* and \d+ more/);
  });

  test('sends what comes, from where the browser was', async () => {
    const key = { ...KEY, sessionId: 'live' };
    const session = await served.service.createSession(key);
    const append = (text: string) =>
      served.service.appendEvent({ session, event: createEvent({ author: 'agent', content: { parts: [{ text }] } }) });
    await append('one');
    const page = await site.get(query('/session', { ...OF_STORY, session: 'live' }));
    const [, cursor = ''] = /data-cursor="([^"]*)"/.exec(page.body) ?? [];
    const path = query('/live', { ...OF_STORY, session: 'live', cursor: cursor.replaceAll('&quot;', '"') });
    await append('two');
    const read = async (lastEventId: string | undefined, count: number) => {
      const response = await site.open(
        path,
        lastEventId === undefined ? {} : { headers: { 'last-event-id': lastEventId } },
      );
      expect(response.headers['content-type']).toBe('text/event-stream');
      let text = '';
      for await (const chunk of response.setEncoding('utf8')) {
        text += String(chunk);
        if (text.split('\n\n').filter((frame) => frame.startsWith('id: ')).length >= count) break;
      }
      return text
        .split('\n\n')
        .filter((frame) => frame.startsWith('id: '))
        .map((frame) => frame.split('\n'));
    };
    const [[id = '', data = ''] = []] = await read(undefined, 1);
    expect(data).toContain('two');
    expect(data).not.toContain('>one<');
    await append('three');
    const [[, next = ''] = []] = await read(id.slice(4), 1);
    expect(next).toContain('three');
    await served.service.rewindSession(key, { at: 1 });
    expect((await read(id.slice(4), 1))[0]).toContain('event: reset');
    expect((await site.get(`${path.split('&cursor')[0]}&cursor=nonsense`)).status).toBe(400);
  });

  test('sends with a change of the state the value before, however long ago that was written', async () => {
    const own = await open(name);
    const key = { appName: 'one', userId: 'ada', sessionId: 's' };
    const session = await own.service.createSession({ ...key, state: { mood: 'fine', 'user:language': 'English' } });
    const write = (stateDelta: Record<string, unknown>, branch = 'fan.a') => {
      const event = createEvent({ author: 'agent', branch });
      Object.assign(event.actions.stateDelta, stateDelta);
      return event;
    };
    await own.service.appendEvents({ session, events: Array.from({ length: 130 }, () => write({})) });
    const site = await own.studio();
    const of = { app: 'one', user: 'ada', session: 's' };
    const page = await site.get(query('/session', of));
    const [, cursor = ''] = /data-cursor="([^"]*)"/.exec(page.body) ?? [];
    const live = query('/live', { ...of, branch: 'fan.a', cursor: cursor.replaceAll('&quot;', '"') });
    const response = await site.open(live);
    const events = [
      write({ mood: 'better', 'user:language': 'Polish' }),
      // Of a branch that the page does not show.
      write({ mood: 'bad' }, 'fan.b'),
      write({ mood: 'well', topic: 'lamps' }),
    ];
    for (const event of events) await own.service.appendEvent({ session, event });
    let body = '';
    for await (const chunk of response.setEncoding('utf8')) {
      body += String(chunk);
      if (body.includes('lamps')) break;
    }
    const text = shown({
      status: 200,
      headers: {},
      body: `<main>${body.replaceAll('\\"', '"').replaceAll('\\n', ' ')}</main>`,
    });
    expect(text).toMatch(
      / mood "fine" → "better" user:language "English" → "Polish" .* mood "bad" → "well" topic not set → "lamps" /,
    );
  });

  test('shows leases, readers of the log, statistics, and what is damaged', async () => {
    const { orm, service } = served;
    const lease = await new SessionLeases(orm.em).acquire(KEY, { holder: 'worker 7' });
    const { position } = await new EventLog(orm.em).head();
    const withReaders = await served.studio({ readers: () => ({ mailer: position - 2 }) });
    const now = shown(await withReaders.get('/operations'));
    expect(now).toMatch(/refund-17 support \/ ada worker 7/);
    expect(now).toContain(`mailer ${position - 2} 2`);
    const nothing = () => Promise.resolve();
    const search = new SessionProjection(orm.em, { name: 'search', apply: nothing, clear: nothing });
    await search.catchUp();
    await service.appendEvent({
      session: await service.createSession({ ...KEY, sessionId: 'for readers' }),
      event: createEvent(),
    });
    expect(shown(await site.get('/operations'))).toMatch(new RegExp(`search ${position} 2 projection`));
    await lease.release();
    expect(shown(await site.get('/operations/stats?count=1'))).toMatch(/support \d+ 1 \d+/);
    expect(shown(await site.get('/operations/doctor'))).toMatch(/connection ok answered in/);

    const session = await service.createSession({ ...KEY, sessionId: 'damaged' });
    await service.appendEvents({ session, events: [1, 2, 3].map(() => createEvent({ author: 'agent' })) });
    await orm.em.getConnection().execute('delete from adk_events where session_id = ? and seq = 2', ['damaged']);
    const operations = await site.get('/operations');
    const repair = query('/repair', { ...OF_STORY, session: 'damaged' });
    expect(linksOf(operations, '/repair')).toContain(repair);
    const count = () => orm.em.fork().count(AdkEvent, { session: { id: 'damaged' } });
    expect(shown(await site.get(repair))).toMatch(
      /Event 2 missing .* npx adk-mikro-orm repair support ada damaged --save taken\.jsonl/,
    );
    expect(await count()).toBe(2);
    expect(shown(await site.get(query('/session', { ...OF_STORY, session: 'damaged' })))).toContain(
      'Event 2 cannot be read',
    );
  });

  test('H5 shows damage of the state as damage, and the doctor is not well beside damaged sessions', async () => {
    const own = await open(name);
    const { orm, service } = own;
    const site = await own.studio();
    const key = { ...KEY, sessionId: 'broken' };
    const session = await service.createSession({ ...key, state: { whole: 1, broken: 2 } });
    await service.appendEvents({ session, events: [1, 2].map(() => createEvent({ author: 'agent' })) });
    expect(shown(await site.get('/operations/doctor'))).toMatch(/sessions ok 1 session checked/);
    const execute = (text: string) => orm.em.getConnection().execute(`${text} and session_id = 'broken'`);
    await execute('delete from adk_events where seq = 1');
    // SQLite keeps texts; other databases refuse what is no JSON.
    if (name === 'sqlite') await execute("update adk_session_states set value = '{oops' where state_key = 'broken'");
    expect(shown(await site.get('/operations/doctor'))).toMatch(
      /sessions wrong 1 of 1 session without all their events/,
    );
    const page = await site.get(query('/session', { ...OF_STORY, session: 'broken' }));
    if (name === 'sqlite') {
      expect(stateOf(page)).toMatch(/broken cannot be read .* whole 1/);
      expect(page.body).not.toContain('{oops');
    }
  });

  test('reads a session for what repair would do at once where it is small, and otherwise when that is asked for', async () => {
    const appendTo = async (sessionId: string, events: number, text: string) => {
      const session = await served.service.createSession({ ...KEY, sessionId });
      for (let left = events; left > 0; left -= 500) {
        const piece = Array.from({ length: Math.min(left, 500) }, () =>
          createEvent({ author: 'agent', content: { parts: [{ text }] } }),
        );
        await served.service.appendEvents({ session, events: piece });
      }
      return query('/repair', { ...OF_STORY, session: sessionId });
    };
    const many = await appendTo('many events', 1_001, 'said');
    const large = await appendTo('large events', 2, 'x'.repeat(600_000));
    const delete_ = 'delete from adk_events where session_id = ? and mod(seq, 2) = 0';
    await served.orm.em.getConnection().execute(delete_, ['many events']);
    for (const path of [many, large]) {
      const asked = await site.get(path);
      expect([asked.status, shown(asked)]).toEqual([200, expect.stringContaining('Scan this session for damage')]);
      expect(linksOf(asked, '/repair')).toEqual([`${path}&scan=1`]);
    }
    expect(shown(await site.get(many))).toMatch(/: 1,001 events, about \d+\.\d kB/);
    expect(shown(await site.get(large))).toMatch(/: 2 events, about 1\.2 MB/);
    expect(shown(await site.get(`${large}&scan=1`))).toContain('Nothing is damaged');
    const scanned = shown(await site.get(`${many}&scan=1`));
    expect(scanned).toContain('Event 2 missing Event 4 missing');
    expect(scanned.match(/missing/g)).toHaveLength(100);
    expect(scanned).toContain('and 400 more');
    expect(shown(await site.get(await appendTo('few events', 1_000, 'said')))).toContain('Nothing is damaged');
  });

  test('looks at some sessions at a time for what is damaged, and reads apps and users in one statement', async () => {
    const { orm, service } = served;
    const database = new Database(orm.em);
    const before: SessionKey[] = [];
    for (let i = 0; i < 9; i++) {
      const key = { appName: `damage ${i % 3}`, userId: `u${i % 2}`, sessionId: `d${i}` };
      const session = await service.createSession(key);
      await service.appendEvents({ session, events: [1, 2].map(() => createEvent({ author: 'agent' })) });
      if (i % 4 === 0) before.push(key);
    }
    for (const { sessionId } of before)
      await orm.em.getConnection().execute('delete from adk_events where session_id = ? and seq = 2', [sessionId]);
    const stored = await orm.em.fork().count(AdkSession, {});
    const { lastUpdateTime } = await orm.em.fork().findOneOrFail(AdkSession, { appName: 'damage 1', id: 'd7' });
    await database.run(async (sql) => {
      let statements = 0;
      const counting: typeof sql = {
        ...sql,
        all: (text, values) => {
          statements++;
          return sql.all(text, values);
        },
      };
      // Limited by sessions, or by their events.
      for (const atOnce of [
        { sessions: 4, events: 1_000 },
        { sessions: 1_000, events: 3 },
      ]) {
        const found: SessionKey[] = [];
        let [checked, pages] = [0, 0];
        let after: SessionKey | undefined;
        do {
          const page = await miscountedAfter(counting, after, atOnce);
          found.push(...page.miscounted);
          expect(page.checked).toBeLessThan(stored);
          checked += page.checked;
          pages++;
          after = page.last;
        } while (after);
        expect(checked).toBe(stored);
        expect(statements).toBe(2 * pages);
        statements = 0;
        const ofThese = found.filter(({ appName }) => appName.startsWith('damage'));
        const ordered = before.toSorted((a, b) => (a.appName < b.appName ? -1 : 1));
        expect(ofThese).toEqual(ordered);
      }
      const apps = await appsAfter(counting, 'damage 0', 2);
      expect(apps.map((app) => app.name)).toEqual(['damage 1', 'damage 2']);
      const users = await usersAfter(counting, 'damage 1', '', 50);
      expect(users.map((user) => user.name)).toEqual(['u0', 'u1']);
      expect(users[1]).toEqual({ name: 'u1', lastUpdateTime });
      expect(statements).toBe(2);
    });
    const operations = await site.get('/operations');
    expect(linksOf(operations, '/repair')).toContain(query('/repair', { app: 'damage 0', user: 'u0', session: 'd0' }));
    const later = await site.get(query('/operations', { app: 'damage 0', user: 'u0', session: 'd0' }));
    expect(linksOf(later, '/repair')).not.toContain(query('/repair', { app: 'damage 0', user: 'u0', session: 'd0' }));
    expect(linksOf(later, '/repair')).toContain(query('/repair', { app: 'damage 1', user: 'u0', session: 'd4' }));
  });

  test('lists what waits for a person, and tells the second of two who answer a call', async () => {
    const { service } = served;
    const app = 'waiting';
    expect(shown(await site.get(query('/waiting', { app })))).toContain('Nothing waits');
    const key = { appName: app, userId: 'ada', sessionId: 's' };
    const session = await service.createSession(key);
    const ask = (id: string, name: string, args: object) =>
      createEvent({
        ...{ author: 'agent', longRunningToolIds: [id] },
        content: { role: 'model', parts: [{ functionCall: { id, name, args: { ...args } } }] },
      });
    const schema = {
      properties: { invoice: { type: 'string' }, copies: { type: 'integer' }, urgent: { type: 'boolean' } },
      required: ['invoice'],
    };
    const originalFunctionCall = { id: 'p', name: 'pay', args: { amount: 5 } };
    const toolConfirmation = { hint: 'For the lamp.', confirmed: false };
    const events = [
      ask('c"1', 'ask_user', { text: '<Really>?' }),
      ask('c2', 'adk_request_confirmation', { originalFunctionCall, toolConfirmation }),
      ask('c3', 'adk_request_input', { message: 'Which invoice?', response_schema: schema }),
    ];
    await service.appendEvents({ session, events });
    const list = await site.get(query('/waiting', { app }));
    expect(shown(list)).toMatch(
      /ask_user \( text: "<Really>\?" \) s ada .* pay \( amount: 5 \)\? For the lamp\. s ada/,
    );
    expect([...new Set(linksOf(list, '/session?').filter((link) => link.includes('at=')))]).toEqual(
      [1, 2, 3].map((at) => `${query('/session', { app, user: 'ada', session: 's', at })}#e${at}`),
    );
    expect(linksOf(list, '/answer')).toEqual([]);
    // What would be the same in each row is said once.
    expect(shown(list)).toMatch(
      / To be answered by a person or a service, with the result, unless the row says otherwise\. .* s ada \d.* s ada whoever may approve it \d/,
    );
    const only = shown(await site.get(query('/waiting', { app, name: 'ask_user' })));
    expect(only).toMatch(
      / To be answered by a person or a service, with the result\. .* "<Really>\?" \) s ada [\d.]+ /,
    );
    expect(only).not.toContain('pay');
    const ofBob = await served.studio({ authorize: () => ({ userId: 'bob' }) });
    expect(shown(await ofBob.get(query('/waiting', { app })))).toContain('Nothing waits');
    expect((await ofBob.get(query('/waiting', { app, user: 'ada' }))).status).toBe(404);

    const answered: unknown[] = [];
    const failures: unknown[] = [];
    const onAnswer = (key: object) => {
      answered.push(key);
      throw new Error('The worker is away.');
    };
    const onError = (error: unknown) => void failures.push(error);
    const changing = await served.studio({ allowChanges: true, onAnswer, onError });
    const offered = await changing.get(query('/waiting', { app }));
    expect(shown(offered)).toMatch(/<?Really>?.* Answer pay .* Approve or reject Which invoice\? .* Answer /);
    const [path = '', other = '', input = ''] = new Set(linksOf(offered, '/answer'));
    expect((await site.get(path)).status).toBe(403);
    const early = await changing.get(path);
    const send = async (path: string, answer: Record<string, string>, opened?: Answer) => {
      const asked = opened ?? (await changing.get(path));
      const [cookie = ''] = (asked.headers['set-cookie']?.[0] ?? '').split(';');
      const valueOf = (name: string) =>
        shown({
          ...asked,
          body: `<main>${new RegExp(`name="${name}" value="([^"]*)"`).exec(asked.body)?.[1]}</main>`,
        }).trim();
      const form = { token: valueOf('token'), confirm: 'answer', ...answer };
      return changing.get(path, { form, headers: { cookie, origin: changing.origin } });
    };
    expect(shown(await changing.get(path))).toMatch(
      /ask_user \( text: "<Really>\?" \) Asked by agent at [\d-]+ [\d:]+ UTC in s waiting \/ ada waits [\d.]+ m?s to be answered by a person .* answer .* The agent gets this as what the tool has returned/,
    );
    expect((await send(path, { response: '["no object"]' })).status).toBe(400);
    expect((await send(path, {})).status).toBe(400);
    expect((await send(path, { 'field-answer': 'yes' })).status).toBe(303);
    const rows = () => served.orm.em.fork().find(AdkEvent, { session: { appName: app } }, { orderBy: { seq: 'asc' } });
    const answer = { functionResponse: { id: 'c"1', name: 'ask_user', response: { answer: 'yes' } } };
    expect((await rows())[3]?.data).toMatchObject({ author: 'user', content: { parts: [answer] } });
    const second = await send(path, { response: '{"answer":"no"}' }, early);
    expect(second.status).toBe(409);
    expect(shown(second)).toContain('has an answer to this call already');
    expect(await rows()).toHaveLength(4);
    expect(answered).toEqual([{ appName: app, userId: 'ada', sessionId: 's' }]);
    expect(failures).toEqual([new Error('The worker is away.')]);
    expect(shown(await changing.get(query('/waiting', { app })))).toMatch(
      /pay .* Which invoice\? .* Answered, not yet run .* ask_user/,
    );
    expect(shown(await changing.get(query('/sessions', { app })))).toMatch(/ s 2 waiting 1 answered, not yet run ada/);

    // Nothing is chosen, and rejecting is as easy as approving.
    const confirmation = await changing.get(other);
    expect(shown(confirmation)).toMatch(
      /pay \( amount: 5 \)\? For the lamp\. .* Approve Reject .*If you reject, it does not/,
    );
    expect(confirmation.body).not.toMatch(/checked|primary|confirmed&quot;:true/);
    expect((await send(other, { confirm: '' })).status).toBe(400);
    expect((await send(other, { confirm: 'reject', note: 'Too much.' })).status).toBe(303);
    expect((await rows())[4]?.data).toMatchObject({
      content: { parts: [{ functionResponse: { id: 'c2', response: { confirmed: false, note: 'Too much.' } } }] },
    });

    const fields = { 'field-invoice': '17', 'field-copies': '2', 'field-urgent': 'false' };
    expect(shown(await changing.get(input))).toMatch(/Which invoice\? .* invoice copies urgent true false/);
    expect((await send(input, { ...fields, 'field-copies': 'two' })).status).toBe(400);
    expect((await send(input, fields)).status).toBe(303);
    expect((await rows())[5]?.data).toMatchObject({
      content: { parts: [{ functionResponse: { id: 'c3', response: { invoice: '17', copies: 2, urgent: false } } }] },
    });
    expect(await rows()).toHaveLength(6);
  });

  test('whoever answers sees who asks, since when and what was said before, and then what happens next', async () => {
    const key = { appName: 'asking', userId: 'ada', sessionId: 'mail' };
    const { service } = served;
    const session = await service.createSession(key);
    await service.describeSession(key, { title: 'A deletion by mail' });
    const add = (author: string, part: object, more: object = {}) =>
      service.appendEvent({ session, event: createEvent({ author, content: { parts: [part] }, ...more }) });
    const response = { error: 'The mail is unsigned.' };
    await add('user', { text: 'Delete my account.' });
    await add('clerk', { text: 'I should look first.', thought: true });
    await add('clerk', { text: 'I read your mail.' });
    await add('clerk', { functionCall: { id: 'r', name: 'read_mail', args: { id: 17 } } });
    await add('clerk', { functionResponse: { id: 'r', name: 'read_mail', response } });
    const args = { originalFunctionCall: { id: 'd', name: 'delete_account', args: { user: 'ada' } } };
    const functionCall = { id: 'q', name: 'adk_request_confirmation', args };
    const timestamp = Date.now() - 7_200_000;
    await add('clerk', { functionCall }, { timestamp, longRunningToolIds: ['q'] });
    await add('clerk', { text: 'Please approve it.' });
    const site = await served.studio({ allowChanges: true });
    const path = query('/answer', { app: 'asking', user: 'ada', session: 'mail', at: 6, call: 'q' });
    const asked = await site.get(path);
    expect(shown(asked)).toMatch(
      /delete_account \( user: "ada" \)\? Asked by clerk at [\d-]+ [\d:]+ UTC in A deletion by mail asking \/ ada waits 2 h to be answered by whoever may approve it Before it Read all user Delete my account\. clerk I read your mail\. clerk read_mail \( id: 17 \) clerk read_mail ✗ The mail is unsigned\. Note/,
    );
    const exactly = new Date(timestamp).toISOString().slice(0, 19).replace('T', ' ');
    expect(shown(asked)).toContain(`Asked by clerk at ${exactly} UTC in`);
    expect(shown(asked)).not.toContain('I should look first');

    const approve = async (of: Site) => {
      const form = await of.get(path);
      const [cookie = ''] = (form.headers['set-cookie']?.[0] ?? '').split(';');
      const [, token = ''] = /name="token" value="([^"]*)"/.exec(form.body) ?? [];
      const sent = { token, confirm: 'approve', note: 'She called.' };
      return of.get(path, { form: sent, headers: { cookie, origin: of.origin } });
    };
    expect((await approve(site)).headers.location).toBe(path);
    expect(shown(await site.get(path))).toMatch(
      /Answered delete_account .* Asked by clerk at [\d-]+ [\d:]+ UTC in .* ada Approved just now note: "She called\." #8 The answer is stored, and the agent has not continued yet\. The agent continues when your application runs this session next\. /,
    );
    const telling = await served.studio({ allowChanges: true, onAnswer: () => undefined });
    expect(shown(await telling.get(path))).toContain('Your application learns of it at once, and can run the agent.');
    const lease = await new SessionLeases(served.orm.em).acquire(key, { holder: 'worker 7' });
    expect(shown(await site.get(path))).toContain('The agent runs now: worker 7 holds the session.');
    await lease.release();
    await add('clerk', { text: 'It is deleted.' });
    expect(shown(await site.get(path))).toContain('The agent has continued: event #9 .');
    expect((await (await served.studio()).get(path)).status).toBe(403);
    await service.deleteSession(key);
  });

  test('a session lists the calls that its bar counts, wherever their events are', async () => {
    const key = { appName: 'flow', userId: 'ada', sessionId: 's' };
    const session = await served.service.createSession(key);
    const ask = (id: string) =>
      createEvent({
        ...{ author: 'agent', longRunningToolIds: [id], nodeInfo: { path: 'flow' } },
        content: { parts: [{ functionCall: { id, name: 'adk_request_input', args: { message: `${id}?` } } }] },
      });
    const said = Array.from({ length: 40 }, () =>
      createEvent({ author: 'agent', content: { parts: [{ text: 'hm' }] } }),
    );
    const blue = createEvent({ author: 'user', content: { parts: [{ text: 'blue' }] } });
    await served.service.appendEvents({ session, events: [ask('c1'), ...said, ask('c2'), blue] });
    const shownSession = await site.get(query('/session', { app: 'flow', user: 'ada', session: 's' }));
    expect(shown(shownSession)).toMatch(/ 2 waiting .*Waits for an answer c1\? #1 waits .* c2\? #42 waits /);
    expect(linksOf(shownSession, '/session?').filter((link) => /at=(1|42)#/.test(link))).toContain(
      `${query('/session', { app: 'flow', user: 'ada', session: 's', at: 1 })}#e1`,
    );
  });

  test('the first page says what waits, runs and has failed in all apps, and what they did within a day', async () => {
    const own = await open(name);
    const { service, orm } = own;
    const site = await own.studio({ allowChanges: true });
    const say = async (key: SessionKey, event: Parameters<typeof createEvent>[0]) => {
      const session = (await service.getSession(key)) ?? (await service.createSession(key));
      await service.appendEvent({ session, event: createEvent({ author: 'agent', ...event }) });
    };
    const call = (id: string, tool: string) => ({ parts: [{ functionCall: { id, name: tool, args: { id } } }] });
    const answer = (response: Record<string, unknown>) => ({
      parts: [{ functionResponse: { id: 'f', name: 'fetch_page', response } }],
    });
    const key = (appName: string, sessionId: string) => ({ appName, userId: 'ada', sessionId });
    // The clock of the event decides what is the oldest question.
    const later = { timestamp: Date.now(), longRunningToolIds: ['young'] };
    await say(key('one', 'a'), { content: call('young', 'ask_one'), ...later });
    const earlier = { timestamp: Date.now() - 7_200_000, longRunningToolIds: ['old'] };
    await say(key('two', 'b'), { content: call('old', 'ask_two'), ...earlier });
    await service.describeSession(key('two', 'b'), { title: 'A title' });
    await say(key('two', 'run'), { author: 'user', content: { parts: [{ text: 'go' }] } });
    const usageMetadata = { promptTokenCount: 1_200, candidatesTokenCount: 34, totalTokenCount: 1_234 };
    await say(key('two', 'run'), { content: call('r', 'search'), usageMetadata });
    const lease = await new SessionLeases(orm.em).acquire(key('two', 'run'), { holder: 'worker 7' });
    await say(key('one', 'fails'), { content: call('f', 'fetch_page') });
    for (const response of [
      { error: null },
      { error: '' },
      { error: 'No route' },
      { isError: true, message: 'Locked' },
    ])
      await say(key('one', 'fails'), { content: answer(response) });

    const first = await site.get('/');
    const text = shown(first);
    expect(text).toMatch(
      /Waits for a person 2 .* To be answered by a person or a service, with the result\. .* ask_two \( id: "old" \) A title two \/ ada \/ b 2 h Answer ask_one \( id: "young" \) a one \/ ada [\d.]+ m?s Answer Runs 1 .* Failed in/,
    );
    expect(text).toMatch(
      /Runs 1 .* run two \/ ada Why Time search id: "r" [\d.]+ m?s in a turn of [\d.]+ m?s held by worker 7/,
    );
    const running = shown(await site.get(query('/time', { app: 'two', user: 'ada', session: 'run' })));
    expect(running).toMatch(
      /run ada held by worker 7 for [\d.]+ m?s search [\d.]+ m?s in a turn of [\d.]+ m?s 1,200 tokens in/,
    );
    expect(text).toMatch(
      /Failed in 24 hours 2 in 1 session .* tool fetch_page id: "f" – Locked newest of 2 fails one \/ ada/,
    );
    expect(text).toMatch(
      /Apps 24 hours: 1,200 tokens in, 34 out .* Tokens of 24 hours .* one .* 6 .* two .* 3 1,200 tokens in, 34 out/,
    );
    expect(new Set(linksOf(first, '/answer')).size).toBe(2);
    // Each number leads to what it counts. Names, the length of a day and the heading of its column are none.
    const unlinked = first.body.replace(/<a [^>]*>.*?<\/a>|<bdi>.*?<\/bdi>|<svg.*?<\/svg>|24 hours/gs, '');
    expect(shown({ ...first, body: unlinked })).not.toMatch(/\d/);
    // The largest of them all, with its size, events and tokens.
    expect(text).toMatch(
      /Largest session 1\.\d kB fails .* Largest sessions .* fails one \/ ada 1\.\d kB 5 0 .* run two \/ ada \d+ bytes 2 1,234 /,
    );
    // Who may not answer here learns how to.
    const reader = await own.studio();
    expect(shown(await reader.get('/'))).toMatch(
      /ask_one .* To answer, use npx adk-mikro-orm answer , as each call's session shows/,
    );
    expect(shown(await reader.get(query('/session', { app: 'two', user: 'ada', session: 'b' })))).toMatch(
      /Waits for an answer ask_two \( id: "old" \) #1 waits 2 h , to be answered by a person or a service, with the result npx adk-mikro-orm answer two ada b old '\{"answer":"…"\}'/,
    );
    const waits = await site.get('/?all=waits');
    expect(shown(waits)).toMatch(
      /Now Find a session Search Waits for a person 2 .* ask_two .* ask_one .* All that happens now $/,
    );
    const [runs, waiting, failed] = ['/?all=runs', '/?all=waits', '/?all=failed'];
    expect(linksOf(first, '/?all=')).toEqual([waiting, waiting, runs, failed, failed, waiting, runs, failed]);
    // What was counted is not read again; what came since is added.
    await say(key('one', 'fails'), { errorCode: 'MODEL_OVERLOADED', errorMessage: 'Try later.' });
    expect(shown(await site.get('/'))).toMatch(
      /Failed in 24 hours 3 in 1 session .* model of agent MODEL_OVERLOADED: Try later\. .* tool fetch_page id: "f" – Locked newest of 2/,
    );
    const limited = await own.studio({ authorize: () => ({ appName: 'two' }) });
    expect(shown(await limited.get('/'))).not.toMatch(/ask_one|fetch_page|Try later/);
    const bobs = await own.studio({ authorize: () => ({ userId: 'bob' }) });
    expect(shown(await bobs.get('/'))).not.toMatch(/ask_|fetch_page|worker|tokens/);
    await lease.release();
  });

  test('lists the newest answers of the sessions that were updated last, each with why it was given', async () => {
    const own = await open(name);
    const { service } = own;
    let begin = Date.now() - 3_600_000;
    const add = async (key: SessionKey, ...events: Parameters<typeof createEvent>[0][]) => {
      const session = await service.createSession(key);
      await service.appendEvents({
        session,
        events: events.map((each) => createEvent({ author: 'clerk', timestamp: begin++, ...each })),
      });
    };
    const key = (appName: string, sessionId: string, userId = 'ada') => ({ appName, userId, sessionId });
    const text = (said: string, more: object = {}) => ({ content: { parts: [{ text: said, ...more }] } });
    for (let i = 0; i < 7; i++) await add(key(`app${i}`, `old${i}`), text(`Old ${i}.`));
    await add(key('app0', 'asked'), { author: 'user', ...text('Nobody has answered.') });
    await add(key('app1', 'called'), {
      content: { parts: [{ functionCall: { id: 'c', name: 'look', args: { at: 7 } } }] },
    });
    await add(key('app0', 'failed', 'bob'), { errorCode: '429', errorMessage: 'Slowly!' });
    await add(
      key('app0', 'said', 'bob'),
      text('The first.'),
      { content: { parts: [{ functionCall: { id: 'f', name: 'look_up', args: { order: 17 } } }] } },
      { content: { parts: [{ functionResponse: { id: 'f', name: 'look_up', response: { found: 'x'.repeat(99) } } }] } },
      {
        ...text('So it is. '.repeat(20)),
        ...{ modelVersion: 'gemini-x', finishReason: 'STOP' as never, usageMetadata: { promptTokenCount: 9 } },
      },
      text('Hm.', { thought: true }),
    );
    await add(key('app0', 'deleted'), text('It is gone.'));
    await service.deleteSession(key('app0', 'deleted'));
    await own.orm.em.getConnection().execute('update adk_events set append_time = timestamp + 60000 * seq');
    const reads = jest.spyOn(MikroOrmSessionService.prototype, 'readEvents');
    const latest = async (scope: object) => {
      const page = await (await own.studio({ authorize: () => scope })).get('/');
      const [block = ''] = /<section class="block" id="latest">.*?<\/section>/s.exec(page.body) ?? [];
      const body = { ...page, body: `<main>${block}</main>` };
      return { text: shown(body), links: linksOf(body, '/session?') };
    };
    const all = await latest({});
    // Only as many events are read as say it.
    expect(reads.mock.calls.every(([, request]) => (request?.limit ?? Infinity) <= 10)).toBe(true);
    reads.mockRestore();
    expect(all.text).toMatch(
      / Latest What .* (So it is\. ){8}… Why gemini-x · STOP · 9 tokens in, 0 out · after 1 answer of look_up said app0 \/ bob [\w ]+ ago Why .* calls look \( at: 7 \) Why model not recorded called app1 \/ ada /,
    );
    expect(all.text).toMatch(
      / 429: Slowly! Why model not recorded failed app0 \/ bob .* Old 6\. Why model not recorded old6 app6 .* Old 5\. Why model not recorded old5 /,
    );
    expect(all.text).not.toMatch(/Nobody|gone|Old 4|Hm\./);
    const at = query('/session', { app: 'app0', user: 'bob', session: 'said', at: 4 });
    expect(all.links.filter((link) => link.startsWith(`${at}#e4`))).toHaveLength(3);
    expect((await latest({ userId: 'bob' })).text).not.toMatch(/calls look|Old/);
    expect((await latest({ appName: 'app6' })).text).toMatch(/^ Latest What Session When Why Old 6\. [^.]*$/);
    expect((await latest({ userId: 'nobody' })).links).toEqual([]);

    // A search says the same of the first sessions that it finds.
    const site = await own.studio();
    const found = await site.get('/sessions?find=bob');
    expect(shown(found)).toMatch(
      / said (So it is\. ){8}… Why gemini-x · STOP · 9 tokens in, 0 out · after 1 answer of look_up look_up \( order: 17 \) → \{"found":"x{70}… app0 bob 5 .* failed 429: Slowly! Why model not recorded app0 bob /,
    );
    expect(shown(await site.get('/sessions?app=app0&q=so+it'))).toMatch(/ said So it is\. .* Why gemini-x/);
    const searching = jest.spyOn(MikroOrmSessionService.prototype, 'readEvents');
    const old = shown(await site.get('/sessions?find=old'));
    expect(searching.mock.calls.map(([, request]) => request?.limit)).toEqual(Array(6).fill(8));
    expect(old.match(/Old \d\. Why model not recorded/g)).toHaveLength(6);
    const listed = shown(await site.get('/sessions?app=app0&find='));
    expect(searching).toHaveBeenCalledTimes(6);
    searching.mockRestore();
    expect(listed).not.toMatch(/So it is|Why model/);
    const args = { originalFunctionCall: { id: 'd', name: 'delete_account', args: { of: 'bob' } } };
    const functionCall = { id: 'q', name: 'adk_request_confirmation', args };
    await add(key('app0', 'asks'), { content: { parts: [{ functionCall }] }, longRunningToolIds: ['q'] });
    expect(shown(await site.get('/sessions?app=app0&find=asks'))).toMatch(
      / asks 1 waiting delete_account \( of: "bob" \)\? Why /,
    );
  });

  test('rows of sessions lead to why they answered so, where their time went, and branches that were counted', async () => {
    const own = await open(name);
    const key = { appName: 'one', userId: 'ada', sessionId: 'fan' };
    const of = { app: 'one', user: 'ada', session: 'fan' };
    const session = await own.service.createSession(key);
    const events = ['a', 'b'].map((branch) => createEvent({ author: branch, branch: `fan.${branch}` }));
    await own.service.appendEvents({ session, events });
    const lease = await new SessionLeases(own.orm.em).acquire(key, { holder: 'worker 7' });
    const site = await own.studio();
    const toBranches = `${query('/time', of)}#branches`;
    const before = await site.get('/sessions');
    expect(shown(before)).toMatch(/ Go to fan one ada 2 \S+ bytes [\w ]+ Why Time $/);
    expect(linksOf(before, '/time')).toEqual([query('/time', of)]);
    // The first page counts the branches of the largest sessions; then they are known.
    await site.get('/');
    const first = await site.get('/');
    expect(shown(first)).toMatch(
      / fan one \/ ada Why Time 2 branches .* held by worker 7 .* Largest sessions .* fan one \/ ada .* Why Time 2 branches /,
    );
    const reads = jest.spyOn(Reading.prototype, 'used');
    const list = await site.get('/sessions');
    expect(reads).not.toHaveBeenCalled();
    reads.mockRestore();
    expect(linksOf(list, '/time')).toEqual([query('/time', of), toBranches]);
    expect(new Set(linksOf(list, '/session?'))).toEqual(new Set([query('/session', of)]));
    await lease.release();
  });

  test('counts what came before an import of old events, and events with a stamp in the future when that has come', async () => {
    const own = await open(name);
    const { service, orm } = own;
    const day = 86_400_000;
    const used = (tokens: number, timestamp = Date.now()) =>
      createEvent({ author: 'agent', timestamp, usageMetadata: { candidatesTokenCount: tokens } });
    const old = await service.createSession({ appName: 'one', userId: 'old', sessionId: 'old' });
    const events = Array.from({ length: 300 }, () => used(1, Date.now() - 40 * day));
    await service.appendEvents({ session: old, events });
    const maintenance = new SessionMaintenance(orm.em);
    const records: Record<string, unknown>[] = [];
    for await (const record of maintenance.exportSessions({ appName: 'one' }))
      records.push(record.type === 'event' ? { ...record, appendTime: Date.now() - 40 * day } : { ...record });
    await service.deleteSession({ appName: 'one', userId: 'old', sessionId: 'old' });
    const log = new EventLog(orm.em);
    const session = await service.createSession({ appName: 'one', userId: 'ada', sessionId: 'new' });
    const future = used(1_000, Date.now() + 2 * day);
    await service.appendEvents({ session, events: [future, ...Array.from({ length: 30 }, () => used(1))] });
    await log.head();
    await maintenance.importSessions(records as never);
    await log.head();
    // A fork keeps the times, too.
    await service.forkSession({ appName: 'one', userId: 'old', sessionId: 'old' });

    const site = await own.studio();
    expect(shown(await site.get('/'))).toMatch(/one .* 31 0 tokens in, 1,030 out/);
    const usage = shown(await site.get('/usage'));
    expect(usage).toMatch(/Output 30 /);
    expect(usage).toMatch(/Tokens a day .* ada: 30 ada/);
    const sorted = shown(await site.get('/sessions?app=one&order=tokens'));
    expect(sorted).toMatch(/new .*ada 31 \S+ kB 30 0/);
  });

  test('counts what was stored long after it happened when it happened', async () => {
    const own = await open(name);
    const { service } = own;
    const hour = 3_600_000;
    const session = await service.createSession({ appName: 'one', userId: 'ada', sessionId: 's' });
    const events = [3, 30, 0].map((hours) =>
      createEvent({
        ...{ author: `clerk ${hours}`, timestamp: Date.now() - hours * hour, errorCode: 'E', errorMessage: 'No.' },
        usageMetadata: { promptTokenCount: 10 ** hours },
      }),
    );
    // As a host does that copies its history.
    await service.appendEvents({ session, events });
    expect(shown(await (await own.studio()).get('/'))).toMatch(
      /Failed in 24 hours 2 in 1 session .* clerk 0 E: No\. .* clerk 3 E: No\. s one \/ ada 3 hours ago Latest What .* Apps 24 hours: 1,001 tokens in/,
    );
  });

  test('counts all of a day, though nobody had read the log before', async () => {
    const own = await open(name);
    const day = 86_400_000;
    for (let i = 0; i < 150; i++) {
      const timestamp = Date.now() - (i % 3) * day;
      const events = [1, 2, 3, 4].map(() =>
        createEvent({ author: 'agent', timestamp, usageMetadata: { promptTokenCount: 1 } }),
      );
      const session = await own.service.createSession({ appName: 'one', userId: 'ada', sessionId: `s${i}` });
      await own.service.appendEvents({ session, events });
    }
    await own.orm.em.getConnection().execute('update adk_events set append_time = timestamp');
    const site = await own.studio();
    expect(shown(await site.get('/'))).toMatch(/ Apps 24 hours: 200 tokens in/);
    expect(shown(await site.get('/usage'))).toMatch(/ Input 600 /);
  });

  test('says why something failed beside events that cannot be read', async () => {
    const own = await open(name);
    const session = await own.service.createSession({ appName: 'one', userId: 'ada', sessionId: 's' });
    const parts = [
      { functionCall: { id: 'c', name: 'find_order', args: { order: 17 } } },
      { text: 'waits' },
      { functionResponse: { id: 'c', name: 'find_order', response: { error: 'No route' } } },
      { text: 'sorry' },
    ];
    const events = parts.map((part) => createEvent({ author: 'clerk', content: { parts: [part] } }));
    await own.service.appendEvents({ session, events });
    await own.orm.em.getConnection().execute("update adk_events set data = '[]' where seq in (2, 4)");
    const site = await own.studio();
    expect(shown(await site.get('/'))).toMatch(/ 1 in 1 session .* find_order order: 17 – No route s one/);
    await own.orm.em.getConnection().execute("update adk_events set data = '[]' where seq = 1");
    expect(shown(await site.get('/'))).toMatch(/ 1 in 1 session .* find_order No route s one/);
  });

  test('lists each failure by itself, of all sessions or of one tool in one, with its own arguments, reason and time', async () => {
    const own = await open(name);
    const { service } = own;
    const key = (userId: string) => ({ appName: 'one', userId, sessionId: 's' });
    let begin = Date.now() - 60_000;
    const add = async (userId: string, ...events: Parameters<typeof createEvent>[0][]) => {
      const session = (await service.getSession(key(userId))) ?? (await service.createSession(key(userId)));
      const made = events.map((each) => createEvent({ author: 'clerk', timestamp: (begin += 1_000), ...each }));
      await service.appendEvents({ session, events: made });
    };
    const called = (tool: string, ...orders: number[]) => [
      {
        content: { parts: orders.map((order) => ({ functionCall: { id: `${order}`, name: tool, args: { order } } })) },
      },
      {
        content: {
          parts: orders.map((order) => {
            const response = { error: `No route to ${order}` };
            return { functionResponse: { id: `${order}`, name: tool, response } };
          }),
        },
      },
    ];
    await add('ada', ...called('find_order', 17), ...called('find_order', 18, 19), ...called('pay', 20));
    await add('bob', ...called('find_order', 21), { errorCode: '429', errorMessage: 'Slowly!' });
    await own.orm.em.getConnection().execute('update adk_events set append_time = timestamp');
    const site = await own.studio();
    const first = await site.get('/');
    expect(shown(first)).toMatch(
      / Failed in 24 hours 6 in 2 sessions .* order: 21 – No route to 21 s one \/ bob .* order: 20 – No route to 20 s one \/ ada .* order: 19 – No route to 19 newest of 3 s/,
    );
    expect(shown(await site.get('/?all=failed'))).toMatch(
      / 6 in 2 sessions What Session When \(UTC\) model of clerk 429: Slowly! s one \/ bob [\d-]+ [\d:]+ tool find_order order: 21 – No route to 21 s one \/ bob .* pay order: 20 – .* order: 19 – No route to 19 s .* order: 18 – No route to 18 s .* order: 17 – No route to 17 s one \/ ada [\d-]+ [\d:]+ All/,
    );
    const group = { ...key('ada'), all: 'failed', kind: 'tool', what: 'find_order' };
    const path = (more: object = {}) => {
      const { appName: app, userId: user, sessionId: session, ...others } = { ...group, ...more };
      return query('/', { app, user, session, ...others });
    };
    const [link = ''] = linksOf(first, '/?app=');
    expect(link).toBe(path());
    const ofGroup = shown(await site.get(link));
    expect(ofGroup).toMatch(/ 3 in 1 session Only find_order in s Show all What .* 19 – .* 18 – .* 17 – /);
    expect(ofGroup).not.toMatch(/pay|bob/);
    expect(shown(await site.get(path({ ...key('bob'), kind: 'model', what: 'clerk' })))).toMatch(
      / 1 in 1 session Only clerk .* 429: Slowly! s one \/ bob/,
    );
    expect(shown(await site.get(path({ what: 'moon' })))).toMatch(/ 0 Only moon .* No tool and no model has failed/);
    expect((await site.get(path({ kind: 'moon' }))).status).toBe(400);
    for (const part of ['/?all=failed&kind=tool', '/?all=failed&session=s', '/?all=failed&what=pay'])
      expect([part, (await site.get(part)).status]).toEqual([part, 400]);
    expect((await site.get('/?all=failed&kind=tool&what=pay')).status).toBe(404);
    const bobs = await own.studio({ authorize: () => ({ userId: 'bob' }) });
    expect((await bobs.get(path())).status).toBe(404);
    expect(shown(await bobs.get('/?all=failed'))).not.toMatch(/ada|No route to (1|20)/);
    // With long ids fewer rows are shown.
    const session = await service.createSession({ ...key('語'.repeat(60)), sessionId: '語'.repeat(60) });
    const errorMessage = '<'.repeat(160);
    const events = Array.from({ length: 200 }, () => createEvent({ author: 'clerk', errorCode: '<', errorMessage }));
    await service.appendEvents({ session, events });
    const large = await site.get('/?all=failed');
    expect(Buffer.byteLength(large.body)).toBeLessThan(300_000);
    expect(shown(large)).toMatch(/ 206 or more in 3 sessions The newest \d\d\. /);
  });

  test('failures of one user hide those of no other, and end with their events', async () => {
    const own = await open(name);
    const { service, orm } = own;
    const fail = async (userId: string, times: number, errorMessage: string) => {
      const session = await service.createSession({ appName: 'one', userId });
      const events = Array.from({ length: times }, () => createEvent({ author: userId, errorCode: 'E', errorMessage }));
      await service.appendEvents({ session, events });
    };
    await fail('ada', 1, 'Ada has lost her lamp.');
    await fail('bob', 201, 'Bob has lost his lamp.');
    const site = await own.studio();
    expect(shown(await site.get('/'))).toMatch(
      /Failed in 24 hours 201 or more in 2 sessions .* bob E: Bob has .* newest of 200 .* ada E: Ada has lost her lamp/,
    );
    const all = await site.get('/?all=failed');
    expect(shown(all)).toMatch(/ The newest 200\. .* bob E: Bob /);
    expect(shown(all).match(/E: Bob/g)).toHaveLength(200);
    const adas = await own.studio({ authorize: () => ({ userId: 'ada' }) });
    expect(shown(await adas.get('/'))).toMatch(/Failed in 24 hours 1 in 1 session .* ada E: Ada has lost her lamp/);
    expect(shown(await site.get('/usage?by=user'))).toMatch(/bob one .* ada one/);
    await new SessionMaintenance(orm.em).eraseUser({ userId: 'bob' });
    expect(shown(await site.get('/'))).not.toMatch(/bob/i);
    expect(shown(await site.get('/usage?by=user'))).toMatch(/a user without sessions .* ada one/);
    expect(shown(await site.get('/usage?by=user'))).not.toMatch(/bob/i);
  });

  test('says what was used, by app, user, model, agent and day, what it costs, and of which models that is unknown', async () => {
    const own = await open(name);
    const { service } = own;
    const use = async (
      userId: string,
      author: string,
      modelVersion: string,
      prompt: number,
      days = 0,
      appName = 'shop',
    ) => {
      const usageMetadata = {
        promptTokenCount: prompt,
        cachedContentTokenCount: 500_000,
        candidatesTokenCount: 7,
        thoughtsTokenCount: 3,
      };
      const timestamp = Date.now() - days * 86_400_000;
      const key = { appName, userId, sessionId: userId };
      const session = (await service.getSession(key)) ?? (await service.createSession(key));
      await service.appendEvent({ session, event: createEvent({ author, modelVersion, timestamp, usageMetadata }) });
    };
    await use('ada', 'clerk', 'costly-001', 1_500_000);
    await use('ada', 'clerk', 'costly-001', 1_500_000, 2);
    await use('bob', 'helper', 'new', 500_000);
    await use('bob', 'helper', 'new', 500_000, 40);
    const prices = { costly: { input: 2, cached: 1, output: 1_000 } };
    const site = await own.studio({ prices });
    const text = async (at: string) => shown(await site.get(at));
    const sum = 'Cost of 30 days 5.02 without new Input 3,500,000 1,500,000 cached Output 21 Thoughts 9';
    expect(await text('/usage')).toContain(sum);
    expect(await text('/usage?by=app')).toMatch(
      /Cost a day, without new .* 2\.51 .* Tokens a day .* shop 3,500,000 1,500,000 21 9 100 %/,
    );
    expect(await text('/usage?by=user')).toMatch(
      /ada shop 3,000,000 .* 5\.02 bob shop 500,000 .* 0\.00 without new Total 3,500,000 1,500,000 21 9 100 % 0 (?!–).* 5\.02 without new/,
    );
    expect(await text('/usage?by=model')).toMatch(/costly-001 .* 5\.02 new .* without new/);
    const monthAndDay = String.raw`\d\d-\d\d`;
    // The first screen has users and days.
    expect(await text('/usage')).toMatch(
      new RegExp(
        `Cost by user and day User App Cost of 30 days Today (${monthAndDay} ){6}Earlier ada shop 5\\.02 2\\.51 – 2\\.51 –.* bob shop 0\\.00 0\\.00 – .* Total 5\\.02 2\\.51 – 2\\.51`,
      ),
    );
    expect(shown(await (await own.studio()).get('/usage'))).toMatch(
      /Tokens by user and day User App Tokens of 30 days Today .* ada shop 3,000,020 1,500,010 – 1,500,010 – .* Total 3,500,030 2,000,020/,
    );
    expect(await text('/')).toMatch(/Cost today, by user and day 2\.51 2,000,020 tokens, without new/);
    expect(linksOf(await site.get('/'), '/usage').filter((href) => !href.includes('?')).length).toBeGreaterThan(2);
    expect(await text('/usage?by=agent')).toMatch(/clerk .* helper /);
    expect(linksOf(await site.get('/usage?by=day'), '/sessions?app=shop&from=')).toHaveLength(2);
    expect(await text('/')).toMatch(
      /Apps 24 hours: 2,000,000 tokens in .* cost 2\.51, without new .* Tokens and cost of 24 hours /,
    );
    // What came since is added; what was counted is not read again.
    await use('bob', 'helper', 'costly', 1_000_000);
    expect(await text('/usage?by=user&app=shop&user=bob')).toMatch(
      /Usage of bob in shop .* Cost of 30 days 1\.51 without new/,
    );
    const unpriced = await own.studio({ prices: { other: { input: 1, output: 1 } } });
    expect(shown(await unpriced.get('/usage'))).toMatch(/^ Usage of all apps (?!.*Cost a day).*Tokens a day/);
    const limited = await own.studio({ prices, authorize: () => ({ userId: 'ada' }) });
    expect(shown(await limited.get('/usage?by=user'))).not.toMatch(/bob|new/);
    expect((await limited.get('/usage?user=bob')).status).toBe(404);
    expect((await site.get('/usage?by=moon')).status).toBe(400);
    // A user of several apps is one row, with the name as long as there are sessions in one of them.
    const chart = async () => (await text('/usage?by=user')).split('Tokens a day')[1];
    await use('bob', 'helper', 'new', 1, 0, 'zoo');
    expect(await chart()).toMatch(/ ada shop .* bob 2 apps 1,500,001 .* Total 4,500,001/);
    expect(await text('/usage?by=app&user=bob')).toMatch(/Usage of bob in all apps .* shop 1,500,000 .* zoo 1 /);
    expect(await text('/usage?by=user&app=zoo')).toMatch(/ bob zoo 1 /);
    await service.deleteSession({ appName: 'shop', userId: 'bob', sessionId: 'bob' });
    expect(await chart()).toMatch(/ bob: .* bob 2 apps/);
    expect(await text('/usage?by=user&app=shop')).toMatch(/ a user without sessions shop/);
    expect(await text('/usage?by=user&app=shop')).not.toContain('bob');
    await service.deleteSession({ appName: 'zoo', userId: 'bob', sessionId: 'bob' });
    expect(await chart()).not.toContain('bob');
    await own.orm.em.getConnection().execute("update adk_events set data = '[]' where session_id = 'ada' and seq = 1");
    const usageFor = async (userId: string) =>
      shown(await (await own.studio({ authorize: () => ({ userId }) })).get('/usage'));
    expect(await usageFor('ada')).toMatch(/Not counted: 1 event that cannot be read\. .* Input 1,500,000 /);
    expect(await usageFor('bob')).not.toContain('Not counted');
  });

  testOfPages('the first page is smaller than 100 kB, and each of a session of 2,005 events than 150 kB', async () => {
    const own = await open(name);
    const release = await fill(own.orm);
    const site = await own.studio({ allowChanges: true, prices: { 'gemini-x': { input: 1, output: 10 } } });
    const of = { app: LONGEST.appName, user: LONGEST.userId, session: LONGEST.sessionId };
    const sizes: Record<string, number> = {};
    for (const path of ['/', ...['/session', '/time', '/state'].map((each) => query(each, of))])
      sizes[path] = Buffer.byteLength((await site.get(path)).body);
    const { '/': first, ...others } = sizes;
    expect(first).toBeLessThan(100_000);
    expect(Object.values(others).filter((bytes) => bytes >= 150_000)).toEqual([]);
    // A tool takes as long here as in the waterfall, though all of them were stored within seconds.
    expect(shown(await site.get(query('/session', of)))).toMatch(/2,005 events .* page: 1001 ✓ 700 ms #2005/);
    await release();
  });

  testOfPages('the first page waits neither for what is counted nor for what is measured, and says so', async () => {
    const own = await open(name);
    await tellStory(own.service);
    const site = await own.studio();
    const never = new Promise<never>(() => undefined);
    const counting = [
      jest.spyOn(Recent.prototype, 'update').mockReturnValue(never),
      jest.spyOn(Reading.prototype, 'sizes').mockReturnValue(never),
      jest.spyOn(Reading.prototype, 'newestEvents').mockReturnValue(never),
    ];
    const now = await site.first('/');
    const priced = await own.studio({ prices: { x: { input: 1, output: 1 } } });
    const usage = await priced.first('/usage');
    for (const each of counting) each.mockRestore();
    expect([isCounting(now), isCounting(usage)]).toEqual([true, true]);
    expect(shown(now)).toMatch(
      /Failed in 24 hours … Tokens today, by user and day … Largest session … Still counting the last 24 hours: these numbers grow\. Waits for a person 1 .* ask_approval/,
    );
    expect(shown(now)).not.toMatch(/has failed|Latest What/);
    expect(shown(usage)).toMatch(
      /the numbers still grow\. Cost of 30 days … Input … Output … Thoughts … Calls of tools … .* Counting …/,
    );
    expect(shown(await priced.get('/usage'))).toMatch(/ Cost of 30 days 0\.00 without unnamed models Input 1,380 /);
    const counted = await (await own.studio()).get('/');
    expect(shown(counted)).not.toContain('Still counting');
    expect(shown(counted)).toContain('Latest What');
    expect(counted.body).toContain('data-refresh="30"');
  });

  testOfPages('counts the tokens of the largest sessions in pieces, so that the first page does not wait', async () => {
    const own = await open(name);
    const session = await own.service.createSession({ appName: 'one', userId: 'ada', sessionId: 's' });
    const usageMetadata = { promptTokenCount: 1 };
    for (const count of [1_500, 1_501]) {
      const events = Array.from({ length: count }, () => createEvent({ author: 'agent', usageMetadata }));
      await own.service.appendEvents({ session, events });
    }
    const reading = new Reading(own.orm.em, {});
    const key = { appName: 'one', userId: 'ada', sessionId: 's' };
    const pieces = [await reading.used(key, 3_000), await reading.used(key, 3_000)];
    expect(pieces.map(({ isWhole, read }) => [isWhole, read])).toEqual([
      [false, 3_000],
      [true, 1],
    ]);
    const site = await own.studio();
    await site.get('/');
    expect(shown(await site.get('/'))).toMatch(/ s one \/ ada ≈ [\d.]+ kB 3,001 3,001 /);
  });

  testOfPages(
    'the time of 2,000 events is smaller than 150 kB, in one turn or in many, and says what waits',
    async () => {
      const { service } = served;
      const worked = (i: number, perTurn: number) => {
        const of = { author: `worker ${i % 3}`, branch: `fan.${i % 3}`, invocationId: 'i' };
        const part = { id: `c${i}`, name: 'translate_a_page_of_the_handbook' };
        return [
          ...(i % perTurn === 0
            ? [createEvent({ author: 'user', content: { parts: [{ text: `Turn ${i}`.repeat(9) }] } })]
            : []),
          createEvent({ ...of, content: { parts: [{ functionCall: { ...part, args: {} } }] } }),
          createEvent({
            ...of,
            content: { parts: [{ functionResponse: { ...part, response: { success: i % 9 > 0 } } }] },
          }),
        ];
      };
      for (const [sessionId, perTurn] of [
        ['one turn', 1_000],
        ['many turns', 4],
      ] as const) {
        const session = await service.createSession({ ...KEY, sessionId });
        const events = Array.from({ length: 1_000 }, (_, i) => worked(i, perTurn)).flat();
        for (let i = 0; i < events.length; i += 500)
          await service.appendEvents({ session, events: events.slice(i, i + 500) });
        const { status, body } = await site.get(query('/time', { ...OF_STORY, session: sessionId }));
        expect([status, Buffer.byteLength(body) < 150_000]).toEqual([200, true]);
        const text = shown({ status, body, headers: {} });
        expect(text).toMatch(
          perTurn === 4
            ? /in these \d+ turns\. The longest turn took .*Turn 996.* translate_a_page_of_the_handbook \d+ % [\d.]+ \w+ in 4/
            : /translate_a_page_of_the_handbook \d+ % [\d.]+ \w+ in 1,000 .* UTC [\d.]+ \w+ 112 failed/,
        );
        if (perTurn === 1_000) {
          const [, ...parts] = text.match(/ ([\d,]+) of 2,000 blocks as a list .* The other ([\d,]+) in the/)!;
          expect(parts.reduce((sum, part) => sum + Number(part.replace(',', '')), 0)).toBe(2_000);
          const [last = ''] = linksOf({ status, body, headers: {} }, '/session?').filter((href) =>
            /session=[^&]*&after=/.test(href),
          );
          const [first = 0] = eventsOf(await site.get(last));
          const listed = [...text.matchAll(/#(\d+) worker/g)].map(([, seq]) => Number(seq));
          // The list may end between a model and its tool.
          expect([first, first - 2]).toContain(listed.at(-1));
        }
        await service.deleteSession({ ...KEY, sessionId });
      }
      const story = shown(await site.get(query('/time', OF_STORY)));
      expect(story).toMatch(
        /Refund of order 17 ada 1 waiting 1,380 tokens in \(1,024 cached\), 32 out 1 branch Talk Time State Files/,
      );
      expect(story).toMatch(/Thank you, I can wait\. [\d-]+ [\d:]+ UTC no answer Hello/);
      expect(story).toMatch(/#8 concierge, ask_approval … [\d.]+ \w+/);
      expect(story).toMatch(/waits failed not recorded/);
      expect(story).toMatch(/5 model requests not recorded, .*#5 orders, charge_back ✗ [\d.]+ \w+ #6/);
    },
  );

  test('says where a fork comes from, and to whom the session of a tool belongs', async () => {
    const { service, orm } = served;
    const caller = { appName: 'caller', userId: 'ada', sessionId: 'asked' };
    const ofTool = { ...caller, appName: 'a tool' };
    const session = await service.createSession(caller);
    await service.appendEvent({ session, event: createEvent({ author: 'user' }) });
    await service.forkSession(caller, { at: 1, as: 'fork' });
    // The tool's session is the younger one.
    await service.createSession(ofTool);
    await orm.em.fork().nativeUpdate(AdkSession, { appName: 'caller', id: 'asked' }, { createTime: 1 });
    const pageOf = (key: SessionKey, at: Site = site) =>
      at.get(query('/session', { app: key.appName, user: key.userId, session: key.sessionId }));
    expect(shown(await pageOf({ ...caller, sessionId: 'fork' }))).toContain('forked from asked at #1');
    expect(shown(await site.get('/sessions?app=caller'))).toContain('fork of asked');
    expect(shown(await pageOf(caller))).toContain('tools: a tool');
    expect(shown(await pageOf(ofTool))).toContain('tool of caller');
    expect(linksOf(await pageOf(ofTool), '/session?app=caller')).toHaveLength(1);
    const limited = await served.studio({ authorize: () => ({ appName: 'caller' }) });
    expect(shown(await pageOf(caller, limited))).not.toContain('a tool');
    const named = await served.studio({ toolApps: ['another'] });
    expect(shown(await pageOf(caller, named))).not.toContain('a tool');
    for (const key of [caller, ofTool, { ...caller, sessionId: 'fork' }]) await service.deleteSession(key);
  });

  test('changes title and labels, deletes, restores, forks and rewinds where that is allowed', async () => {
    const changing = await served.studio({ allowChanges: true });
    const key = { ...KEY, sessionId: 'changed' };
    const session = await served.service.createSession(key);
    await served.service.appendEvents({
      session,
      events: [1, 2, 3].map((step) => {
        const event = createEvent({ author: 'agent' });
        event.actions.stateDelta['step'] = step;
        return event;
      }),
    });
    const of = { ...OF_STORY, session: 'changed' };
    const send = async (path: string, fields: Record<string, string>) => {
      const asked = await changing.get(query(path, of));
      const [cookie = ''] = (asked.headers['set-cookie']?.[0] ?? '').split(';');
      const [, token = ''] = /name="token" value="([^"]*)"/.exec(asked.body) ?? [];
      const form = { token, confirm: 'changed', ...fields };
      return changing.get(query(path, of), { form, headers: { cookie, origin: changing.origin } });
    };
    const row = (sessionId = 'changed') =>
      served.orm.em.fork().findOne(AdkSession, { appName: KEY.appName, id: sessionId });
    expect((await send('/describe', { title: 'New', labels: 'a=1\nb=2' })).status).toBe(303);
    expect(await row()).toMatchObject({ title: 'New', labels: { a: '1', b: '2' } });
    // A browser drops a line break at the beginning of a text area.
    expect((await changing.get(query('/describe', of))).body).toMatch(/<textarea[^>]*>\n?a=1\nb=2<\/textarea>/);
    expect((await send('/describe', { title: '', labels: 'nonsense' })).status).toBe(400);
    expect(await row()).toMatchObject({ title: 'New' });

    const forked = await send('/fork', { at: '2', as: 'forked' });
    expect(forked.headers.location).toBe(query('/session', { ...OF_STORY, session: 'forked' }));
    expect(await row('forked')).toMatchObject({ lastSeq: 2 });
    expect((await send('/fork', { at: '2', as: 'forked' })).status).toBe(409);
    // Without the confirmation nothing is done.
    expect((await send('/rewind', { at: '1', confirm: '' })).status).toBe(400);
    expect(await row()).toMatchObject({ lastSeq: 3 });
    expect((await send('/rewind', { at: '1' })).status).toBe(303);
    expect(await row()).toMatchObject({ lastSeq: 1 });
    expect(stateOf(await site.get(query('/session', of)))).toMatch(/step 1 #1/);

    expect((await send('/delete', {})).status).toBe(303);
    expect((await row())?.deletedAt).not.toBeNull();
    const deleted = await changing.get('/sessions?app=support&status=deleted');
    expect(linksOf(deleted, '/session?')).toContain(query('/session', of));
    expect(linksOf(await changing.get(query('/session', of)), '/restore')).toHaveLength(1);
    expect((await send('/restore', {})).status).toBe(303);
    expect((await row())?.deletedAt).toBeNull();
    expect(await served.orm.em.fork().count(AdkChange, { sessionId: 'changed', kind: 'restored' })).toBe(1);
  });
});
