import { AuthCredentialTypes, FunctionTool, LlmAgent, Runner, type AuthConfig, type Context } from '@google/adk';
import { compression, encryption } from '../../src/codecs/index.js';
import { MikroOrmCredentialService, SessionMaintenance, adkServices } from '../../src/index.js';
import type { Codec } from '../../src/codecs/index.js';
import { scriptedModel } from '../../src/testing/index.js';
import * as api from '../../src/index.js';
import { HostNote } from '../support/harnesses/host-note.js';
import { Suite, withConnections, type OwnContext } from './rule.js';
import { expectCode, faulty, saying } from './tools.js';

/** Tests of section S: credentials. */
export const credentialSuite = new Suite();

const TOKEN = 'ya29.secret';

const codecOf = (currentKey: string | undefined = 'k1'): Codec =>
  encryption({ currentKey, key: (id) => Buffer.alloc(32, id) });

const configOf = (credentialKey: string, token = TOKEN): AuthConfig => ({
  credentialKey,
  authScheme: { type: 'http', scheme: 'bearer' },
  exchangedAuthCredential: {
    authType: AuthCredentialTypes.HTTP,
    http: { scheme: 'bearer', credentials: { token } },
  },
});

/** What a tool is given, as far as a credential service looks at it. */
const toolOf = (appName: string, userId = 'alice') =>
  ({ invocationContext: { session: { appName, userId } } }) as unknown as Context;

const rowsOf = ({ query, app }: Pick<OwnContext, 'query' | 'app'>) =>
  query<{ user_id: string; credential_key: string; data: unknown }>(
    'select user_id, credential_key, data from adk_credentials where app_name = ? order by user_id, credential_key',
    [app],
  );

credentialSuite.own('S1', 'a tool saves its user’s token, and has it in the next session', async ({ orm, app }) => {
  const services = adkServices(orm.em, { codec: codecOf() });
  const calendar = new FunctionTool({
    name: 'calendar',
    description: 'Reads the calendar.',
    execute: async (_args: unknown, context?: Context) => {
      // ADK 2.0.0 has `credentialService` in the type of the invocation's context, and does not put it there.
      const service = services.credentialService!;
      const found = await service.loadCredential(configOf('calendar'), context!);
      if (!found) await service.saveCredential(configOf('calendar'), context!);
      return { found: found?.http?.credentials.token ?? 'none' };
    },
  });
  for (const [sessionId, found] of [
    ['first', 'none'],
    ['second', TOKEN],
  ] as const) {
    const key = { userId: 'alice', sessionId };
    await services.sessionService.createSession({ appName: app, ...key });
    const model = scriptedModel([{ name: 'calendar', args: {} }, 'Done.']);
    const agent = new LlmAgent({ name: 'helper', model, tools: [calendar] });
    const runner = new Runner({ appName: app, agent, ...services });
    for await (const event of runner.runAsync({ ...key, newMessage: { role: 'user', parts: [{ text: 'Go' }] } }))
      expect(event.errorMessage).toBeUndefined();
    expect(JSON.stringify(model.requests[1])).toContain(`{"found":"${found}"}`);
  }
});

credentialSuite.own('S5', 'a credential commits and rolls back with the host’s rows', async (context) => {
  const { orm, app, query } = context;
  const service = new MikroOrmCredentialService(orm.em, { codec: codecOf() });
  const address = { appName: app, userId: 'alice', credentialKey: 'k' };
  const saving = async (credentialKey: string, mistake?: Error) => {
    await orm.em.fork().transactional(async (tx) => {
      const joined = service.withEntityManager(tx);
      await expectCode(service.loadCredential(configOf('k'), toolOf(app)), 'ADK_INSIDE_TRANSACTION');
      tx.create(HostNote, { id: 5, text: credentialKey });
      await joined.saveCredential(configOf(credentialKey), toolOf(app));
      expect(await joined.loadCredential(configOf(credentialKey), toolOf(app))).toBeDefined();
      if (mistake) throw mistake;
    });
  };
  const mistake = new Error('a mistake of the host');
  await expect(saving('k', mistake)).rejects.toBe(mistake);
  expect(await rowsOf(context)).toEqual([]);
  await saving('k');
  expect(await rowsOf(context)).toMatchObject([{ user_id: 'alice', credential_key: 'k' }]);
  expect(await query('select text from host_notes where id = 5')).toEqual([{ text: 'k' }]);
  await orm.em.fork().transactional(async (tx) => {
    expect(await service.withEntityManager(tx).deleteCredential(address)).toBe(true);
  });
  expect(await rowsOf(context)).toEqual([]);
  await query('delete from host_notes');
});

credentialSuite.own('S5', 'a request that is one transaction uses every service, or none', async (context) => {
  const { orm, app: appName, query } = context;
  const services = adkServices(orm.em, { codec: codecOf() });
  const { sessionService, artifactService, memoryService, credentialService } = services;
  const key = { appName, userId: 'alice', sessionId: 'request' };
  const tables = ['adk_events', 'adk_artifact_versions', 'adk_memories', 'adk_credentials'];
  const counts = () =>
    Promise.all(
      tables.map(async (table) => {
        const [row] = await query<{ n: unknown }>(`select count(*) as n from ${table} where app_name = ?`, [appName]);
        return Number(row!.n);
      }),
    );
  const request = (mistake?: Error) =>
    orm.em.fork().transactional(async (tx) => {
      const sessions = sessionService.withEntityManager(tx);
      const session = await sessions.createSession(key);
      await sessions.appendEvent({ session, event: saying('My dog is called Rex.') });
      await artifactService.withEntityManager(tx).saveArtifact({ ...key, filename: 'f', artifact: { text: 'x' } });
      await memoryService.withEntityManager(tx).addSessionToMemory(session);
      await credentialService!.withEntityManager(tx).saveCredential(configOf('k'), toolOf(appName));
      if (mistake) throw mistake;
    });
  const mistake = new Error('a mistake of the host');
  await expect(request(mistake)).rejects.toBe(mistake);
  expect(await counts()).toEqual([0, 0, 0, 0]);
  await request();
  expect(await counts()).toEqual([1, 1, 1, 1]);
});

credentialSuite.own('E7', 'the advice of a refused call names every service that can join', async ({ orm, app }) => {
  const joining = Object.entries(api).flatMap(([name, value]) =>
    typeof value === 'function' && 'withEntityManager' in Object(value.prototype) ? [name] : [],
  );
  expect(joining.length).toBeGreaterThanOrEqual(4);
  const service = new MikroOrmCredentialService(orm.em, { codec: codecOf() });
  await orm.em.fork().transactional(async () => {
    const error = await service
      .loadCredential(configOf('k'), toolOf(app))
      .catch((refused: unknown) => refused as Error);
    for (const name of joining) {
      const [, what = name] = /^MikroOrm(\w+)Service$/.exec(name) ?? [];
      expect((error as Error).message).toContain(what.toLowerCase());
    }
  });
});

credentialSuite.own('S1', 'each user of each app has the credential that was saved last', async (context) => {
  const { orm, app } = context;
  const service = new MikroOrmCredentialService(orm.em, { codec: codecOf() });
  const keys = ['__proto__', 'toString', 'K', 'k', 'k ', 'ключ', 'https://a.example/?b=1'];
  for (const key of keys) await service.saveCredential(configOf(key, `${key} 1`), toolOf(app));
  await service.saveCredential(configOf('k', 'bob'), toolOf(app, 'bob'));
  await service.saveCredential(configOf('k', 'k 2'), toolOf(app));
  // What was not exchanged replaces nothing.
  const { exchangedAuthCredential: _, ...asked } = configOf('k');
  await service.saveCredential(asked, toolOf(app));
  const load = async (key: string, appName = app, userId = 'alice') =>
    (await service.loadCredential(configOf(key), toolOf(appName, userId)))?.http?.credentials.token;
  for (const key of keys) expect(await load(key)).toBe(key === 'k' ? 'k 2' : `${key} 1`);
  expect(await load('k', app, 'bob')).toBe('bob');
  expect(await load('k', `${app} 2`)).toBeUndefined();
  expect(await load('other')).toBeUndefined();
  expect(await rowsOf(context)).toHaveLength(keys.length + 1);
  for (const key of ['', 'k\0', 'k'.repeat(256)]) await expectCode(load(key), 'ADK_INVALID_KEY', 'credential key');
});

credentialSuite.own(
  'O1',
  'a save and a deletion whose answers were lost undo nothing that was saved since',
  async (context) => {
    const { orm, peer, app } = context;
    const codec = codecOf();
    const others = new MikroOrmCredentialService(peer.em, { codec });
    const token = async () => (await others.loadCredential(configOf('k'), toolOf(app)))?.http?.credentials.token;
    const calls = {
      save: (service: MikroOrmCredentialService) => service.saveCredential(configOf('k', 'old'), toolOf(app)),
      delete: (service: MikroOrmCredentialService) =>
        service.deleteCredential({ appName: app, userId: 'alice', credentialKey: 'k' }),
    };
    for (const [name, result] of [
      ['save', undefined],
      ['delete', true],
    ] as const) {
      let isLost = false;
      const faults = {
        commit: true,
        answer: (text: string) => /^(insert into|delete from) \S*adk_credentials/.test(text),
        error: () => {
          isLost = true;
          return Object.assign(new Error('read ECONNRESET'), { code: 'ECONNRESET' });
        },
        before: async () => {
          if (!isLost) return;
          isLost = false;
          await others.saveCredential(configOf('k', `new after ${name}`), toolOf(app));
        },
      };
      expect(await calls[name](new MikroOrmCredentialService(faulty(orm.em, faults), { codec }))).toBe(result);
      expect(await token()).toBe(`new after ${name}`);
    }
  },
  withConnections,
);

credentialSuite.own('S2', 'nothing is stored that is not encrypted, and nothing else is read', async (context) => {
  const { orm, app, query } = context;
  for (const codec of [undefined, []] as const)
    expect(() => new MikroOrmCredentialService(orm.em, { codec })).toThrow('needs a codec that encrypts');
  expect(adkServices(orm.em)).not.toHaveProperty('credentialService');
  for (const codec of [compression({ minBytes: 0 }), encryption({ currentKey: undefined, key: () => undefined })]) {
    const service = new MikroOrmCredentialService(orm.em, { codec });
    await expectCode(service.saveCredential(configOf('k'), toolOf(app)), 'ADK_CODEC', 'No codec has encrypted');
  }
  expect(await rowsOf(context)).toEqual([]);

  const service = new MikroOrmCredentialService(orm.em, { codec: [compression({ minBytes: 0 }), codecOf()] });
  for (const user of ['alice', 'bob'])
    await service.saveCredential(configOf('k', `${TOKEN} of ${user}`), toolOf(app, user));
  expect(JSON.stringify(await rowsOf(context))).not.toContain(TOKEN);
  const load = async (user: string) =>
    (await service.loadCredential(configOf('k'), toolOf(app, user)))?.http?.credentials.token;
  expect(await load('bob')).toBe(`${TOKEN} of bob`);

  // Somebody who may write to the table gets nobody to use another's token, or one of his own.
  const [ofAlice] = await rowsOf(context);
  const where = "where app_name = ? and user_id = 'bob'";
  const { data } = ofAlice!;
  const forged = configOf('k', 'of the attacker').exchangedAuthCredential;
  for (const text of [typeof data === 'string' ? data : JSON.stringify(data), JSON.stringify(forged)]) {
    await query(`update adk_credentials set data = ? ${where}`, [text, app]);
    expect(await load('bob')).toBeUndefined();
  }
  expect(await load('alice')).toBe(`${TOKEN} of alice`);
});

credentialSuite.own(
  'S3',
  'reencode encrypts credentials with the new key, and never decrypts them',
  async (context) => {
    const { orm, app, query } = context;
    const service = new MikroOrmCredentialService(orm.em, { codec: codecOf() });
    await service.saveCredential(configOf('k'), toolOf(app));
    await service.saveCredential(configOf('plain'), toolOf(app));
    const plain = '{"authType":"http"}';
    await query("update adk_credentials set data = ? where app_name = ? and credential_key = 'plain'", [plain, app]);
    const reencode = (currentKey?: string) =>
      new SessionMaintenance(orm.em, { codec: codecOf(currentKey) }).reencode({ appName: app });
    const stored = async () => (await rowsOf(context)).map(({ data }) => JSON.stringify(data));
    expect(await reencode('k2')).toMatchObject({ done: { texts: 1, unreadable: 1 } });
    const after = await stored();
    expect(after).toEqual([expect.stringContaining('k2'), expect.not.stringContaining('adk-codec')]);
    expect((await service.loadCredential(configOf('k'), toolOf(app)))?.http?.credentials.token).toBe(TOKEN);
    const toPlain = encryption({ currentKey: undefined, key: (id) => Buffer.alloc(32, id) });
    await new SessionMaintenance(orm.em, { codec: toPlain }).reencode({ appName: app });
    expect(await stored()).toEqual(after);
  },
);

credentialSuite.own('S4', 'a credential goes with its user, and is in no export', async (context) => {
  const { orm, app } = context;
  const codec = codecOf();
  const { credentialService, maintenance, sessionService } = adkServices(orm.em, { codec });
  await sessionService.createSession({ appName: app, userId: 'alice', sessionId: 's' });
  for (const user of ['alice', 'bob'])
    for (const key of ['a', 'b']) await credentialService!.saveCredential(configOf(key), toolOf(app, user));
  const records: unknown[] = [];
  for await (const record of maintenance.exportSessions({ appName: app })) records.push(record);
  expect(JSON.stringify(records)).not.toMatch(/ya29|credential/i);

  const address = { appName: app, userId: 'bob', credentialKey: 'a' };
  expect(await credentialService!.deleteCredential(address)).toBe(true);
  expect(await credentialService!.deleteCredential(address)).toBe(false);
  await expectCode(credentialService!.deleteCredential({ ...address, credentialKey: '' }), 'ADK_INVALID_KEY');
  const erase = (dryRun: boolean) => maintenance.eraseUser({ appName: app, userId: 'alice', dryRun });
  expect(await erase(true)).toMatchObject({ done: { sessions: 1, credentials: 2 } });
  expect(await erase(false)).toMatchObject({ done: { sessions: 1, credentials: 2 } });
  expect(await rowsOf(context)).toMatchObject([{ user_id: 'bob', credential_key: 'b' }]);
});
