import type { MikroORM } from '@mikro-orm/core';
import { RARE_LABEL, conversations, type Conversation } from '../growth/conversations.js';
import { Filler } from '../growth/filler.js';
import type { BareDriver } from '../contenders/drivers/bare-driver.js';
import { migrated, openBareDriver } from '../contenders/open.js';
import { createDatabase, type DatabaseName } from '../../test/support/servers.js';
import { rowsOf } from '../growth/population.js';

/** The number of sessions, and the number of events in one of them. */
export const MANY = 100_000;

/** The longest session and its user. */
export const LONGEST = { appName: 'travel', userId: 'user-000000', sessionId: 'longest' };

/** Apps with few sessions each, more than fit on a page. */
const SMALL_APPS = 120;

/** Beginnings of random ids; each selects some 400 sessions. */
const LEASED = 'a0';
const DELETED = '5c';

export interface Population {
  orm: MikroORM;
  close(): Promise<void>;
}

/** Fills a new database with many sessions, one of which has many events. It is dropped when it is closed. */
export async function population(name: DatabaseName): Promise<Population> {
  const database = await createDatabase(name);
  const orm = await migrated(database);
  const close = async () => {
    await orm.close(true);
    await database.drop();
  };
  try {
    const driver = await openBareDriver(database);
    try {
      await fill(new Filler(name, driver), driver);
    } finally {
      await driver.close();
    }
    return { orm, close };
  } catch (error) {
    await close();
    throw error;
  }
}

async function fill(filler: Filler, driver: BareDriver): Promise<void> {
  const now = Date.now();
  await filler.begin(MANY);
  await filler.fill(sessions(now));
  await filler.reopenLog();
  const lease = `lease_holder = 'worker', lease_token = 1, lease_expires = ${now + 3_600_000}`;
  for (const text of [
    `update adk_sessions set ${lease} where session_id like '${LEASED}%'`,
    `update adk_sessions set status = 'deleted', deleted_at = ${now} where session_id like '${DELETED}%'`,
  ])
    await rowsOf(driver, text);
  await filler.analyze();
}

/** The longest session is the newest. */
function sessions(now: number): Conversation[] {
  const others = conversations({ events: 2 * MANY, sessions: MANY - 1 }, now - 3_600_000).map((session) =>
    session.ordinal % 100 === 0 ? { ...session, appName: `app-${(session.ordinal / 100) % SMALL_APPS}` } : session,
  );
  const longest = {
    ...LONGEST,
    incarnation: LONGEST.sessionId,
    title: 'The longest',
    labels: JSON.stringify(RARE_LABEL),
  };
  const createTime = now - MANY * 1_000;
  return [...others, { ...longest, ordinal: MANY, length: MANY, createTime, step: 1_000 }];
}
