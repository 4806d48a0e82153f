import type { BaseArtifactService, CompositeSessionKey, LoadArtifactRequest, SaveArtifactRequest } from '@google/adk';
import { all, refuses, same } from './checks.js';
import { range } from './events.js';
import type { CommonRule, Level } from './rule.js';

type Part = SaveArtifactRequest['artifact'];

interface ArtifactContext {
  service: BaseArtifactService;
  /** Another instance on the same store. */
  another: BaseArtifactService;
  /** An app that no other test uses. */
  app: string;
}

/** A rule of section P of docs/contract.md, and one test that holds it. */
interface ArtifactRule extends CommonRule {
  level: Exclude<Level, 'durable'>;
  /** @throws Error that says what was expected, and what was there. */
  test(this: void, context: ArtifactContext): Promise<void>;
}

const text = (value: string): Part => ({ text: value });

const base64 = (bytes: readonly number[]) => Buffer.from(bytes).toString('base64');

const bytes = (values: readonly number[], mimeType = 'application/octet-stream'): Part => ({
  inlineData: { data: base64(values), mimeType },
});

/** Calls for a session of `alice` in an app, or of somebody else. The name has the app: a service that ignores it breaks only the rules about apps. */
function filesOf(
  service: BaseArtifactService,
  appName: string,
  { userId = `alice-${appName}`, sessionId = 's' }: Partial<CompositeSessionKey> = {},
) {
  const key = { appName, userId, sessionId };
  return {
    save: (filename: string, artifact: Part, customMetadata?: Record<string, unknown>) =>
      service.saveArtifact({ ...key, filename, artifact, ...(customMetadata && { customMetadata }) }),
    load: (filename: string, version?: number) => service.loadArtifact(named(key, filename, version)),
    about: (filename: string, version?: number) => service.getArtifactVersion(named(key, filename, version)),
    remove: (filename: string) => service.deleteArtifact({ ...key, filename }),
    versions: (filename: string) => service.listVersions({ ...key, filename }),
    allAbout: (filename: string) => service.listArtifactVersions({ ...key, filename }),
    names: async () => (await service.listArtifactKeys(key)).sort(),
  };
}

const named = (key: CompositeSessionKey, filename: string, version: number | undefined): LoadArtifactRequest => ({
  ...key,
  filename,
  ...(version !== undefined && { version }),
});

/** A Part of each kind, with everything that ADK and Gemini put into it. */
const PARTS: Readonly<Record<string, Part>> = {
  'a text': text('Grüezi\r\n\u{1f600}'),
  'an empty text': text(''),
  'a text with NUL': text('a\0b'),
  'half of a surrogate pair': text('a\ud83db'),
  bytes: bytes([0, 255, 128, 10, 13, 39, 92]),
  'an empty file': bytes([]),
  'a file with a name': { inlineData: { data: base64([1]), mimeType: 'image/png', displayName: 'a picture.png' } },
  'base64 without padding': { inlineData: { data: 'AQ', mimeType: 'image/png' } },
  'base64 for URLs': { inlineData: { data: '-_8=', mimeType: 'image/png' } },
  'a reference': { fileData: { fileUri: 'gs://bucket/a', mimeType: 'application/pdf', displayName: 'a' } },
  'a reference to an artifact': { fileData: { fileUri: 'artifact://apps/x/users/y/artifacts/z/versions/0' } },
  'a thought': { text: 'so', thought: true, thoughtSignature: 'c2ln' },
  'a video': { inlineData: { data: base64([2]), mimeType: 'video/mp4' }, videoMetadata: { startOffset: '1s' } },
};

const NAMES = [
  'f',
  'F',
  ' f',
  'f ',
  'f\u00e9',
  'fe\u0301',
  'f/',
  'f/versions/0',
  '..',
  '../f',
  'a%2Fb',
  'a/b',
  '.',
  '太郎.txt',
  '\u{1f600}',
];

/** Tests of section P: artifacts. */
export const ARTIFACT_RULES: readonly ArtifactRule[] = [
  {
    rule: 'P2',
    title: 'versions are 0, 1, 2 …, and each stays as it was saved',
    level: 'every',
    async test({ service, another, app }) {
      const { save } = filesOf(service, app);
      const { load, versions } = filesOf(another, app);
      const saved: number[] = [];
      for (const n of range(12)) saved.push(await save('f', text(String(n))));
      same(saved, range(12), 'What saveArtifact returns');
      same(await versions('f'), range(12), 'The versions');
      for (const n of range(12)) same(await load('f', n), text(String(n)), `Version ${n}`);
    },
  },
  ...(['every', 'shared'] as const).map((level): ArtifactRule => ({
    rule: 'P2',
    title: `of ten saves at once${level === 'shared' ? ' by two instances' : ''} each gets a version of its own`,
    level,
    async test({ service, another, app }) {
      const ours = filesOf(service, app);
      const theirs = level === 'shared' ? filesOf(another, app) : ours;
      const saved = await all(range(10).map((n) => (n % 2 ? ours : theirs).save('f', text(String(n)))));
      same(
        [...saved].sort((a, b) => a - b),
        range(10),
        'The versions that are returned, in order',
      );
      for (const [n, version] of saved.entries())
        same(await ours.load('f', version), text(String(n)), `The content of the save that got version ${version}`);
    },
  })),
  ...Object.entries(PARTS).map(([what, part]): ArtifactRule => ({
    rule: 'P3',
    title: `${what} comes back equal`,
    level: 'every',
    async test({ service, another, app }) {
      await filesOf(service, app).save('f', structuredClone(part));
      same(await filesOf(another, app).load('f'), part, 'What is loaded');
    },
  })),
  {
    rule: 'P3',
    title: 'what the caller does to a Part later does not reach the stored one',
    level: 'every',
    async test({ service, another, app }) {
      const part = { inlineData: { data: base64([1]), mimeType: 'image/png' } };
      const saving = filesOf(service, app).save('f', part);
      part.inlineData.mimeType = 'text/html';
      await saving;
      part.inlineData.data = '';
      const loaded = await filesOf(another, app).load('f');
      same(loaded, bytes([1], 'image/png'), 'What is loaded');
      Object.assign(loaded?.inlineData ?? {}, { data: '' });
      same(await filesOf(another, app).load('f'), bytes([1], 'image/png'), 'What is loaded again');
    },
  },
  {
    rule: 'P3',
    title: 'a Part without content is refused',
    level: 'every',
    async test({ service, app }) {
      const { save, names } = filesOf(service, app);
      for (const part of [{}, { thought: true }, { functionCall: { name: 'f', args: {} } }])
        await refuses(save('f', part), `Saving ${JSON.stringify(part)}`);
      same(await names(), [], 'The names of what is stored');
    },
  },
  {
    rule: 'P4',
    title: 'names that differ by a byte are different artifacts',
    level: 'every',
    async test({ service, another, app }) {
      const { save, remove } = filesOf(service, app);
      const { load, versions, names } = filesOf(another, app);
      for (const name of NAMES) same(await save(name, text(name)), 0, `The first version of ${JSON.stringify(name)}`);
      same(await names(), [...NAMES].sort(), 'The names');
      await remove('f');
      for (const name of NAMES.slice(1)) {
        same(await load(name), text(name), `The content of ${JSON.stringify(name)}`);
        same(await versions(name), [0], `The versions of ${JSON.stringify(name)}`);
      }
      same(await load('f'), undefined, 'What was deleted');
    },
  },
  {
    rule: 'P4',
    title: 'so are those of different apps, users and sessions',
    level: 'every',
    async test({ service, another, app }) {
      const ids = ['alice', 'Alice', 'a/b', '..', 'user', 'é'];
      const owners = ids.flatMap((id): [string, Partial<CompositeSessionKey>][] => [
        [app + id, {}],
        [app, { userId: `u${id}` }],
        [app, { sessionId: id }],
      ]);
      for (const [appName, owner] of owners)
        await filesOf(service, appName, owner).save('f', text(JSON.stringify([appName, owner])));
      for (const [appName, owner] of owners) {
        const { load, versions } = filesOf(another, appName, owner);
        const whose = JSON.stringify([appName, owner]);
        same([await load('f'), await versions('f')], [text(whose), [0]], `The artifact and its versions of ${whose}`);
      }
    },
  },
  {
    rule: 'P5',
    title: "user: names are seen from all sessions of the user in the app, and nobody else's",
    level: 'every',
    async test({ service, another, app }) {
      await filesOf(service, app).save('user:f', text('of alice'));
      await filesOf(service, app).save('f', text('of s'));
      const elsewhere = filesOf(another, app, { sessionId: 'user' });
      same(await elsewhere.names(), ['user:f'], 'The names in another session of the user');
      same(await elsewhere.load('user:f'), text('of alice'), 'What another session of the user loads');
      same(await elsewhere.load('f'), undefined, "What another session loads of a session's own");
      same(await elsewhere.save('user:f', text('newer')), 1, 'The version that another session saves');
      same(await filesOf(another, app).load('user:f'), text('newer'), 'What the first session loads');
      same(await filesOf(another, app).names(), ['f', 'user:f'], 'The names in the first session');
      for (const [whose, theirs] of [
        ['another user', filesOf(another, app, { userId: 'bob' })],
        ['the user in another app', filesOf(another, `${app}2`, { userId: `alice-${app}` })],
      ] as const) {
        same(await theirs.names(), [], `The names of ${whose}`);
        same(await theirs.load('user:f'), undefined, `What ${whose} loads`);
      }
    },
  },
  {
    rule: 'P6',
    title: 'without a version the newest; what is not there is undefined',
    level: 'every',
    async test({ service, another, app }) {
      const { save, remove } = filesOf(service, app);
      const { load, about, versions, allAbout } = filesOf(another, app);
      const nothing = async (name: string) => [
        await load(name),
        await about(name),
        await versions(name),
        await allAbout(name),
      ];
      same(await nothing('f'), [undefined, undefined, [], []], 'What is known of an artifact that was never saved');
      await save('f', text('old'));
      await save('f', text('new'));
      same(
        [await load('f'), await load('f', 1), await load('f', 0)],
        ['new', 'new', 'old'].map(text),
        'What is loaded',
      );
      for (const version of [2, -1, 0.5])
        same(
          [await load('f', version), await about('f', version)],
          [undefined, undefined],
          `What there is of version ${version}`,
        );
      await remove('f');
      await remove('f');
      same(await nothing('f'), [undefined, undefined, [], []], 'What is known of an artifact that was deleted');
    },
  },
  {
    rule: 'P7',
    title: 'metadata and types come back, of one version and of all',
    level: 'every',
    async test({ service, another, app }) {
      const customMetadata = { a: [1, null, { b: 'ü' }], 0: '' };
      const { save } = filesOf(service, app);
      await save('f', bytes([1], 'image/png'), customMetadata);
      await save('f', { fileData: { fileUri: 'gs://b/f', mimeType: 'application/pdf' } });
      const { about, allAbout } = filesOf(another, app);
      const [first, second] = await allAbout('f');
      const known = { version: 0, mimeType: 'image/png', customMetadata };
      for (const each of [first, await about('f', 0)])
        same(
          { version: each?.version, mimeType: each?.mimeType, customMetadata: each?.customMetadata },
          known,
          'What is known of version 0',
        );
      for (const each of [second, await about('f')])
        same(
          [each?.version, each?.mimeType, each?.customMetadata],
          [1, 'application/pdf', undefined],
          'What is known of version 1',
        );
    },
  },
  {
    rule: 'P8',
    title: 'a list has each name once, also of several versions',
    level: 'every',
    async test({ service, another, app }) {
      const { save, remove } = filesOf(service, app);
      for (const name of ['b', 'a', 'user:c', 'd', 'a', 'user:c']) await save(name, text(name));
      await remove('d');
      same(await filesOf(another, app).names(), ['a', 'b', 'user:c'], 'The names');
    },
  },
];
