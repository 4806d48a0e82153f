import { createHash, randomBytes } from 'node:crypto';
import { Readable } from 'node:stream';
import { runInNewContext } from 'node:vm';
import { createEvent, createEventActions } from '@google/adk';
import { IsolationLevel } from '@mikro-orm/core';
import { compression, encryption } from '../../src/codecs/index.js';
import { MikroOrmArtifactService, adkServices, type MikroOrmArtifactServiceOptions } from '../../src/index.js';
import { Suite, onInnodb, onSqlite, oncePerDialect, withConnections, type OwnContext } from './rule.js';
import { errorOf, expectCode, faulty } from './tools.js';

/** Tests of section P: artifacts that are saved from streams. */
export const streamSuite = new Suite({ isOfDialect: true });

/** Six parts, and no multiple of what one row takes. */
const LARGE = 2_500_001;

const TOGETHER = 4 * 491_520;

const encrypting = (currentKey = 'k1') =>
  encryption({ currentKey, key: async (id) => createHash('sha256').update(id).digest() });

/** Calls for one file of alice. */
function fileOf({ orm, app }: OwnContext, options: MikroOrmArtifactServiceOptions = {}, em = orm.em) {
  const service = new MikroOrmArtifactService(em, options);
  const key = { appName: app, userId: 'alice', sessionId: 's' };
  const file = { ...key, filename: 'f' };
  return {
    ...{ service, key, file },
    save: (content: AsyncIterable<Uint8Array>, customMetadata?: Record<string, unknown>) =>
      service.saveArtifactStream({ ...file, mimeType: 'a/b', content, ...(customMetadata && { customMetadata }) }),
    bytes: async (version?: number) => {
      const part = await service.loadArtifact({ ...file, ...(version !== undefined && { version }) });
      return Buffer.from(part!.inlineData!.data!, 'base64');
    },
    /** What `read` gives of it. */
    read: async (range?: { start: number; end: number }) => {
      const content = await service.openArtifact(file);
      return Buffer.concat(await allOf(content!.bytes(range)));
    },
  };
}

/** Gives bytes in pieces of any size; `between` is called before the last one. */
async function* pieces(bytes: Uint8Array, size = 300_007, between?: () => Promise<void>): AsyncGenerator<Uint8Array> {
  for (let start = 0; start < bytes.length; start += size) {
    if (start + size >= bytes.length) await between?.();
    yield bytes.subarray(start, start + size);
  }
}

/** How many artifacts, versions and parts an app has. */
async function rowsOf({ query, app }: OwnContext): Promise<number[]> {
  const counts: number[] = [];
  for (const table of ['artifacts', 'artifact_versions', 'artifact_parts'])
    counts.push((await query(`select 1 from adk_${table} where app_name = ?`, [app])).length);
  return counts;
}

async function allOf<T>(items: AsyncIterable<T>): Promise<T[]> {
  const all: T[] = [];
  for await (const item of items) all.push(item);
  return all;
}

const lost = () => Object.assign(new Error('read ECONNRESET'), { code: 'ECONNRESET' });

streamSuite.own('P14', 'what a stream gives comes back equal, whatever its pieces and its size', async (context) => {
  const { save, bytes, service, file } = fileOf(context);
  const content = randomBytes(LARGE);
  const sizes = [0, 1, 491_520, 491_521, TOGETHER, TOGETHER + 1, LARGE];
  const streams = [
    (all: Buffer) => pieces(all),
    (all: Buffer) => pieces(all, LARGE),
    (all: Buffer) => Readable.from(pieces(all, 65_536)),
    (all: Buffer) => new Blob([all]).stream(),
  ];
  for (const [version, size] of sizes.entries()) {
    const given = content.subarray(0, size);
    expect(await save(streams[version % streams.length]!(given), { version })).toBe(version);
    expect((await bytes()).equals(given)).toBe(true);
    expect(await service.getArtifactVersion(file)).toMatchObject({
      ...{ version, size, mimeType: 'a/b', customMetadata: { version } },
      sha256: createHash('sha256').update(given).digest('hex'),
    });
  }
  expect(await service.loadArtifact({ ...file, version: 1 })).toEqual({
    inlineData: { mimeType: 'a/b', data: content.subarray(0, 1).toString('base64') },
  });
  expect(await service.listVersions(file)).toEqual(sizes.map((_, version) => version));
  expect(await rowsOf(context)).toEqual([1, 7, 2 + 4 + 5 + 6]);
});

for (const [how, options] of [
  ['', {}],
  [', decoded', { codec: [compression(), encrypting()] }],
] as [string, MikroOrmArtifactServiceOptions][])
  streamSuite.own('P14', `a version that came as a stream is read and listed like any other${how}`, async (context) => {
    const { save, bytes, read, service, file, key } = fileOf(context, options);
    const content = randomBytes(LARGE);
    await save(pieces(content));
    expect((await bytes()).equals(content)).toBe(true);
    expect((await read()).equals(content)).toBe(true);
    expect((await read({ start: 491_519, end: 983_041 })).equals(content.subarray(491_519, 983_041))).toBe(true);
    expect(await service.findArtifacts(key)).toMatchObject([{ filename: 'f', version: 0, size: LARGE }]);
    expect(await service.listArtifactVersions(file)).toMatchObject([{ version: 0, size: LARGE }]);
    await context.query('delete from adk_artifact_parts where part = 2 and app_name = ?', [context.app]);
    await expectCode(bytes(), 'ADK_DAMAGED_ARTIFACT');
    await expectCode(read(), 'ADK_DAMAGED_ARTIFACT', /part 2/);
  });

streamSuite.own('P14', 'nothing is written before a stream has ended, and others save meanwhile', async (context) => {
  const { save, bytes, service, file } = fileOf(context);
  const others = new MikroOrmArtifactService(context.peer.em);
  const content = randomBytes(LARGE);
  const see = async () => {
    expect(await rowsOf(context)).toEqual([0, 0, 0]);
    await others.saveArtifact({ ...file, artifact: { text: 'of others' } });
    await others.deleteArtifact(file);
    await others.saveArtifact({ ...file, artifact: { text: 'of others' } });
  };
  expect(await save(pieces(content, 600_000, see))).toBe(1);
  expect(await service.listVersions(file)).toEqual([0, 1]);
  expect((await bytes()).equals(content)).toBe(true);
});

streamSuite.own('P14', 'a stream may give the same buffer again', async (context) => {
  const { save, bytes } = fileOf(context);
  const buffer = Buffer.alloc(300_000);
  async function* again() {
    for (const n of [1, 2, 3]) yield buffer.fill(n);
  }
  await save(again());
  const expected = Buffer.concat([1, 2, 3].map((n) => Buffer.alloc(300_000, n)));
  expect((await bytes()).equals(expected)).toBe(true);
});

streamSuite.own('P14', 'bytes of another realm are bytes', async (context) => {
  const { save, service, file } = fileOf(context);
  const bytes = runInNewContext('Uint8Array.of(1, 2, 3)') as Uint8Array;
  expect(bytes).not.toBeInstanceOf(Uint8Array);
  await save(Readable.from([bytes]));
  const read = await service.loadArtifact(file);
  expect(read?.inlineData?.data).toBe(Buffer.of(1, 2, 3).toString('base64'));
});

streamSuite.own('P14', 'a stream that fails leaves nothing, and its error reaches the caller', async (context) => {
  const { save, service, file } = fileOf(context, { maxBytes: LARGE });
  const failure = new Error('the disk is gone');
  const failing = pieces(randomBytes(LARGE), 600_000, () => Promise.reject(failure));
  expect(await errorOf(save(failing))).toBe(failure);
  expect(await rowsOf(context)).toEqual([0, 0, 0]);
  await service.saveArtifact({ ...file, artifact: { text: 'first' } });
  const readable = Readable.from(pieces(randomBytes(LARGE + 1), 600_000));
  await expectCode(save(readable), 'ADK_ARTIFACT_TOO_LARGE', /at least 2500001 bytes|at least 2500002 bytes/);
  expect(readable.destroyed).toBe(true);
  const strings = Readable.from(pieces(Buffer.from('text'))).setEncoding('utf8');
  await expectCode(save(strings), 'ADK_INVALID_ARGUMENT', /encoding/);
  await expectCode(save('text' as unknown as Readable), 'ADK_INVALID_ARGUMENT', /content/);
  await expectCode(save(pieces(Buffer.alloc(1)), { a: NaN }), 'ADK_UNSERIALIZABLE_VALUE');
  expect(await rowsOf(context)).toEqual([1, 1, 0]);
});

streamSuite.own(
  'P9',
  'a stream whose save fails at any statement leaves nothing',
  async (context) => {
    const content = randomBytes(LARGE);
    const { service, file } = fileOf(context);
    let n = 0;
    for (let isSaved = false; !isSaved; n++) {
      let count = 0;
      const statement = (text: string) => !/^rollback/.test(text) && count++ === n;
      const { save } = fileOf(context, { retry: { attempts: 1 } }, faulty(context.orm.em, { statement }));
      isSaved = await save(pieces(content)).then(
        () => true,
        () => false,
      );
      if (isSaved) break;
      // After the last statement, the commit, nobody knows whether it succeeded.
      if ((await service.listVersions(file)).length > 0) await service.deleteArtifact(file);
      expect([n, await rowsOf(context)]).toEqual([n, [0, 0, 0]]);
    }
    expect(n).toBeGreaterThan(8);
    expect(await rowsOf(context)).toEqual([1, 1, 6]);
  },
  // It writes 30 MB, and the transactions are the same everywhere.
  (harness) => onSqlite(harness) && oncePerDialect(harness),
);

streamSuite.own('P14', 'a save whose answer is lost is one version', async (context) => {
  const faults = { commit: true, error: lost };
  const { save, bytes } = fileOf(context, {}, faulty(context.orm.em, faults));
  const content = randomBytes(LARGE);
  expect(await save(pieces(content))).toBe(0);
  expect((await bytes()).equals(content)).toBe(true);
  expect(await rowsOf(context)).toEqual([1, 1, 6]);
});

streamSuite.own('P10', 'a stream joins a transaction, and may be read in it', async (context) => {
  const { service, file, bytes } = fileOf(context);
  const content = randomBytes(LARGE);
  const copied = async (tx: Parameters<MikroOrmArtifactService['withEntityManager']>[0]) => {
    const joined = service.withEntityManager(tx);
    await joined.saveArtifactStream({ ...file, mimeType: 'a/b', content: pieces(content) });
    const opened = await joined.openArtifact(file);
    return joined.saveArtifactStream({ ...file, mimeType: 'a/b', content: opened!.bytes() });
  };
  const rolledBack = context.orm.em.fork().transactional(async (tx) => {
    await copied(tx);
    throw new Error('no');
  });
  expect((await errorOf(rolledBack)).message).toBe('no');
  expect(await rowsOf(context)).toEqual([0, 0, 0]);
  expect(await context.orm.em.fork().transactional(copied)).toBe(1);
  expect((await bytes()).equals(content)).toBe(true);
  const beside = context.orm.em
    .fork()
    .transactional(() => service.saveArtifactStream({ ...file, mimeType: 'a/b', content: pieces(content) }));
  await expectCode(beside, 'ADK_INSIDE_TRANSACTION');
});

for (const [how, options] of [
  ['', {}],
  [', encoded for it', { codec: encrypting() }],
] as [string, MikroOrmArtifactServiceOptions][])
  streamSuite.own('P12', `a fork has versions that came as streams${how}`, async (context) => {
    const { orm } = context;
    const { sessionService } = adkServices(orm.em, options);
    const { save, service, file, key } = fileOf(context, options);
    const session = await sessionService.createSession(key);
    const contents = [randomBytes(LARGE), randomBytes(LARGE), Buffer.from('small')];
    for (const content of contents) await save(pieces(content));
    const events = [1, 2].map((version) =>
      createEvent({ author: 'a', actions: createEventActions({ artifactDelta: { f: version } }) }),
    );
    await sessionService.appendEvents({ session, events });
    await sessionService.forkSession(key, { at: 2, as: 'forked' });
    await sessionService.deleteSession(key);
    const forked = { ...file, sessionId: 'forked' };
    expect(await service.listVersions(forked)).toEqual([1, 2]);
    const part = await service.loadArtifact({ ...forked, version: 1 });
    expect(part!.inlineData!.data === contents[1]!.toString('base64')).toBe(true);
    expect((await rowsOf(context)).at(-1)).toBe(6);
  });

streamSuite.own(
  'P12',
  'a fork in a transaction has a version whole that came as a stream after its snapshot',
  async (context) => {
    const { orm } = context;
    const { sessionService } = adkServices(orm.em);
    const { save, service, file, key } = fileOf(context, {}, context.peer.em);
    await save(pieces(Buffer.from('small')));
    const session = await sessionService.createSession(key);
    const event = createEvent({ author: 'a', actions: createEventActions({ artifactDelta: { f: 0 } }) });
    await sessionService.appendEvent({ session, event });
    const content = randomBytes(LARGE);
    await orm.em.fork().transactional(
      async (tx) => {
        const joined = sessionService.withEntityManager(tx);
        await joined.getSession(key);
        await service.deleteArtifact(file);
        await save(pieces(content));
        await joined.forkSession(key, { as: 'forked' });
      },
      { isolationLevel: IsolationLevel.REPEATABLE_READ },
    );
    const part = await service.loadArtifact({ ...file, sessionId: 'forked' });
    expect(part!.inlineData!.data === content.toString('base64')).toBe(true);
  },
  onInnodb,
);

streamSuite.own('P15', 'reencode and an export keep what came as a stream', async (context) => {
  const { orm, app } = context;
  const content = randomBytes(LARGE);
  const options = [{}, { codec: encrypting() }, { codec: encrypting('k2') }];
  await fileOf(context, options[0]).save(pieces(content));
  for (const each of options.slice(1)) {
    const { maintenance } = adkServices(orm.em, each);
    expect(await maintenance.reencode({ appName: app })).toMatchObject({ done: { texts: 1, unreadable: 0 } });
    expect(await maintenance.reencode({ appName: app })).toMatchObject({ done: { texts: 0 } });
    expect((await fileOf(context, each).read()).equals(content)).toBe(true);
  }
  const { maintenance } = adkServices(orm.em, options[2]);
  const records = await allOf(maintenance.exportSessions({ appName: app }));
  const { service, file, read } = fileOf(context, options[2]);
  await service.deleteArtifact(file);
  expect(await maintenance.importSessions(records)).toMatchObject({ done: { artifactVersions: 1 } });
  expect(await rowsOf(context)).toEqual([1, 1, 6]);
  expect((await read()).equals(content)).toBe(true);
  expect(await maintenance.importSessions(records)).toMatchObject({ done: { artifactVersions: 0 } });
  expect(await allOf(maintenance.exportSessions({ appName: app }))).toEqual(records);
});

streamSuite.own(
  'P2',
  'streams that are saved at once each get a version of their own',
  async (context) => {
    const contents = Array.from({ length: 4 }, () => randomBytes(LARGE));
    const { bytes } = fileOf(context);
    const saved = await Promise.all(
      contents.map((content, i) => fileOf(context, {}, i % 2 ? context.peer.em : context.orm.em).save(pieces(content))),
    );
    expect([...saved].sort()).toEqual([0, 1, 2, 3]);
    for (const [i, version] of saved.entries()) expect((await bytes(version)).equals(contents[i]!)).toBe(true);
  },
  withConnections,
);
