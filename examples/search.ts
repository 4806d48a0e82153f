/**
 * A full-text search over conversations: FTS5 on SQLite, tsvector on PostgreSQL, a fulltext index on MySQL and MariaDB. Run it
 * with `npm run example:search`; ADK_DATABASE_URL names another database than SQLite in memory.
 *
 * The index is a table of the host. A projection keeps it in step with the log: what is deleted, rewound or trimmed can't be found
 * any more.
 */
import { createEvent, type Event } from '@google/adk';
import { MikroORM, type EntityManager } from '@mikro-orm/core';
import { databaseOptions } from '../mikro-orm.config.js';
import { SessionProjection, adkEntities, adkServices, migrate, type CompleteLogEntry } from '../src/index.js';

/** What differs between the databases. Each search takes the app, the user, and the words. */
const INDEXES = {
  sqlite: {
    create: `create virtual table message_search using
      fts5(text, app_name unindexed, user_id unindexed, session_id unindexed, seq unindexed)`,
    matches: 'message_search match ?',
    // Quoted, so that no word is an operator of FTS5.
    words: (words: string) =>
      words
        .split(/\s+/)
        .map((word) => `"${word.replaceAll('"', '""')}"`)
        .join(' '),
  },
  postgresql: {
    create: `create table message_search (
      app_name varchar(128) not null, user_id varchar(191) not null, session_id varchar(191) not null, seq int not null,
      text text not null, primary key (app_name, user_id, session_id, seq));
      create index message_search_text on message_search using gin (to_tsvector('english', text))`,
    matches: `to_tsvector('english', text) @@ websearch_to_tsquery('english', ?)`,
    words: (words: string) => words,
  },
  mysql: {
    // Keys are compared byte for byte, like those of the sessions.
    create: `create table message_search (
      app_name varchar(128) not null, user_id varchar(191) not null, session_id varchar(191) not null, seq int not null,
      text longtext character set utf8mb4 collate utf8mb4_unicode_ci not null,
      primary key (app_name, user_id, session_id, seq), fulltext (text)
      ) character set utf8mb4 collate utf8mb4_bin`,
    matches: 'match (text) against (? in natural language mode)',
    words: (words: string) => words,
  },
};

/** The index, with the projection that keeps it in step. */
class SearchIndex {
  readonly projection: SessionProjection;
  readonly #em: EntityManager;
  readonly #index: (typeof INDEXES)[keyof typeof INDEXES];

  constructor(em: EntityManager, database: keyof typeof INDEXES) {
    this.#em = em;
    this.#index = INDEXES[database];
    this.projection = new SessionProjection(em, {
      name: 'search',
      apply: async (entries, tx) => {
        for (const entry of entries) await this.#apply(entry, tx);
      },
      clear: (tx) => run(tx, 'delete from message_search'),
    });
  }

  /** In production, use a migration. */
  async create(): Promise<void> {
    for (const sql of this.#index.create.split(';')) await run(this.#em, sql);
  }

  /** @returns the sessions of a user in which the words were said. */
  async find(appName: string, userId: string, words: string): Promise<string[]> {
    const found = await rows(
      this.#em.fork(),
      `select distinct session_id from message_search where app_name = ? and user_id = ? and ${this.#index.matches}
        order by session_id`,
      [appName, userId, this.#index.words(words)],
    );
    return found.map(({ session_id }) => session_id);
  }

  async #apply(entry: CompleteLogEntry, tx: EntityManager): Promise<void> {
    const { appName, userId, sessionId } = entry;
    const deleteWhere = (condition: string, ...values: number[]) =>
      run(tx, `delete from message_search where app_name = ? and user_id = ? and session_id = ? and ${condition}`, [
        appName,
        userId,
        sessionId,
        ...values,
      ]);
    const index = async (seq: number, event: Event) => {
      const text = (event.content?.parts ?? []).flatMap((part) => part.text ?? []).join('\n');
      await deleteWhere('seq = ?', seq);
      if (text === '') return;
      const columns = 'app_name, user_id, session_id, seq, text';
      await run(tx, `insert into message_search (${columns}) values (?, ?, ?, ?, ?)`, [
        ...[appName, userId, sessionId, seq, text],
      ]);
    };
    switch (entry.change) {
      case undefined:
        if (entry.event) await index(entry.seq, entry.event);
        return;
      case 'created':
        return deleteWhere('seq > 0');
      case 'replaced':
        await deleteWhere('(seq < ? or seq > ?)', entry.firstSeq, entry.seq);
        if (entry.event && entry.eventSeq !== undefined) await index(entry.eventSeq, entry.event);
        return;
      case 'deleted':
        // Keeps soft-deleted sessions in the index: if one is restored, the log does not emit its events again.
        if (!entry.soft) await deleteWhere('seq > 0');
    }
  }
}

/** Runs in the transaction of the `EntityManager`, if it has one. */
async function rows(em: EntityManager, sql: string, values: (string | number)[]): Promise<{ session_id: string }[]> {
  return (await em.getConnection().execute(sql, values, 'all', em.getTransactionContext())) as { session_id: string }[];
}

async function run(em: EntityManager, sql: string, values: (string | number)[] = []): Promise<void> {
  await em.getConnection().execute(sql, values, 'run', em.getTransactionContext());
}

const url = process.env.ADK_DATABASE_URL ?? 'sqlite::memory:';
const orm = await MikroORM.init({ ...(await databaseOptions(url)), entities: adkEntities() });
await migrate(orm);
const { sessionService: service } = adkServices(orm.em);
const database = url.startsWith('sqlite') ? 'sqlite' : url.startsWith('postgres') ? 'postgresql' : 'mysql';
const index = new SearchIndex(orm.em, database);
await index.create();

const APP = { appName: 'travel', userId: 'ada' };
const saying = (author: string, text: string) => createEvent({ author, content: { parts: [{ text }] } });
const lisbon = await service.createSession({ ...APP, sessionId: 'lisbon' });
await service.appendEvent({ session: lisbon, event: saying('user', 'A flight to Lisbon on Friday, please.') });
await service.appendEvent({ session: lisbon, event: saying('travel', 'Booked: a window seat at 09:40.') });
const vienna = await service.createSession({ ...APP, sessionId: 'vienna' });
await service.appendEvent({ session: vienna, event: saying('user', 'A train to Vienna, and a window seat.') });

async function show(what: string): Promise<void> {
  await index.projection.catchUp(); // a server calls watch({ signal }) once
  console.log(what);
  for (const words of ['window', 'flight', 'train'])
    console.log(`  ${words}: ${(await index.find('travel', 'ada', words)).join(', ') || 'nothing'}`);
}

await show('After three messages');
await service.rewindSession({ ...APP, sessionId: 'lisbon' }, { at: 1 });
await show('Lisbon is taken back to its first message');
await service.deleteSession({ ...APP, sessionId: 'vienna' });
await show('Vienna is deleted');
for (const { name, behind } of await SessionProjection.list(orm.em)) console.log(`${name} is ${behind} entries behind`);
await orm.close();
