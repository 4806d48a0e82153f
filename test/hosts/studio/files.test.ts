import { randomBytes } from 'node:crypto';
import { buffer } from 'node:stream/consumers';
import { createArtifactHandler, type ArtifactHandlerOptions } from '../../../packages/http/src/index.js';
import { MikroOrmArtifactService } from '../../../src/index.js';
import { availableDatabases } from '../../support/servers.js';
import { Served, linksOf, query, shown, type Site } from './served.js';

const KEY = { appName: 'files', userId: 'ada', sessionId: 's' };
const OF_SESSION = { app: KEY.appName, user: KEY.userId, session: KEY.sessionId };
const LARGE = randomBytes(1_200_000);
const EVIL = '../<b>"\r\nset-cookie: x=1\r\n\u202e';

describe.each(availableDatabases())('on %s', (name) => {
  let served: Served;
  let artifacts: MikroOrmArtifactService;
  beforeAll(async () => {
    served = await Served.open(name);
    artifacts = new MikroOrmArtifactService(served.orm.em);
    await served.service.createSession(KEY);
    const save = (filename: string, mimeType: string, content: Buffer) =>
      artifacts.saveArtifact({
        ...KEY,
        filename,
        artifact: { inlineData: { data: content.toString('base64'), mimeType } },
      });
    await save('report.pdf', 'application/pdf', Buffer.from('old'));
    await save('report.pdf', 'application/pdf', LARGE);
    await save('user:face.png', 'image/png', Buffer.from('png'));
    await save('page.html', 'text/html', Buffer.from('<script>alert(1)</script>'));
    await save(EVIL, 'text/html\r\nx: y', Buffer.from('evil'));
    await artifacts.saveArtifact({
      ...KEY,
      filename: 'elsewhere',
      artifact: { fileData: { fileUri: 'https://x.example' } },
    });
  });
  afterAll(() => served.close());

  const bytesFrom = async (site: Site, path: string, headers = {}) => {
    const response = await site.open(path, { headers });
    return { status: response.statusCode, headers: response.headers, body: await buffer(response) };
  };

  test('P14 the handler serves a version in parts, by ranges and with an ETag', async () => {
    type RequestedArtifact = Parameters<ArtifactHandlerOptions['authorize']>[1];
    const asked: RequestedArtifact[] = [];
    const authorize = (_: Request, artifact: RequestedArtifact) => asked.push(artifact) > 0;
    const site = await served.listen(createArtifactHandler(artifacts, { authorize }).listener);
    const path = query('/files', { ...KEY, filename: 'report.pdf' });
    const whole = await bytesFrom(site, path);
    expect(whole.status).toBe(200);
    expect(whole.body.equals(LARGE)).toBe(true);
    const about = (await artifacts.getArtifactVersion({ ...KEY, filename: 'report.pdf' }))!;
    const etag = `"${about.sha256}"`;
    expect(whole.headers).toMatchObject({
      'content-type': 'application/octet-stream',
      'content-disposition': 'attachment; filename="report.pdf"',
      'content-length': String(LARGE.length),
      'content-security-policy': "default-src 'none'; sandbox",
      'x-content-type-options': 'nosniff',
      'accept-ranges': 'bytes',
      'cache-control': 'private, no-cache',
      etag,
    });
    for (const [range, start, end] of [
      ['bytes=0-0', 0, 1],
      ['bytes=491519-491520', 491_519, 491_521],
      ['bytes=1199990-', 1_199_990, LARGE.length],
      ['bytes=-10', LARGE.length - 10, LARGE.length],
      ['bytes=10-99999999', 10, LARGE.length],
    ] as [string, number, number][]) {
      const part = await bytesFrom(site, path, { range });
      expect([part.status, part.headers['content-range']]).toEqual([206, `bytes ${start}-${end - 1}/${LARGE.length}`]);
      expect(part.body.equals(LARGE.subarray(start, end))).toBe(true);
    }
    const beyond = await bytesFrom(site, path, { range: `bytes=${LARGE.length}-` });
    expect([beyond.status, beyond.headers['content-range']]).toEqual([416, `bytes */${LARGE.length}`]);
    for (const headers of [
      { range: 'bytes=5-2' },
      { range: 'bytes=0-1,4-5' },
      { range: 'lines=1-2' },
      { range: 'bytes=0-1', 'if-range': '"other"' },
    ])
      expect((await bytesFrom(site, path, headers)).body).toHaveLength(LARGE.length);
    expect((await bytesFrom(site, path, { range: 'bytes=0-1', 'if-range': etag })).status).toBe(206);
    const known = await bytesFrom(site, path, { 'if-none-match': `"a", W/${etag}` });
    expect([known.status, known.body.length]).toEqual([304, 0]);
    // HTTP defines ranges for GET only.
    const head = await site.get(path, { method: 'HEAD', headers: { range: 'bytes=0-1' } });
    expect([head.status, head.headers['content-length'], head.body]).toEqual([200, String(LARGE.length), '']);
    const old = await bytesFrom(site, query('/files', { ...KEY, filename: 'report.pdf', version: 0 }));
    expect(old.body.toString()).toBe('old');
    expect(asked[0]).toEqual({ ...KEY, filename: 'report.pdf' });
    expect(asked.at(-1)).toEqual({ ...KEY, filename: 'report.pdf', version: 0 });
  });

  test('P14 the handler gives nothing to whom authorize does not name, and nothing that runs', async () => {
    expect(() => createArtifactHandler(artifacts, {} as never)).toThrow('authorize');
    let answer: unknown = true;
    const errors: unknown[] = [];
    const handler = createArtifactHandler(artifacts, {
      authorize: () => answer as boolean,
      onError: (error) => {
        errors.push(error);
        throw new Error('what onError throws is its own affair');
      },
    });
    const site = await served.listen(handler.listener);
    const get = (filename: string, more = {}) => site.get(query('/', { ...KEY, filename, ...more }));
    expect((await get('page.html')).headers).toMatchObject({
      'content-type': 'application/octet-stream',
      'content-disposition': 'attachment; filename="page.html"',
    });
    const evil = await get(EVIL);
    expect(evil.headers['content-disposition']).toMatch(/^attachment; filename="[\w.-]+"; filename\*=UTF-8''[\w%.-]+$/);
    expect([evil.headers['set-cookie'], evil.headers['x'], evil.body]).toEqual([undefined, undefined, 'evil']);
    expect((await get('user:face.png')).headers).toMatchObject({
      'content-type': 'image/png',
      'content-disposition': 'inline; filename="face.png"',
    });
    for (const path of ['absent', 'elsewhere', ''].map((filename) => query('/', { ...KEY, filename })).concat('/'))
      expect([path, (await site.get(path)).status]).toEqual([path, 404]);
    expect((await get('report.pdf', { version: 9 })).status).toBe(404);
    expect((await get('report.pdf', { version: '-1' })).status).toBe(404);
    expect((await site.get(query('/', { ...KEY, filename: 'report.pdf' }), { method: 'POST' })).status).toBe(405);
    // A reader that leaves in the middle is not an error of the host.
    const leaving = await handler.fetch(new Request(`http://x${query('/', { ...KEY, filename: 'report.pdf' })}`));
    const body = leaving.body!.getReader();
    const reading = body.read();
    await body.cancel();
    await reading;
    for (answer of [false, undefined, 1, 'yes', {}]) expect((await get('report.pdf')).status).toBe(403);
    expect(errors).toEqual([]);
    answer = Promise.reject(new Error('secret'));
    expect(await get('report.pdf')).toMatchObject({ status: 500, body: '' });
    expect(errors).toHaveLength(1);
  });

  test('P14 the handler saves what is sent with PUT, if authorizeUpload allows it', async () => {
    const errors: unknown[] = [];
    const onError = (error: unknown) => errors.push(error);
    const small = new MikroOrmArtifactService(served.orm.em, { maxBytes: 1_200_000 });
    let mayUpload: unknown = true;
    const authorizeUpload = (_: Request, artifact: object) => {
      expect(artifact).toEqual({ ...KEY, filename: 'sent.pdf' });
      return mayUpload as boolean;
    };
    const closed = await served.listen(createArtifactHandler(small, { authorize: () => true, onError }).listener);
    const options = { authorize: () => false, authorizeUpload, onError };
    const open = await served.listen(createArtifactHandler(small, options).listener);
    const put = async (body: Buffer, { site = open, type = 'application/pdf', more = {} } = {}) => {
      const url = `http://127.0.0.1:${site.port}${query('/', { ...KEY, filename: 'sent.pdf', ...more })}`;
      const response = await fetch(url, { method: 'PUT', body, headers: type ? { 'content-type': type } : {} });
      return [response.status, await response.text()];
    };
    const TOO_LARGE = Buffer.alloc(9_000_000);
    expect(await put(LARGE, { site: closed })).toEqual([405, '']);
    expect(await put(LARGE)).toEqual([201, '{"version":0}']);
    expect(await put(Buffer.alloc(0))).toEqual([201, '{"version":1}']);
    expect(await put(TOO_LARGE)).toEqual([413, '']);
    expect(await put(LARGE, { type: '' })).toEqual([415, '']);
    expect(await put(LARGE, { more: { version: 0 } })).toEqual([400, '']);
    expect(await put(LARGE, { more: { filename: '' } })).toEqual([404, '']);
    for (mayUpload of [false, undefined, 1, {}]) expect(await put(TOO_LARGE)).toEqual([403, '']);
    expect(await small.listVersions({ ...KEY, filename: 'sent.pdf' })).toEqual([0, 1]);
    expect(await small.loadArtifact({ ...KEY, filename: 'sent.pdf', version: 0 })).toEqual({
      inlineData: { data: LARGE.toString('base64'), mimeType: 'application/pdf' },
    });
    // Who may upload may not read.
    expect((await open.get(query('/', { ...KEY, filename: 'sent.pdf' }))).status).toBe(403);
    expect(errors).toEqual([]);
  });

  test('the studio shows the files of a session with their versions, and images', async () => {
    const site = await served.studio();
    const page = await site.get(query('/files', OF_SESSION));
    expect(shown(page)).toMatch(
      /Files .*user:face\.png image\/png 3 bytes .* 1 .*elsewhere a reference .*page\.html text\/html 25 bytes .*report\.pdf application\/pdf 1\.2 MB .* 2 /,
    );
    expect(page.body).not.toMatch(/<b>|\u202e/);
    expect(page.body.match(/<img /g)).toHaveLength(1);
    expect(linksOf(await site.get(query('/session', OF_SESSION)), '/files?')).toEqual([query('/files', OF_SESSION)]);
    const versions = await site.get(query('/files', { ...OF_SESSION, file: 'report.pdf' }));
    const links = linksOf(versions, '/file?');
    expect(links).toHaveLength(2);
    const newest = await bytesFrom(site, links[0]!);
    expect(newest.body.equals(LARGE)).toBe(true);
    expect(newest.headers).toMatchObject({ 'content-disposition': 'attachment; filename="report.pdf"' });
    expect((await site.get(query('/file', { ...OF_SESSION, file: 'absent' }))).status).toBe(404);
    // The file of another user.
    const bobs = await served.studio({ authorize: () => ({ userId: 'bob' }) });
    for (const path of ['/files', '/file'])
      expect((await bobs.get(query(path, { ...OF_SESSION, file: 'report.pdf' }))).status).toBe(404);
  });
});
