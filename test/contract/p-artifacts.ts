import { createHash, randomBytes } from 'node:crypto';
import {
  createEvent,
  createEventActions,
  FunctionTool,
  LOAD_ARTIFACTS,
  LlmAgent,
  AgentTool,
  Runner,
  type Event,
  type SaveArtifactRequest,
  type Session,
} from '@google/adk';
import type { EntityManager } from '@mikro-orm/core';
import { AdkArtifact, AdkArtifactPart } from '../../entities/index.js';
import { ARTIFACT_RULES } from '../../packages/session-contract/src/artifact-rules.js';
import { compression, encryption } from '../../src/codecs/index.js';
import {
  DatabaseError,
  InvalidArgumentError,
  MikroOrmArtifactService,
  adkServices,
  type ArtifactSummary,
  type MikroOrmArtifactServiceOptions,
  type MikroOrmSessionService,
} from '../../src/index.js';
import { scriptedModel, type ScriptedAnswer } from '../../src/testing/index.js';
import { keyOf } from '../support/harnesses/harness.js';
import { Suite, onServers, oncePerDialect, withConnections, type OwnContext } from './rule.js';
import { errorOf, expectCode, faulty, range, until } from './tools.js';

/** Tests of section P: artifacts. */
export const artifactSuite = new Suite();

for (const { rule, title, test } of ARTIFACT_RULES)
  artifactSuite.own(rule, title, ({ orm, peer, app }) =>
    test({ service: new MikroOrmArtifactService(orm.em), another: new MikroOrmArtifactService(peer.em), app }),
  );

type Part = SaveArtifactRequest['artifact'];

const text = (value: string): Part => ({ text: value });
const png = (bytes: Uint8Array): Part => ({
  inlineData: { data: Buffer.from(bytes).toString('base64'), mimeType: 'image/png' },
});

const sha256 = (bytes: Uint8Array | string) => createHash('sha256').update(bytes).digest('hex');

/** More than one row takes, and no multiple of what one takes. */
const LARGE = 1_500_001;

/** Calls of one session of alice. */
function filesOf(
  { orm, app }: Pick<OwnContext, 'orm' | 'app'>,
  options: MikroOrmArtifactServiceOptions = {},
  em = orm.em,
) {
  const service = new MikroOrmArtifactService(em, options);
  const key = { appName: app, userId: 'alice', sessionId: 's' };
  return {
    service,
    key,
    save: (filename: string, artifact: Part, customMetadata?: Record<string, unknown>) =>
      service.saveArtifact({ ...key, filename, artifact, ...(customMetadata && { customMetadata }) }),
    load: (filename: string, version?: number) =>
      service.loadArtifact({ ...key, filename, ...(version !== undefined && { version }) }),
    about: (filename: string) => service.getArtifactVersion({ ...key, filename }),
    names: () => service.listArtifactKeys(key),
  };
}

const lost = () => Object.assign(new Error('read ECONNRESET'), { code: 'ECONNRESET' });

const TABLES = ['artifacts', 'artifact_versions', 'artifact_parts'];

/** How many rows each of the tables has of an app. */
async function rowsOf({ query, app }: Pick<OwnContext, 'query' | 'app'>): Promise<number[]> {
  const counts: number[] = [];
  for (const table of TABLES) counts.push((await query(`select 1 from adk_${table} where app_name = ?`, [app])).length);
  return counts;
}

/** Runs an agent of the given tools, with all services, and returns the parts that the model was shown last, and the events. */
async function run({ orm, app }: OwnContext, answers: readonly ScriptedAnswer[], tools: LlmAgent['tools']) {
  const services = adkServices(orm.em);
  const model = scriptedModel(answers);
  const agent = new LlmAgent({ name: 'helper', model, tools });
  const key = { userId: 'alice', sessionId: 's' };
  await services.sessionService.getOrCreateSession({ appName: app, ...key });
  const events: Event[] = [];
  const runner = new Runner({ appName: app, agent, ...services });
  const newMessage = { role: 'user', parts: [{ text: 'go' }] };
  for await (const event of runner.runAsync({ ...key, newMessage })) events.push(event);
  return { events, model };
}

const saving = (filename: string) =>
  new FunctionTool({
    name: 'draw',
    description: 'draws',
    execute: async (_, context) => ({ version: await context!.saveArtifact(filename, png(Uint8Array.of(1, 2, 3))) }),
  });

artifactSuite.own('P1', 'a tool saves an artifact under a Runner, and its event names the version', async (context) => {
  const { events } = await run(context, [{ name: 'draw' }, { name: 'draw' }, 'done'], [saving('a.png')]);
  expect(events.map(({ errorMessage }) => errorMessage).filter(Boolean)).toEqual([]);
  expect(events.flatMap(({ actions }) => Object.entries(actions?.artifactDelta ?? {}))).toEqual([
    ['a.png', 0],
    ['a.png', 1],
  ]);
  expect(await filesOf(context).load('a.png', 1)).toEqual(png(Uint8Array.of(1, 2, 3)));
});

artifactSuite.own('P1', 'LOAD_ARTIFACTS lists what there is, and shows what the model asks for', async (context) => {
  const { save } = filesOf(context);
  await save('notes', text('buy milk'));
  await save('user:home', text('Oslo'));
  const answers = [{ name: 'load_artifacts', args: { artifact_names: ['notes', 'home'] } }, 'done'];
  const { model } = await run(context, answers, [LOAD_ARTIFACTS]);
  const [first, second] = model.requests.map((request) => JSON.stringify(request));
  for (const name of ['notes', 'user:home']) expect(first).toContain(name);
  for (const content of ['buy milk', 'Oslo']) {
    expect(first).not.toContain(content);
    expect(second).toContain(content);
  }
});

artifactSuite.own('P1', "an AgentTool saves into its caller's session", async (context) => {
  const inner = new LlmAgent({
    name: 'painter',
    description: 'paints',
    model: scriptedModel([{ name: 'draw' }, 'painted']),
    tools: [saving('inner.png')],
  });
  await run(context, [{ name: 'painter', args: { request: 'paint' } }, 'done'], [new AgentTool({ agent: inner })]);
  expect(await filesOf(context).names()).toEqual(['inner.png']);
});

artifactSuite.own('P1', "a Runner saves a user's files if its config says so", async (context) => {
  const { orm, app } = context;
  const services = adkServices(orm.em);
  const key = { userId: 'alice', sessionId: 's' };
  await services.sessionService.createSession({ appName: app, ...key });
  const model = scriptedModel(['seen']);
  const runner = new Runner({ appName: app, agent: new LlmAgent({ name: 'helper', model }), ...services });
  const file = { inlineData: { data: 'AQID', mimeType: 'image/png', displayName: 'mine.png' } };
  const newMessage = { role: 'user', parts: [file] };
  const given = { ...key, newMessage, runConfig: { saveInputBlobsAsArtifacts: true } };
  for await (const event of runner.runAsync(given)) expect(event.errorMessage).toBeUndefined();
  expect(await filesOf(context).load('mine.png')).toEqual(file);
  // Our own addresses are never sent to a model.
  expect(JSON.stringify(model.requests)).not.toContain('artifact://');
});

artifactSuite.own('P2', 'a save is three statements in all', async (context) => {
  const { save } = filesOf(context);
  await save('f', text('x'));
  const sent = await context.recorded(() => save('f', png(new Uint8Array(10_000))));
  const writes = sent.filter(({ text }) => !/^(begin|commit)/.test(text));
  expect(writes).toHaveLength(3);
});

artifactSuite.own('P2', 'a save whose answer was lost is one version', async (context) => {
  const { orm } = context;
  const { save } = filesOf(context, {}, faulty(orm.em, { commit: true, error: lost }));
  expect(await save('f', text('x'))).toBe(0);
  expect(await rowsOf(context)).toEqual([1, 1, 0]);
  expect(await save('f', text('y'))).toBe(1);
});

artifactSuite.own(
  'P2',
  'a deletion whose answer was lost deletes nothing that was saved since',
  async (context) => {
    const { orm } = context;
    const others = filesOf(context);
    await others.save('f', text('old'));
    let isLost = false;
    const faults = {
      commit: true,
      error: () => {
        isLost = true;
        return lost();
      },
      before: async (statement: string) => {
        if (isLost && statement === 'begin') {
          isLost = false;
          await filesOf(context, {}, context.peer.em).save('f', text('new'));
        }
      },
    };
    const { service, key } = filesOf(context, {}, faulty(orm.em, faults));
    await service.deleteArtifact({ ...key, filename: 'f' });
    expect(await others.load('f')).toEqual(text('new'));
  },
  withConnections,
);

artifactSuite.own('P3', 'large content comes back equal, from several rows', async (context) => {
  const { save, load } = filesOf(context);
  const parts: Part[] = [
    png(randomBytes(LARGE)),
    text('ü\u{1f600}a'.repeat(250_000)),
    text('\ud83d'.repeat(300_000)),
    { inlineData: { data: randomBytes(LARGE).toString('base64url'), mimeType: 'a/b' } },
    png(randomBytes(491_520)),
    png(randomBytes(491_521)),
  ];
  for (const [version, part] of parts.entries()) {
    expect(await save('f', part)).toBe(version);
    expect((await load('f', version))!.inlineData?.data === part.inlineData?.data).toBe(true);
    expect((await load('f', version))!.text === part.text).toBe(true);
  }
  const rows = await context.query<{ version: number }>(
    'select version, part from adk_artifact_parts where app_name = ? order by version, part',
    [context.app],
  );
  expect(rows.map(({ version }) => version)).toEqual([0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 3, 5, 5]);
});

artifactSuite.own(
  'P3',
  'the bytes are in the columns as they are, also for entities',
  async ({ orm, app, ...context }) => {
    const { save } = filesOf({ orm, app });
    const bytes = Uint8Array.from(range(256));
    await save('f', png(bytes));
    await save('large', png(randomBytes(LARGE)));
    const [row] = await context.query<{ hex: string }>(
      `select ${hex(orm.em.getPlatform().getBooleanTypeDeclarationSQL())} as hex from adk_artifact_versions where app_name = ? and filename = 'f'`,
      [app],
    );
    expect(row!.hex.toLowerCase()).toBe(Buffer.from(bytes).toString('hex'));
    const em = orm.em.fork();
    expect(await em.find(AdkArtifact, { appName: app })).toMatchObject([{ filename: 'f' }, { lastVersion: 0 }]);
    const parts = await em.find(AdkArtifactPart, { part: 3, artifactVersion: { artifact: { appName: app } } });
    expect(parts.map(({ data }) => data.length)).toEqual([LARGE - 3 * 491_520]);
  },
);

/** @param boolean how the platform declares a boolean, which differs. */
const hex = (boolean: string) => (boolean === 'boolean' ? "encode(data, 'hex')" : 'hex(data)');

artifactSuite.own('P3', 'a Part that is not content is refused', async (context) => {
  const { save } = filesOf(context);
  for (const part of [
    { inlineData: { mimeType: 'image/png' } },
    { inlineData: { data: Uint8Array.of(1) } },
    { text: 1 },
    { text: null },
    { fileData: {} },
    { executableCode: { code: 'x' } },
  ])
    await expectCode(save('f', part as Part), 'ADK_INVALID_ARGUMENT');
  await expectCode(save('f', 'x' as unknown as Part), 'ADK_INVALID_ARGUMENT');
  expect(await rowsOf(context)).toEqual([0, 0, 0]);
});

artifactSuite.own('P4', 'names have 1 to 255 characters, and no NUL or half of a surrogate pair', async (context) => {
  const { save, names, service, key } = filesOf(context);
  for (const name of ['', 'user:', 'a\0', '\ud83d', 'x'.repeat(256), `user:${'x'.repeat(256)}`])
    await expectCode(save(name, text('x')), 'ADK_INVALID_KEY');
  for (const filename of [undefined, null, 1] as unknown as string[])
    await expectCode(service.loadArtifact({ ...key, filename }), 'ADK_INVALID_ARGUMENT');
  await expectCode(service.listArtifactKeys({ ...key, sessionId: '' }), 'ADK_INVALID_KEY');
  expect(await rowsOf(context)).toEqual([0, 0, 0]);
  const longest = ['x'.repeat(255), '\u{1f600}'.repeat(255), `user:${'é'.repeat(255)}`];
  for (const name of longest) expect(await save(name, png(randomBytes(LARGE)))).toBe(0);
  expect(await names()).toEqual(longest);
});

artifactSuite.own(
  'P4',
  'names of the largest length work with the longest app, user and session',
  async ({ orm, app }) => {
    const service = new MikroOrmArtifactService(orm.em);
    const key = { appName: app + 'a'.repeat(128 - app.length), userId: 'é'.repeat(191), sessionId: '太'.repeat(191) };
    const filename = '太'.repeat(255);
    const artifact = png(randomBytes(LARGE));
    await service.saveArtifact({ ...key, filename, artifact });
    expect((await service.loadArtifact({ ...key, filename }))!.inlineData!.data === artifact.inlineData!.data).toBe(
      true,
    );
    const [userId, tooLong] = [191, 255].map((length) => '\u{1f600}'.repeat(length)) as [string, string];
    await expectCode(
      service.saveArtifact({ ...key, userId, sessionId: userId, filename: tooLong, artifact }),
      'ADK_INVALID_KEY',
      /2600 bytes/,
    );
  },
);

artifactSuite.own(
  'P5',
  'a file of the user is stored without its prefix, and belongs to no session',
  async (context) => {
    const { save } = filesOf(context);
    await save('user:f', text('x'));
    await save('f', text('y'));
    expect(
      await context.query('select session_id, filename from adk_artifacts where app_name = ? order by session_id', [
        context.app,
      ]),
    ).toEqual([
      { session_id: '', filename: 'f' },
      { session_id: 's', filename: 'f' },
    ]);
  },
);

artifactSuite.own('P6', 'a failure of the database is an error, never undefined', async (context) => {
  const { key, save } = filesOf(context);
  await save('f', text('x'));
  const em = faulty(context.orm.em, { statement: (text) => text.includes('adk_artifact') });
  const { service } = filesOf(context, { retry: { attempts: 1 } }, em);
  const file = { ...key, filename: 'f' };
  for (const call of [
    service.loadArtifact(file),
    service.getArtifactVersion(file),
    service.listVersions(file),
    service.listArtifactVersions(file),
    service.listArtifactKeys(key),
    service.deleteArtifact(file),
    service.saveArtifact({ ...file, artifact: text('y') }),
  ]) {
    const error = await errorOf(call);
    expect(error).toBeInstanceOf(DatabaseError);
    expect(error.message).not.toMatch(/select|insert|failed on demand/);
  }
  expect(await rowsOf(context)).toEqual([1, 1, 0]);
});

artifactSuite.own('P6', 'an impossible version is undefined', async (context) => {
  const { save, load } = filesOf(context);
  await save('f', text('x'));
  for (const version of [1, -1, 0.5, NaN, Infinity, 2 ** 31, '0' as unknown as number])
    expect(await load('f', version)).toBeUndefined();
  expect(await load('f', null as unknown as undefined)).toEqual(text('x'));
});

artifactSuite.own('P6', 'nor is a name that cannot be, whatever a model asks for', async (context) => {
  const { service, key, save } = filesOf(context);
  await save('f', text('x'));
  const { model, events } = await run(
    context,
    [{ name: 'load_artifacts', args: { artifact_names: ['', 'user:', 'a\0', 'x'.repeat(256), 'f'] } }, 'done'],
    [LOAD_ARTIFACTS],
  );
  expect(events.at(-1)?.content?.parts).toEqual([text('done')]);
  expect(JSON.stringify(model.requests.at(-1)?.contents)).toContain('Artifact f is:');
  const none = { ...key, filename: '' };
  expect([await service.getArtifactVersion(none), await service.openArtifact(none)]).toEqual([undefined, undefined]);
  expect([await service.listVersions(none), await service.listArtifactVersions(none)]).toEqual([[], []]);
  await expectCode(service.loadArtifact({ ...none, userId: '' }), 'ADK_INVALID_KEY', 'user id');
});

artifactSuite.own('A3', 'read opens the file that it was called for', async (context) => {
  const { service, key, save } = filesOf(context);
  // For such a text, the bytes are read later.
  await save('one', text('one \ud800'));
  await save('other', text('other \ud800'));
  const request = { ...key, filename: 'one' };
  const opening = service.openArtifact(request);
  request.filename = 'other';
  expect((await opening)?.size).toBe(Buffer.byteLength('one \ud800'));
});

artifactSuite.own('P7', 'size, hash and time are known without the content', async (context) => {
  const { save, about } = filesOf(context);
  const bytes = randomBytes(LARGE);
  await save('f', png(bytes));
  let found: Awaited<ReturnType<typeof about>>;
  const sent = await context.recorded(async () => {
    found = await about('f');
  });
  expect(sent).toHaveLength(1);
  expect(sent[0]!.text).not.toMatch(/\bdata\b|artifact_parts/);
  expect(found).toMatchObject({ version: 0, mimeType: 'image/png', size: LARGE, sha256: sha256(bytes) });
  expect(Math.abs(found!.createTime - Date.now())).toBeLessThan(600_000);
  await save('f', text('ü'));
  expect(await about('f')).toMatchObject({ version: 1, mimeType: 'text/plain', size: 2, sha256: sha256('ü') });
  await save('f', { fileData: { fileUri: 'gs://a/b' } });
  expect(await about('f')).toEqual({
    version: 2,
    canonicalUri: expect.any(String) as unknown,
    createTime: expect.any(Number) as unknown,
  });
});

artifactSuite.own('P7', 'size and hash are those of the file, whatever the form of its base64', async (context) => {
  const { key } = filesOf(context);
  const service = new MikroOrmArtifactService(context.orm.em, { maxBytes: 1_000 });
  for (const length of [0, 4, 999, 1_000, 1_001]) {
    const file = Buffer.from(range(length).map((n) => 251 + (n % 5)));
    const base64 = file.toString('base64');
    const forms = {
      plain: base64,
      url: file.toString('base64url'),
      unpadded: base64.replace(/=+$/, ''),
      'line ends': base64.replace(/.{76}/g, '$&\r\n') + '\r\n',
    };
    for (const [form, data] of Object.entries(forms)) {
      const filename = `${length} ${form}`;
      const artifact = { inlineData: { data, mimeType: 'image/png' } };
      const saved = service.saveArtifact({ ...key, filename, artifact });
      if (length > 1_000) {
        expect(await errorOf(saved)).toMatchObject({
          code: 'ADK_ARTIFACT_TOO_LARGE',
          message: expect.stringContaining(`has ${length} bytes`) as unknown,
        });
        continue;
      }
      await saved;
      const about = { size: length, sha256: sha256(file) };
      expect(await service.loadArtifact({ ...key, filename })).toEqual(artifact);
      expect(await service.getArtifactVersion({ ...key, filename })).toMatchObject(about);
      expect((await service.findArtifacts(key)).find((each) => each.filename === filename)).toMatchObject(about);
      const read = (await service.openArtifact({ ...key, filename }))!;
      expect(read).toMatchObject(about);
      const parts = [];
      for await (const part of read.bytes()) parts.push(part);
      expect(Buffer.concat(parts)).toEqual(file);
    }
  }
  const halves = 'a\ud800'.repeat(50);
  await service.saveArtifact({ ...key, filename: 'halves', artifact: { text: halves } });
  const about = { size: Buffer.byteLength(halves), sha256: sha256(Buffer.from(halves)) };
  expect(await service.getArtifactVersion({ ...key, filename: 'halves' })).toMatchObject(about);
  expect(await service.openArtifact({ ...key, filename: 'halves' })).toMatchObject(about);
  expect(await service.loadArtifact({ ...key, filename: 'halves' })).toEqual({ text: halves });
  // What is stored has a limit, too.
  const padded = { inlineData: { data: `AAAA${' '.repeat(3_000)}`, mimeType: 'image/png' } };
  expect(await errorOf(service.saveArtifact({ ...key, filename: 'padded', artifact: padded }))).toMatchObject({
    code: 'ADK_ARTIFACT_TOO_LARGE',
  });
});

artifactSuite.own('P7', 'what JSON would damage is refused with its path', async (context) => {
  const { save } = filesOf(context);
  for (const [part, metadata, path] of [
    [text('x'), { a: [{ b: NaN }] }, 'customMetadata.a[0].b'],
    [text('x'), { when: new Map() }, 'customMetadata.when'],
    [{ ...text('x'), partMetadata: { n: 1n } }, {}, 'artifact.partMetadata.n'],
  ] as [Part, Record<string, unknown>, string][]) {
    const error = await errorOf(save('f', part, metadata));
    expect(error).toMatchObject({ code: 'ADK_UNSERIALIZABLE_VALUE', path });
  }
  expect(await rowsOf(context)).toEqual([0, 0, 0]);
});

artifactSuite.own('P8', "a list is one statement about names, by bytes, the user's last", async (context) => {
  const { save, names } = filesOf(context);
  const ordered = ['B', 'a', 'a ', 'é', '\uffff', '\u{1f600}', 'user:A', 'user:b'];
  for (const name of [...ordered].reverse()) for (const n of range(2)) await save(name, text(String(n)));
  let found: string[] = [];
  const sent = await context.recorded(async () => {
    found = await names();
  });
  expect(found).toEqual(ordered);
  expect(sent.map(({ text }) => /adk_(\w+)/.exec(text)?.[1])).toEqual(['artifacts']);
});

artifactSuite.own(
  'P7',
  'a list has the newest version of each artifact, in pages, without content',
  async (context) => {
    const { save, service, key } = filesOf(context);
    for (const name of ['user:b', 'b', 'a', 'user:a']) await save(name, text('x'), { name });
    await save('a', png(randomBytes(LARGE)));
    await service.saveArtifact({
      ...key,
      sessionId: 't',
      filename: 'a',
      artifact: { fileData: { fileUri: 'gs://a/b' } },
    });
    await service.saveArtifact({ ...key, userId: 'bob', filename: 'a', artifact: text('x') });
    const { appName, userId } = key;
    const names = (files: readonly ArtifactSummary[]) =>
      files.map(({ sessionId = '', filename, version }) => [sessionId, filename, version].join(' '));
    const ofSession = [' user:a 0', ' user:b 0', 's a 1', 's b 0'];
    let found: ArtifactSummary[] = [];
    const sent = await context.recorded(async () => {
      found = await service.findArtifacts(key);
    });
    expect(names(found)).toEqual(ofSession);
    expect(sent).toHaveLength(1);
    expect(sent[0]!.text).not.toMatch(/\bdata\b|artifact_parts/);
    expect(found[0]).toMatchObject({
      customMetadata: { name: 'user:a' },
      mimeType: 'text/plain',
      size: 1,
      sha256: sha256('x'),
    });
    expect(found[2]).toMatchObject({ mimeType: 'image/png', size: LARGE });
    expect(names(await service.findArtifacts({ appName, userId }))).toEqual([...ofSession, 't a 0']);
    const paged: ArtifactSummary[] = [];
    for (let page = await service.findArtifacts({ appName, userId, limit: 2 }); page.length > 0;) {
      paged.push(...page);
      page = await service.findArtifacts({ appName, userId, limit: 2, after: page.at(-1)! });
    }
    expect(names(paged)).toEqual([...ofSession, 't a 0']);
    await expectCode(service.findArtifacts({ appName, userId, limit: 0 }), 'ADK_INVALID_ARGUMENT', /limit/);
    await expectCode(service.findArtifacts({ appName, userId: '' }), 'ADK_INVALID_KEY');
    await expectCode(service.findArtifacts({ appName, userId, after: { filename: 'a\0' } }), 'ADK_INVALID_KEY');
  },
);

const bytesOf = async (parts: AsyncIterable<Uint8Array>) => {
  const all: Uint8Array[] = [];
  for await (const part of parts) all.push(part);
  return Buffer.concat(all);
};

for (const [how, options] of [
  ['', {}],
  [', decoded', { codec: [compression(), encryption({ currentKey: 'k', key: async () => Buffer.alloc(32) })] }],
] as [string, MikroOrmArtifactServiceOptions][])
  artifactSuite.own('P14', `a version is read a part at a time${how}`, async (context) => {
    const { save, service, key } = filesOf(context, options);
    const bytes = randomBytes(LARGE);
    await save('f', png(bytes), { by: 'alice' });
    const file = await service.openArtifact({ ...key, filename: 'f' });
    expect(file).toMatchObject({ version: 0, size: LARGE, sha256: sha256(bytes), customMetadata: { by: 'alice' } });
    expect((await bytesOf(file!.bytes())).equals(bytes)).toBe(true);
    for (const [start, end] of [
      [0, 1],
      [491_519, 491_521],
      [491_520, 983_040],
      [LARGE - 1, LARGE + 9],
      [5, 5],
    ])
      expect((await bytesOf(file!.bytes({ start: start!, end: end! }))).equals(bytes.subarray(start, end))).toBe(true);
    const sent = await context.recorded(() => bytesOf(file!.bytes({ start: 491_520, end: 600_000 })));
    expect(sent).toHaveLength(1);
    // This base64 has another alphabet, so it is stored as it is; `read` returns its bytes nonetheless.
    await save('url', { inlineData: { data: Buffer.from([251, 255]).toString('base64url') } });
    const url = await service.openArtifact({ ...key, filename: 'url' });
    expect([url!.size, [...(await bytesOf(url!.bytes()))]]).toEqual([2, [251, 255]]);
    await save('url', { inlineData: { data: `${bytes.toString('base64url')}=` } });
    const long = await service.openArtifact({ ...key, filename: 'url' });
    for (const [start, end] of [
      [0, LARGE],
      [491_519, 491_521],
      [600_000, 983_041],
    ])
      expect((await bytesOf(long!.bytes({ start: start!, end: end! }))).equals(bytes.subarray(start, end))).toBe(true);
    for (const range of [{ start: -5 }, { start: NaN }, { end: -1 }, { end: 1.5 }])
      expect(() => file!.bytes(range)).toThrow(InvalidArgumentError);
    await save('ü', text('ü'));
    expect((await bytesOf((await service.openArtifact({ ...key, filename: 'ü' }))!.bytes())).toString()).toBe('ü');
    await save('reference', { fileData: { fileUri: 'gs://a/b' } });
    for (const filename of ['reference', 'absent'])
      expect(await service.openArtifact({ ...key, filename })).toBeUndefined();
    expect(await service.openArtifact({ ...key, filename: 'f', version: 1 })).toBeUndefined();
    await context.query('delete from adk_artifact_parts where part = 2 and app_name = ?', [context.app]);
    await expectCode(bytesOf(file!.bytes()), 'ADK_DAMAGED_ARTIFACT', /part 2/);
    expect((await bytesOf(file!.bytes({ end: 900_000 }))).equals(bytes.subarray(0, 900_000))).toBe(true);
  });

artifactSuite.own(
  'P14',
  'a range of an artifact that is replaced while it is read has no bytes of the next one',
  async (context) => {
    const { save, service, key } = filesOf(context);
    await save('f', png(randomBytes(LARGE)));
    const bytes = (await service.openArtifact({ ...key, filename: 'f' }))!.bytes({ start: 1 })[Symbol.asyncIterator]();
    await bytes.next();
    await service.deleteArtifact({ ...key, filename: 'f' });
    await save('f', png(randomBytes(LARGE)));
    await expectCode(bytes.next(), 'ADK_DAMAGED_ARTIFACT', /was changed/);
  },
);

artifactSuite.own('P14', 'a changed part is an error after the last part', async (context) => {
  const { save, service, key } = filesOf(context);
  await save('f', png(randomBytes(LARGE)));
  const file = (await service.openArtifact({ ...key, filename: 'f' }))!;
  await context.query('delete from adk_artifact_parts where part = 0 and app_name = ?', [context.app]);
  await context.query('update adk_artifact_parts set part = 0 where part = 1 and app_name = ?', [context.app]);
  await save('f', png(randomBytes(LARGE)));
  await context.query('update adk_artifact_parts set version = 0 where part = 1 and version = 1 and app_name = ?', [
    context.app,
  ]);
  await expectCode(bytesOf(file.bytes()), 'ADK_DAMAGED_ARTIFACT', /was changed/);
});

/** Ways to damage the version 1 of `f`. */
const DAMAGE: Readonly<Record<string, string>> = {
  'a part is missing': 'delete from adk_artifact_parts where part = 1 and version = 1 and app_name = ?',
  'the last part is missing': 'delete from adk_artifact_parts where part = 3 and version = 1 and app_name = ?',
  'all parts are missing': 'delete from adk_artifact_parts where version = 1 and app_name = ?',
  'a part is another one':
    'update adk_artifact_parts set part = part + 10 where part = 0 and version = 1 and app_name = ?',
  'what is known of it is no JSON of ours': `update adk_artifact_versions set info = '5' where version = 1 and app_name = ?`,
};

for (const [what, statement] of Object.entries(DAMAGE))
  artifactSuite.own('P9', `damage is an error if ${what}, and the others can be read`, async (context) => {
    const { save, load } = filesOf(context);
    const other = png(randomBytes(LARGE));
    for (const part of [other, png(randomBytes(LARGE)), text('small')]) await save('f', part);
    await context.query(statement, [context.app]);
    const error = await errorOf(load('f', 1));
    expect(error).toMatchObject({ code: 'ADK_DAMAGED_ARTIFACT', filename: 'f', version: 1 });
    expect((await load('f', 0))!.inlineData!.data === other.inlineData!.data).toBe(true);
    expect(await load('f')).toEqual(text('small'));
    // It is never replaced.
    expect(await save('f', text('next'))).toBe(3);
    await expectCode(load('f', 1), 'ADK_DAMAGED_ARTIFACT');
  });

artifactSuite.own(
  'P9',
  'an artifact that is deleted and saved again while it is read is not damage',
  async (context) => {
    const old = png(randomBytes(LARGE));
    const { save, service, key } = filesOf(context);
    await save('f', old);
    let isDone = false;
    const before = async (statement: string) => {
      if (isDone || !statement.includes('artifact_parts')) return;
      isDone = true;
      const others = filesOf(context, {}, context.peer.em);
      await others.service.deleteArtifact({ ...key, filename: 'f' });
      await others.save('f', text('new'));
    };
    const reader = filesOf(context, {}, faulty(context.orm.em, { before }));
    expect(await reader.load('f')).toEqual(text('new'));
    await service.deleteArtifact({ ...key, filename: 'f' });
    expect(await reader.load('f')).toBeUndefined();
    expect(await rowsOf(context)).toEqual([0, 0, 0]);
  },
  withConnections,
);

/** Appends an event that names the first version of `f`, and forks the session. @returns the id of the fork. */
async function forkWithFile(service: MikroOrmSessionService, session: Session): Promise<string> {
  const event = createEvent({ actions: createEventActions({ artifactDelta: { f: 0 } }) });
  await service.appendEvent({ session, event });
  return (await service.forkSession(keyOf(session))).id;
}

/** An `EntityManager` that does this once, before it reads the parts of a version. */
function beforeParts(em: EntityManager, change: () => Promise<unknown>) {
  let isDone = false;
  const before = async (statement: string) => {
    if (isDone || !/^select[^]*artifact_parts/.test(statement)) return;
    isDone = true;
    await change();
  };
  return faulty(em, { before });
}

artifactSuite.own(
  'M3',
  'an artifact that reencode encrypts while it is read is not damage',
  async (context) => {
    const { app, orm, peer } = context;
    const bytes = randomBytes(LARGE);
    const codec = encrypting();
    const { maintenance } = adkServices(peer.em, { codec });
    const encrypt = async () =>
      expect(await maintenance.reencode({ appName: app })).toMatchObject({ done: { texts: 1 } });
    const reader = () => filesOf(context, { codec }, beforeParts(orm.em, encrypt));
    await filesOf(context).save('loaded', png(bytes));
    expect(await reader().load('loaded')).toEqual(png(bytes));
    await filesOf(context).save('read', png(bytes));
    const { service, key } = reader();
    const file = await service.openArtifact({ ...key, filename: 'read' });
    expect((await bytesOf(file!.bytes({ start: 1 }))).equals(bytes.subarray(1))).toBe(true);
  },
  withConnections,
);

artifactSuite.own(
  'P9',
  'an artifact that is deleted and saved again while reencode or a fork reads it is not damage',
  async (context) => {
    const { app, orm, peer, harness } = context;
    const options = { codec: encrypting() };
    const others = filesOf(context, options, peer.em);
    const replace = async () => {
      await others.service.deleteArtifact({ ...others.key, filename: 'f' });
      await others.save('f', text('new'));
    };
    const services = () => adkServices(beforeParts(orm.em, replace), options);
    await filesOf(context).save('f', png(randomBytes(LARGE)));
    expect(await services().maintenance.reencode({ appName: app })).toMatchObject({
      done: { texts: 0, unreadable: 0 },
    });
    expect(await others.load('f')).toEqual(text('new'));

    // A file takes one writer at a time, and a fork reads while it writes.
    if (!harness.server) return;
    await others.service.deleteArtifact({ ...others.key, filename: 'f' });
    await others.save('f', png(randomBytes(LARGE)));
    const { sessionService } = services();
    const sessionId = await forkWithFile(sessionService, await sessionService.createSession(others.key));
    expect(await others.service.loadArtifact({ ...others.key, sessionId, filename: 'f' })).toEqual(text('new'));
  },
  withConnections,
);

artifactSuite.own(
  'P12',
  'a fork that encodes versions has those that are there when it writes, and numbers on from them',
  async (context) => {
    const { orm, peer } = context;
    const options = { codec: encrypting() };
    const { key, save } = filesOf(context, options, peer.em);
    let isSaved = false;
    const before = async (statement: string) => {
      if (isSaved || !/^insert into \S*adk_sessions\W/.test(statement)) return;
      isSaved = true;
      await save('f', text('late'));
    };
    const session = await adkServices(orm.em, options).sessionService.createSession(key);
    const { artifactService, sessionService } = adkServices(faulty(orm.em, { before }), options);
    const fork = { ...key, sessionId: await forkWithFile(sessionService, session) };
    expect(isSaved).toBe(true);
    expect(await artifactService.loadArtifact({ ...fork, filename: 'f' })).toEqual(text('late'));
    expect(await artifactService.saveArtifact({ ...fork, filename: 'f', artifact: text('next') })).toBe(1);
  },
  // A file takes one writer at a time.
  onServers,
);

artifactSuite.own(
  'P12',
  'a fork has a version as a whole or not at all, if somebody deletes it meanwhile',
  async (context) => {
    const { orm, peer, harness, query, connect } = context;
    const { save, service, key } = filesOf(context);
    await save('f', png(randomBytes(LARGE)));
    const observer = await connect();
    let deletion: Promise<unknown> | undefined;
    let isDeleted = false;
    const before = async (statement: string) => {
      if (deletion || !/^insert[^]*artifact_versions/.test(statement)) return;
      deletion = filesOf(context, {}, peer.em).service.deleteArtifact({ ...key, filename: 'f' });
      void deletion.then(() => (isDeleted = true));
      const isWaiting = async () => (await query(harness.server!.waiting, [], observer.em.fork())).length > 0;
      // InnoDB gives the same answer again to who asks within 100 ms.
      await until(async () => isDeleted || (await isWaiting()), 150);
    };
    const { sessionService } = adkServices(faulty(orm.em, { before }));
    const sessionId = await forkWithFile(sessionService, await sessionService.createSession(key));
    await deletion;
    expect(await service.loadArtifact({ ...key, sessionId, filename: 'f' })).toBeDefined();
    expect(await service.listVersions({ ...key, filename: 'f' })).toEqual([]);
  },
  onServers,
);

artifactSuite.own('P9', 'a save that fails at any statement leaves nothing', async (context) => {
  const large = png(randomBytes(LARGE));
  let n = 0;
  for (let isSaved = false; !isSaved; n++) {
    let count = 0;
    // The row that is removed after the commit is missed by nobody, and a rollback may fail.
    const statement = (text: string) => !/^(rollback|delete)/.test(text) && count++ === n;
    const { save } = filesOf(context, { retry: { attempts: 1 } }, faulty(context.orm.em, { statement }));
    isSaved = await save('f', large).then(
      () => true,
      () => false,
    );
    if (!isSaved) expect([n, await rowsOf(context)]).toEqual([n, [0, 0, 0]]);
  }
  expect(n).toBeGreaterThan(8);
  expect(await rowsOf(context)).toEqual([1, 1, 4]);
});

artifactSuite.own('P10', "it joins the host's transaction, and goes with it", async (context) => {
  const { orm, app } = context;
  const { artifactService, sessionService } = adkServices(orm.em);
  const key = { appName: app, userId: 'alice', sessionId: 's' };
  const file = { ...key, filename: 'f' };
  const session = await sessionService.createSession(key);
  const both = (fails: boolean) =>
    orm.em.fork().transactional(async (tx) => {
      const version = await artifactService.withEntityManager(tx).saveArtifact({ ...file, artifact: text('x') });
      await sessionService.withEntityManager(tx).updateState({ ...key, set: { version } });
      expect(await artifactService.withEntityManager(tx).loadArtifact(file)).toEqual(text('x'));
      if (fails) throw new Error('no');
    });
  await expect(both(true)).rejects.toThrow('no');
  expect(await rowsOf(context)).toEqual([0, 0, 0]);
  await both(false);
  expect(await artifactService.loadArtifact(file)).toEqual(text('x'));
  expect((await sessionService.getSession(key))!.state).toEqual({ ...session.state, version: 0 });
  await orm.em
    .fork()
    .transactional(async (tx) => {
      await artifactService.withEntityManager(tx).deleteArtifact(file);
      expect(await artifactService.withEntityManager(tx).listArtifactKeys(key)).toEqual([]);
      throw new Error('no');
    })
    .catch(() => undefined);
  expect(await artifactService.listArtifactKeys(key)).toEqual(['f']);
});

artifactSuite.own(
  'P10',
  'a call beside the transaction is refused, and one that fails undoes only itself',
  async (context) => {
    const { orm } = context;
    const { service, key } = filesOf(context);
    await orm.em.fork().transactional(async (tx) => {
      const file = { ...key, filename: 'f' };
      await expectCode(
        service.saveArtifact({ ...file, artifact: text('x') }),
        'ADK_INSIDE_TRANSACTION',
        /session, artifact, memory or credential service/,
      );
      await expectCode(service.loadArtifact(file), 'ADK_INSIDE_TRANSACTION');
      const joined = service.withEntityManager(tx);
      await joined.saveArtifact({ ...file, artifact: text('kept') });
      await expectCode(joined.saveArtifact({ ...file, artifact: {} }), 'ADK_INVALID_ARGUMENT');
      const saves = range(3).map((n) => joined.saveArtifact({ ...file, artifact: text(String(n)) }));
      expect(await Promise.all(saves)).toEqual([1, 2, 3]);
    });
    expect(await rowsOf(context)).toEqual([1, 4, 0]);
  },
);

artifactSuite.own('P13', 'the address names everything, and is the host’s if it has one', async (context) => {
  const { save, about, service, key } = filesOf(context);
  await save('a/ü', text('x'));
  await save('user:f', text('x'));
  const app = encodeURIComponent(context.app);
  expect((await about('a/ü'))!.canonicalUri).toBe(
    `artifact://apps/${app}/users/alice/sessions/s/artifacts/a%2F%C3%BC/versions/0`,
  );
  expect((await about('user:f'))!.canonicalUri).toBe(`artifact://apps/${app}/users/alice/artifacts/f/versions/0`);
  const asked: unknown[] = [];
  const serving = filesOf(context, {
    canonicalUri: async (address) => {
      asked.push(address);
      return address.filename === 'user:f' ? 'https://files.example/f' : undefined;
    },
  });
  expect((await serving.about('user:f'))!.canonicalUri).toBe('https://files.example/f');
  expect((await serving.about('a/ü'))!.canonicalUri).toMatch(/^artifact:/);
  expect(asked).toEqual(['user:f', 'a/ü'].map((filename) => ({ ...key, filename, version: 0 })));
  expect(await service.listArtifactVersions({ ...key, filename: 'user:f' })).toHaveLength(1);
});

artifactSuite.own('P14', 'what is larger than maxBytes is refused before anything is sent', async (context) => {
  const { save } = filesOf(context, { maxBytes: 10 });
  const sent = await context.recorded(async () => {
    for (const part of [png(new Uint8Array(11)), text('ü'.repeat(6)), text('\ud83d\ud83d')])
      await expectCode(save('f', part), 'ADK_ARTIFACT_TOO_LARGE', /of maxBytes/);
  });
  expect(sent).toEqual([]);
  for (const part of [png(new Uint8Array(10)), text('ü'.repeat(5))]) await save('f', part);
  await save('f', { fileData: { fileUri: 'gs://bucket/much-longer-than-that' } });
});

const keyBytes = (id: string) => createHash('sha256').update(id).digest();

/** A codec whose key comes later, as from a KMS. */
const encrypting = (required = false) =>
  encryption({ currentKey: 'k1', key: async (id) => keyBytes(id), cacheMs: 0, required });

artifactSuite.own('P15', 'neither bytes nor metadata can be read in the tables', async (context) => {
  const secret = 'the launch code is 0451';
  const options = { codec: [compression(), encrypting(true)] };
  const { save, load, about, service, key } = filesOf(context, options);
  const parts = [text(secret), text(secret.repeat(50_000)), png(randomBytes(LARGE)), text('')];
  for (const [n, part] of parts.entries()) {
    expect(await save('f', part, { secret })).toBe(n);
    expect(await load('f', n)).toEqual(part);
    expect(await about('f')).toMatchObject({ version: n, customMetadata: { secret } });
  }
  expect(await service.listArtifactVersions({ ...key, filename: 'f' })).toHaveLength(4);
  const columns = [
    ['artifact_versions', 'info'],
    ['artifact_versions', 'data'],
    ['artifact_parts', 'data'],
  ];
  for (const [table, column] of columns) {
    const rows = await context.query<{ value: unknown }>(
      `select ${column} as value from adk_${table} where app_name = ? and ${column} is not null`,
      [context.app],
    );
    expect(rows.length).toBeGreaterThan(0);
    for (const { value } of rows) {
      const stored =
        Buffer.isBuffer(value) || value instanceof Uint8Array
          ? Buffer.from(value).toString('latin1')
          : JSON.stringify(value);
      expect(stored).not.toContain('launch');
      expect(stored).not.toContain('text/plain');
    }
  }
  await expectCode(filesOf(context).load('f'), 'ADK_CODEC', /codec option/);
});

artifactSuite.own(
  'P15',
  'rows cannot be exchanged between names, versions, users and parts',
  async (context) => {
    const { app, query } = context;
    const options = { codec: encrypting() };
    const { save, service, key } = filesOf(context, options);
    const large = () => png(randomBytes(LARGE));
    await save('f', large());
    await save('f', large());
    await save('g', large());
    await service.saveArtifact({ ...key, userId: 'bob', filename: 'f', artifact: large() });
    const data = (where: string) =>
      `(select data from (select * from adk_artifact_parts) as other where app_name = ? and ${where})`;
    const info = (where: string) =>
      `(select info from (select * from adk_artifact_versions) as other where app_name = ? and ${where})`;
    const of = (userId: string, filename: string, version: number) =>
      `user_id = '${userId}' and filename = '${filename}' and version = ${version}`;
    const target = of('alice', 'f', 0);
    const [original] = await query<{ data: unknown }>(
      `select data from adk_artifact_parts where app_name = ? and part = 0 and ${target}`,
      [app],
    );
    for (const from of [of('alice', 'f', 1), of('alice', 'g', 0), of('bob', 'f', 0), target]) {
      const part = from === target ? 1 : 0;
      await query(
        `update adk_artifact_parts set data = ${data(`${from} and part = ${part}`)} where app_name = ? and part = 0 and ${target}`,
        [app, app],
      );
      await expectCode(service.loadArtifact({ ...key, filename: 'f', version: 0 }), 'ADK_DAMAGED_ARTIFACT');
    }
    await query(`update adk_artifact_parts set data = ? where app_name = ? and part = 0 and ${target}`, [
      original!.data,
      app,
    ]);
    await service.loadArtifact({ ...key, filename: 'f', version: 0 });
    for (const from of [of('alice', 'f', 1), of('alice', 'g', 0), of('bob', 'f', 0)]) {
      await query(`update adk_artifact_versions set info = ${info(from)} where app_name = ? and ${target}`, [app, app]);
      await expectCode(service.getArtifactVersion({ ...key, filename: 'f', version: 0 }), 'ADK_DAMAGED_ARTIFACT');
    }
  },
  oncePerDialect,
);

artifactSuite.own(
  'P15',
  'with a codec that is required, what lacks it is damage; otherwise it is read',
  async (context) => {
    const plain = filesOf(context);
    await plain.save('f', text('plain'));
    await plain.save('large', png(randomBytes(LARGE)));
    const lenient = filesOf(context, { codec: encrypting() });
    expect(await lenient.load('f')).toEqual(text('plain'));
    await lenient.save('f', text('encrypted'));
    expect([await lenient.load('f', 0), await lenient.load('f', 1)]).toEqual(['plain', 'encrypted'].map(text));
    const strict = filesOf(context, { codec: encrypting(true) });
    await expectCode(strict.load('f', 0), 'ADK_DAMAGED_ARTIFACT', /not encoded with aes/);
    await expectCode(strict.load('large'), 'ADK_DAMAGED_ARTIFACT');
    expect(await strict.load('f')).toEqual(text('encrypted'));
  },
);

artifactSuite.own(
  'P15',
  'reencode brings versions to the current codec and key, and changes nothing else',
  async (context) => {
    const { orm, app, query } = context;
    const parts = [text('x'), png(randomBytes(LARGE)), { fileData: { fileUri: 'gs://a/b' } }, text('z'.repeat(LARGE))];
    const plain = filesOf(context);
    for (const part of parts) await plain.save('f', part, { by: 'alice' });
    await plain.save('user:home', text('Oslo'));
    await plain.service.saveArtifact({ ...plain.key, userId: 'bob', filename: 'f', artifact: text('of bob') });
    const known = await plain.service.listArtifactVersions({ ...plain.key, filename: 'f' });
    const key = async (id: string) => keyBytes(id);
    const first = { codec: [compression(), encryption({ currentKey: 'k1', key })] };
    const second = { codec: [compression(), encryption({ currentKey: 'k2', key, required: true })] };
    const off = { codec: [compression(), encryption({ currentKey: undefined, key })] };
    const maintenance = (options: typeof first) => adkServices(orm.em, options).maintenance;

    expect(await maintenance(first).reencode({ appName: app, dryRun: true })).toMatchObject({
      done: { texts: 6, unreadable: 0 },
    });
    expect(await plain.load('f', 0)).toEqual(text('x'));
    expect(await maintenance(first).reencode({ appName: app, userId: 'bob' })).toMatchObject({ done: { texts: 1 } });
    // In several transactions.
    expect(await maintenance(first).reencode({ appName: app, batchSize: 2, maxBatches: 1 })).toMatchObject({
      done: { texts: 2 },
      more: true,
    });
    expect(await maintenance(first).reencode({ appName: app, batchSize: 2 })).toMatchObject({
      done: { texts: 3 },
      more: false,
    });
    await expectCode(plain.load('f', 1), 'ADK_CODEC', /codec option/);

    for (const options of [second, off, first]) {
      expect(await maintenance(options).reencode({ appName: app })).toMatchObject({
        done: { texts: 6, unreadable: 0 },
        skipped: 0,
      });
      expect(await maintenance(options).reencode({ appName: app })).toMatchObject({ done: { texts: 0 }, batches: 0 });
      const { load, service, key } = filesOf(context, options);
      for (const [version, part] of parts.entries()) expect(await load('f', version)).toEqual(part);
      expect(await load('user:home')).toEqual(text('Oslo'));
      expect(await service.listArtifactVersions({ ...key, filename: 'f' })).toEqual(known);
    }

    // What lacks a codec that is required is left.
    await plain.save('f', text('plain'));
    expect(await maintenance(second).reencode({ appName: app })).toMatchObject({ done: { texts: 6, unreadable: 1 } });
    expect(await maintenance(second).reencode({ appName: app })).toMatchObject({ done: { texts: 0, unreadable: 1 } });
    const adopting = { codec: second.codec.map((codec) => ({ ...codec, required: false })) };
    expect(await maintenance(adopting).reencode({ appName: app })).toMatchObject({ done: { texts: 1, unreadable: 0 } });
    expect(await filesOf(context, second).load('f')).toEqual(text('plain'));
    await query('delete from adk_artifact_parts where part = 1 and version = 1 and app_name = ?', [app]);
    expect(await maintenance(first).reencode({ appName: app })).toMatchObject({ done: { texts: 6, unreadable: 1 } });
    await expectCode(maintenance({ codec: [] }).reencode({ appName: app }), 'ADK_CODEC', 'not in the codec option');
  },
);

/** A session of alice with two artifacts, of which one has two versions and one is in several rows; and two that are not its own. */
async function filled(context: OwnContext, sessionId = 's') {
  const { orm, app } = context;
  const { artifactService, sessionService, maintenance } = adkServices(orm.em);
  const key = { appName: app, userId: 'alice', sessionId };
  const session = await sessionService.createSession(key);
  const save = (filename: string, artifact: Part, of = key) =>
    artifactService.saveArtifact({ ...of, filename, artifact });
  for (const part of [text('old'), text('new')]) await save('f', part);
  await save('large', png(randomBytes(LARGE)));
  await save('user:f', text("the user's"));
  await save('f', text("another session's"), { ...key, sessionId: 'other' });
  const names = (sessionId: string) => artifactService.listArtifactKeys({ ...key, sessionId });
  return { key, session, sessionService, artifactService, maintenance, save, names };
}

const ALL = [4, 5, 4];
const OTHERS = [2, 2, 0];

artifactSuite.own('P11', 'deleteSession deletes them in its transaction, and no others', async (context) => {
  const { key, sessionService, names } = await filled(context);
  expect(await rowsOf(context)).toEqual(ALL);
  await context.orm.em
    .fork()
    .transactional(async (tx) => {
      await sessionService.withEntityManager(tx).deleteSession(key);
      throw new Error('no');
    })
    .catch(() => undefined);
  expect(await rowsOf(context)).toEqual(ALL);
  await sessionService.deleteSession(key);
  expect(await rowsOf(context)).toEqual(OTHERS);
  await sessionService.createSession(key);
  expect([await names('s'), await names('other')]).toEqual([['user:f'], ['f', 'user:f']]);
});

artifactSuite.own('P11', 'a soft deletion keeps them, and what ends it deletes them', async (context) => {
  const { key, sessionService, maintenance } = await filled(context);
  const softly = adkServices(context.orm.em, { sessions: { deletion: 'soft' } }).sessionService;
  await softly.deleteSession(key);
  expect(await rowsOf(context)).toEqual(ALL);
  await softly.restoreSession(key);
  expect(await rowsOf(context)).toEqual(ALL);
  await softly.deleteSession(key);
  await sessionService.createSession(key);
  expect(await rowsOf(context)).toEqual(OTHERS);
  await softly.deleteSession(key);
  await filled(context, 'second');
  await softly.deleteSession({ ...key, sessionId: 'second' });
  const left = await rowsOf(context);
  expect(await maintenance.prune({ appName: context.app, deletedFor: 0 })).toMatchObject({ done: { sessions: 2 } });
  expect(await rowsOf(context)).toEqual([left[0]! - 2, left[1]! - 3, 0]);
});

artifactSuite.own('P11', 'prune deletes them, and trim and rewind change none', async (context) => {
  const { session, key, sessionService, maintenance } = await filled(context);
  const events = range(5).map((n) => createEvent({ author: 'agent', timestamp: n }));
  await sessionService.appendEvents({ session, events });
  await maintenance.trim({ appName: context.app, keepLast: 2 });
  await sessionService.rewindSession(key, { at: 4 });
  expect(await rowsOf(context)).toEqual(ALL);
  expect(await maintenance.prune({ appName: context.app, idleFor: 0, batchSize: 1 })).toMatchObject({
    done: { sessions: 1 },
  });
  expect(await rowsOf(context)).toEqual(OTHERS);
});

artifactSuite.own(
  'P11',
  'eraseUser deletes and counts all of a user, in batches, and nothing of others',
  async (context) => {
    const { key, maintenance, save } = await filled(context);
    await save('f', text("bob's"), { ...key, userId: 'bob' });
    await save('user:f', text('elsewhere'), { ...key, appName: `${context.app}2` });
    const of = { appName: context.app, userId: 'alice' };
    expect(await maintenance.eraseUser({ ...of, dryRun: true })).toMatchObject({ done: { artifacts: 4 } });
    expect(await maintenance.eraseUser({ ...of, batchSize: 3, maxBatches: 1 })).toMatchObject({
      done: { artifacts: 3 },
      more: true,
    });
    expect(await maintenance.eraseUser(of)).toMatchObject({ done: { artifacts: 1, sessions: 1 }, more: false });
    expect(await rowsOf(context)).toEqual([1, 1, 0]);
    expect(await rowsOf({ ...context, app: `${context.app}2` })).toEqual([1, 1, 0]);
    expect(await maintenance.eraseUser({ ...of, appName: `${context.app}2` })).toMatchObject({
      done: { artifacts: 1 },
    });
  },
);

for (const [how, options] of [
  ['', {}],
  [', encoded for it', { codec: encrypting(true) }],
] as [string, MikroOrmArtifactServiceOptions][])
  artifactSuite.own('P12', `a fork has the versions that its events name${how}`, async ({ orm, app }) => {
    const { artifactService, sessionService } = adkServices(orm.em, options);
    const key = { appName: app, userId: 'alice', sessionId: 's' };
    const session = await sessionService.createSession(key);
    const save = (filename: string, artifact: Part) => artifactService.saveArtifact({ ...key, filename, artifact });
    const parts = [text('zero'), png(randomBytes(LARGE)), text('two'), text('three')];
    for (const part of parts) await save('f', part);
    await save('unnamed', text('x'));
    await save('user:f', text("the user's"));
    const deltas: Record<string, number>[] = [{ f: 0 }, { f: 1, 'user:f': 0, gone: 5, '\0': 0 }, { f: 3 }];
    const naming = (artifactDelta: Record<string, number>) =>
      createEvent({ author: 'a', actions: createEventActions({ artifactDelta }) });
    await sessionService.appendEvents({ session, events: deltas.map(naming) });

    // Somebody has saved under the id before.
    const as = 'forked';
    await artifactService.saveArtifact({ ...key, sessionId: as, filename: 'f', artifact: text('no') });
    await sessionService.forkSession(key, { at: 2, as });
    const file = { ...key, sessionId: as, filename: 'f' };
    expect(await artifactService.listArtifactKeys({ ...key, sessionId: as })).toEqual(['f', 'user:f']);
    expect(await artifactService.listVersions(file)).toEqual([0, 1]);
    for (const version of [0, 1])
      expect(await artifactService.loadArtifact({ ...file, version })).toEqual(parts[version]);
    // Also if the fork itself has none.
    const none = { ...key, sessionId: 'none' };
    await artifactService.saveArtifact({ ...none, filename: 'f', artifact: text('no') });
    await sessionService.forkSession(key, { at: 0, as: 'none' });
    expect(await artifactService.listArtifactKeys(none)).toEqual(['user:f']);
    const { canonicalUri: _, ...about } = (await artifactService.getArtifactVersion(file))!;
    expect(await artifactService.getArtifactVersion({ ...file, sessionId: 's', version: 1 })).toMatchObject(about);
    expect(await artifactService.saveArtifact({ ...file, artifact: text('next') })).toBe(2);

    // Nothing of the fork is the session's.
    await sessionService.deleteSession(key);
    expect(await artifactService.loadArtifact({ ...file, version: 1 })).toEqual(parts[1]);
  });

artifactSuite.own('K5', 'stats count artifacts and their bytes, of all versions', async (context) => {
  const { maintenance } = await filled(context);
  const artifactBytes = LARGE + ['old', 'new', "the user's", "another session's"].join('').length;
  const ofApp = { appName: context.app };
  expect(await maintenance.stats(ofApp)).toMatchObject({ artifacts: 4, artifactBytes });
  expect(await maintenance.stats({ ...ofApp, userId: 'bob' })).toMatchObject({ artifacts: 0, artifactBytes: 0 });
  const ofAll = await maintenance.stats({ groupBy: 'app' });
  expect(ofAll.filter(({ appName }) => appName === context.app)).toMatchObject([{ artifacts: 4, artifactBytes }]);
});
