import { createEvent } from '@google/adk';
import { AdkMemory } from '../../../entities/index.js';
import { MikroOrmArtifactService } from '../../../src/index.js';
import { MikroOrmMemoryService } from '../../../src/memory/memory-service.js';
import { availableDatabases } from '../../support/servers.js';
import { Served, linksOf, query, shown } from './served.js';

const OWNER = { appName: 'support', userId: 'ada' };
const OF_ADA = { app: OWNER.appName, user: OWNER.userId };
const EVIL = '<script>alert(1)</script> & "quoted" \u202e backwards';

describe.each(availableDatabases())('on %s', (name) => {
  let served: Served;
  let memory: MikroOrmMemoryService;
  beforeAll(async () => {
    served = await Served.open(name);
    memory = new MikroOrmMemoryService(served.orm.em);
    await served.service.createSession({ ...OWNER, sessionId: 's' });
  });
  afterAll(() => served.close());
  beforeEach(async () => {
    await served.orm.em.fork().nativeDelete(AdkMemory, {});
    const said = (text: string, id: string) => ({ id, author: 'user', content: { parts: [{ text }] } });
    await memory.addMemory({
      ...OWNER,
      sessionId: 's',
      memories: [said('Allergic to peanuts', 'e1'), said(EVIL, 'e2')],
    });
    await memory.addMemory({ ...OWNER, memories: [said('Lives in Graz', '"><b>')] });
    await memory.addMemory({ appName: 'support', memories: [said('Peanuts are sold out', 'stock')] });
    await memory.addMemory({ appName: 'support', userId: 'bob', memories: [said('a secret of bob', 'secret')] });
  });

  const ids = async () =>
    (await served.orm.em.fork().find(AdkMemory, {}, { orderBy: { id: 'asc' } })).map(({ id }) => id);

  test('it shows what agents remember of a user, and from which session', async () => {
    const site = await served.studio();
    const page = await site.get(query('/memory', OF_ADA));
    expect(page.status).toBe(200);
    expect(shown(page)).toMatch(
      /Memory of ada .*Lives in Graz .*Allergic to peanuts s .*<script>alert\(1\)<\/script> & "quoted" \\u202e/,
    );
    expect(page.body).not.toMatch(/<script>alert|<b>|\u202e|secret|sold out/);
    expect(linksOf(page, '/session?')).toEqual(Array(2).fill(query('/session', { ...OF_ADA, session: 's' })));
    expect(linksOf(page, '/forget')).toEqual([]);
    // As an agent would find them.
    const found = shown(await site.get(query('/memory', { ...OF_ADA, q: 'peanuts?' })));
    expect(found).toMatch(/Allergic to peanuts s .*\d\.\d\d/);
    expect(found).not.toMatch(/Graz|sold out/);
    expect(shown(await site.get(query('/memory', { ...OF_ADA, q: '<b>' })))).toContain('Nothing found');
    expect(shown(await site.get(query('/memory', { app: 'support' })))).toMatch(/all users of support .*sold out/);
    for (const page of [query('/session', { ...OF_ADA, session: 's' }), '/users?app=support'])
      expect(linksOf(await site.get(page), '/memory')).toContain(query('/memory', OF_ADA));
    // The memories of another user.
    const bobs = await served.studio({ authorize: () => ({ userId: 'bob' }), allowChanges: true });
    for (const path of ['/memory', '/forget']) expect((await bobs.get(query(path, OF_ADA))).status).toBe(404);
    expect(shown(await bobs.get('/memory?app=support'))).toMatch(/Memory of bob .*a secret of bob/);
  });

  test('values of other programs may have any type', async () => {
    const content = { parts: [{ text: 'from elsewhere' }] };
    const event = { ...createEvent({ content }), author: { name: 'agent' } };
    await memory.addEventsToMemory({ ...OWNER, sessionId: 's', events: [event as never] });
    const artifact = { inlineData: { mimeType: { type: 'image/png' }, data: '' } };
    const artifacts = new MikroOrmArtifactService(served.orm.em);
    await artifacts.saveArtifact({ ...OWNER, sessionId: 's', filename: 'f', artifact: artifact as never });
    const site = await served.studio();
    expect(shown(await site.get(query('/memory', OF_ADA)))).toContain('from elsewhere');
    expect(shown(await site.get(query('/files', { ...OF_ADA, session: 's' })))).toContain('image/png');
  });

  test('it has pages, and names what cannot be read', async () => {
    const memories = Array.from({ length: 50 }, (_, i) => ({
      id: `m${i + 10}`,
      content: { parts: [{ text: `fact ${i}` }] },
    }));
    await memory.addMemory({ ...OWNER, sessionId: 't', memories });
    await served.orm.em.fork().nativeUpdate(AdkMemory, { id: 'm20' }, { data: 'not json' });
    const site = await served.studio({ allowChanges: true });
    const first = await site.get(query('/memory', OF_ADA));
    const second = await site.get(linksOf(first, '/memory').find((link) => link.includes('after='))!);
    const facts = [first, second].map((page) => shown(page).match(/fact \d+/g)?.length);
    expect(facts).toEqual([47, 2]);
    expect(shown(first)).toContain('1 memory cannot be read: m20');
    expect(linksOf(second, '/memory').filter((link) => link.includes('after='))).toEqual([]);
  });

  test('it forgets one, a session’s or all, if changes are allowed', async () => {
    const site = await served.studio({ allowChanges: true });
    const send = async (path: string, fields: Record<string, string> = {}) => {
      const asked = await site.get(path);
      const [cookie = ''] = (asked.headers['set-cookie']?.[0] ?? '').split(';');
      const [, token = ''] = /name="token" value="([^"]*)"/.exec(asked.body) ?? [];
      const form = { token, confirm: 'yes', ...fields };
      const { status, headers } = await site.get(path, { form, headers: { cookie, origin: site.origin } });
      return { status, location: headers.location, asked };
    };
    const links = linksOf(await site.get(query('/memory', OF_ADA)), '/forget');
    const one = links.find((link) => link.includes('e1'))!;
    expect((await send(one, { confirm: '' })).status).toBe(400);
    expect((await send(one, { token: 'x' })).status).toBe(403);
    const readOnly = await served.studio();
    expect((await readOnly.get(one)).status).toBe(403);
    expect((await readOnly.get(one, { form: { confirm: 'yes' }, headers: { origin: readOnly.origin } })).status).toBe(
      403,
    );
    expect(await ids()).toHaveLength(5);
    const sent = await send(one);
    expect(shown(sent.asked)).toContain('1 memory of ada will be deleted');
    expect(sent).toMatchObject({ status: 303, location: query('/memory', OF_ADA) });
    expect(await ids()).toEqual(['"><b>', 'e2', 'secret', 'stock']);
    expect((await site.get(one)).status).toBe(404);
    expect((await send(query('/forget', { ...OF_ADA, session: 's' }))).status).toBe(303);
    expect(await ids()).toEqual(['"><b>', 'secret', 'stock']);
    expect((await send(query('/forget', OF_ADA))).status).toBe(303);
    expect(await ids()).toEqual(['secret', 'stock']);
    const ofApp = await send('/forget?app=support');
    expect(shown(ofApp.asked)).toContain('1 memory for all users of support');
    expect(await ids()).toEqual(['secret']);
  });
});
