import type { SessionKey } from '../../model/keys.js';
import type { Dialect, Sql } from '../dialects/dialect.js';
import { numberOf, textOf } from '../sql/row-values.js';
import { SESSION_WHERE, isFromNumber, placeholders, sessionValues, type Tables } from '../sql/tables.js';
import type { EventParts } from '../dialects/event-parts.js';
import type { StoredSession } from './stored-session.js';

/** The statements that find and delete a session's first events, and the state of users. */
export class DeletionStore {
  readonly #text: ReturnType<typeof texts>;
  readonly #parts: EventParts;

  constructor(dialect: Dialect, tables: Tables, parts: EventParts) {
    this.#parts = parts;
    this.#text = texts(dialect, tables);
  }

  /** @returns the number of the first event, from `firstSeq` on and before a number, that is later than a time. */
  async firstLater(
    sql: Sql,
    { key, firstSeq }: Pick<StoredSession, 'key' | 'firstSeq'>,
    before: number,
    time: number,
  ): Promise<number | undefined> {
    const values = [...sessionValues(key), firstSeq, before, time];
    const [row] = await sql.all<{ seq: number }>(this.#text.selectFirstLater, values);
    return row && numberOf(row.seq);
  }

  /** @returns the numbers of the first events before a number, so many of them at most. */
  async numbersBefore(sql: Sql, key: SessionKey, seq: number, limit: number): Promise<number[]> {
    const rows = await sql.all<{ seq: number }>(this.#text.selectBefore, [...sessionValues(key), seq, limit]);
    return rows.map((row) => numberOf(row.seq));
  }

  /**
   * Drops events, and has the session begin with a number, for the caller that holds the session's lock.
   *
   * @param numbers in order.
   */
  async trim(sql: Sql, key: SessionKey, firstSeq: number, numbers: readonly number[]): Promise<void> {
    await sql.run(this.#text.setFirstSeq, [firstSeq, ...sessionValues(key)]);
    // The numbers are listed: at the end of a range InnoDB would lock the gap where another session's events come.
    const [first, last] = [numbers[0], numbers.at(-1)];
    if (first === undefined) return;
    await this.#parts.deleteFrom(sql, key, first, last);
    await sql.run(`${this.#text.deleteEvents} (${placeholders(numbers.length)})`, [
      ...sessionValues(key),
      ...[key.sessionId, first],
      ...[first, last],
      ...numbers,
    ]);
  }

  /** @returns the keys of a user's state in an app, so many of them. */
  async userStateKeys(sql: Sql, appName: string, userId: string, limit: number): Promise<string[]> {
    const rows = await sql.all<{ state_key: string }>(this.#text.selectUserKeys, [appName, userId, limit]);
    return rows.map((row) => textOf(row.state_key));
  }

  /** @returns how many keys of a user's state in an app there are. */
  async countUserState(sql: Sql, appName: string, userId: string): Promise<number> {
    const [row] = await sql.all<{ total: number | string }>(this.#text.countUserKeys, [appName, userId]);
    return numberOf(row?.total);
  }

  async deleteUserState(sql: Sql, appName: string, userId: string, keys: readonly string[]): Promise<void> {
    await sql.run(`${this.#text.deleteUserState} (${placeholders(keys.length)})`, [appName, userId, ...keys]);
  }
}

function texts({ sql }: Dialect, { sessions, events, userStates }: Tables) {
  const userState = `from ${userStates} where app_name = ? and user_id = ?`;
  return {
    selectFirstLater: `select seq from ${events} where ${SESSION_WHERE}
      and seq >= ? and seq < ? and timestamp > ? order by seq limit 1`,
    selectBefore: `select seq from ${events} where ${SESSION_WHERE} and seq < ? order by seq limit ?`,
    setFirstSeq: `update ${sessions} set first_seq = ? where ${SESSION_WHERE}`,
    // With the range PostgreSQL compares the rows in it with the list, and no others.
    deleteEvents: `${sql.deleteThrough(events, 'primary')} where ${SESSION_WHERE}
      and ${isFromNumber('', '?', '?')} and seq >= ? and seq <= ? and seq in`,
    selectUserKeys: `select state_key ${userState} order by state_key limit ?`,
    countUserKeys: `select count(*) as total ${userState}`,
    deleteUserState: `delete ${userState} and state_key in`,
  };
}
