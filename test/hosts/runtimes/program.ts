import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { LlmAgent, Runner, createEvent, stringifyContent } from '@google/adk';
import type { MikroORM, Options } from '@mikro-orm/core';
import { encryption } from '../../../src/codecs/index.js';
import { LeaseHeldError, SchemaError, adkEntities, adkServices, migrate } from '../../../src/index.js';
import { createStudio } from '../../../packages/studio/src/index.js';

// A host's program, which Node.js, Bun and Deno run unchanged. It prints what the test expects.

interface Driver {
  MikroORM: { init(options: Options): Promise<MikroORM> };
}

const textEvent = (text: string) => createEvent({ author: 'user', content: { role: 'user', parts: [{ text }] } });

async function main(packageName: string, connection: Options): Promise<void> {
  const { MikroORM } = (await import(packageName)) as Driver;
  const orm = await MikroORM.init({ ...connection, entities: adkEntities() });
  await migrate(orm);
  const codec = encryption({ currentKey: 'k', key: () => Buffer.alloc(32, 7) });
  const { sessionService, artifactService, log, leases } = adkServices(orm.em, { codec });
  const key = { appName: 'shop', userId: 'ada', sessionId: 's' };

  const session = await sessionService.createSession({ ...key, state: { 'user:name': 'Ada' } });
  for (let i = 0; i < 300; i++) await sessionService.appendEvent({ session, event: textEvent(`${i} ü 太郎 😀`) });
  // On one handle, and to many sessions.
  await Promise.all(
    Array.from({ length: 50 }, (_, i) => sessionService.appendEvent({ session, event: textEvent(`${i}`) })),
  );
  const many = await Promise.all(
    Array.from({ length: 20 }, (_, i) => sessionService.createSession({ ...key, userId: `user ${i}` })),
  );
  await Promise.all(many.map((each) => sessionService.appendEvent({ session: each, event: textEvent('hello') })));

  const agent = new LlmAgent({
    name: 'assistant',
    beforeAgentCallback: () => ({ role: 'model', parts: [{ text: 'Hello, Ada.' }] }),
  });
  const newMessage = { role: 'user', parts: [{ text: 'Hello!' }] };
  const heard = [];
  const runner = new Runner({ appName: 'shop', agent, sessionService, artifactService });
  for await (const event of runner.runAsync({ ...key, newMessage })) heard.push(stringifyContent(event));
  const stored = await sessionService.getSession(key);
  const texts = stored?.events.map((event) => stringifyContent(event)) ?? [];

  const data = Buffer.from(Uint8Array.from({ length: 300_000 }, (_, i) => i % 251)).toString('base64');
  const file = { ...key, filename: 'photo.png' };
  await artifactService.saveArtifact({ ...file, artifact: { inlineData: { mimeType: 'image/png', data } } });
  const loaded = await artifactService.loadArtifact(file);

  let logged = 0;
  for await (const entry of log.since(0, { appName: 'shop' })) if (entry.event !== undefined) logged++;
  const watch = log.watch(await log.head(), { appName: 'shop' })[Symbol.asyncIterator]();
  const next = watch.next();
  const live = textEvent('live');
  await sessionService.appendEvent({ session, event: live });
  const watched = await next;
  await watch.return?.();

  const lease = await leases.acquire(key, { holder: 'first' });
  const second: unknown = await leases.acquire(key, { holder: 'second' }).catch((error: unknown) => error);
  await lease.release();

  const studio = createStudio(orm.em, { codec });
  const server = createServer(studio.listener).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const page = await fetch(`http://127.0.0.1:${port}/session?app=shop&user=ada&session=s`);
  const html = await page.text();
  server.close();

  await orm.em.getConnection().execute('drop table adk_user_states');
  const broken: unknown = await sessionService.getSession(key).catch((error: unknown) => error);
  await orm.close(true);

  console.log(
    JSON.stringify({
      state: stored?.state,
      appended: texts.length,
      inOrder: texts.slice(0, 300).every((text, i) => text === `${i} ü 太郎 😀`),
      parallel: texts.slice(300, 350).every((text, i) => text === `${i}`),
      heard,
      isFileWhole: loaded?.inlineData?.data === data,
      logged,
      isWatched: !watched.done && watched.value.event?.id === live.id,
      lease: { token: lease.token, isHeld: second instanceof LeaseHeldError },
      isMissingTableNamed: broken instanceof SchemaError,
      studio: { status: page.status, hasText: html.includes('Hello, Ada.') },
    }),
  );
}

const [packageName = '', connection = ''] = process.argv.slice(2);
await main(packageName, JSON.parse(connection) as Options);
