import { InMemoryMemoryService, createEvent } from '@google/adk';
import type { EntityManager, MikroORM } from '@mikro-orm/core';
import { MikroOrmMemoryService } from '../../src/memory/memory-service.js';
import { wordsOf } from '../../src/memory/words.js';
import type { DatabaseName } from '../../test/support/servers.js';
import type { LabelledSet } from './labelled-set.js';

type Memories = LabelledSet['memories'];

/** A search of memories for a question. */
export interface Finder {
  name: string;
  /** @returns the ids of the best matches, at most ten, the best first. */
  find: (question: string) => Promise<string[]>;
}

const MOST = 10;
const OWNER = { appName: 'recall', userId: 'ada' };

export async function ours(em: EntityManager, memories: Memories): Promise<Finder> {
  const service = new MikroOrmMemoryService(em);
  const timestamp = '2026-01-01'; // the same for all, since newer memories come first among equal matches
  const added = memories.map(({ id, text }) => ({ id, timestamp, content: { parts: [{ text }] } }));
  await service.addMemory({ ...OWNER, memories: added });
  return {
    name: 'adk-mikro-orm',
    find: async (query) => (await service.searchMemory({ ...OWNER, query })).memories.map(({ id }) => id),
  };
}

/** ADK's own service, which does not rank; its first ten results count. */
export async function inMemory(memories: Memories): Promise<Finder> {
  const service = new InMemoryMemoryService();
  const ids = new Map(memories.map(({ id, text }) => [text, id]));
  const events = memories.map(({ id, text }) => createEvent({ id, timestamp: 0, content: { parts: [{ text }] } }));
  await service.addSessionToMemory({ ...OWNER, id: 's', state: {}, lastUpdateTime: 0, events });
  return {
    name: 'InMemoryMemoryService',
    find: async (query) => {
      const found = await service.searchMemory({ ...OWNER, query });
      return found.memories.slice(0, MOST).map(({ content }) => ids.get(content.parts?.[0]?.text ?? '') ?? '');
    },
  };
}

/** How to guess a word's stem: its first letters count as a second word, with a weight. */
export interface Stems {
  letters: number;
  weight: number;
}

/** BM25 with guessed stems, an experiment. Without them this is the service's search. */
export function withStems(memories: Memories, { letters, weight }: Stems): Finder {
  const isStemmed = (word: string) => /^[\p{L}\p{M}]+$/u.test(word) && Array.from(word).length > letters;
  const terms = (text: string): [term: string, weight: number][] =>
    wordsOf(text).flatMap((word): [string, number][] => [
      [word, 1],
      // A word that is not longer is its own stem.
      [`${isStemmed(word) ? Array.from(word).slice(0, letters).join('') : word}*`, weight],
    ]);
  const documents = memories.map(({ id, text }) => {
    const counts = new Map<string, number>();
    for (const [term] of terms(text)) counts.set(term, (counts.get(term) ?? 0) + 1);
    return { id, counts, length: wordsOf(text).length };
  });
  const average = documents.reduce((sum, { length }) => sum + length, 0) / documents.length;
  const having = new Map<string, number>();
  for (const { counts } of documents) for (const term of counts.keys()) having.set(term, (having.get(term) ?? 0) + 1);
  return {
    name: `with the first ${letters} letters × ${weight}`,
    find: (question) => {
      const asked = new Map(terms(question));
      const scored = documents.map(({ id, counts, length }) => {
        let score = 0;
        for (const [term, weight] of asked) {
          const count = counts.get(term) ?? 0;
          const rarity = Math.log(
            1 + (documents.length - (having.get(term) ?? 0) + 0.5) / ((having.get(term) ?? 0) + 0.5),
          );
          score += (weight * rarity * count * 2.2) / (count + 1.2 * (0.25 + (0.75 * length) / average));
        }
        return { id, score };
      });
      const found = scored.filter(({ score }) => score > 0).sort((a, b) => b.score - a.score || (a.id < b.id ? -1 : 1));
      return Promise.resolve(found.slice(0, MOST).map(({ id }) => id));
    },
  };
}

interface FullText {
  name: string;
  /** The statements that make the table `texts`. */
  tables: readonly string[];
  insert: string;
  search: string;
  /** Makes the query from the words of a question; by default the query is the question. */
  asQuery?: (words: readonly string[]) => string;
}

const SEARCH_BY_MATCH =
  'select id from texts where match (text) against (?) order by match (text) against (?) desc, id limit 10';

const insert = 'insert into texts (id, text) values (?, ?)';

const FTS5: FullText = {
  name: 'FTS5, unicode61',
  tables: ['create virtual table texts using fts5(id unindexed, text)'],
  insert,
  search: 'select id from texts where texts match ? order by rank, id limit 10',
  asQuery: (words) =>
    words
      .map((word) => `"${word}"`)
      .join(' or ')
      .replaceAll(' or ', ' OR '),
};

const TSVECTOR: FullText = {
  name: "tsvector, 'simple', ts_rank",
  tables: [
    `create table texts (id text primary key, text text, words tsvector generated always as (to_tsvector('simple', text)) stored)`,
    'create index on texts using gin (words)',
  ],
  insert,
  search: `select id from texts, to_tsquery('simple', ?) as question where words @@ question
    order by ts_rank(words, question) desc, id limit 10`,
  asQuery: (words) => words.map((word) => `'${word}'`).join(' | '),
};

const fulltext = (parser: string): FullText => ({
  name: `FULLTEXT${parser}`,
  tables: [
    `create table texts (id varchar(191) primary key, text text, fulltext (text)${parser}) character set utf8mb4`,
  ],
  insert,
  search: SEARCH_BY_MATCH,
});

const INDEXES: Readonly<Partial<Record<DatabaseName, readonly FullText[]>>> = {
  'better-sqlite': [FTS5],
  sqlite: [FTS5],
  postgresql: [TSVECTOR],
  mysql: [fulltext(''), fulltext(' with parser ngram')],
  mariadb: [fulltext('')],
};

/** The database's own full-text index, in its usual setup. */
export async function* indexesOf(database: DatabaseName, { em }: MikroORM, memories: Memories): AsyncGenerator<Finder> {
  const connection = em.getConnection();
  for (const { name, tables, insert, search, asQuery } of INDEXES[database] ?? []) {
    for (const table of tables) await connection.execute(table);
    for (const { id, text } of memories) await connection.execute(insert, [id, text]);
    yield {
      name,
      find: async (question) => {
        const query = asQuery ? asQuery(question.match(/[\p{L}\p{M}\p{N}]+/gu) ?? []) : question;
        const values = search === SEARCH_BY_MATCH ? [query, query] : [query];
        const rows: { id: string }[] = await connection.execute(search, values);
        return rows.map(({ id }) => id);
      },
    };
    await connection.execute('drop table texts');
  }
}
