import { createEvent } from '@google/adk';
import { spawnSync } from 'node:child_process';
import { AdkSession } from '../../../entities/index.js';
import { EventLog, adkServices } from '../../../src/index.js';
import { createStudio } from '../../../packages/studio/src/index.js';
import { listenerOf } from '../../../packages/http/src/listener.js';
import { tokenDoor } from '../../../packages/studio/src/token.js';
import { KEY, tellStory } from './conversation.js';
import { Served, linksOf, openerForTests, query, shown, type Answer } from './served.js';

const OF_STORY = { app: KEY.appName, user: KEY.userId, session: KEY.sessionId };
const STORY = query('/session', OF_STORY);

/** Every page about a session or a user. */
const OF_SESSION = [
  '/session',
  '/time',
  '/state',
  '/event',
  '/event.json',
  '/part',
  '/live',
  '/repair',
  '/files',
  '/file',
  '/memory',
];
const CHANGES = ['/describe', '/delete', '/restore', '/fork', '/rewind', '/forget'];

const open = openerForTests();
let served: Served;
beforeAll(async () => {
  served = await Served.open('sqlite');
  await tellStory(served.service);
  await served.service.createSession({ appName: 'support', userId: 'grace', sessionId: 'secret' });
  await served.service.createSession({ appName: 'travel', userId: 'ada', sessionId: 'secret' });
});
afterAll(() => served.close());

test('a name that leads here from another site is not answered, and neither is another site', async () => {
  const site = await served.studio();
  const status = async (headers: Record<string, string>) => (await site.get('/', { headers })).status;
  for (const host of ['evil.example', `evil.example:${site.port}`, '127.0.0.1.evil.example', '127.0.0.1@evil.example'])
    expect(await status({ host })).not.toBe(200);
  for (const host of ['localhost', `127.0.0.1:${site.port}`, '[::1]:80']) expect(await status({ host })).toBe(200);
  expect(await status({ origin: 'http://evil.example' })).toBe(403);
  expect(await status({ origin: 'null' })).toBe(403);
  expect(await status({ origin: site.origin })).toBe(200);
  const named = await served.studio({ hosts: ['studio.example'] });
  expect((await named.get('/', { headers: { host: 'studio.example' } })).status).toBe(200);
  expect((await named.get('/')).status).toBe(403);
});

test('every answer says what a browser may do with it', async () => {
  const site = await served.studio();
  const answers: Answer[] = [];
  for (const path of [
    '/',
    STORY,
    '/nothing',
    query('/event', { ...OF_STORY, seq: 1 }),
    query('/session', { app: '', user: 'a', session: 'b' }),
  ])
    answers.push(await site.get(path));
  answers.push(await site.get('/', { method: 'DELETE' }), await site.get('/', { headers: { host: 'evil.example' } }));
  for (const { headers, body } of answers) {
    expect(headers).toMatchObject({
      'cache-control': 'no-store',
      'x-content-type-options': 'nosniff',
      'referrer-policy': 'same-origin',
      'x-frame-options': 'DENY',
    });
    expect(headers['content-security-policy']).toContain("default-src 'none'; script-src 'self'; style-src 'self'");
    expect(body).not.toMatch(/<script(?! src="\/assets\/)|<style|\sstyle=|\son\w+=/i);
  }
  expect(answers.map(({ status }) => status)).toEqual([200, 200, 404, 200, 400, 405, 403]);
  // Browsers cache these files forever, so their names change with their contents.
  const [script = ''] = answers[0]!.body.match(/\/assets\/studio-[^"]*\.js/) ?? [];
  expect((await site.get(script)).headers).toMatchObject({
    'cache-control': expect.stringContaining('immutable'),
    'content-type': expect.stringContaining('text/javascript'),
  });
});

test('the script that is served is made of its source', () => {
  const { status, stderr } = spawnSync(process.execPath, ['scripts/studio-script.js', '--check'], { encoding: 'utf8' });
  expect([status, stderr]).toEqual([0, '']);
});

test('whatever was said to an agent is text', async () => {
  const evil = `<script>alert(1)</script><img src=x onerror=alert(2)>"'>&`;
  const key = { appName: `${evil}<b>`, userId: '../../x', sessionId: '..' };
  const session = await served.service.createSession({ ...key, state: { [evil]: evil, [`user:${evil}`]: evil } });
  await served.service.describeSession(key, { title: evil, labels: { a: evil } });
  const event = createEvent({
    author: evil,
    branch: evil,
    errorCode: evil,
    errorMessage: evil,
    longRunningToolIds: [evil],
    content: {
      role: 'model',
      parts: [
        { text: `${evil} \u202egnp.exe \u001b[31mred\u0007` },
        { text: evil, thought: true },
        { functionCall: { id: evil, name: evil, args: { [evil]: evil } } },
        { functionResponse: { id: 'other', name: evil, response: { error: evil } } },
        { fileData: { fileUri: 'javascript:alert(3)', mimeType: evil } },
        { fileData: { fileUri: 'https://files.example/"onclick="x', displayName: evil } },
        {
          inlineData: {
            mimeType: 'image/svg+xml',
            data: Buffer.from('<svg xmlns="http://www.w3.org/2000/svg"><script>alert(4)</script></svg>').toString(
              'base64',
            ),
            displayName: '../../x',
          },
        },
        {
          inlineData: {
            mimeType: 'text/html',
            data: Buffer.from(evil).toString('base64'),
            displayName: `a"\r\nset-cookie: x=1`,
          },
        },
      ],
    },
  });
  event.actions.stateDelta['k'] = evil;
  event.actions.artifactDelta[evil] = 1;
  await served.service.appendEvent({ session, event });
  // Others may have stored the events, with any content.
  await served.service.appendEvent({ session, event: createEvent({ author: 'x' }) });
  const odd = JSON.stringify({
    author: 7,
    branch: {},
    timestamp: 'never',
    content: { parts: [null, 5, { text: 7 }, { functionCall: 'x' }, { inlineData: 1 }] },
    actions: [evil],
    longRunningToolIds: 'x',
  });
  await served.orm.em
    .getConnection()
    .execute(`update adk_events set data = ? where session_id = '..' and seq = 2`, [odd]);

  const { artifactService, memoryService } = adkServices(served.orm.em);
  const artifact = { inlineData: { data: 'QQ==', mimeType: evil } };
  await artifactService.saveArtifact({ ...key, filename: evil, artifact });
  await memoryService.addMemory({
    ...key,
    memories: [{ id: evil, author: evil, content: { parts: [{ text: `${evil} \u202e` }] } }],
  });

  const site = await served.studio({ allowChanges: true });
  const of = { app: key.appName, user: key.userId, session: key.sessionId };
  const pages = await Promise.all(
    [
      '/',
      query('/sessions', { app: key.appName, title: evil }),
      query('/users', { app: key.appName }),
      query('/session', of),
      query('/session', { ...of, at: 1 }),
      query('/state', of),
      query('/event', { ...of, seq: 1 }),
      query('/describe', of),
      query('/repair', of),
      '/operations/stats',
      query('/files', of),
      query('/files', { ...of, file: evil }),
      query('/memory', of),
      query('/memory', { ...of, q: 'alert' }),
      query('/forget', { ...of, memory: evil }),
    ].map((path) => site.get(path)),
  );
  for (const { status, body } of pages) {
    expect(status).toBe(200);
    expect(body).not.toMatch(/<script>|<img src=x|<b>|<svg|href="javascript:/i);
    // Quoted values may contain anything.
    expect(body.replace(/"[^"]*"/g, '""')).not.toMatch(/<[^>]+\son(error|click)=/i);
    expect(body).not.toMatch(/[\u202e\u001b\u0007]/);
  }
  const drawn = await site.get(query('/time', of));
  expect(drawn.status).toBe(200);
  expect(drawn.body).toContain('&lt;script&gt;alert(1)');
  expect(drawn.body).not.toMatch(/<script>|<img src=x|<b>|href="javascript:|[\u202e\u001b\u0007]/i);
  const text = shown(pages[3]!);
  expect(text).toContain(evil);
  expect(text).toContain('\\u202egnp.exe \\u001b[31mred\\u0007');

  const part = (index: number) => site.get(query('/part', { ...of, seq: 1, part: index }));
  expect(pages[3]!.body).not.toContain('<img');
  const asFile = {
    'content-type': 'application/octet-stream',
    'content-security-policy': "default-src 'none'; sandbox",
  };
  expect((await part(6)).headers).toMatchObject({ ...asFile, 'content-disposition': 'attachment; filename="x"' });
  expect((await part(7)).headers).toMatchObject({
    ...asFile,
    'content-disposition': 'attachment; filename="a_set-cookie_x_1"',
  });
  expect((await part(7)).headers['set-cookie']).toBeUndefined();
  expect((await part(99)).status).toBe(404);
});

test('Markdown of a model is formatted, and nothing of it runs, loads or leads astray', async () => {
  const key = { ...KEY, sessionId: 'markdown' };
  const session = await served.service.createSession(key);
  const lines = [
    '# Title',
    '**bold** <b>not</b> <script>alert(1)</script> &#x202e;',
    '- [good](https://a.example/?a=1&b=2 "a title") <mailto:a@a.example>',
    '- [bad](javascript:alert(1)) [worse](JaVaScRiPt&#58;alert(1)) [data](data:text/html,x) [own](/delete?app=x) <vbscript:x>',
    '- ![picture](https://a.example/x.png) [![nested](https://a.example/y.png)](https://a.example/z)',
    '- [quotes](https://a.example/"onclick="alert(1)) [reference][r]',
    '',
    '```js" onload="alert(1)',
    '</code></pre><img src=x onerror=alert(1)>',
    '```',
    '',
    '| a | b |',
    '| - | :-: |',
    '| <i> | 2 |',
    '',
    '[r]: javascript:alert(2)',
    '> '.repeat(400) + 'deep',
  ];
  const content = { role: 'model', parts: [{ text: lines.join('\n') }] };
  await served.service.appendEvent({ session, event: createEvent({ author: 'user', content }) });
  const parts = [...content.parts, { text: '*deep* in thought', thought: true }];
  await served.service.appendEvent({
    session,
    event: createEvent({ author: 'agent', content: { ...content, parts } }),
  });

  const site = await served.studio();
  const { body } = await site.get(query('/session', { ...OF_STORY, session: 'markdown' }));
  const [, ofUser = '', ofAgent = ''] = body.split('<li\n      class="event');
  expect(ofUser).toContain('**bold**');
  expect(ofAgent).toContain('<p class="caption">Title</p>');
  expect(ofAgent).toContain('<strong>bold</strong> &lt;b&gt;not&lt;/b&gt; &lt;script&gt;');
  expect(ofAgent).toContain('<em>deep</em> in thought');
  expect(ofAgent).toContain('&lt;/code&gt;&lt;/pre&gt;&lt;img src=x onerror=alert(1)&gt;');
  const tags = ofAgent.match(/<[a-z][^>]*>/gi) ?? [];
  const names = new Set(tags.map((tag) => /^<(\w+)/.exec(tag)![1]));
  for (const name of ['img', 'script', 'b', 'i', 'iframe', 'style', 'h1']) expect(names).not.toContain(name);
  for (const tag of tags) expect(tag.replace(/"[^"]*"/g, '""')).not.toMatch(/\s(on\w+|style|src)=/i);
  expect(ofAgent).not.toContain('\u202e');
  const links = tags.filter((tag) => tag.includes('target="_blank"'));
  for (const link of links) expect(link).toContain('rel="noopener noreferrer nofollow"');
  const hrefs = links.map((link) => /href="([^"]*)"/.exec(link)![1]);
  expect(hrefs).toEqual([
    'https://a.example/?a=1&amp;b=2',
    'mailto:a@a.example',
    'https://a.example/x.png',
    'https://a.example/y.png',
    'https://a.example/z',
    'https://a.example/%22onclick=%22alert(1)',
  ]);

  const raw = await site.get(query('/session', { ...OF_STORY, session: 'markdown', raw: 1 }));
  expect(raw.body).toContain('# Title\n**bold** &lt;b&gt;');
  expect(raw.body).not.toContain('class="markdown"');
  // The page's links and new events keep the setting.
  expect(raw.body).toMatch(/data-live="[^"]*raw=1/);
  expect(raw.body).toMatch(/href="[^"]*at=1[^"]*raw=1|href="[^"]*raw=1[^"]*at=1/);
});

test('what ADK trusts in customMetadata is on no page and in no file', async () => {
  const key = { ...KEY, sessionId: 'trusted' };
  const session = await served.service.createSession(key);
  const trusted = { __adk_internal_fc_hmac: 'v1:0' };
  for (const customMetadata of [{ ...trusted, request: 1 }, trusted, { request: 2 }, trusted])
    await served.service.appendEvent({ session, event: createEvent({ author: 'agent', customMetadata }) });
  const of = { ...OF_STORY, session: 'trusted' };
  const execute = (text: string) => served.orm.em.getConnection().execute(text, ['trusted']);
  await execute(`update adk_events set data = data || '}' where session_id = ? and seq = 4`);
  const stored = await served.orm.em
    .getConnection()
    .execute('select data from adk_events where session_id = ?', ['trusted']);
  expect(JSON.stringify(stored).match(/__adk_internal_fc_hmac/g)).toHaveLength(3);

  const site = await served.studio();
  const paths = [1, 2, 3, 4].flatMap((seq) =>
    ['/event', '/event.json', '/part'].map((path) => query(path, { ...of, seq })),
  );
  for (const path of [query('/session', of), query('/repair', of), ...paths]) {
    const { body } = await site.get(path);
    expect([path, /__adk_internal_|v1:0/.test(body)]).toEqual([path, false]);
  }
  const events = await Promise.all([1, 2, 3].map((seq) => site.get(query('/event.json', { ...of, seq }))));
  expect(events.map(({ body }) => (JSON.parse(body) as { customMetadata?: unknown }).customMetadata)).toEqual([
    { request: 1 },
    undefined,
    { request: 2 },
  ]);
  expect(shown(await site.get(query('/event', { ...of, seq: 1 })))).toContain('"request": 1');

  const live = await site.open(query('/live', of));
  let text = '';
  for await (const chunk of live.setEncoding('utf8')) {
    text += String(chunk);
    if (text.includes('id=\\"e4\\"')) break;
  }
  expect(text).not.toMatch(/__adk_internal_|v1:0/);
});

describe('authorize', () => {
  test.each([
    {
      what: 'a user of an app',
      scope: { appName: 'support', userId: 'ada' },
      hidden: [
        { app: 'support', user: 'grace' },
        { app: 'travel', user: 'ada' },
      ],
    },
    { what: 'an app', scope: { appName: 'support' }, hidden: [{ app: 'travel', user: 'ada' }] },
    { what: 'a user', scope: { userId: 'ada' }, hidden: [{ app: 'support', user: 'grace' }] },
  ])('limits every page to $what', async ({ scope, hidden }) => {
    const site = await served.studio({ authorize: () => scope, allowChanges: true });
    expect((await site.get(STORY)).status).toBe(200);
    for (const owner of hidden) {
      const of = { ...owner, session: 'secret', seq: 1 };
      for (const path of [...OF_SESSION, ...CHANGES])
        expect([path, (await site.get(query(path, of))).status]).toEqual([path, 404]);
      for (const path of CHANGES) {
        const sent = await site.get(query(path, of), { form: { token: 'x' }, headers: { origin: site.origin } });
        expect([path, sent.status]).toEqual([path, 404]);
      }
      expect((await site.get(query('/sessions', owner))).status).toBe(404);
    }
    for (const path of ['/', '/sessions?app=support', '/users?app=support', '/operations', '/operations/stats']) {
      const { status, body } = await site.get(path);
      expect([path, status]).toEqual([path, 200]);
      if ('userId' in scope) expect(body).not.toMatch('appName' in scope ? /grace|secret/ : /grace/);
      if ('appName' in scope) expect(body).not.toContain('travel');
    }
    expect((await site.get('/operations/doctor')).status).toBe(403);
    expect(shown(await site.get('/operations'))).not.toContain('Position of the newest event');
  });

  test('says nothing of the log to a visitor of one app, and tells when that app has something new', async () => {
    const { orm, service } = served;
    await new EventLog(orm.em).head();
    const site = await served.studio({ authorize: () => ({ appName: 'travel' }) });
    expect((await site.get('/')).body).not.toMatch(/data-cursor|position/);
    const stream = await site.open('/live-now');
    const frames: string[] = [];
    const append = async (appName: string, userId: string) => {
      const session = await service.getSession({ appName, userId, sessionId: 'secret' });
      await service.appendEvent({ session: session!, event: createEvent() });
    };
    for await (const chunk of stream.setEncoding('utf8')) {
      frames.push(...String(chunk).split('\n\n').filter(Boolean));
      if (frames.length === 2) {
        await append('support', 'grace');
        await append('travel', 'ada');
      }
      if (frames.length > 2) break;
    }
    expect(frames).toEqual(['retry: 1000', 'data: ', 'data: ']);
  });

  test('that returns false lets nobody in, and what is no scope is an error that is reported', async () => {
    const closed = await served.studio({ authorize: () => Promise.resolve(false as const) });
    expect((await closed.get(STORY)).status).toBe(403);
    for (const scope of [
      undefined,
      null,
      true,
      { app: 'support' },
      { appName: undefined },
      { userId: '' },
      { appName: 7 },
      { appName: ['support'] },
      { appName: 'support', userId: undefined },
      { appName: 'sup\0port' },
      [],
      [{ appName: 'support' }],
      new Response('no', { status: 401 }),
      new Error('no'),
      new Headers(),
      new Map([['appName', 'support']]),
      new Set(),
      new URLSearchParams({ appName: 'support' }),
      Object(false),
      Object.create({ appName: 'support' }),
      Object.defineProperty({}, 'appName', { value: 'support', enumerable: false }),
      () => ({ appName: 'support' }),
      new Proxy({ appName: 'travel' }, { ownKeys: () => [] }),
      new Proxy({ appName: 'travel' }, { ownKeys: () => [], getOwnPropertyDescriptor: () => undefined }),
      'support',
    ]) {
      const reported: unknown[] = [];
      const site = await served.studio({ authorize: () => scope as never, onError: (error) => reported.push(error) });
      const { status, body } = await site.get(STORY);
      expect([status, body.includes('refund')]).toEqual([500, false]);
      expect(reported).toEqual([expect.any(TypeError)]);
    }
  });
});

describe('a change', () => {
  const path = query('/delete', OF_STORY);
  const isThere = async () =>
    (await served.orm.em.fork().findOneOrFail(AdkSession, { appName: 'support', id: KEY.sessionId })).deletedAt ===
    null;

  test('takes a form of the studio, from its own pages', async () => {
    const site = await served.studio({ allowChanges: true });
    const asked = await site.get(path);
    const [set = ''] = asked.headers['set-cookie'] ?? [];
    expect(set).toMatch(/; HttpOnly; SameSite=Strict$/);
    const [cookie = ''] = set.split(';');
    const [, token = ''] = /name="token" value="([^"]*)"/.exec(asked.body) ?? [];
    expect(asked.body).not.toContain(cookie.split('=')[1]);
    const form = { token, confirm: KEY.sessionId };
    const own = { cookie, origin: site.origin };
    for (const [given, headers] of [
      [{ confirm: KEY.sessionId }, own],
      [{ ...form, token: 'x' }, own],
      [form, { origin: site.origin }],
      [form, { ...own, cookie: `adk_studio=${'a'.repeat(43)}` }],
      [form, { cookie }],
      [form, { cookie, origin: 'http://evil.example' }],
      [form, { cookie, origin: 'null' }],
      [form, { ...own, host: 'evil.example' }],
    ] as const) {
      expect((await site.get(path, { form: given, headers })).status).toBe(403);
      expect(await isThere()).toBe(true);
    }
    expect((await site.get(path, { form, headers: { ...own, 'content-type': 'text/plain' } })).status).toBe(415);
    expect((await site.get(path, { method: 'PUT', headers: own })).status).toBe(405);
    expect(await isThere()).toBe(true);
  });

  test('is refused if it is not allowed', async () => {
    const site = await served.studio();
    expect((await site.get(path)).status).toBe(403);
    expect(
      (await site.get(path, { form: { token: 'x', confirm: KEY.sessionId }, headers: { origin: site.origin } })).status,
    ).toBe(403);
    expect(await isThere()).toBe(true);
    expect(linksOf(await site.get(STORY), '/delete')).toEqual([]);
  });
});

test('an error tells nothing of statements, values and credentials', async () => {
  const broken = await open('sqlite');
  const reported: unknown[] = [];
  const site = await broken.studio({ onError: (error) => reported.push(error) });
  await broken.orm.em.getConnection().execute('drop table adk_changes');
  await broken.service.createSession({ appName: 'a', userId: 'u', sessionId: 's' }).catch(() => undefined);
  await broken.orm.em.getConnection().execute('alter table adk_sessions rename to gone');
  const { status, body } = await site.get('/sessions?app=hidden-name');
  expect(status).toBe(503);
  expect(body).not.toMatch(/select |adk_sessions|hidden-name/);
  expect(String(reported[0])).toContain('adk_sessions');
});

test('is mounted below a path, also where a framework has taken it out of the URL or has read the body', async () => {
  const { listener, fetch } = createStudio(served.orm.em, { basePath: '/tools/studio', allowChanges: true });
  const express = await served.listen((request, response) => {
    Object.assign(request, { originalUrl: request.url, url: request.url?.replace('/tools/studio', '') });
    listener(request, response);
  });
  const page = await express.get(`/tools/studio${STORY}`);
  expect(page.status).toBe(200);
  expect(linksOf(page, '/').filter((href) => !href.startsWith('/tools/studio'))).toEqual([]);
  expect((await express.get('/tools/studio')).status).toBe(200);
  expect((await express.get('/tools/studiox')).status).toBe(404);
  const head = await express.get(`/tools/studio${STORY}`, { method: 'HEAD' });
  expect([head.status, head.body]).toEqual([200, '']);
  const next = await fetch(new Request(`http://localhost:3000/tools/studio${STORY}`));
  expect(await next.text()).toContain('Refund of order 17');

  const parsing = await served.listen((request, response) => {
    Object.assign(request, { body: { token: 'x', confirm: KEY.sessionId } });
    listener(request, response);
  });
  const sent = await parsing.get(`/tools/studio${query('/delete', OF_STORY)}`, {
    form: { a: 'b' },
    headers: { origin: parsing.origin },
  });
  expect([sent.status, shown(sent)]).toEqual([403, expect.stringContaining('This form was not sent by the studio')]);
  expect(() => createStudio(served.orm.em, { basePath: 'studio/' })).toThrow('basePath must be a path');
});

test('the token of the command line is in the link alone, then in a cookie', async () => {
  const door = tokenDoor('0123456789abcdef');
  const studio = createStudio(served.orm.em, { authorize: door.authorize });
  const site = await served.listen(listenerOf(door.guard(studio.fetch)));
  const status = async (path: string, cookie?: string) =>
    (await site.get(path, cookie === undefined ? {} : { headers: { cookie } })).status;
  expect([
    await status(STORY),
    await status(`${STORY}&token=wrong`),
    await status(STORY, 'adk_studio_token=wrong'),
  ]).toEqual([401, 401, 401]);
  const opened = await site.get(`${STORY}&token=0123456789abcdef`);
  expect([opened.status, opened.headers.location]).toEqual([303, STORY]);
  const [cookie = ''] = (opened.headers['set-cookie']?.[0] ?? '').split(';');
  expect(await status(STORY, cookie)).toBe(200);
  // No link leads to another site, however a browser reads its beginning.
  for (const path of [
    '//evil.example/a',
    '///evil.example',
    '/\\evil.example',
    '/.//evil.example/',
    '//evil.example@x',
  ])
    for (const tokenAt of [`${path}?token=`, `${path}?b=%5C%5C&token=`]) {
      const { status, headers } = await site.get(`${tokenAt}0123456789abcdef`);
      const { origin } = new URL(headers.location ?? '', site.origin);
      expect([path, status, origin]).toEqual([path, 303, site.origin]);
    }
});
