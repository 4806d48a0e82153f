import { createEvent } from '@google/adk';
import { MikroORM } from '@mikro-orm/core';
import { execFile, spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { cp, mkdir, readFile, readdir, rm, symlink, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import path from 'node:path';
import { promisify } from 'node:util';
import { AdkEvent, AdkSession, adkEntities } from '../../../entities/index.js';
import { EventLog, MikroOrmSessionService, adkServices, type Message } from '../../../src/index.js';
import { accessibilityProblems, describeInChromium } from '../../support/chromium.js';
import { connection, idsOf, take } from '../../support/event-source.js';
import { createMigrated } from '../../support/migrated.js';
import { isMikroOrm7 } from '../../support/mikro-orm.js';
import { availableServers, createDatabase, type TestDatabase } from '../../support/servers.js';
import { installPackage } from '../schema/host-folder.js';
import { errorsOf } from './app.js';

const repository = path.resolve(__dirname, '../../..');
const run = promisify(execFile);
const tsc = createRequire(__filename).resolve('typescript/bin/tsc');

/** The peers are in the folder above: the ones that this test runs with. `.npmrc` says so. */
const FLAGS = ['--ignore-scripts', '--prefer-offline', '--no-audit', '--no-fund'];

/** Releases that fit MikroORM 7, and need the same Node.js. */
const ON_MIKRO_ORM_7 = ['@mikro-orm/nestjs@7.1.0', 'ai@7.0.173'];

const message = (author: string, part: Message['attachments'][number]) =>
  createEvent({ author, content: { parts: [part] } });

/** The servers, and how each ends after SIGTERM: NestJS sends the signal to itself again when its hooks are done. */
const SERVERS = [
  { name: 'express', ended: [0, null] },
  { name: 'fastify', ended: [0, null] },
  { name: 'hono', ended: [0, null] },
  { name: 'nestjs', ended: [null, 'SIGTERM'] },
  { name: 'next', ended: [143, null] },
];

/** The folder of the examples, as a user has it, with the packed package. */
let folder: string;
let complaints: string[];

beforeAll(async () => {
  const root = await installPackage();
  folder = path.join(root, 'frameworks');
  await mkdir(path.join(root, 'node_modules/.bin'));
  await symlink('../adk-mikro-orm-cli/dist/esm/src/main.js', path.join(root, 'node_modules/.bin/adk-mikro-orm'));
  const examples = path.join(repository, 'examples');
  // The examples are ES modules, like the sources of the package.
  await writeFile(path.join(root, 'package.json'), JSON.stringify({ type: 'module' }));
  await cp(path.join(examples, 'frameworks'), folder, {
    recursive: true,
    filter: (file) => !/[\\/](node_modules|dist|\.next)$/.test(file),
  });
  await run('npm', ['ci', ...FLAGS], { cwd: folder });
  if (isMikroOrm7) await run('npm', ['install', '--save-exact', ...FLAGS, ...ON_MIKRO_ORM_7], { cwd: folder });
  const compiled = await run(process.execPath, [tsc], { cwd: folder }).catch(
    (error: unknown) => error as { stdout: string },
  );
  complaints = errorsOf(compiled.stdout);
}, 900_000);

afterAll(() => rm(path.dirname(folder), { recursive: true, force: true }));

test('the programs type-check, as do the shapes of UI messages and AG-UI events', () => {
  expect(complaints).toEqual([]);
});

test('UI messages and AG-UI events are valid, whatever a message has', async () => {
  const message = { id: 'm', role: 'agent', author: 'support', timestamp: 1, text: '', toolCalls: [], attachments: [] };
  const call = { id: 'c', name: 'find', args: { a: 1 }, isLongRunning: false };
  const all: Message[] = [
    { ...message, id: '1', role: 'user', author: 'user', text: 'Hello.' },
    { ...message, id: '2', role: 'agent', thoughts: 'Hm.', text: 'Hi.', toolCalls: [call] },
    { ...message, id: '3', role: 'agent', toolCalls: [{ ...call, id: 'd', response: { status: 'sent' } }] },
    { ...message, id: '4', role: 'agent', toolCalls: [{ ...call, id: 'e', response: { error: 'no' } }] },
    {
      ...message,
      ...{ id: '5', role: 'agent' },
      attachments: [
        { inlineData: { mimeType: 'image/png', data: 'AAAA' } },
        { fileData: { mimeType: 'image/png', fileUri: 'https://example.com/a.png' } },
        { executableCode: { code: '1 + 1' } },
      ],
    },
    { ...message, id: '6', role: 'agent', error: 'The model is away.' },
  ];
  const script = `
    import { EventSchemas } from '@ag-ui/core/schemas';
    import { validateUIMessages } from 'ai';
    import { toAGUIEvents } from './dist/frameworks/ag-ui.js';
    import { toUIMessages } from './dist/frameworks/ui-messages.js';
    const all = ${JSON.stringify(all)};
    const messages = await validateUIMessages({ messages: toUIMessages(all) });
    const run = { threadId: 's', runId: 'i' };
    const events = [...toAGUIEvents(run, all), ...toAGUIEvents(run, all.slice(0, 1))].map((event) => EventSchemas.parse(event));
    console.log(JSON.stringify({ parts: messages.map(({ parts }) => parts), types: events.map(({ type }) => type) }));
  `;
  const { stdout } = await run(process.execPath, ['--input-type=module', '--eval', script], { cwd: folder });
  const { parts, types } = JSON.parse(stdout) as { parts: unknown; types: string[] };
  expect(parts).toMatchObject([
    [{ type: 'text', text: 'Hello.' }],
    [
      { type: 'reasoning', text: 'Hm.' },
      { type: 'text', text: 'Hi.' },
      { type: 'dynamic-tool', toolName: 'find', toolCallId: 'c', state: 'input-available', input: { a: 1 } },
    ],
    [{ toolCallId: 'd', state: 'output-available', output: { status: 'sent' } }],
    [{ toolCallId: 'e', state: 'output-error', errorText: 'no' }],
    [
      { type: 'file', url: 'data:image/png;base64,AAAA' },
      { type: 'file', url: 'https://example.com/a.png' },
      { type: 'data-code', data: { executableCode: { code: '1 + 1' } } },
    ],
    [{ type: 'data-error', data: 'The model is away.' }],
  ]);
  const text = ['TEXT_MESSAGE_START', 'TEXT_MESSAGE_CONTENT', 'TEXT_MESSAGE_END'];
  const reasoning = ['START', 'MESSAGE_START', 'MESSAGE_CONTENT', 'MESSAGE_END', 'END'].map(
    (end) => `REASONING_${end}`,
  );
  const tool = ['TOOL_CALL_START', 'TOOL_CALL_ARGS', 'TOOL_CALL_END'];
  const answered = [...tool, 'TOOL_CALL_RESULT'];
  expect(types).toEqual([
    ...['RUN_STARTED', ...text, ...reasoning, ...text, ...tool, ...answered, ...answered],
    ...['CUSTOM', 'CUSTOM', 'CUSTOM', 'RUN_ERROR'],
    ...['RUN_STARTED', ...text, 'RUN_FINISHED'],
  ]);
});

/** The environment to build and start Next.js in: jest sets NODE_ENV to `test`. */
const ENV = { ...process.env, NODE_ENV: 'production' as const, NEXT_TELEMETRY_DISABLED: '1' };
const NEXT = 'node_modules/next/dist/bin/next';

async function buildNext(): Promise<void> {
  const cwd = path.join(folder, 'next');
  const config = path.join(cwd, 'next.config.ts');
  const text = await readFile(config, 'utf8');
  // The packages of this test are links to outside of the folder above.
  await writeFile(config, text.replace(/root: .*,/, `root: '/',`));
  await run('npm', ['ci', ...FLAGS], { cwd, env: { ...process.env, NODE_ENV: undefined } });
  // The build also checks the types.
  await run(process.execPath, [NEXT, 'build'], { cwd, env: ENV });
}

/** A process that runs a program of the examples. */
class Program {
  readonly #process: ChildProcess;
  readonly #listening: Promise<number>;
  output = '';

  constructor(name: string, env: Record<string, string>) {
    const isNext = name === 'next';
    this.#process = spawn(process.execPath, isNext ? [NEXT, 'start'] : [`dist/frameworks/${name}.js`], {
      cwd: isNext ? path.join(folder, 'next') : folder,
      env: { ...ENV, PORT: '0', NO_COLOR: '1', FORCE_COLOR: undefined, ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    this.#listening = new Promise((resolve, reject) => {
      for (const stream of [this.#process.stdout, this.#process.stderr]) {
        stream!.setEncoding('utf8').on('data', (text: string) => {
          this.output += text;
          const port = /(?:listening \{[^}]*port: |Local: +http:\/\/localhost:)(\d+)/.exec(this.output)?.[1];
          if (port) resolve(Number(port));
        });
      }
      this.#process.once('exit', () => reject(new Error(`${name} has ended: ${this.output}`)));
    });
    this.#listening.catch(() => undefined);
  }

  async url(rest: string): Promise<string> {
    return `http://127.0.0.1:${await this.#listening}${rest}`;
  }

  /** @returns its exit code and the signal that ended it. */
  async end(signal: NodeJS.Signals): Promise<unknown[]> {
    if (this.#process.exitCode !== null || this.#process.signalCode !== null) {
      return [this.#process.exitCode, this.#process.signalCode];
    }
    const ended = once(this.#process, 'exit');
    this.#process.kill(signal);
    return ended;
  }
}

(availableServers().includes('postgresql') ? describe : describe.skip)('on PostgreSQL', () => {
  let orm: MikroORM;
  let database: TestDatabase;
  const programs: Program[] = [];

  function start(name: string, env: Record<string, string> = {}): Program {
    const program = new Program(name, { DATABASE_URL: database.url, ...env });
    programs.push(program);
    return program;
  }

  beforeEach(async () => {
    database = await createMigrated('postgresql');
    orm = await MikroORM.init({ ...database.options, entities: adkEntities() });
  });
  afterEach(async () => {
    await Promise.all(programs.splice(0).map((program) => program.end('SIGKILL')));
    await orm.close(true);
  });

  const stored = (id: string) => orm.em.fork().find(AdkEvent, { session: { id } }, { orderBy: { seq: 'asc' } });

  describe.each(SERVERS)('$name', ({ name, ended }) => {
    if (name === 'next') beforeAll(buildNext, 900_000);

    const post = async (program: Program, text: string, headers: Record<string, string> = {}) => {
      const response = await fetch(await program.url('/sessions/first/messages'), {
        method: 'POST',
        headers: { 'content-type': 'application/json', ...headers },
        body: JSON.stringify({ text }),
      });
      expect(response.status).toBe(200);
      return ((await response.json()) as { text: string }[]).map((message) => message.text);
    };

    test('a stream continues where it was cut off, when the server was killed meanwhile, and ends on SIGTERM', async () => {
      const first = start(name);
      expect(await (await fetch(await first.url('/health'))).json()).toEqual({ status: 'ok' });
      const answer = ['', 'Your order is on its way.'];
      expect(await post(first, 'Where is order 17?')).toEqual(answer);
      for (const id of ['x', '-1', '{']) {
        const refused = await fetch(await first.url('/sessions/first/events'), { headers: { 'last-event-id': id } });
        expect(refused.status).toBe(400);
      }
      const before = connection(await first.url('/sessions/first/events'));
      const seen = await take(before, 2);
      await before.return(undefined);
      expect(await first.end('SIGKILL')).toEqual([null, 'SIGKILL']);

      const second = start(name);
      const after = connection(await second.url('/sessions/first/events'), seen.at(-1)!.id);
      seen.push(...(await take(after, 2)));
      expect(await post(second, 'Where is order 17?')).toEqual(answer);
      seen.push(...(await take(after, 4)));
      expect(idsOf(seen)).toEqual([1, 2, 3, 4, 5, 6, 7, 8]);
      const rows = await stored('first');
      expect(seen.map(({ data }) => (data as { id: string }).id)).toEqual(rows.map(({ id }) => id));

      const rest = take(after, 1);
      const [end] = await Promise.all([
        second.end('SIGTERM'),
        expect(rest).rejects.toThrow('The server has closed the connection.'),
      ]);
      expect(end).toEqual(ended);
    });

    if (name === 'nestjs') {
      test('requests at the same time are each of their own user', async () => {
        const program = start(name);
        const users = ['ada', 'grace', 'linus'];
        await Promise.all(users.map((user) => post(program, `I am ${user}.`, { 'x-user': user })));
        const events = await stored('first');
        const said = events.filter(({ seq }) => seq === 1).map(({ session, data }) => [session.userId, data]);
        expect(Object.fromEntries(said)).toEqual(
          Object.fromEntries(
            users.map((user) => [
              user,
              expect.objectContaining({ content: expect.objectContaining({ parts: [{ text: `I am ${user}.` }] }) }),
            ]),
          ),
        );
        expect(events).toHaveLength(12);
      });
    }
  });

  describeInChromium('the chat page of express', (browser) => {
    const call = { id: 'c', name: 'find_order' };
    const key = { appName: 'support', userId: 'ada' };

    test.each([1280, 390])(
      'reads what is older and shows what is new, each message once, %i pixels wide',
      async (width) => {
        const { sessionService } = adkServices(orm.em);
        const session = await sessionService.createSession({ ...key, sessionId: 'long' });
        // A call is the last event of one page, and its response the first of the next.
        for (let i = 1; i < 70; i++)
          await sessionService.appendEvent({ session, event: message('user', { text: `No. ${i}.` }) });
        await sessionService.appendEvent({
          session,
          event: message('support', { functionCall: { ...call, args: { order: 1 } } }),
        });
        const response = { functionResponse: { ...call, response: { status: 'lost' } } };
        await sessionService.appendEvent({ session, event: message('support', response) });
        for (let i = 72; i <= 100; i++)
          await sessionService.appendEvent({ session, event: message('user', { text: `No. ${i}.` }) });

        const page = await browser().newPage({ viewport: { width, height: 800 } });
        const problems: string[] = [];
        page.on('pageerror', (error) => problems.push(String(error)));
        try {
          await page.goto(await start('express').url('/sessions/long'));
          await page.getByText('No. 100.').waitFor();
          const isAtEnd = "document.querySelector('li:last-child').getBoundingClientRect().bottom <= innerHeight";
          expect(await page.evaluate(isAtEnd)).toBe(true);
          expect(await page.getByText('No. 1.').count()).toBe(0);
          expect(await accessibilityProblems(page)).toEqual([]);

          await page.locator('ol').focus();
          while ((await page.getByText('No. 1.').count()) === 0) {
            await page.keyboard.press('Home');
            // Resolves when the page has drawn what it has received.
            await page.evaluate('new Promise((drawn) => requestAnimationFrame(drawn))');
          }
          const answer = 'find_order({"order":1}) → {"status":"lost"}';
          const all = [...Array.from({ length: 69 }, (_, i) => `No. ${i + 1}.`), answer];
          all.push(...Array.from({ length: 29 }, (_, i) => `No. ${i + 72}.`));
          expect(await page.locator('li[data-id]').allTextContents()).toEqual(all);

          await page.getByLabel('Your message').fill('Where is order 17?');
          await page.keyboard.press('Enter');
          await page.getByText('Your order is on its way.').waitFor();
          // Another process writes, too.
          await sessionService.appendEvent({ session, event: message('support', { text: 'Here it is.' }) });
          await page.getByText('Here it is.').waitFor();
          all.push('Where is order 17?', 'find_order({"order":17}) → {"order":17,"status":"on its way"}');
          all.push('Your order is on its way.', 'Here it is.');
          expect(await page.locator('li[data-id]').allTextContents()).toEqual(all);

          await sessionService.rewindSession({ ...key, sessionId: 'long' }, { at: 2 });
          await page.getByText('Here it is.').waitFor({ state: 'detached' });
          expect(await page.locator('li[data-id]').allTextContents()).toEqual(all.slice(0, 2));
          expect(await page.evaluate('document.documentElement.scrollWidth - innerWidth')).toBe(0);
          expect(problems).toEqual([]);
        } finally {
          await page.close();
        }
      },
    );

    test('asks before a call, shows an error as one, and loses no message', async () => {
      const program = start('express');
      const page = await browser().newPage({ viewport: { width: 390, height: 800 }, colorScheme: 'dark' });
      const problems: string[] = [];
      page.on('pageerror', (error) => problems.push(String(error)));
      try {
        await page.goto(await program.url('/sessions/chat'));
        const field = page.getByLabel('Your message');
        const send = async (text: string) => {
          await field.fill(text);
          await page.keyboard.press('Enter');
        };
        const cancel = 'Please cancel order 17.';
        await page.route('**/messages', (route) => route.fulfill({ status: 500 }), { times: 1 });
        await send(cancel);
        await page.getByText('The server answered with 500. Your message was not stored: send it again.').waitFor();
        expect(await field.inputValue()).toBe(cancel);

        let release: () => void = () => undefined;
        const released = new Promise<void>((resolve) => (release = resolve));
        await page.route('**/messages', (route) => released.then(() => route.continue()), { times: 1 });
        await page.keyboard.press('Enter');
        await page.getByText('The agent is working').waitFor();
        release();
        const approve = page.getByRole('button', { name: 'Approve' });
        await approve.waitFor();
        await page.getByText('The agent is working').waitFor({ state: 'detached' });
        expect(await field.inputValue()).toBe('');
        const shown = () => page.locator('li code').allTextContents();
        expect(await shown()).toEqual(['cancel_order({"order":17}) …', 'cancel_order({"order":17})? ']);
        expect(await accessibilityProblems(page)).toEqual([]);
        await approve.click();
        await page.getByText('Your order is cancelled.').waitFor();
        expect(await shown()).toEqual([
          'cancel_order({"order":17}) → {"order":17,"status":"cancelled"}',
          'cancel_order({"order":17})? Approved.',
        ]);
        expect(await approve.count()).toBe(0);

        // The request fails, but its message is stored.
        await page.route('**/messages', (route) => route.fetch().then(() => route.fulfill({ status: 502 })), {
          times: 1,
        });
        await send('Cancel it.');
        await page.getByRole('button', { name: 'Reject' }).click();
        await page.getByText('I have left your order as it is.').waitFor();
        expect((await shown()).at(-1)).toBe('cancel_order({"order":17})? Rejected.');
        expect(await field.inputValue()).toBe('');
        const answers = (await stored('chat')).flatMap(({ data }) => {
          const { author, content } = data as { author: string; content: { parts: Message['attachments'] } };
          return author === 'user' ? content.parts.flatMap(({ functionResponse }) => functionResponse ?? []) : [];
        });
        expect(answers.map(({ name, response }) => ({ name, response }))).toEqual(
          [true, false].map((confirmed) => ({ name: 'adk_request_confirmation', response: { confirmed } })),
        );

        const { sessionService } = adkServices(orm.em);
        const session = (await sessionService.getSession({ ...key, sessionId: 'chat' }))!;
        const errorMessage = 'You exceeded your quota.';
        await sessionService.appendEvent({
          session,
          event: createEvent({ author: 'support', errorCode: '429', errorMessage }),
        });
        await page.locator('li.error').getByText('The model failed: You exceeded your quota.').waitFor();
        expect(await accessibilityProblems(page)).toEqual([]);
        expect(await page.evaluate('document.documentElement.scrollWidth - innerWidth')).toBe(0);
        expect(await page.evaluate('getComputedStyle(document.documentElement).colorScheme')).toBe('light dark');
        expect(problems).toEqual([]);
      } finally {
        await page.close();
      }
    });
  });

  describe('the worker', () => {
    const key = { appName: 'support', userId: 'ada', sessionId: 'task' };

    test.each([
      // The lease would outlive the test: the other worker gets it because it is released.
      { signal: 'SIGTERM', leaseMs: 600_000, ended: [0, null] },
      { signal: 'SIGKILL', leaseMs: 2_000, ended: [null, 'SIGKILL'] },
    ] as const)('another worker continues after $signal in a run', async ({ signal, leaseMs, ended }) => {
      const service = new MikroOrmSessionService(orm.em);
      const session = await service.createSession(key);
      await service.appendEvent({ session, event: message('user', { text: 'Where is order 17?' }) });
      await service.describeSession(key, { labels: { task: 'open' } });

      const first = start('worker', { TOOL_MS: '600000', LEASE_MS: String(leaseMs) });
      const follow = new AbortController();
      for await (const { event } of new EventLog(orm.em).watch(0, {}, { signal: follow.signal })) {
        if (event?.content?.parts?.some(({ functionCall }) => functionCall)) break;
      }
      expect((await fetch(await first.url('/live'))).status).toBe(200);
      expect((await fetch(await first.url('/ready'))).status).toBe(200);
      const second = start('worker');
      await second.url('/live');
      expect(await first.end(signal)).toEqual(ended);

      // The other worker answers the open call, and the agent continues.
      for await (const { event } of new EventLog(orm.em).watch(0, {}, { signal: follow.signal })) {
        if (event?.content?.parts?.some(({ text }) => text === 'Your order is on its way.')) break;
      }
      expect(await second.end('SIGTERM')).toEqual([0, null]);

      const rows = await stored('task');
      const calls = rows.map(({ data }) => (data as { content: { parts: object[] } }).content.parts[0]);
      expect(calls).toMatchObject([
        { text: 'Where is order 17?' },
        { functionCall: { name: 'find_order' } },
        { functionResponse: { response: { error: expect.stringContaining('interrupted') } } },
        { functionCall: { name: 'find_order' } },
        { functionResponse: { response: { status: 'on its way' } } },
        { text: 'Your order is on its way.' },
      ]);
      const row = await orm.em.fork().findOneOrFail(AdkSession, { id: 'task' });
      expect(row.leaseExpires).toBeNull();
      expect((await service.findSessions({ appName: 'support', labels: { task: 'done' } })).sessions).toHaveLength(1);
    });
  });

  test('the command of the manifests makes the tables', async () => {
    const [[command, ...args] = []] = [...(await commands())].filter(([, ...words]) => words.includes('migrate'));
    const empty = await createDatabase('postgresql');
    const env = { ...process.env, DATABASE_URL: empty.url };
    await run(process.execPath, [path.join(folder, '..', command!), ...args], { cwd: folder, env });
    const made = await MikroORM.init({ ...empty.options, entities: adkEntities() });
    expect(await new MikroOrmSessionService(made.em).getAppState({ appName: 'support' })).toEqual({});
    await made.close();
  });
});

describe('the manifests', () => {
  test('start programs of this folder and commands of this package', async () => {
    const found = [...new Set((await commands()).map((command) => command.join(' ')))].sort();
    expect(found).toEqual([
      'node dist/frameworks/express.js',
      'node dist/frameworks/worker.js',
      'node_modules/.bin/adk-mikro-orm --config dist/frameworks/mikro-orm.config.js migrate',
    ]);
    const programs = found.flatMap((command) => /dist\S+/.exec(command) ?? []);
    for (const program of programs)
      expect(await readdir(path.join(folder, path.dirname(program)))).toContain(path.basename(program));
  });

  test('of Kubernetes: the pods that are selected, ports that are named, a migration that ends', async () => {
    const { 'kubernetes/migrate.yaml': job, 'kubernetes/worker.yaml': deployment } = await manifests();
    expect(job).toMatchObject({
      apiVersion: 'batch/v1',
      kind: 'Job',
      spec: { template: { spec: { restartPolicy: 'Never' } } },
    });
    const probe = (where: string) => expect.objectContaining({ httpGet: { path: where, port: 'probes' } });
    const pod = {
      metadata: { labels: { app: 'agents-worker' } },
      spec: {
        terminationGracePeriodSeconds: 60,
        containers: [
          expect.objectContaining({
            ports: [{ name: 'probes', containerPort: 8080 }],
            startupProbe: probe('/ready'),
            readinessProbe: probe('/ready'),
            livenessProbe: probe('/live'),
          }),
        ],
      },
    };
    expect(deployment).toMatchObject({
      apiVersion: 'apps/v1',
      kind: 'Deployment',
      spec: { selector: { matchLabels: pod.metadata.labels }, template: pod },
    });
  });

  test('of Cloud Run and of docker compose: the migration comes first, and the port is that of the program', async () => {
    const {
      'cloud-run/migrate.yaml': job,
      'cloud-run/service.yaml': service,
      'compose.yaml': compose,
    } = await manifests();
    expect(job).toMatchObject({ apiVersion: 'run.googleapis.com/v1', kind: 'Job' });
    expect(service).toMatchObject({
      apiVersion: 'serving.knative.dev/v1',
      kind: 'Service',
      spec: {
        template: {
          spec: {
            containers: [
              { ports: [{ containerPort: 8080 }], startupProbe: { httpGet: { path: '/health', port: 8080 } } },
            ],
          },
        },
      },
    });
    const migrated = { image: 'agents', depends_on: { migrate: { condition: 'service_completed_successfully' } } };
    expect(compose).toMatchObject({
      services: {
        migrate: { image: 'agents', depends_on: { postgresql: { condition: 'service_healthy' } } },
        web: { ...migrated, ports: ['127.0.0.1:8080:8080'] },
        worker: migrated,
      },
    });
  });
});

/** @returns the manifests by file. */
async function manifests(): Promise<Record<string, unknown>> {
  const { parse } = createRequire(path.join(folder, 'package.json'))('yaml') as {
    parse(text: string, options: object): unknown;
  };
  const names = [
    'compose.yaml',
    'kubernetes/migrate.yaml',
    'kubernetes/worker.yaml',
    'cloud-run/migrate.yaml',
    'cloud-run/service.yaml',
  ];
  const parsed = names.map(async (name) => {
    const text = await readFile(path.join(folder, name), 'utf8');
    return [name, parse(text, { merge: true, strict: true })] as const;
  });
  return Object.fromEntries(await Promise.all(parsed));
}

/** @returns the commands that the manifests start. */
async function commands(): Promise<string[][]> {
  const within = (value: unknown): string[][] => {
    if (typeof value !== 'object' || value === null) return [];
    const { command } = value as { command?: string[] };
    return [...(command ? [command] : []), ...Object.values(value).flatMap(within)];
  };
  return within(await manifests());
}
