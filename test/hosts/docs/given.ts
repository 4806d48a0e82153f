import { BaseAgent, Runner, createEvent, type Event } from '@google/adk';
import { defineEntity, p } from '@mikro-orm/core';
import { MikroORM } from '@mikro-orm/sqlite';
import { AdkSession, adkEntities } from '../../../entities/index.js';
import { MikroOrmSessionService } from '../../../src/index.js';
import { createSchema } from '../schema/support.js';

const Ticket = defineEntity({
  name: 'Ticket',
  properties: {
    id: p.integer().primary(),
    title: p.string(),
    session: () => p.manyToOne(AdkSession).joinColumns('app_name', 'user_id', 'session_id').deleteRule('cascade'),
  },
});

class Silent extends BaseAgent {
  protected async *runAsyncImpl(): AsyncGenerator<Event, void, void> {
    // Prints nothing.
  }

  protected async *runLiveImpl(): AsyncGenerator<Event, void, void> {
    // Not used.
  }
}

/** The context of a recipe: names that its blocks use without declaring them. */
export async function given() {
  const orm = await MikroORM.init({ dbName: ':memory:', entities: [...adkEntities(), Ticket] });
  await createSchema(orm);
  const other = await MikroORM.init({ dbName: ':memory:', entities: adkEntities() });
  await createSchema(other);
  const service = new MikroOrmSessionService(orm.em);
  const key = { appName: 'support', userId: 'ada' };
  const session = await service.createSession({ ...key, state: { 'user:trial': true } });
  // A session that waits for a long-running tool.
  const call = { id: 'call-1', name: 'ask_user', args: {} };
  await service.appendEvent({
    session,
    event: createEvent({
      author: 'support',
      longRunningToolIds: [call.id],
      content: { parts: [{ functionCall: call }] },
    }),
  });
  const agent = new Silent({ name: 'support' });
  return {
    orm,
    other,
    service,
    session,
    event: createEvent({ author: 'user', content: { role: 'user', parts: [{ text: 'Hello.' }] } }),
    runner: new Runner({ appName: key.appName, agent, sessionService: service }),
    Runner,
    agent,
    Ticket,
    createEvent,
    url: 'postgresql://localhost/agents',
    keys: new Map([['2026-11', Buffer.alloc(32, 1)]]),
    wrapped: new Map<string, Uint8Array>(),
    // No model: everything is a dog.
    ai: {
      models: {
        embedContent: async ({ contents }: { model: string; contents: string[]; config: object }) => ({
          embeddings: contents.map((text) => ({ values: /dog|puppy/i.test(text) ? [1, 0] : [0, 1] })),
        }),
      },
    },
    // No KMS: it returns its argument.
    kms: { encrypt: async (key: Uint8Array) => key, decrypt: async (key: Uint8Array) => key },
  };
}

export type Given = Awaited<ReturnType<typeof given>>;

export const takeBack = ({ orm, other }: Given) => Promise.all([orm.close(), other.close()]);
