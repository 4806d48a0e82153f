/** A user's program, in TypeScript that is valid as an ES module and as CommonJS; it prints `PRINTED`. */
export const appOn = (driver: 'sqlite' | 'better-sqlite') => `
import { createEvent } from '@google/adk';
import { MikroORM } from '@mikro-orm/${driver}';
import {
  AdkMikroOrmError, adkEntities, ValueTooLargeError, InvalidKeyError, migrate, MikroOrmArtifactService,
  MikroOrmSessionService, SchemaError,
  AlreadyExistsError, SessionNotFoundError, StaleSessionError, UnserializableValueError,
} from 'adk-mikro-orm';
import { adkEntities as sameEntities, AdkSession } from 'adk-mikro-orm/entities';
import { compression, encryption, type Codec } from 'adk-mikro-orm/codecs';
import { createArtifactHandler } from 'adk-mikro-orm-http';
import { importFrom } from 'adk-mikro-orm-import';
import { adkMigrations } from 'adk-mikro-orm/migrations';
import { createStudio } from 'adk-mikro-orm-studio';
import type { TestSessionService } from 'adk-mikro-orm/testing';

export type Store = TestSessionService;

async function main(): Promise<void> {
  const errors: readonly (typeof AdkMikroOrmError | (new (...args: never[]) => AdkMikroOrmError))[] = [
    ValueTooLargeError, InvalidKeyError, SchemaError, AlreadyExistsError, SessionNotFoundError, StaleSessionError,
    UnserializableValueError,
  ];
  const orm = await MikroORM.init({ dbName: ':memory:', entities: adkEntities() });
  await migrate(orm);

  const codec: Codec[] = [compression(), encryption({ currentKey: 'k', key: () => Buffer.alloc(32, 7) })];
  const service = new MikroOrmSessionService(orm.em, { onStaleSession: 'reject', codec });
  const session = await service.createSession({ appName: 'shop', userId: 'alice', state: { 'user:name': 'Alice' } });
  await service.appendEvent({ session, event: createEvent({ author: 'user', content: { parts: [{ text: 'hello' }] } }) });
  const missing: unknown = await service
    .appendEvent({ session: { ...session, id: 'missing' }, event: createEvent({ author: 'user' }) })
    .catch((error: unknown) => error);

  const stored = await service.getSession({ appName: 'shop', userId: 'alice', sessionId: session.id });
  const page = await createStudio(orm.em).fetch(new Request('http://localhost/sessions?app=shop'));
  const files = createArtifactHandler(new MikroOrmArtifactService(orm.em), { authorize: () => true });
  // An error of the other package is known.
  const query = 'appName=shop&userId=alice&filename=a.txt&sessionId=' + 'x'.repeat(1000);
  console.log(JSON.stringify({
    file: (await files.fetch(new Request('http://localhost/?' + query))).status,
    studio: page.status === 200 && (await page.text()).includes('alice'),
    text: stored?.events[0]?.content?.parts?.[0]?.text,
    state: stored?.state,
    rows: await orm.em.fork().count(AdkSession),
    migrations: adkMigrations('sqlite').length > 0,
    importFrom: typeof importFrom,
    sameEntities: sameEntities === adkEntities,
    errors: errors.every((type) => type.prototype instanceof AdkMikroOrmError),
    missing: missing instanceof SessionNotFoundError,
  }));
  await orm.close();
}
void main();
`;

export const PRINTED = {
  file: 404,
  studio: true,
  text: 'hello',
  state: { 'user:name': 'Alice' },
  rows: 1,
  migrations: true,
  importFrom: 'function',
  sameEntities: true,
  errors: true,
  missing: true,
};

/** The compiler's errors in the program and in our declarations. ADK's and MikroORM's declarations name packages that they do not install. */
export function errorsOf(printed: string): string[] {
  return printed.split('\n').filter((line) => !/^(\S*node_modules\/(?!adk-mikro-orm\/)|\s|$)/.test(line));
}
