import { MikroORM } from '@mikro-orm/postgresql';
import { adkServices } from 'adk-mikro-orm';
import { appName } from '../agent';
import config from '../mikro-orm.config';

async function connect() {
  const orm = await MikroORM.init(config);
  // Of two answers to a question, as from two windows, the first counts.
  return adkServices(orm.em, { sessions: { onAnsweredCall: 'reject' } });
}

const here = globalThis as { sessions?: ReturnType<typeof connect> };

/** One ORM for the process. Each route has its own copy of this module, and a new one after each change in `next dev`. */
export const sessions = () => (here.sessions ??= connect());

/** The user from your login, never from the URL. */
export const keyOf = (sessionId: string) => ({ appName, userId: 'ada', sessionId });
