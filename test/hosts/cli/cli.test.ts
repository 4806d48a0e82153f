import { spawnSync } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { mkdir, mkdtemp, readFile, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createEvent } from '@google/adk';
import { MikroORM } from '@mikro-orm/core';
import { SqliteDriver } from '@mikro-orm/sqlite';
import { adkEntities } from '../../../entities/index.js';
import { atPoint } from '../../../packages/cli/src/commands/history.js';
import {
  EventLog,
  InvalidArgumentError,
  MikroOrmArtifactService,
  MikroOrmSessionService,
  SessionLeases,
  SessionMaintenance,
  migrate,
} from '../../../src/index.js';
import { MikroOrmMemoryService } from '../../../src/memory/memory-service.js';
import { DATABASES } from '../../support/harnesses/databases.js';
import { isMikroOrm7 } from '../../support/mikro-orm.js';
import {
  availableServers,
  createDatabase,
  databasesOfUrls,
  type DatabaseName,
  type TestDatabase,
} from '../../support/servers.js';
import { packageVersion } from '../../../src/model/version.js';
import { ADK_JS_ON_SQLITE } from '../transfer/stores/adk-js.js';
import { until } from '../../contract/tools.js';
import { Proxy } from '../../faults/fire/proxy.js';
import { ended, prepare, remove, run, runAlone, runInto, runOnTerminal, start } from './command.js';

const databases = databasesOfUrls();

const support = { appName: 'support', userId: 'ada' };

let folder: string;
beforeAll(async () => {
  await prepare();
  folder = await mkdtemp(path.join(tmpdir(), 'adk-cli-'));
});
afterAll(async () => {
  await remove();
  await rm(folder, { recursive: true });
});

describe.each(databases)('on %s', (name) => {
  const { open, close } = store(name);
  afterEach(close);

  test('doctor finds nothing wrong, and what is', async () => {
    const { orm, url } = await open(false);
    const bare = await json(['doctor', '--url', url], 1);
    expect(bare).toContainEqual(
      expect.objectContaining({
        check: 'tables',
        state: 'wrong',
        advice: expect.stringMatching(/ Run npx adk-mikro-orm migrate --url …: it makes the table/),
      }),
    );
    // The advice is about what the caller passed: a URL.
    expect(await run(['stats', '--url', url])).toMatchObject({
      code: 1,
      err: expect.stringMatching(/Run npx adk-mikro-orm migrate --url …\.$/m),
    });
    const migrations = [expect.stringMatching(/initial/)];
    const statements = expect.arrayContaining([expect.stringMatching(/^create table .*adk_sessions/s)]);
    expect(await json(['migrate', '--dry-run', '--url', url])).toEqual({ migrations, statements });
    expect(await json(['migrate', '--url', url])).toEqual({ migrations });
    expect(await json(['migrate', '--url', url])).toEqual({ migrations: [] });
    expect(await json(['migrate', '--dry-run', '--url', url])).toEqual({ migrations: [], statements: [] });

    const execute = (statement: string) => orm.em.getConnection().execute(statement);
    await execute('alter table adk_projections rename to kept');
    await execute('create table adk_projections (other int)');
    expect(await run(['doctor', '--url', url])).toMatchObject({
      code: 1,
      out: expect.stringContaining('give ours other names with --config instead of --url'),
    });
    await execute('drop table adk_projections');
    await execute('alter table kept rename to adk_projections');

    const session = await conversation(orm);
    const findings: { check: string; state: string }[] = await json(['doctor', '--url', url]);
    expect(findings.filter(({ state }) => state === 'wrong')).toEqual([]);
    expect(findings.map(({ check }) => check)).toEqual(
      expect.arrayContaining(['versions', 'connection', 'version', 'clock', 'tables', 'event log', 'sessions']),
    );
    await execute('delete from adk_events where seq = 2');
    const { code, out } = await run(['doctor', '--url', url]);
    expect(code).toBe(1);
    expect(out).toContain(`repair support ada ${session.id} --dry-run`);
  });

  test('migrate --dry-run prints a script that makes the tables, and changes nothing', async () => {
    const { orm, url } = await open(false);
    const { out } = await run(['migrate', '--dry-run', '--url', url]);
    const execute = (sql: string) => orm.em.getConnection().execute(sql);
    await expect(execute('select 1 from adk_sessions')).rejects.toThrow();
    await expect(execute('select 1 from mikro_orm_migrations')).rejects.toThrow();
    // No statement contains a semicolon.
    for (const statement of out.split(';').map((each) => each.replace(/^--.*$/gm, '').trim()))
      if (statement) await execute(statement);
    await new MikroOrmSessionService(orm.em).createSession(support);
    const { code } = await run(['doctor', '--url', url]);
    expect(code).toBe(0);
  });

  test('usage sorts by tokens, sums up, and has prices', async () => {
    const { service, url } = await open();
    const timestamp = Date.UTC(2026, 10, 22);
    for (const [userId, model, tokens] of [
      ['ada', 'gemini-x-001', 1_000_000],
      ['bob', 'gemini-x-lite', 3_000_000],
      ['eve', 'gemini-x', 2_000_000],
    ] as const) {
      const session = await service.createSession({ appName: 'support', userId });
      const usageMetadata = {
        promptTokenCount: tokens,
        cachedContentTokenCount: 500_000,
        candidatesTokenCount: 100_000,
      };
      const event = createEvent({ author: 'clerk', timestamp, modelVersion: model, usageMetadata });
      await service.appendEvent({ session, event });
    }
    const prices = path.join(folder, 'prices.json');
    await writeFile(prices, '{"gemini-x":{"input":1,"cached":0.1,"output":10}}');
    const days = ['--from', '2026-11-22', '--to', '2026-11-22', '--url', url];
    const usage: { sum: { cost: number } } = await json(['usage', '--by', 'user', '--prices', prices, ...days]);
    expect(usage).toMatchObject({
      rows: [
        { group: 'bob', cost: 0 },
        { group: 'eve', cost: 2.55 },
        { group: 'ada', cost: 1.55 },
      ],
      sum: { inputTokens: 6_000_000, cachedTokens: 1_500_000, outputTokens: 300_000, unpriced: ['gemini-x-lite'] },
    });
    expect(usage.sum.cost).toBeCloseTo(4.1);
    const { out, err } = await run(['usage', '--by', 'app', '--prices', prices, ...days]);
    expect(out).toMatch(/^app +events .* cost\nsupport +3 +6,000,000 .* 4\.10\n$/);
    expect(err).toContain('Without a price, and not in the cost: gemini-x-lite');
    expect((await run(['usage', '--by', 'user', ...days])).out).toMatch(/^sum +3 +6,000,000/m);
    expect((await run(['usage', '--by', 'user', ...days])).out).not.toContain('cost');

    await writeFile(prices, '{"gemini-x":{"in":1,"output":10}}');
    for (const file of [prices, path.join(folder, 'none.json')])
      expect(await run(['usage', '--prices', file, ...days])).toMatchObject({
        code: 2,
        err: expect.stringContaining(file),
      });
  });

  test('list finds the largest sessions by size, events and tokens', async () => {
    const { service, url } = await open();
    const timestamp = Date.now();
    const add = async (userId: string, texts: readonly string[], tokens: number) => {
      const session = await service.createSession({ ...support, userId, sessionId: `of ${userId}` });
      const events = texts.map((text) =>
        createEvent({
          ...{ author: 'clerk', timestamp, usageMetadata: { promptTokenCount: tokens, candidatesTokenCount: 1 } },
          content: { role: 'model', parts: [{ text }] },
        }),
      );
      await service.appendEvents({ session, events });
    };
    await add('ada', ['x'.repeat(50_000)], 10);
    await add('bob', Array<string>(60).fill('y'), 1);
    await add('eve', ['a', 'b'], 500);
    const base = ['list', '--app', 'support', '--url', url];
    const users = async (...args: string[]) => {
      const { sessions }: { sessions: { userId: string }[] } = await json([...base, ...args]);
      return sessions.map(({ userId }) => userId);
    };
    expect(await users('--by', 'size')).toEqual(['ada', 'bob', 'eve']);
    expect(await users('--by', 'events')).toEqual(['bob', 'eve', 'ada']);
    expect(await users('--by', 'tokens', '--limit', '1')).toEqual(['eve']);
    const { out, err } = await run([...base, '--by', 'tokens']);
    expect(out).toMatch(/^user +session +events +tokens +last update.*\neve +of eve +2 +1,002 .*\nbob .*\nada /);
    expect(err).toBe('Tokens are those of 30 days; copies of forks do not count.\n');
    expect((await run([...base, '--by', 'size'])).out).toMatch(/^ada +of ada +1 +50\.\d kB/m);
    for (const wrong of [['size', '--oldest-first'], ['age']])
      expect(await run([...base, '--by', ...wrong])).toMatchObject({ code: 2, out: '' });
  });

  test('doctor names the statements that bring back what was dropped, and nothing of other tables', async () => {
    const { orm, url } = await open();
    const execute = (sql: string) => orm.em.getConnection().execute(sql);
    const { dropIndex, damageKeys } = DATABASES[name].schema;
    await execute('create table notes (id int primary key, title varchar(10))');
    await execute('create index notes_title on notes (title)');
    // An index of the host's own.
    await execute('create index host_events on adk_events (timestamp)');
    const found = async (code: number) => {
      const findings: { check: string; state: string; advice?: string }[] = await json(['doctor', '--url', url], code);
      return findings.find(({ check }) => check === 'indexes, keys and collations')!;
    };
    expect(await found(0)).toMatchObject({ state: 'ok' });
    await execute(dropIndex('adk_events_position', 'adk_events'));
    // The same name, on other columns.
    await execute(dropIndex('adk_sessions_app_update', 'adk_sessions'));
    await execute('create index adk_sessions_app_update on adk_sessions (app_name)');
    for (const statement of damageKeys) await execute(statement);
    const { state, advice = '' } = await found(1);
    expect(state).toBe('wrong');
    const [, ...statements] = advice.split('\n');
    expect(statements).toHaveLength(3 + damageKeys.length);
    for (const statement of statements) await execute(statement);
    expect(await found(0)).toMatchObject({ state: 'ok' });
  });

  test('stats, list and show print what is stored, and nothing of it is a command for the terminal', async () => {
    const { orm, service, url } = await open();
    const session = await conversation(orm);
    await service.describeSession(
      { ...support, sessionId: session.id },
      { title: 'A \u001b[31mred title', labels: { team: 'blue' } },
    );
    expect(await json(['stats', '--url', url])).toMatchObject({ sessions: 1, users: 1, events: 3 });
    expect(await json(['stats', '--by-app', '--url', url])).toMatchObject([{ appName: 'support', events: 3 }]);

    const day = '2026-11-22';
    expect(await json(['usage', '--by', 'user', '--from', day, '--to', day, '--url', url])).toMatchObject({
      rows: [{ appName: 'support', group: 'ada', events: 3, inputTokens: 0 }],
      unreadable: 0,
    });
    expect((await run(['usage', '--from', day, '--url', url])).out).toContain(day);
    expect((await run(['usage', '--to', '2020-01-31', '--url', url])).err).toContain('2020-01-02 to 2020-01-31');
    expect(await run(['usage', '--to', 'today', '--url', url])).toMatchObject({ code: 2 });

    expect(await json(['list', '--url', url])).toEqual(['support']);
    expect((await run(['list', '--url', url])).out).toBe('app\nsupport\n');
    // A request for one app must not become a list of all apps.
    expect(await run(['list', '--user', 'ada', '--url', url])).toMatchObject({
      code: 2,
      err: expect.stringContaining('--app'),
    });
    const page = await json(['list', '--app', 'support', '--label', 'team=blue', '--url', url]);
    expect(page).toMatchObject({ sessions: [{ sessionId: session.id, eventCount: 3, labels: { team: 'blue' } }] });
    const shown = await run(['list', '--app', 'support', '--url', url]);
    expect(shown.out).toMatch(/A \\u001b\[31mred title  team=blue$/m);
    expect(shown.out).not.toContain('\u001b');

    const { out } = await run(['show', 'support', 'ada', session.id, '--url', url]);
    expect(out.split('\n').map((line) => line.trimEnd())).toEqual(
      [
        'A \\u001b[31mred title',
        `support / ada / ${session.id}  updated 2026-11-22 10:00:02 UTC`,
        '    1  2026-11-22 10:00:00  user',
        '       How is the weather? \\u001b[2J',
        '    2  2026-11-22 10:00:01  forecaster',
        '       → weather({"city":"Vienna"})',
        '    3  2026-11-22 10:00:02  forecaster',
        '       ← ✓ weather: {"sky":"clear"}',
        '       city = "Vienna"',
        '       user:language = "de"',
        'user:language = "de"',
        'city = "Vienna"',
        '',
      ].map((line) =>
        line.startsWith('user:') || line.startsWith('city')
          ? expect.stringMatching(/^(user:language = "de"|city = "Vienna")$/)
          : line,
      ),
    );
    const last = await json(['show', 'support', 'ada', session.id, '--last', '1', '--url', url]);
    expect(last).toMatchObject({ title: 'A \u001b[31mred title', events: [{ author: 'forecaster' }] });
    expect(await run(['show', 'support', 'ada', 'nobody', '--url', url])).toMatchObject({ code: 1, out: '' });
  });

  test('show cuts long answers, marks tools that failed, shows a part, and says who holds the session', async () => {
    const { orm, service, url } = await open();
    const session = await service.createSession(support);
    const { id } = session;
    const answering = (response: Record<string, unknown>) =>
      createEvent({
        author: 'clerk',
        content: { role: 'user', parts: [{ functionResponse: { id: 'c', name: 'find', response } }] },
      });
    const texts = ['one', 'two', 'three'].map((text) =>
      createEvent({ author: 'user', content: { role: 'user', parts: [{ text }] } }),
    );
    const answers = [{ found: 'x'.repeat(900) }, { error: null }, { status: 'error' }].map(answering);
    await service.appendEvents({ session, events: [...texts, ...answers] });
    const show = (...args: string[]) => run(['show', 'support', 'ada', id, ...args, '--url', url]);
    const { out } = await show();
    expect(out).toMatch(/← ✓ find: \{"found":"x{490}…$/m);
    expect(out).toContain('← ✓ find: {"error":null}');
    expect(out).toContain('← ✗ find: {"status":"error"}');
    expect(out).not.toContain('held by');
    expect((await show('--full')).out).toContain('x'.repeat(900));
    const part = await show('--from', '2', '--to', '4');
    expect(part.out).toMatch(/ 2 .*two.* 3 .*three.* 4 /s);
    expect(part.out).not.toMatch(/ one$|error/m);
    expect((await show('--from', '6')).out).toContain('← ✗ find');
    expect((await show('--to', '1')).out).not.toContain('two');
    expect(await show('--from', '2', '--last', '1')).toMatchObject({ code: 2 });
    const lease = await new SessionLeases(orm.em).acquire({ ...support, sessionId: id }, { holder: 'worker 7' });
    expect((await show()).out).toContain('held by worker 7');
    expect(await json(['show', 'support', 'ada', id, '--to', '1', '--url', url])).toMatchObject({
      holder: 'worker 7',
      events: [{ seq: 1, appendTime: expect.any(Number) }],
    });
    expect((await run(['leases', 'list', '--app', 'support', '--url', url])).out).toMatch(
      new RegExp(`^support +ada +${id} +worker 7 +\\d+ s ago +in \\d+ s$`, 'm'),
    );
    expect(await run(['leases', 'release', 'support', 'ada', id, '--url', url])).toMatchObject({ code: 2 });
    const release = ['leases', 'release', 'support', 'ada', id, '--yes', '--url', url];
    expect(await run(release)).toMatchObject({ code: 0, out: 'The lease of worker 7 has ended.\n' });
    expect(await run(release)).toMatchObject({ code: 1 });
    expect(await json(['leases', 'list', '--url', url])).toEqual([]);
    await lease.release();

    // What finds nothing does not ask, and errors speak of the command.
    expect(await run(['prune', '--idle-for', '1d', '--url', url])).toMatchObject({ code: 0 });
    const fork = await run(['fork', 'support', 'ada', id, '--as', id, '--url', url]);
    expect(fork).toMatchObject({ code: 1, err: expect.stringMatching(/already exists\. Choose another id\.$/m) });
  });

  test('import reads texts with the line separators of Unicode', async () => {
    const { service, url } = await open();
    const text = `${'é😀'.repeat(50_000)}\u2028two\u2029three`;
    const session = await service.createSession({ ...support, userId: 'ada', state: { text } });
    const { out: records } = await run(['export', '--url', url]);
    const names = ['--app', 'support', '--user', 'ada', '--session', session.id];
    const { out: saved } = await run(['export', ...names, '--format', 'session', '--url', url]);
    for (const input of [records, saved]) {
      const other = await open();
      expect(await json(['import', '-', '--url', other.url], 0, input)).toMatchObject({ done: { sessions: 1 } });
      const read = await other.service.getSession({ ...support, userId: 'ada', sessionId: session.id });
      expect(read?.state).toEqual({ text });
    }
  });

  test('import names UTF-16 and what to do about it, and reads files that were joined', async () => {
    const { service, url } = await open();
    const { id } = await service.createSession({ ...support, userId: 'ada', state: {} });
    const { out: records } = await run(['export', '--url', url]);
    const other = await open();
    const file = path.join(folder, `${randomUUID()}.jsonl`);
    const little = Buffer.from(`\uFEFF${records}`, 'utf16le');
    const big = Buffer.from(little).swap16();
    for (const [name, bytes] of Object.entries({ 'UTF-16LE': little, 'UTF-16BE': big })) {
      await writeFile(file, bytes);
      expect(await run(['import', file, '--url', other.url])).toMatchObject({
        code: 2,
        err: expect.stringMatching(new RegExp(`${name}.*Out-File -Encoding utf8`)),
      });
    }
    await writeFile(file, records.replace(/^/gm, '\uFEFF'));
    expect(await json(['import', file, '--url', other.url])).toMatchObject({ done: { sessions: 1 } });
    expect(await other.service.getSession({ ...support, userId: 'ada', sessionId: id })).toBeDefined();
  });

  test('prune, trim and erase-user count, ask, delete and continue', async () => {
    const { orm, service, url } = await open();
    for (const userId of ['ada', 'ada', 'bob']) await conversation(orm, userId);
    const prune = ['prune', '--idle-for', '0s', '--app', 'support', '--url', url];
    expect(await run([...prune, '--dry-run'])).toMatchObject({
      code: 0,
      out: 'This would delete 9 events in 3 sessions.\n',
    });
    // There is no terminal to ask.
    expect(await run(prune)).toMatchObject({ code: 2, out: '', err: expect.stringContaining('--yes') });
    expect(await json([...prune, '--user', 'ada', '--yes', '--batch-size', '4', '--max-batches', '1'])).toMatchObject({
      done: { sessions: 1 },
      more: true,
    });

    const left = (await service.listSessions({ appName: 'support' })).sessions;
    expect(left).toHaveLength(2);
    expect(await json(['trim', '--app', 'support', '--keep-last', '1', '--yes', '--url', url])).toMatchObject({
      done: { sessions: 2, events: 4 },
    });
    expect(await json(['erase-user', 'bob', '--yes', '--url', url])).toMatchObject({
      done: { sessions: 1, stateKeys: 1 },
    });
    const lease = await new SessionLeases(orm.em).acquire(
      { ...support, sessionId: left.find(({ userId }) => userId === 'ada')!.id },
      { holder: 'a worker' },
    );
    const notErased = { code: 1, err: expect.stringContaining('The user is not erased') };
    expect(await run(['erase-user', 'ada', '--yes', '--url', url])).toMatchObject(notErased);
    const skipped = await run([...prune, '--yes']);
    expect(skipped).toMatchObject({ code: 0, err: expect.stringContaining('Somebody is at work in them') });
    expect(await json([...prune, '--yes', '--include-leased'])).toMatchObject({
      ...{ done: { sessions: 1 }, skipped: 0, more: false },
    });
    await lease.release().catch(() => undefined);
    expect(await json(['stats', '--url', url])).toMatchObject({ sessions: 0 });
  });

  test('export and import, fork and rewind, repair', async () => {
    const { orm, url } = await open();
    const session = await conversation(orm);
    const file = path.join(folder, `${randomUUID()}.jsonl`);
    const key = ['support', 'ada', session.id];
    expect(await run(['export', file, '--url', url])).toMatchObject({
      code: 0,
      err: expect.stringContaining('Exported 5 records'),
    });
    expect(await run(['export', file, '--url', url])).toMatchObject({
      code: 2,
      err: expect.stringContaining('exists'),
    });
    const piped = await run(['export', '--app', 'support', '--url', url]);
    expect(piped.out).toBe(await readFile(file, 'utf8'));

    const other = await open();
    expect(await json(['import', file, '--url', other.url])).toEqual({
      done: { sessions: 1, events: 3, artifactVersions: 0, memories: 0, records: 5, refused: 0, annulled: 0 },
      ...{ skipped: 0, batches: 2, more: false },
    });
    expect(await json(['import', '-', '--url', other.url], 0, piped.out)).toEqual({
      done: { sessions: 0, events: 0, artifactVersions: 0, memories: 0, records: 5, refused: 0, annulled: 0 },
      ...{ skipped: 1, batches: 2, more: false },
    });
    const input = piped.out.replace(/"text":"[^"]*"/, '"text":1187654321098765433');
    expect(await runAlone(['import', '-', '--url', other.url], { input })).toMatchObject({
      code: 2,
      err: expect.stringMatching(/Record \d: event.content.parts\[0\].text is a bigint/),
    });
    const unknown = await runAlone(['import', '-', '--url', other.url], {
      input: '{"type":"app","state":[],"name":1}',
    });
    expect(unknown).toMatchObject({ code: 2, err: expect.stringMatching(/Record 1.* appName/) });
    const broken = await runAlone(['import', '-', '--url', other.url], { input: `${piped.out}{"type"` });
    expect(broken).toMatchObject({ code: 2, err: expect.stringContaining('Line 6 is not JSON') });

    expect(await json(['fork', ...key, '--at', '1', '--as', 'what if', '--url', url])).toMatchObject({
      sessionId: 'what if',
      events: 1,
    });
    expect(await run(['rewind', ...key, '--yes', '--url', url])).toMatchObject({
      code: 2,
      err: expect.stringContaining('--at'),
    });
    const lease = await new SessionLeases(orm.em).acquire(
      { appName: 'support', userId: 'ada', sessionId: session.id },
      { holder: 'me' },
    );
    const rewind = ['rewind', ...key, '--at', '2', '--yes', '--url', url];
    expect(await run(rewind)).toMatchObject({ code: 1, err: expect.stringContaining('is held by me') });
    expect(await json([...rewind, '--include-leased'])).toMatchObject({ events: 2 });
    await lease.release();

    const repair = ['repair', ...key, '--url', url];
    expect(await run(repair)).toMatchObject({ code: 0, out: 'Nothing is damaged.\n' });
    await orm.em
      .getConnection()
      .execute(`update adk_events set data = '[]' where seq = 2 and session_id = '${session.id}'`);
    const damaged = await run(repair);
    expect(damaged).toMatchObject({ code: 2, err: expect.stringContaining('--save') });
    expect(await run([...repair, '--dry-run'])).toMatchObject({ code: 1, out: 'event 2: unreadable\n' });
    expect(await run(['show', ...key, '--url', url])).toMatchObject({
      code: 1,
      err: expect.stringContaining(`repair support ada ${session.id} --dry-run`),
    });
    const value = '[ "adk-codec", 1, "x" ]';
    await orm.em.getConnection().execute(`update adk_user_states set value = '${value}'`);
    const ofUser = ['repair', 'support', 'ada'];
    expect(await run(['export', '--user', 'ada', '--url', url])).toMatchObject({
      code: 1,
      err: expect.stringContaining(`See: ${ofUser.join(' ')} --dry-run\n`),
    });
    expect(await run([...ofUser, '--dry-run', '--url', url])).toMatchObject({
      code: 1,
      out: 'state user:language: unreadable\n',
    });
    const savedValue = path.join(folder, `${randomUUID()}.jsonl`);
    expect(await run([...ofUser, '--save', savedValue, '--yes', '--url', url])).toMatchObject({ code: 0 });
    expect(await readFile(savedValue, 'utf8')).toContain(Buffer.from(value).toString('base64'));
    expect(await run([...ofUser, '--url', url])).toMatchObject({ code: 0, out: 'Nothing is damaged.\n' });
    const failed = path.join(folder, `${randomUUID()}.jsonl`);
    expect(await run(['export', failed, '--url', url])).toMatchObject({ code: 1 });
    expect(await readdir(folder)).not.toContain(`${path.basename(failed)}.part`);
    const save = path.join(folder, `${randomUUID()}.jsonl`);
    expect(await run([...repair, '--save', save, '--yes'])).toMatchObject({ code: 0 });
    const [planned, taken] = (await readFile(save, 'utf8'))
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line));
    expect(taken).toEqual(planned);
    expect(taken).toMatchObject({ events: [{ seq: 2, content: Buffer.from('[]').toString('base64') }] });
    expect(await run(repair)).toMatchObject({ code: 0 });
  });

  test('waiting lists the calls that wait for a person, and trim keeps them unless they are to go', async () => {
    const { orm, url } = await open();
    const service = new MikroOrmSessionService(orm.em);
    const base = ['waiting', '--app', 'support', '--url', url];
    expect(await run(base)).toMatchObject({ code: 0, err: 'No session of app support is stored.\n' });
    const session = await service.createSession({ ...support, sessionId: 'asks' });
    expect(await run(base)).toMatchObject({ code: 0, err: 'No call waits for a person.\n' });
    const ask = (id: string, name: string, timestamp: number) =>
      createEvent({
        ...{ author: 'agent', timestamp, longRunningToolIds: [id] },
        content: { role: 'model', parts: [{ functionCall: { id, name, args: { text: 'Really?\u001b' } } }] },
      });
    const said = createEvent({ author: 'user', content: { role: 'user', parts: [{ text: 'x' }] } });
    await service.appendEvents({
      session,
      events: [ask('c1', 'ask_user', 1_000), ask('c2', 'other', Date.now()), said],
    });
    const all: { calls: object[]; next?: string } = await json([...base, '--limit', '1']);
    expect(all.calls).toMatchObject([
      { sessionId: 'asks', id: 'c1', name: 'ask_user', args: { text: 'Really?\u001b' } },
    ]);
    expect(await json([...base, '--after', all.next ?? ''])).toMatchObject({ calls: [{ id: 'c2' }] });
    expect(await json([...base, '--open-for', '1d'])).toMatchObject({ calls: [{ id: 'c1' }] });
    expect(await json([...base, '--name', 'other', '--user', 'ada'])).toMatchObject({ calls: [{ id: 'c2' }] });
    const { out } = await run([...base, '--utc']);
    expect(out).toMatch(/1970-01-01 00:00:01 +ada +asks +ask_user +\{"text":"Really\?\\u001b"\} +c1/);
    expect(await run(['waiting', '--url', url])).toMatchObject({ code: 2, err: expect.stringContaining('--app') });

    const trim = ['trim', '--keep-last', '1', '--yes', '--url', url];
    expect(await json(trim)).toMatchObject({ done: { events: 0 } });
    expect(await json([...trim, '--drop-open-calls'])).toMatchObject({ done: { events: 2 } });
    expect(await json(base)).toEqual({ calls: [] });
  });

  test('answer answers what waits as the studio does, and refuses what ADK would refuse', async () => {
    const { service, url } = await open();
    const session = await service.createSession({ ...support, sessionId: 'asks' });
    const responseSchema = { type: 'object', properties: { days: { type: 'number' } }, required: ['days'] };
    const calls = {
      yes: {
        name: 'adk_request_confirmation',
        args: {
          originalFunctionCall: { id: 'c', name: 'pay', args: { sum: 2 } },
          toolConfirmation: { hint: `It is final.\u001b${'!'.repeat(100)}` },
        },
      },
      no: { name: 'adk_request_confirmation', args: { originalFunctionCall: { id: 'd', name: 'pay', args: {} } } },
      input: { name: 'adk_request_input', args: { message: 'How long?', response_schema: responseSchema } },
      login: { name: 'adk_request_credential', args: { functionCallId: 'e', authConfig: {} } },
      tool: { name: 'ask_user', args: {} },
    };
    for (const [id, call] of Object.entries(calls))
      await service.appendEvent({
        session,
        event: createEvent({
          ...{ author: 'agent', longRunningToolIds: [id] },
          content: { role: 'model', parts: [{ functionCall: { id, ...call } }] },
        }),
      });
    const answer = (...args: string[]) => run(['answer', 'support', 'ada', 'asks', ...args, '--url', url]);
    for (const [args, code, advice] of [
      [['yes'], 2, 'say --approve or --reject'],
      [['yes', '--approve', '--reject'], 2, '--reject'],
      [['tool', '--approve'], 2, 'answer it with a JSON object'],
      [['tool'], 2, 'Nothing was answered'],
      [['tool', 'Tea'], 2, 'a JSON object'],
      [['input', '{"days":"many"}'], 2, 'response_schema. Nothing was written'],
      [['login', '{"token":"x"}'], 2, 'no credential. Nothing was written'],
      [['other', '{"days":1}'], 1, 'See: waiting --app support --user ada'],
    ] as const)
      expect(await answer(...args)).toMatchObject({ code, out: '', err: expect.stringContaining(advice) });
    // Both say what is asked as a sentence, with the beginning of a long hint.
    expect((await run(['waiting', '--app', 'support', '--url', url])).out).toMatch(
      / asks +pay\? +\{"sum":2\} It is final\.\\u001b!{67}… +yes$/m,
    );
    expect((await run(['top', '--url', url])).out).toMatch(
      /^pay\(\{"sum":2\}\)\? It is final\.\\u001b!{67}… +\d+ \w+ ago +support/m,
    );
    const stored = async () =>
      (await service.readEvents({ ...support, sessionId: 'asks' })).events.slice(5).map(({ event }) => event);
    expect(await stored()).toEqual([]);

    expect(await answer('yes', '--approve')).toMatchObject({ code: 0, out: expect.stringContaining('Approved pay') });
    expect(await answer('no', '--reject')).toMatchObject({ code: 0 });
    expect(await answer('input', '{"days":3}')).toMatchObject({ code: 0 });
    expect(await answer('tool', '{"drink":"Tea"}')).toMatchObject({ code: 0 });
    const answers = (await stored()).map(({ author, content }) => [author, content?.parts?.[0]?.functionResponse]);
    expect(answers).toEqual([
      ['user', { id: 'yes', name: 'adk_request_confirmation', response: { confirmed: true } }],
      ['user', { id: 'no', name: 'adk_request_confirmation', response: { confirmed: false } }],
      ['user', { id: 'input', name: 'adk_request_input', response: { days: 3 } }],
      ['user', { id: 'tool', name: 'ask_user', response: { drink: 'Tea' } }],
    ]);
    expect(await json(['waiting', '--app', 'support', '--url', url])).toMatchObject({ calls: [{ id: 'login' }] });
    expect(await answer('yes', '--approve')).toMatchObject({ code: 1 });
  });

  test('reencode rewrites what is stored, and the others read it with the codec', async () => {
    const { orm, url } = await open();
    const session = await conversation(orm);
    const codec = path.join(folder, `${name}-codec.mjs`);
    const reversed = '(data) => ({ data: Uint8Array.from(data).reverse(), key: "k" })';
    await writeFile(
      codec,
      `export default { name: 'reversed', encode: ${reversed}, decode: ({ data }) => Uint8Array.from(data).reverse() };`,
    );
    // With `required`, plain texts count as damage.
    const strict = path.join(folder, `${name}-strict.mjs`);
    await writeFile(strict, `import codec from ${JSON.stringify(codec)}; export default { ...codec, required: true };`);
    const counting = ['reencode', '--url', url, '--codec', strict, '--dry-run'];
    const {
      done: { unreadable },
    } = await json(counting, 1);
    const withoutRequired = ['reencode', '--url', url, '--codec', codec, '--dry-run'];
    expect(await json(withoutRequired)).toMatchObject({ done: { unreadable: 0, texts: unreadable } });

    const first = await json(['reencode', '--url', url, '--codec', codec, '--batch-size', '2', '--max-batches', '1']);
    expect(first).toMatchObject({ done: { texts: 1, unreadable: 0 }, skipped: 0, batches: 1, more: true });
    expect(await json(['reencode', '--url', url, '--codec', codec])).toMatchObject({
      ...{ done: { texts: unreadable - 1, unreadable: 0 }, skipped: 0, more: false },
    });

    const key = ['support', 'ada', session.id, '--url', url];
    const without = await run(['show', ...key]);
    expect(without).toMatchObject({ code: 1, err: expect.stringContaining('encoded with reversed (key k)') });
    const shown = await run(['show', ...key, '--codec', codec]);
    expect(shown).toMatchObject({ code: 0, out: expect.stringContaining('How is the weather?') });
    const repaired = await run(['repair', ...key, '--dry-run']);
    expect(repaired).toMatchObject({ code: 1, err: expect.stringContaining('not in the codec option') });
  });

  test('without the codec every command fails and names codec and key, and package.json can name it', async () => {
    const { orm, url } = await open();
    const codec = path.join(folder, `${name}-key-codec.mjs`);
    const reversed = '(data) => ({ data: Uint8Array.from(data).reverse(), key: "k" })';
    await writeFile(
      codec,
      `export default { name: 'reversed', encode: ${reversed}, decode: ({ data }) => Uint8Array.from(data).reverse() };`,
    );
    const session = await conversation(orm);
    const key = ['support', 'ada', session.id];
    await new MikroOrmMemoryService(orm.em).addSessionToMemory(session);
    await new MikroOrmMemoryService(orm.em).projection({ settleMs: 0 }).catchUp();
    const doctor = ['doctor', '--url', url];
    expect((await run(doctor)).out).toContain('no text is encoded');
    await json(['reencode', '--url', url, '--codec', codec]);
    const day = ['--from', '2026-11-22', '--to', '2026-11-22'];
    const cwd = await mkdtemp(path.join(folder, 'codec-'));
    const file = path.join(cwd, 'all.jsonl');
    const memories = async () => orm.em.getConnection().execute('select memory_id, data from adk_memories order by 1');
    const before = await memories();
    const commands = [
      ['show', ...key],
      ['tail', '--from', '0'],
      ['usage', ...day],
      ['export', file],
      ['export', file, '--format', 'session', '--app', 'support', '--user', 'ada', '--session', session.id],
      ['repair', ...key, '--dry-run'],
      ['repair', ...key, '--save', path.join(cwd, 'saved'), '--yes'],
      ['fork', ...key],
      ['rewind', ...key, '--at', '1', '--yes'],
      ['trim', '--keep-last', '1', '--yes'],
      ['memory', 'search', 'support', 'ada', 'weather'],
      ['memory', 'forget', 'support', 'ada', '--all', '--yes'],
      ['memory', 'forget', 'support', 'ada', '--session', session.id, '--yes'],
      ['memory', 'rebuild', '--yes'],
      ['doctor'],
    ];
    for (const command of commands) {
      const { code, out, err } = await run([...command, '--url', url]);
      expect({ command, code, said: out + err }).toEqual({
        ...{ command, code: 1 },
        said: expect.stringMatching(/encoded with reversed \(key k\)[^]*package\.json: "adk-mikro-orm"/),
      });
      expect(out + err).not.toMatch(/damaged|repair/);
    }
    expect(await readdir(cwd)).toEqual([]);
    expect(await memories()).toEqual(before);
    expect(await json(['stats', '--url', url])).toMatchObject({ sessions: 1, events: 3 });
    expect((await run([...doctor, '--codec', codec])).out).toContain('the codec knows reversed (key k)');

    // In the nearest package.json, also from a folder below; the option wins.
    await mkdir(path.join(cwd, 'below'));
    const settings = (value: unknown) =>
      writeFile(path.join(cwd, 'package.json'), JSON.stringify({ 'adk-mikro-orm': value }));
    const show = ['show', ...key, '--url', url];
    const below = { cwd: path.join(cwd, 'below') };
    await settings({ codec: path.relative(cwd, codec) });
    expect(await run(show, below)).toMatchObject({ code: 0, out: expect.stringContaining('How is the weather?') });
    await settings({ codec: './nowhere.js' });
    expect(await run(show, below)).toMatchObject({ code: 2, err: expect.stringContaining('There is no file') });
    expect(await run([...show, '--codec', codec], below)).toMatchObject({ code: 0 });
    await settings({ toolApps: [''] });
    expect(await run(show, below)).toMatchObject({ code: 2, err: expect.stringContaining('toolApps must be') });
    await settings({ codecs: './codec.js' });
    expect(await run(show, below)).toMatchObject({ code: 2, err: expect.stringContaining("may not have 'codecs'") });
  });

  test('package.json names the apps of tools', async () => {
    const { orm, url } = await open();
    const service = new MikroOrmSessionService(orm.em);
    const cwd = path.join(folder, randomUUID());
    await mkdir(cwd);
    const settings = { toolApps: ['expert'] };
    await writeFile(path.join(cwd, 'package.json'), JSON.stringify({ 'adk-mikro-orm': settings }));
    const ofTool = { appName: 'expert', userId: 'ada' };
    for (const appName of ['support', 'expert']) {
      const session = await service.createSession({ appName, userId: 'ada', sessionId: 's' });
      await service.appendEvent({ session, event: createEvent({ author: 'user', timestamp: 1 }) });
    }
    const ids = async () => (await service.listSessions(ofTool)).sessions.map(({ id }) => id).sort();
    expect(await run(['fork', 'support', 'ada', 's', '--as', 'f', '--url', url], { cwd })).toMatchObject({ code: 0 });
    expect(await ids()).toEqual(['f', 's']);
    const rewind = ['rewind', 'support', 'ada', 's', '--at', '0', '--yes', '--url', url];
    expect(await run(rewind, { cwd })).toMatchObject({ code: 0 });
    expect((await service.getSession({ ...ofTool, sessionId: 's' }))?.events).toEqual([]);
    const prune = ['prune', '--app', 'support', '--sessions-older-than', '0s', '--yes', '--url', url];
    expect(await run(prune, { cwd })).toMatchObject({ code: 0, out: 'Deleted 2 events in 4 sessions.\n' });
    expect(await ids()).toEqual([]);
  });

  test('repair is named so that it runs with names that look like options', async () => {
    const { orm, url } = await open();
    const service = new MikroOrmSessionService(orm.em);
    const session = await service.createSession({ appName: 'support', userId: '-ada', sessionId: '--yes' });
    await service.appendEvent({ session, event: createEvent({ author: 'user' }) });
    await orm.em.getConnection().execute(`update adk_events set data = '[]' where user_id = '-ada'`);
    const shown = await run(['show', '--url', url, '--', 'support', '-ada', '--yes']);
    expect(shown).toMatchObject({
      code: 1,
      err: expect.stringContaining('See: repair --dry-run -- support -ada --yes'),
    });
    const [, ...named] = shown.err.match(/See: (.*)/)![1]!.split(' ');
    const repaired = await run(['repair', '--url', url, ...named]);
    expect(repaired).toMatchObject({ code: 1, out: 'event 1: unreadable\n' });
  });

  test('memory search finds, forget asks and deletes, rebuild remembers again', async () => {
    const { orm, url } = await open();
    const session = await conversation(orm);
    const memory = new MikroOrmMemoryService(orm.em);
    const add = (text: string, id: string, userId?: string) =>
      memory.addMemory({
        appName: 'support',
        ...(userId && { userId }),
        memories: [{ id, content: { parts: [{ text }] } }],
      });
    await add('Allergic to\n peanuts \u001b[2J', 'diet', 'ada');
    await add('Peanuts are sold out.', 'stock');

    const search = ['memory', 'search', 'support', 'ada', 'any peanuts?', '--url', url];
    const { memories }: { memories: { id: string }[] } = await json(search);
    expect(memories.map(({ id }) => id).toSorted()).toEqual(['diet', 'stock']);
    const { out } = await run(search);
    expect(out).toMatch(/^score +time +session +id +text\n/);
    expect(out).toContain('diet   Allergic to peanuts \\u001b[2J\n');
    expect(await run([...search, '--limit', '1', '--since', '2100-01-01'])).toMatchObject({
      ...{ code: 0, err: 'No memory has a word of this question.\n' },
    });

    const rebuild = ['memory', 'rebuild', '--url', url];
    expect(await run(rebuild)).toMatchObject({ code: 1, err: 'There is no projection memory.\n' });
    await memory.projection({ settleMs: 0 }).catchUp();
    expect(await json([...rebuild, '--dry-run'])).toEqual({ forgotten: 1 });
    expect(await run(rebuild)).toMatchObject({ code: 2, err: expect.stringContaining('--yes') });
    const own = path.join(folder, `${name}-memory.mjs`);
    await writeFile(own, `export default { service: { text: () => 'sunny' }, projection: { settleMs: 0 } };`);
    expect(await json([...rebuild, '--options', own, '--yes'])).toEqual({ forgotten: 1, remembered: 3 });
    expect(await run([...rebuild, '--vectors', '--options', own])).toMatchObject({
      code: 2,
      err: expect.stringContaining('embed'),
    });
    const embed = `{ model: 'one', vectors: async (texts) => texts.map(() => [1]) }`;
    const withVectors = path.join(folder, `${name}-vectors.mjs`);
    await writeFile(withVectors, `export default { service: { embed: ${embed} } };`);
    const rebuildVectors = [...rebuild, '--vectors', '--options', withVectors];
    expect(await json([...rebuildVectors, '--dry-run'])).toEqual({ vectors: 5 });
    expect(await json(rebuildVectors)).toEqual({ vectors: 5 });
    expect((await run(rebuildVectors)).out).toBe('0 memories got a vector.\n');
    const misspelt = path.join(folder, `${name}-misspelt.mjs`);
    await writeFile(misspelt, 'export default { servce: {} };');
    expect(await run([...rebuild, '--options', misspelt, '--yes'])).toMatchObject({ code: 2 });
    const sunny = await json(['memory', 'search', 'support', 'ada', 'sunny and', '--url', url]);
    expect(sunny).toMatchObject({ memories: Array(2).fill({ sessionId: session.id }) });

    const forget = ['memory', 'forget', 'support', 'ada', '--url', url];
    expect(await run(forget)).toMatchObject({ code: 2, err: expect.stringContaining('--all') });
    expect(await run([...forget, '--id', 'stock', '--yes'])).toMatchObject({ code: 1, out: '' });
    expect((await run([...forget, '--session', session.id, '--dry-run'])).out).toBe(
      'This would delete 3 memories of ada.\n',
    );
    expect(await run([...forget, '--session', session.id])).toMatchObject({ code: 2 });
    expect(await json([...forget, '--session', session.id, '--yes'])).toEqual({ memories: 3 });
    expect(await json([...forget, '--before', '2020-01-01', '--yes'])).toEqual({ memories: 0 });
    expect(await json([...forget, '--all', '--yes'])).toEqual({ memories: 1 });
    const ofApp = ['memory', 'forget', 'support', '--all', '--yes', '--url', url];
    expect((await run(ofApp)).out).toBe('Deleted 1 memory of the app support.\n');
    expect(await json(search)).toEqual({ memories: [] });
  });

  test('files lists the files of a session and of its user, and writes one', async () => {
    const { orm, service, url } = await open();
    const { id: sessionId } = await service.createSession(support);
    const artifacts = new MikroOrmArtifactService(orm.em);
    const bytes = Buffer.from(Array.from({ length: 3_000 }, (_, i) => i % 256));
    const of = { ...support, sessionId };
    const base = ['files', 'support', 'ada', sessionId];
    const none = await run([...base, '--url', url]);
    expect(none).toMatchObject({ code: 0, err: 'Neither the session nor its user has files.\n' });
    for (const version of [0, 1])
      await artifacts.saveArtifact({
        ...{ ...of, filename: 'map.png' },
        artifact: {
          inlineData: { mimeType: 'image/png', data: bytes.subarray(0, version * 3_000 || 10).toString('base64') },
        },
      });
    await artifacts.saveArtifact({ ...of, filename: 'user:notes \u001b.txt', artifact: { text: 'Tea' } });
    const fileUri = 'gs://bucket/film';
    await artifacts.saveArtifact({ ...of, filename: 'film', artifact: { fileData: { fileUri } } });
    const { out } = await run([...base, '--url', url]);
    expect(out).toMatch(/^map\.png +1 +image\/png +3 kB +\d+ s ago$/m);
    expect(out).toMatch(/^user:notes \\u001b\.txt +0 +text\/plain +3 bytes/m);
    expect(await json([...base, '--url', url])).toHaveLength(3);

    const file = path.join(folder, `${randomUUID()}.png`);
    const get = (...args: string[]) => run([...base, ...args, '--url', url]);
    expect(await get('map.png', file)).toMatchObject({ code: 0, out: '', err: 'Wrote version 1, 3 kB.\n' });
    expect(await readFile(file)).toEqual(bytes);
    expect(await get('map.png', file)).toMatchObject({ code: 1, err: expect.stringContaining('exists') });
    expect(await get('user:notes \u001b.txt')).toMatchObject({ code: 0, out: 'Tea' });
    expect(await get('film')).toMatchObject({ code: 1, out: '', err: expect.stringContaining(fileUri) });
    expect(await get('other')).toMatchObject({ code: 1, err: expect.stringContaining('There is no file other.') });
    expect(await run(['files', 'support', 'ada', 'nobody', '--url', url])).toMatchObject({ code: 1, out: '' });
  });

  test('restore brings a soft-deleted session back', async () => {
    const { orm, url } = await open();
    const { id } = await conversation(orm);
    const restore = ['restore', 'support', 'ada', id, '--url', url];
    expect(await run(restore)).toMatchObject({ code: 1, err: `Session ${id} is not deleted.\n` });
    const service = new MikroOrmSessionService(orm.em, { deletion: 'soft' });
    await service.deleteSession({ ...support, sessionId: id });
    expect(await run(restore)).toMatchObject({ code: 0, out: `Session ${id} is back.\n` });
    expect(await json(['stats', '--url', url])).toMatchObject({ sessions: 1, deletedSessions: 0, events: 3 });
    expect(await run(['restore', 'support', 'ada', 'nobody', '--url', url])).toMatchObject({ code: 1, out: '' });
  });

  test('tail shows what happens, and ends with Ctrl-C', async () => {
    const { orm, url } = await open();
    // Its entry in the log has no session and no state.
    await conversation(orm, 'gone');
    await new SessionMaintenance(orm.em).eraseUser({ userId: 'gone' });
    const child = start(['tail', '--app', 'support', '--from', '0', '--url', url]);
    const seen = ended(child);
    let shown = '';
    const all = new Promise<void>((resolve) => {
      child.stdout.on('data', (chunk: Buffer) => {
        shown += chunk.toString();
        if (shown.includes('weather: {')) resolve();
      });
    });
    await conversation(orm);
    await Promise.race([all, seen]);
    child.kill('SIGINT');
    const { code, err } = await seen;
    expect({ code, err }).toEqual({ code: 0, err: '' });
    // A session is named once, until another one comes between.
    expect(shown).toMatch(/^support \/ ada \/ \S+\n *created.*\n +1 /);
    expect(shown).toContain('→ weather({"city":"Vienna"})');
  });

  test('tail shows what happened between two times, and says what is wrong with others', async () => {
    const { orm, service, url } = await open();
    const day = Date.UTC(2026, 10, 22);
    for (const [userId, minute] of [
      ['ada', 10],
      ['bob', 20],
      ['eve', 30],
      ['kim', 40],
    ] as const) {
      const session = await service.createSession({ ...support, userId });
      const part = { text: `It is ${minute}` };
      await service.appendEvent({ session, event: createEvent({ author: 'user', content: { parts: [part] } }) });
      const stored = `update adk_events set append_time = ${day + minute * 60_000} where user_id = '${userId}'`;
      await orm.em.getConnection().execute(stored);
    }
    // Gives the events positions.
    for await (const _ of new EventLog(orm.em).since(0)) continue;
    const tail = (...args: string[]) => run(['tail', ...args, '--url', url]);
    const between = async (...args: string[]) => {
      const { code, out } = await tail(...args);
      return [code, ...[...out.matchAll(/It is (\d+)$/gm)].map(([, minute]) => Number(minute))];
    };
    const at = (minute: number) => `2026-11-22T00:${minute}:00Z`;
    expect(await between('--since', at(20), '--until', at(40))).toEqual([0, 20, 30]);
    expect(await between('--since', at(11), '--until', at(12))).toEqual([0]);
    expect(await between('--since', '2026-01-01', '--until', at(20))).toEqual([0, 10]);
    expect(await between('--from', '0', '--until', at(20))).toEqual([0, 10]);
    expect(await between('--since', at(10), '--until', at(50), '--user', 'kim', '--app', 'support')).toEqual([0, 40]);
    // The creation of a session comes with its first event.
    const { out } = await tail('--since', at(20), '--until', at(21), '--json');
    const entries = out
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as object);
    expect(entries).toMatchObject([
      { userId: 'bob', change: 'created' },
      { userId: 'bob', appendTime: day + 1_200_000 },
      {},
    ]);
    for (const [args, advice] of [
      [['--since', 'noon'], 'such as 14:05 or 2026-11-22T14:05:00Z'],
      [['--since', '25:00'], 'such as 14:05'],
      [['--since', at(20), '--until', at(10)], '--until must be later than --since'],
      [['--until', at(10)], 'also say --since'],
      [['--since', '3000-01-01'], '--since must be a time that has passed'],
      [['--since', at(20), '--from', '0'], '--from'],
    ] as const)
      expect(await tail(...args)).toMatchObject({ code: 2, out: '', err: expect.stringContaining(advice) });
  });
});

describe('on a terminal', () => {
  const { open, close } = store('sqlite');
  afterEach(close);

  test('it asks, has colours and a bar, and no answer but yes deletes', async () => {
    const { orm, url } = await open();
    await conversation(orm);
    const prune = ['prune', '--idle-for', '0s', '--url', url];
    const no = await runOnTerminal(prune, 'n\n');
    expect(no).toMatchObject({
      code: 1,
      out: expect.stringContaining('This deletes 3 events in 1 session. Continue? [y/N]'),
    });
    expect(no.out).toContain('Nothing was deleted.');
    const yes = await runOnTerminal(prune, 'y\n');
    expect(yes).toMatchObject({ code: 0, out: expect.stringContaining('Deleted 3 events in 1 session.') });
    expect(yes.out).toMatch(/█.*100%/);
    expect((await runOnTerminal(['stats', '--url', url])).out).toContain('\u001b[2msessions');
  });

  test('top shows what runs, waits and fails, draws it again, and ends with Ctrl-C', async () => {
    const { orm, service, url } = await open();
    const session = await service.createSession({ ...support, sessionId: 'asks' });
    const add = (part: object, longRunningToolIds: string[] = []) =>
      service.appendEvent({
        session,
        event: createEvent({ author: 'clerk', longRunningToolIds, content: { role: 'model', parts: [part] } }),
      });
    await add({ functionCall: { id: 'q', name: 'ask_user', args: { text: 'Tea?\u001b' } } }, ['q']);
    await add({ functionCall: { id: 'c', name: 'brew', args: { cups: 2 } } });
    const lease = await new SessionLeases(orm.em).acquire({ ...support, sessionId: 'asks' }, { holder: 'worker 7' });
    const { out } = await run(['top', '--url', url]);
    expect(out).toMatch(/^Runs 1\ndoes .*\nbrew\(\{"cups":2\}\) +\d+ s ago +support +ada +asks +worker 7 +\d+ s ago$/m);
    expect(out).toMatch(/^Waits for a person 1\ncall .*\nask_user\(\{"text":"Tea\?\\u001b"\}\) +\d+ s ago +support/m);
    expect(out).toMatch(/^Failed in 24 hours 0$/m);
    const fails = { id: 'c', name: 'brew', response: { error: 'no water' } };
    let isFailing: Promise<unknown> | undefined;
    const live = await runOnTerminal(['top', '--url', url], '\u0003', {
      after: 'no water',
      onOutput: (shown) => {
        if (shown.includes('Failed in 24 hours')) isFailing ??= add({ functionResponse: fails });
      },
    });
    await isFailing;
    expect(live).toMatchObject({ code: 0, err: '' });
    expect(live.out).toMatch(/^\u001b\[\?1049h/);
    expect(live.out).toMatch(/\u001b\[\?1049l$/);
    expect(await json(['top', '--url', url])).toMatchObject({
      runs: [{ sessionId: 'asks', holder: 'worker 7' }],
      waits: [{ id: 'q' }],
      failed: [{ what: 'brew', why: 'no water', times: 1 }],
    });
    await lease.release();
  });

  test('rewind and erase-user say what they delete before they ask', async () => {
    const { orm, url } = await open();
    const { id } = await conversation(orm);
    const rewind = await runOnTerminal(['rewind', 'support', 'ada', id, '--at', '1', '--url', url], 'n\n');
    expect(rewind).toMatchObject({ code: 1, out: expect.stringContaining(`This deletes events 2 to 3 of ${id},`) });
    expect(rewind.out).toContain('sets its state to that after event 1');
    const erase = await runOnTerminal(['erase-user', 'ada', '--url', url], 'n\n');
    const erased = '3 events in 1 session and 1 key of the user’s state';
    expect(erase).toMatchObject({ code: 1, out: expect.stringContaining(`This deletes ${erased}.`) });
    expect(await json(['stats', '--url', url])).toMatchObject({ events: 3 });
  });

  test('Ctrl-C at the question deletes nothing', async () => {
    const { orm, url } = await open();
    await conversation(orm);
    expect(await runOnTerminal(['prune', '--idle-for', '0s', '--url', url], '\x03')).toMatchObject({ code: 1 });
    expect(await json(['stats', '--url', url])).toMatchObject({ sessions: 1 });
  });
});

describe('in general', () => {
  const { open, close } = store('sqlite');
  afterEach(close);

  test('a batch that Ctrl-C has ended is followed by the rest with the same command', async () => {
    const { service, url } = await open();
    for (let n = 0; n < 60; n++) await service.createSession({ ...support, sessionId: `s${n}` });
    const prune = ['prune', '--idle-for', '0s', '--yes', '--batch-size', '1', '--url', url];
    // Far longer than the test may take, if the process were not ended.
    const child = start([...prune, '--pause', '1h', '--json']);
    const seen = ended(child);
    const begun = async () => (await service.listSessions(support)).sessions.length < 60;
    while (!(await begun()) && child.exitCode === null);
    child.kill('SIGINT');
    const { code, out, err } = await seen;
    expect({ code, err }).toEqual({ code: 1, err: expect.stringContaining('run the same command again to continue') });
    const {
      done: { sessions },
      more,
    } = JSON.parse(out);
    expect(more).toBe(true);
    expect((await service.listSessions(support)).sessions).toHaveLength(60 - sessions);
    expect(await json(prune)).toMatchObject({ done: { sessions: 60 - sessions }, more: false });
  });

  test('prune says what happens to rows of the host, and names what they keep', async () => {
    const { orm, service, url } = await open();
    for (const sessionId of ['1', '2']) await service.createSession({ ...support, sessionId });
    const execute = (sql: string) => orm.em.getConnection().execute(sql);
    for (const [table, rule] of [
      ['ticket', 'cascade'],
      ['bill', 'restrict'],
    ])
      await execute(
        `create table ${table} (a text, u text, s text,
          foreign key (a, u, s) references adk_sessions (app_name, user_id, session_id) on delete ${rule})`,
      );
    await execute("insert into ticket values ('support', 'ada', '1')");
    await execute("insert into bill values ('support', 'ada', '2')");
    const ticket = '1 row of ticket: deleted, too ((a, u, s), on delete cascade).';
    const bill = '1 row of bill: each keeps its session ((a, u, s), on delete restrict).';
    const err = expect.stringContaining('Kept by bill ((a, u, s)): support / ada / 2\n');
    const prune = ['prune', '--idle-for', '0s', '--url', url];
    for (const [option, verb] of [
      ['--dry-run', 'This would delete'],
      ['--yes', 'Deleted'],
    ]) {
      const { out, ...ended } = await run([...prune, option!]);
      expect(ended).toEqual({ code: 0, err });
      expect(out.split('\n').toSorted()).toEqual(['', bill, ticket, `${verb} 0 events in 1 session.`].toSorted());
    }
    const { out } = await run(['doctor', '--url', url]);
    expect(out).toContain('bill to adk_sessions ((a, u, s), on delete restrict)');
    expect(out).toContain('create index `bill_app_name_user_id_session_id` on `bill` (`a`, `u`, `s`);');
  });

  test('a file that cannot be opened ends the command at once, in words', async () => {
    const { orm, url } = await open();
    await conversation(orm);
    const nowhere = path.join(folder, 'nowhere', 'all.jsonl');
    // A process of its own: if it did not exit, the test would fail.
    expect(await runAlone(['export', nowhere, '--url', url])).toEqual({
      code: 1,
      out: '',
      err: `error: ${nowhere}.part cannot be written: there is no such file or folder.\n`,
    });
    expect(await runAlone(['import', folder, '--url', url])).toEqual({
      code: 1,
      out: '',
      err: `error: ${folder} cannot be read: it is a folder.\n`,
    });
  });

  (process.platform === 'linux' ? test : test.skip)('a full disk ends what is printed, in words', async () => {
    const { orm, url } = await open();
    await conversation(orm);
    for (const command of ['export', 'list'])
      expect(await runInto('/dev/full', [command, '--url', url])).toEqual({
        code: 1,
        err: 'error: The output cannot be written: the disk is full.\n',
      });
  });

  test('no other refusal of a point is taken for an invocation that is missing', async () => {
    const refusal = new InvalidArgumentError('Something else is wrong.');
    await expect(atPoint({ beforeInvocationId: 'inv-9' }, () => Promise.reject(refusal))).rejects.toBe(refusal);
  });

  test.each([
    [['trim', '--yes'], 'trim needs either --keep-last or --events-older-than.'],
    [['prune', '--yes'], 'prune needs --idle-for, --sessions-older-than or --deleted-for'],
    [['trim', '--session', 'x', '--keep-last', '1'], 'A --session needs --app and --user.'],
    [['rewind', 'support', 'ada', 'ID', '--before', 'inv-9', '--yes'], '--before inv-9: no such invocation.'],
    [['fork', 'support', 'ada', 'ID', '--before', 'inv-9'], '--before inv-9: no such invocation.'],
    [['rewind', 'support', 'ada', 'ID', '--at', '9', '--yes'], '--at must be from 0 to 3'],
    [['rewind', 'support', 'ada', 'ID', '--at', '9', '--before', 'i', '--yes'], 'Give either --at or --before.'],
    [['studio', '--port', '99999'], 'a port from 0 to 65535'],
    [['web', '--port', '99999'], 'a port from 0 to 65535'],
    [['show', 'support', 'ada', 'ID', '--last', '-1'], 'a whole number'],
    [['usage', '--from', '2026-11-05', '--to', '2026-11-04'], '--to must be the day of --from, or a later one.'],
    [['list', '--app', 'support', '--by', 'size', '--limit', '0'], '--limit must be a whole number from 1'],
    [['list', '--app', 'support', '--limit', '0'], '--limit must be a whole number from 1'],
    [['list', '--app', 'support', '--after', 'x'], "--after must be the 'next' of"],
  ])('a wrong value ends with 2, in the words of the command line: %j', async (args, message) => {
    const { orm, url } = await open();
    const { id } = await conversation(orm);
    const given = args.map((arg) => (arg === 'ID' ? id : arg));
    expect(await run([...given, '--url', url])).toMatchObject({ code: 2, err: expect.stringContaining(message) });
    expect(await json(['stats', '--url', url])).toMatchObject({ events: 3 });
  });

  test('a name that matches nothing is reported on stderr', async () => {
    const { orm, url } = await open();
    await conversation(orm);
    const unmatched = { code: 0, err: 'No session of app suport is stored.\n' };
    expect(await run(['list', '--app', 'suport', '--url', url])).toMatchObject(unmatched);
    expect(await run(['stats', '--app', 'suport', '--url', url])).toMatchObject(unmatched);
    expect(await run(['list', '--app', 'support', '--title', 'none', '--url', url])).toMatchObject({
      code: 0,
      err: 'No session matches.\n',
    });
    expect(await run(['erase-user', 'nobody', '--yes', '--url', url])).toMatchObject({
      code: 1,
      err: expect.stringContaining('There is no user nobody.'),
    });
    const tail = start(['tail', '--app', 'suport', '--url', url]);
    await once(tail.stderr, 'data').then(([said]) => expect(String(said)).toBe(unmatched.err));
    tail.kill('SIGINT');
    await once(tail, 'close');
  });

  test('--config with a file in TypeScript is read, or says what it needs', async () => {
    const { orm, url } = await open();
    await conversation(orm);
    const cwd = await mkdtemp(path.join('test/hosts/cli', 'config-'));
    try {
      await writeFile(path.join(cwd, 'package.json'), '{ "type": "module" }');
      await writeFile(
        path.join(cwd, 'mikro-orm.config.ts'),
        `import { SqliteDriver } from '@mikro-orm/sqlite';
         import { adkEntities } from '../../../../entities/index.js';
         const dbName: string = ${JSON.stringify(url.replace('sqlite:', ''))};
         export default { driver: SqliteDriver, dbName, entities: adkEntities() };`,
      );
      const stats = ['stats', '--json', '--config', 'mikro-orm.config.ts'];
      const { out } = await runAlone(stats, { cwd, env: { NODE_OPTIONS: '--import tsx' } });
      expect(JSON.parse(out)).toMatchObject({ sessions: 1 });
      // Later versions of Node.js, and the loaders of MikroORM 7, read the file itself, but not the sources that it imports.
      expect(await runAlone(stats, { cwd, env: { NODE_OPTIONS: '' } })).not.toMatchObject({ code: 0 });
      // Nor what is more than types.
      await writeFile(
        path.join(cwd, 'mikro-orm.config.ts'),
        'enum Place { Here }\nexport default { dbName: Place[0] };',
      );
      const advice = "Install tsx, and run NODE_OPTIONS='--import tsx' npx adk-mikro-orm …";
      if (!isMikroOrm7)
        for (const config of [stats, stats.slice(0, 2)])
          expect(await runAlone(config, { cwd, env: { NODE_OPTIONS: '' } })).toMatchObject({
            code: 2,
            err: expect.stringContaining(
              config === stats ? advice : advice.replace('…', '--config mikro-orm.config.ts'),
            ),
          });
    } finally {
      await rm(cwd, { recursive: true });
    }
  });

  test('the config of the host is found as MikroORM finds it, or named', async () => {
    const { orm, url } = await open();
    await conversation(orm);
    const env = { ADK_DATABASE_URL: url };
    expect(JSON.parse((await runAlone(['stats', '--json'], { env })).out)).toMatchObject({ sessions: 1 });
    const config = 'scripts/mikro-orm-config.js';
    expect(JSON.parse((await runAlone(['stats', '--json', '--config', config], { env })).out)).toMatchObject({
      sessions: 1,
    });
    expect(await runAlone(['stats', '--config', 'nowhere.js'])).toMatchObject({
      code: 2,
      err: expect.stringContaining('There is no file nowhere.js'),
    });
    expect(await runAlone(['stats', '--config', config, '--url', url])).toMatchObject({ code: 2 });
  });

  test.each([
    ['config.mjs', (options: string) => `export default ${options};`],
    ['config.cjs', (options: string) => `module.exports = ${options};`],
    [
      'asynchronous.mjs',
      (options: string) => `export default async (context) => ({ contextName: context, ...${options} });`,
    ],
    ['list.mjs', (options: string) => `export default [{ contextName: 'other' }, ${options}];`],
    ['compiled.cjs', (options: string) => `exports.__esModule = true; exports.default = ${options};`],
  ])('--config %s', async (name, contentOf) => {
    const { orm, url } = await open();
    await conversation(orm);
    // Beside the sources, where it finds the driver and the entities.
    const cwd = await mkdtemp(path.join('test/hosts/cli', 'config-'));
    try {
      const options = `{ driver: require('@mikro-orm/sqlite').SqliteDriver, dbName: ${JSON.stringify(url.replace('sqlite:', ''))},
        entities: entities }`;
      const isModule = name.endsWith('.mjs');
      const require = isModule
        ? "import { createRequire } from 'node:module'; const require = createRequire(import.meta.url);"
        : '';
      const entities = `require('tsx/cjs'); const entities = require('../../../../entities/index.ts').adkEntities();`;
      await writeFile(path.join(cwd, name), `${require}\n${entities}\n${contentOf(options)}`);
      const { out, err } = await runAlone(['stats', '--json', '--config', name], { cwd });
      expect({ err, ...(out && JSON.parse(out)) }).toMatchObject({ err: '', sessions: 1 });
      if (!isModule) return;
      await writeFile(path.join(cwd, name), 'export const options = {};');
      expect(await runAlone(['stats', '--config', name], { cwd })).toMatchObject({
        code: 2,
        err: expect.stringContaining('no default export'),
      });
    } finally {
      await rm(cwd, { recursive: true });
    }
  });

  test("erase-user and export --user include the host's tables that package.json names", async () => {
    const { orm, url } = await open();
    await conversation(orm);
    const rows = () => orm.em.getConnection().execute<{ user_id: string }[]>('select user_id from "orders"');
    await orm.em.getConnection().execute('create table "orders" (id integer primary key, app_name text, user_id text)');
    await orm.em.getConnection().execute(`insert into "orders" values (1, 'support', 'ada'), (2, 'support', 'bob')`);
    const cwd = await mkdtemp(path.resolve('test/hosts/cli', 'config-'));
    try {
      await writeFile(
        path.join(cwd, 'config.cjs'),
        `require('tsx/cjs');
         const { EntitySchema } = require('@mikro-orm/core');
         const Order = new EntitySchema({ name: 'Order', tableName: 'orders', properties: {
           id: { type: 'integer', primary: true }, appName: { type: 'string' }, userId: { type: 'string' } } });
         const entities = [...require('../../../../entities/index.ts').adkEntities(), Order];
         module.exports = { driver: require('@mikro-orm/sqlite').SqliteDriver, dbName: ${JSON.stringify(url.replace('sqlite:', ''))}, entities };`,
      );
      const names = { appName: 'appName', userId: 'userId' };
      const settings = (owned: unknown) =>
        writeFile(path.join(cwd, 'package.json'), JSON.stringify({ 'adk-mikro-orm': { owned } }));
      await settings([{ entity: 'Order', ...names }]);
      const config = ['--config', 'config.cjs'];
      const exported = await runAlone(['export', '--user', 'ada', ...config], { cwd });
      expect(exported.out).toContain('"entity":"Order","row":{"id":1,"appName":"support","userId":"ada"}');
      const erase = ['erase-user', 'ada', '--yes'];
      // Without the config nobody knows the table: nothing is deleted.
      expect(await run([...erase, '--url', url], { cwd })).toMatchObject({
        code: 1,
        err: expect.stringContaining('Order'),
      });
      expect(await rows()).toHaveLength(2);
      expect((await runAlone([...erase, ...config], { cwd })).out).toContain('1 Order');
      expect(await rows()).toEqual([{ user_id: 'bob' }]);
      await settings([{ entity: 'Order', appName: 'appName' }]);
      expect(await run([...erase, '--url', url], { cwd })).toMatchObject({
        code: 2,
        err: expect.stringContaining('owned must be a list of objects with entity, appName and userId'),
      });
    } finally {
      await rm(cwd, { recursive: true });
    }
  });

  test('migrate --dry-run makes no SQLite file, and leaves one as it is', async () => {
    const cwd = await mkdtemp(path.join(folder, 'dry-'));
    const dryRun = async (...args: string[]) => json(['migrate', '--dry-run', ...args]);
    const file = path.join(cwd, 'sessions.db');
    const made = { statements: expect.arrayContaining([expect.stringContaining('adk_sessions')]) };
    expect(await dryRun('--url', `sqlite:${file}`)).toMatchObject(made);
    const { out } = await runAlone(['migrate', '--dry-run'], { env: { ADK_DATABASE_URL: `sqlite:${file}` } });
    expect(out).toContain('adk_sessions');
    expect(await readdir(cwd)).toEqual([]);

    // Neither WAL nor tables.
    const orm = await MikroORM.init({ driver: SqliteDriver, dbName: file, entities: adkEntities() });
    await orm.em.getConnection().execute('create table notes (id int)');
    await orm.close();
    const before = await readFile(file);
    expect(await dryRun('--url', `sqlite:${file}`)).toMatchObject(made);
    expect(await readFile(file)).toEqual(before);
    expect(await readdir(cwd)).toEqual(['sessions.db']);
  });

  test.each([
    [['stats', '--url', 'oracle:x'], /has to begin with/],
    [['stats', '--url', 'sqlite:/nowhere/x.sqlite'], /There is no file/],
    [['stats', '--ap', 'x'], /unknown option/],
    [['prune', '--idle-for', 'soon', '--url', 'sqlite::memory:'], /90d/],
    [['nonsense'], /unknown command/],
    [['show', 'app'], /missing required argument/],
  ])('%j is a wrong command line', async (args, message) => {
    expect(await run(args)).toMatchObject({ code: 2, out: '', err: expect.stringMatching(message) });
  });

  test('a missing server is not the caller’s mistake', async () => {
    const { code, out } = await run(['doctor', '--json', '--url', 'postgresql://nobody@127.0.0.1:1/none']);
    expect(code).toBe(1);
    const advice = expect.stringContaining('Look at host and port in --url, and');
    expect(JSON.parse(out)).toContainEqual(expect.objectContaining({ check: 'connection', state: 'wrong', advice }));
  });

  const [server] = availableServers();
  (server ? test : test.skip)('migrate waits for a server that is starting', async () => {
    const database = await createDatabase(server!);
    const proxy = await Proxy.before(database.url);
    try {
      proxy.refuse();
      const running = run(['migrate', '--json', '--url', proxy.url]);
      await until(() => proxy.attempts > 2);
      proxy.open();
      expect(await running).toMatchObject({ code: 0, err: '', out: expect.stringContaining('adk_initial') });
    } finally {
      await proxy.close();
      await database.drop();
    }
  });

  test('every command has help with an example', async () => {
    const { version } = JSON.parse(await readFile('package.json', 'utf8')) as { version: string };
    expect([packageVersion, (await run(['--version'])).out]).toEqual([version, `${version}\n`]);
    const { out, code } = await run(['--help']);
    expect(code).toBe(0);
    const commands = [...out.matchAll(/^ {2}([a-z][a-z-]*) .*  [a-z]/gm)].map(([, command]) => command!);
    expect(commands).toEqual(
      'doctor migrate distribute check-engine stats usage list waiting top answer show files tail studio prune trim erase-user memory leases export import repair reencode fork rewind restore web completion help'.split(
        ' ',
      ),
    );
    for (const command of ['prune', 'import', 'rewind']) {
      const help = await run([command, '--help']);
      expect(help.out).toMatch(new RegExp(`Example:\\n {2}\\$ adk-mikro-orm ${command}`));
      expect(help.out).toContain('--url <url>');
    }
  });

  const hasBash = spawnSync('bash', ['--version']).status === 0;
  (hasBash ? test : test.skip)('bash completes commands, options and their values', async () => {
    const { out: script } = await run(['completion', 'bash']);
    const completed = (line: string) => {
      const words = ['adk-mikro-orm', ...line.split(' ')];
      const print = `COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _adk_mikro_orm; printf '%s\\n' "\${COMPREPLY[@]}"`;
      const { stdout, stderr } = spawnSync('bash', ['-c', `${script}${print}`, 'bash', ...words], { encoding: 'utf8' });
      expect(stderr).toBe('');
      return stdout.split('\n').filter(Boolean);
    };
    expect(completed('re')).toEqual(['repair', 'reencode', 'rewind', 'restore']);
    expect(completed('leases ')).toEqual(expect.arrayContaining(['list', 'release', '--url']));
    expect(completed('leases list --')).toEqual(expect.arrayContaining(['--app', '--limit', '--json']));
    expect(completed('leases list --')).not.toContain('--dry-run');
    expect(completed('usage --app list --by ')).toEqual(['day', 'user', 'model', 'agent', 'app']);
    // Files are the shell's own.
    expect(completed('usage --prices ')).toEqual([]);
    expect(completed('nonsense --ver')).toEqual(['--version']);
  });

  // How a shell completes a line whose last word may be empty. The functions of zsh are those of its completion system.
  const zsh = `compdef() { :; }; _files() { :; }; compadd() { shift; print -rl -- \${(M)@:#$words[CURRENT]*}; }
    . $1; shift; words=("$@"); CURRENT=$#; _adk_mikro_orm`;
  const SHELLS = {
    zsh: (file: string, words: string[]) => ['-f', '-c', zsh, 'zsh', file, ...words],
    fish: (file: string, words: string[]) => [
      ...['--no-config', '-c', 'source $argv[1]; complete -C $argv[2]'],
      ...[file, words.join(' ')],
    ],
  };
  const shells = Object.entries(SHELLS).map(([shell, of]) => ({
    shell,
    of,
    isThere: !spawnSync(shell, ['--version']).error,
  }));
  for (const { shell, of, isThere } of shells)
    (isThere ? test : test.skip)(`${shell} completes commands, options and their values`, async () => {
      const { code, out: script } = await run(['completion', shell]);
      expect({ code, script }).toMatchObject({ code: 0, script: expect.stringContaining("'leases release'") });
      const file = path.join(folder, `completion.${shell}`);
      await writeFile(file, script);
      const completed = (line: string) => {
        const words = ['adk-mikro-orm', ...line.split(' ')];
        const { stdout, stderr } = spawnSync(shell, of(file, words), { encoding: 'utf8' });
        expect(stderr).toBe('');
        return stdout.split('\n').flatMap((found) => found.split('\t')[0] || []);
      };
      expect(completed('re').sort()).toEqual(['reencode', 'repair', 'restore', 'rewind']);
      expect(completed('leases ')).toEqual(expect.arrayContaining(['list', 'release']));
      expect(completed('leases list --')).toEqual(expect.arrayContaining(['--app', '--limit', '--json']));
      expect(completed('leases list --')).not.toContain('--dry-run');
      expect(completed('usage --app list --by ').sort()).toEqual(['agent', 'app', 'day', 'model', 'user']);
    });

  test('no other shell gets a script', async () => {
    expect(await run(['completion', 'tcsh'])).toMatchObject({
      code: 2,
      err: expect.stringContaining('bash, zsh, fish'),
    });
  });

  (process.platform === 'linux' ? test : test.skip)(
    'studio --open opens its link, or says that it cannot',
    async () => {
      const { url } = await open();
      const bin = await mkdtemp(path.join(folder, 'bin-'));
      const opened = path.join(bin, 'opened');
      const studio = async (PATH: string) => {
        const child = start(['studio', '--json', '--port', '0', '--open', '--url', url], { env: { PATH } });
        const result = ended(child);
        const [line] = (await once(child.stdout, 'data')) as [Buffer];
        return { child, result, link: (JSON.parse(line.toString()) as { url: string }).url };
      };
      await writeFile(path.join(bin, 'xdg-open'), `#!/bin/sh\nprintf %s "$1" > ${opened}\n`, { mode: 0o755 });
      const one = await studio(`${bin}:/bin:/usr/bin`);
      await until(async () => (await readFile(opened, 'utf8').catch(() => '')) === one.link);
      one.child.kill('SIGINT');
      expect((await one.result).err).not.toContain('No browser');
      const other = await studio('/nowhere');
      await once(other.child.stderr, 'data').then(() => other.child.kill('SIGINT'));
      expect((await other.result).err).toContain('No browser could be opened (ENOENT)');
    },
  );

  test('what docs/operations.md shows runs from top to bottom', async () => {
    const { service, url } = await open();
    const session = await service.createSession({ ...support, sessionId: '4711', state: { 'user:language': 'de' } });
    await service.appendEvent({ session, event: createEvent({ author: 'user' }) });
    const text = await readFile('docs/operations.md', 'utf8');
    const shown = [...text.matchAll(/^npx adk-mikro-orm (.*)$/gm)].map(([, line]) => line!.split(' '));
    expect(shown.length).toBeGreaterThan(10);
    // Commands that delete come last, or the others would have nothing to show.
    const last = ['prune', 'trim', 'erase-user'];
    const isLast = ([command]: string[]) => last.includes(command!);
    const cwd = await mkdtemp(path.join(folder, 'docs-'));
    for (const args of [...shown.filter((each) => !isLast(each)), ...shown.filter(isLast)])
      expect({ args, ...(await run([...args, '--url', url], { cwd })) }).toMatchObject({ args, code: 0 });
    expect(await json(['stats', '--url', url])).toMatchObject({ sessions: 0 });
  });

  test('studio shows sessions, and takes a token on an address that others reach', async () => {
    const { url, drop } = await createDatabase('sqlite');
    // Otherwise every page would say that there are no tables.
    const early = await run(['studio', '--port', '0', '--url', (await open(false)).url]);
    expect(early).toMatchObject({ code: 1, out: '', err: expect.stringContaining('migrate') });
    await run(['migrate', '--url', url]);
    const opened = async (...args: string[]) => {
      const child = start(['studio', '--json', '--port', '0', ...args, '--url', url]);
      const [line] = (await once(child.stdout, 'data')) as [Buffer];
      return { child, link: new URL((JSON.parse(line.toString()) as { url: string }).url) };
    };
    const end = async (child: ReturnType<typeof start>) => {
      child.kill('SIGINT');
      expect(await once(child, 'exit')).toEqual([0, null]);
    };
    const local = await opened();
    expect(local.link.hostname).toBe('127.0.0.1');
    expect(await (await fetch(local.link)).text()).toContain('No sessions yet');
    await end(local.child);

    const outside = await opened('--host', '0.0.0.0');
    expect(outside.link.searchParams.get('token')).toMatch(/^[\w-]{32}$/);
    outside.link.hostname = '127.0.0.1';
    const answer = await fetch(outside.link, { redirect: 'manual' });
    const [cookie = ''] = (answer.headers.get('set-cookie') ?? '').split(';');
    expect((await fetch(new URL('/', outside.link))).status).toBe(401);
    expect((await fetch(new URL('/', outside.link), { headers: { cookie } })).status).toBe(200);
    await end(outside.child);

    process.env['ADK_STUDIO_TOKEN'] = 'one-of-the-operators';
    try {
      const given = await opened('--host', '0.0.0.0');
      expect(given.link.searchParams.get('token')).toBe('one-of-the-operators');
      await end(given.child);
    } finally {
      delete process.env['ADK_STUDIO_TOKEN'];
    }
    await drop();
  });

  test('import --from copies another ADK session store', async () => {
    const source = await open(false);
    for (const statement of ADK_JS_ON_SQLITE) await source.orm.em.getConnection().execute(statement);
    const { url } = await open();
    const from = ['import', '--from', source.url, '--url', url];
    expect(await json([...from, '--dry-run'])).toMatchObject({ done: { sessions: 1, events: 1, refused: 0 } });
    expect(await json(['stats', '--url', url])).toMatchObject({ sessions: 0 });
    expect(await json(from)).toMatchObject({ done: { sessions: 1, events: 1, refused: 0 } });
    expect((await run(['show', 'shop', 'ada', 'old', '--url', url])).out).toContain('step = 1');
  });
});

/** The databases of one test. */
function store(name: DatabaseName) {
  const opened: { orm: MikroORM; database: TestDatabase }[] = [];
  return {
    async open(isMigrated = true) {
      const database = await createDatabase(name);
      const orm = await MikroORM.init({ ...database.options, entities: adkEntities() });
      opened.push({ orm, database });
      if (isMigrated) await migrate(orm);
      // MikroORM 7 would make the file later.
      else await orm.em.getConnection().execute('select 1');
      return { orm, url: database.url, service: new MikroOrmSessionService(orm.em) };
    },
    async close() {
      for (const { orm, database } of opened.splice(0)) {
        await orm.close(true);
        await database.drop();
      }
    },
  };
}

async function conversation({ em }: MikroORM, userId = 'ada') {
  const service = new MikroOrmSessionService(em);
  const session = await service.createSession({ ...support, userId });
  const events = [
    { author: 'user', content: { parts: [{ text: 'How is the weather? \u001b[2J' }] } },
    { author: 'forecaster', content: { parts: [{ functionCall: { name: 'weather', args: { city: 'Vienna' } } }] } },
    {
      author: 'forecaster',
      content: { parts: [{ functionResponse: { name: 'weather', response: { sky: 'clear' } } }] },
      actions: { stateDelta: { city: 'Vienna', 'user:language': 'de' } },
    },
  ];
  for (const [i, event] of events.entries())
    await service.appendEvent({
      session,
      event: createEvent({ ...event, timestamp: Date.UTC(2026, 10, 22, 10, 0, i) }),
    });
  return session;
}

/** The JSON that a command prints; it must end with this code. */
async function json(args: readonly string[], code = 0, input?: string) {
  const line = [...args, '--json'];
  const result = await (input === undefined ? run(line) : runAlone(line, { input }));
  if (result.code !== code) throw new Error(`${args.join(' ')} ended with ${result.code}: ${result.err}${result.out}`);
  return JSON.parse(result.out);
}
