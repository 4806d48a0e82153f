import { MikroORM, type Options } from '@mikro-orm/core';
import { AdkSession } from '../../../entities/index.js';
import { adkEntities, adkServices, migrate } from '../../../src/index.js';
import { saying } from '../../contract/tools.js';
import { connectionOptions } from '../../support/mikro-orm.js';
import { availableServers, createDatabase, type TestDatabase } from '../../support/servers.js';

const [name] = availableServers();

/** What docs/migrations.md says of MikroORM's own tools. Read replicas need a server. */
(name ? describe : describe.skip)('MikroORM beside our tables', () => {
  const key = { appName: 'support', userId: 'ada', sessionId: 'first' };
  const opened: MikroORM[] = [];
  let database: TestDatabase;

  async function open(options: Partial<Options> = {}): Promise<MikroORM> {
    const orm = await MikroORM.init({ ...database.options, entities: adkEntities(), ...options });
    opened.push(orm);
    return orm;
  }

  beforeAll(async () => {
    database = await createDatabase(name!);
    const orm = await open();
    await migrate(orm);
    await adkServices(orm.em).sessionService.createSession(key);
  });

  afterAll(async () => {
    for (const orm of opened) await orm.close(true);
    await database.drop();
  });

  const update = (orm: MikroORM) => orm.schema.getUpdateSchemaSQL({ wrap: false });

  test('F1 schema:update changes nothing of ours, and drops our tables if it does not know them', async () => {
    expect(await update(await open())).toBe('');
    const others = { entities: [], discovery: { warnWhenNoEntities: false } };
    expect(await update(await open(others))).toMatch(/drop table .*adk_sessions/);
    const skipTables = [/^adk_/, 'mikro_orm_migrations'];
    expect(await update(await open({ ...others, schemaGenerator: { skipTables } }))).toBe('');
  });

  test('D8 all calls go to the primary, and not to a replica', async () => {
    const orm = await open({ replicas: [{ host: '127.0.0.1', port: 1, ...connectionOptions({}) }] });
    const { sessionService } = adkServices(orm.em);
    const session = (await sessionService.getSession(key))!;
    await sessionService.appendEvent({ session, event: saying('Hello!') });
    expect((await sessionService.listSessions(key)).sessions).toHaveLength(1);
    await expect(orm.em.fork().count(AdkSession)).rejects.toThrow();
  });

  test('O7 onQuery gets our statements, and what it returns is sent', async () => {
    const seen: string[] = [];
    const onQuery = (sql: string) => (seen.push(sql), sql);
    await adkServices((await open({ onQuery })).em).sessionService.getSession(key);
    expect(seen.join('\n')).toContain('adk_sessions');
    const renaming = await open({ onQuery: (sql) => sql.replaceAll('adk_sessions', 'adk_nothing') });
    await expect(adkServices(renaming.em).sessionService.getSession(key)).rejects.toMatchObject({ code: 'ADK_SCHEMA' });
  });

  test('O1 a password may be a function', async () => {
    const { hostname, port, username, password } = new URL(database.url);
    const { clientUrl: _, ...options } = database.options;
    const login = { host: hostname, port: Number(port), user: decodeURIComponent(username) };
    let asked = 0;
    const dbName = new URL(database.url).pathname.slice(1);
    const orm = await MikroORM.init({
      ...options,
      ...login,
      dbName,
      entities: adkEntities(),
      password: async () => (asked++, decodeURIComponent(password)),
    });
    opened.push(orm);
    expect(await adkServices(orm.em).sessionService.getSession(key)).toMatchObject({ id: 'first' });
    expect(asked).toBeGreaterThan(0);
  });
});
