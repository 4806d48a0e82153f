import { Runner, setLogger, type BaseAgent, type Event, type Session } from '@google/adk';
import { MikroORM } from '@mikro-orm/core';
import { AdkEvent, adkEntities } from '../../../entities/index.js';
import { MikroOrmSessionService, migrate } from '../../../src/index.js';
import { scriptedModel } from '../../../src/testing/index.js';
import { createDatabase, type DatabaseName } from '../../support/servers.js';
import type { Content, Part } from '../tools.js';

export const KEY = { appName: 'app', userId: 'ada', sessionId: 's1' };

// Deprecations and the errors that the tests cause.
beforeAll(() => setLogger(null));

/** A database of its own for the tests of a `describe`, emptied after each. */
export function useDatabase(name: DatabaseName) {
  const host = {} as { orm: MikroORM; service: RecordingService };
  let drop: () => Promise<void>;

  beforeAll(async () => {
    const database = await createDatabase(name);
    drop = () => database.drop();
    host.orm = await MikroORM.init({ ...database.options, entities: adkEntities() });
    await migrate(host.orm);
  });
  beforeEach(() => {
    host.service = new RecordingService(host.orm.em);
  });
  afterEach(async () => {
    for (const { meta } of adkEntities().reverse()) await host.orm.em.fork().nativeDelete(meta.className, {});
  });
  afterAll(async () => {
    await host.orm.close(true);
    await drop();
  });
  return host;
}

/** Records the appended events of each session, in the order of the calls. */
export class RecordingService extends MikroOrmSessionService {
  readonly appended: { appName: string; id: string }[] = [];

  override appendEvent(request: { session: Session; event: Event }): Promise<Event> {
    this.appended.push({ appName: request.session.appName, id: request.event.id });
    return super.appendEvent(request);
  }

  appendedTo(appName: string): string[] {
    return this.appended.filter((event) => event.appName === appName).map(({ id }) => id);
  }
}

/** A model that answers from a list, and keeps what it was shown. */
export function model(...answers: (Part[] | ((conversation: Content[]) => Part[] | Promise<Part[]>))[]) {
  const shown: string[][] = [];
  const scripted = scriptedModel(async ({ contents }) => {
    shown.push(contents.flatMap(({ role, parts = [] }) => parts.map((part) => `${role} ${said(part)}`)));
    const answer = answers.shift();
    if (!answer) throw new Error('The model was asked more often than the test expects.');
    return { parts: typeof answer === 'function' ? await answer(contents) : answer };
  });
  return Object.assign(scripted, { shown });
}

export const text = (words: string): Part[] => [{ text: words }];
export const call = (name: string, args: Record<string, unknown> = {}): Part[] => [{ functionCall: { name, args } }];

export function said({ text, functionCall, functionResponse }: Part): string {
  if (functionCall) return `calls ${functionCall.name}`;
  if (functionResponse) return `${functionResponse.name} → ${JSON.stringify(functionResponse.response)}`;
  return text ?? '?';
}

/** An event as `author what`. */
export const summary = ({ author, content }: Event) => `${author} ${(content?.parts ?? []).map(said).join(', ')}`;

/** Runs one turn, and calls `onEvent` before the Runner gets to produce the next event. */
export async function turn(
  service: MikroOrmSessionService,
  agent: BaseAgent,
  message: string | Part[],
  onEvent: (event: Event) => void = () => undefined,
  sessionId = KEY.sessionId,
): Promise<Event[]> {
  const runner = new Runner({ appName: KEY.appName, agent, sessionService: service });
  const newMessage: Content = { role: 'user', parts: typeof message === 'string' ? text(message) : message };
  const events: Event[] = [];
  for await (const event of runner.runAsync({ userId: KEY.userId, sessionId, newMessage })) {
    events.push(event);
    onEvent(event);
  }
  return events;
}

/** The rows of the table of events; the service has no part in the reading. */
export function storedEvents(orm: MikroORM, appName = KEY.appName) {
  const session = { appName, userId: KEY.userId, id: KEY.sessionId };
  return orm.em.fork().find(AdkEvent, { session }, { orderBy: { seq: 'asc' } });
}

/** What was appended is in the table in that order, numbered without gaps, and loads in that order. */
export async function expectAppendOrder(
  { orm, service }: { orm: MikroORM; service: RecordingService },
  appName = KEY.appName,
): Promise<string[]> {
  const appended = service.appendedTo(appName);
  const rows = await storedEvents(orm, appName);
  expect(rows.map(({ seq, id }) => ({ seq, id }))).toEqual(appended.map((id, i) => ({ seq: i + 1, id })));

  const loaded = await new MikroOrmSessionService(orm.em).getSession({ ...KEY, appName });
  expect(loaded?.events.map(({ id }) => id)).toEqual(appended);
  return rows.map(({ data }) => summary(data as Event));
}

/** All that is in the tables, as text. */
export async function everythingStored(orm: MikroORM): Promise<string> {
  const em = orm.em.fork();
  const tables = await Promise.all(adkEntities().map(({ meta }) => em.find(meta.className, {})));
  return JSON.stringify(tables.map((rows) => rows.map((row) => JSON.stringify(row))));
}
