import type { Event } from '@google/adk';
import { randomUUID } from 'node:crypto';
import type { SessionKey } from '../../src/model/keys.js';
import { SCOPES, type StateEntries } from '../../src/model/state.js';
import { STATE_KEYS, STATE_TABLES, fillAdkTables, keyValues, ownerValues, stateRows } from './adk-tables.js';
import type { Contender, SessionContent } from './contender.js';
import type { BareDriver, Steps } from './drivers/bare-driver.js';

const WHERE = 'app_name = ? and user_id = ? and session_id = ?';
const EVENT_COLUMNS = 'app_name, user_id, session_id, seq, event_id, timestamp, data';

interface FloorHandle {
  key: SessionKey;
  incarnation: string;
}

/** Writes and reads the same rows on the bare driver, without checks, retries or a handle to keep up to date. */
export class Floor implements Contender<FloorHandle> {
  readonly name = 'floor';
  readonly #driver: BareDriver;
  readonly #inOneStatement: boolean;
  readonly #close: () => Promise<void>;
  readonly #texts = new Map<string, string>();

  /** @param inOneStatement append with a single statement, as PostgreSQL can. */
  constructor(driver: BareDriver, inOneStatement: boolean, close: () => Promise<void>) {
    this.#driver = driver;
    this.#inOneStatement = inOneStatement;
    this.#close = close;
  }

  fill(sessions: Iterable<SessionContent>): Promise<void> {
    return fillAdkTables(this.#driver, sessions);
  }

  open({ key }: SessionContent): Promise<FloorHandle> {
    return this.#driver.run(openSteps(key));
  }

  async create(key: SessionKey, state: Record<string, unknown>): Promise<void> {
    await this.#driver.transaction(this.#createSteps(key, state));
  }

  append(handle: FloorHandle, event: Event): Promise<unknown> {
    return this.appendAll(handle, [event]);
  }

  async appendAll(handle: FloorHandle, events: readonly Event[]): Promise<void> {
    const state = stateRows(Object.assign({}, ...events.map((event) => event.actions.stateDelta)));
    if (this.#inOneStatement) await this.#driver.run(this.#statementSteps(handle, events, state));
    else await this.#driver.transaction(this.#appendSteps(handle, events, state));
  }

  read(key: SessionKey, newest?: number): Promise<number> {
    return this.#driver.run(this.#readSteps(key, newest));
  }

  list(appName: string, limit: number): Promise<number> {
    return this.#driver.run(this.#listSteps(appName, limit));
  }

  async delete(key: SessionKey): Promise<void> {
    await this.#driver.run(deleteSteps(key));
  }

  close(): Promise<void> {
    return this.#close();
  }

  *#createSteps(key: SessionKey, state: Record<string, unknown>): Steps<void> {
    const now = Date.now();
    const incarnation = randomUUID();
    yield {
      text: `insert into adk_sessions (app_name, user_id, session_id, incarnation, origin, last_seq, create_time, last_update_time)
        values (?, ?, ?, ?, ?, 0, ?, ?)`,
      values: [...keyValues(key), incarnation, incarnation, now, now],
    };
    yield* this.#stateSteps(key, stateRows(state), null);
    // The handle of a new session has its own state, and that of its user and app.
    yield* this.#snapshotSteps(key);
  }

  *#appendSteps({ key, incarnation }: FloorHandle, events: readonly Event[], state: StateEntries): Steps<void> {
    const last = events.at(-1);
    const count = events.length;
    const found = yield {
      text: this.#driver.hasReturning
        ? `update adk_sessions set last_seq = last_seq + ?, last_update_time = ?
           where ${WHERE} and incarnation = ? returning last_seq`
        : `update adk_sessions set last_seq = last_insert_id(last_seq + ?), last_update_time = ?
           where ${WHERE} and incarnation = ?`,
      values: [count, last?.timestamp, ...keyValues(key), incarnation],
    };
    const lastSeq = this.#driver.hasReturning ? Number(found.rows[0]?.['last_seq']) : found.insertId;
    yield {
      text: `insert into adk_events (${EVENT_COLUMNS}) values ${tuples(count, 7)}`,
      values: events.flatMap((event, i) => {
        return [...keyValues(key), lastSeq - count + i + 1, event.id, event.timestamp, JSON.stringify(event)];
      }),
    };
    yield* this.#stateSteps(key, state, last?.id);
  }

  *#stateSteps(key: SessionKey, state: StateEntries, eventId: string | null | undefined): Steps<void> {
    for (const scope of SCOPES) {
      const entries = state[scope];
      if (entries.length === 0) continue;
      const columns = STATE_KEYS[scope];
      yield {
        text: `insert into ${STATE_TABLES[scope]} (${columns.join(', ')}, value, event_id)
          values ${tuples(entries.length, columns.length + 2)} ${this.#driver.upsert(columns)}`,
        values: entries.flatMap((entry) => [...ownerValues(key, scope), entry.key, entry.json, eventId]),
      };
    }
  }

  *#statementSteps({ key, incarnation }: FloorHandle, events: readonly Event[], state: StateEntries): Steps<void> {
    const last = events.at(-1);
    const variant = [events.length, ...SCOPES.map((scope) => state[scope].length)].join();
    let text = this.#texts.get(variant);
    if (!text) this.#texts.set(variant, (text = this.#statementText(events.length, state)));
    yield {
      text,
      values: [
        events.length,
        last?.timestamp,
        ...keyValues(key),
        incarnation,
        ...keyValues(key),
        events.length,
        ...events.flatMap((event) => [event.id, event.timestamp, JSON.stringify(event)]),
        ...SCOPES.filter((scope) => state[scope].length > 0).flatMap((scope) => [
          ...ownerValues(key, scope),
          last?.id,
          ...state[scope].flatMap((entry) => [entry.key, entry.json]),
        ]),
      ],
    };
  }

  #statementText(count: number, state: StateEntries): string {
    const eventValues = Array.from({ length: count }, (_, i) => `(${i + 1}, ?::text, ?::float8, ?::json)`).join(', ');
    const parts = [
      `taken as (update adk_sessions set last_seq = last_seq + ?, last_update_time = ?
        where ${WHERE} and incarnation = ? returning last_seq)`,
      `events as (insert into adk_events (${EVENT_COLUMNS})
        select ?, ?, ?, last_seq - ? + number, id, at, data from taken, (values ${eventValues}) as e (number, id, at, data))`,
      ...SCOPES.filter((scope) => state[scope].length > 0).map((scope) => {
        const columns = STATE_KEYS[scope];
        const values = state[scope].map(() => '(?::text, ?::json)').join(', ');
        return `${scope}_state as (insert into ${STATE_TABLES[scope]} (${columns.join(', ')}, value, event_id)
          select ${'?, '.repeat(columns.length - 1)}w.key, w.value, ? from taken, (values ${values}) as w (key, value)
          ${this.#driver.upsert(columns)})`;
      }),
    ];
    return `with ${parts.join(', ')} select last_seq from taken`;
  }

  *#readSteps(key: SessionKey, newest: number | undefined): Steps<number> {
    const lastSeq = yield* this.#snapshotSteps(key);
    const { rows } = yield {
      text: `select seq, ${this.#driver.jsonText('data')} as data from adk_events
        where ${WHERE} and seq > ? and seq <= ? order by seq`,
      values: [...keyValues(key), newest === undefined ? 0 : lastSeq - newest, lastSeq],
    };
    return rows.map((row) => JSON.parse(row['data'] as string) as Event).length;
  }

  /** Session and state in one query. */
  *#snapshotSteps(key: SessionKey): Steps<number> {
    const value = this.#driver.jsonText('value');
    const { rows } = yield {
      text:
        `select 'head' as kind, '' as state_key, '' as value, incarnation, last_seq, last_update_time from adk_sessions where ${WHERE}` +
        SCOPES.map(
          (scope) =>
            ` union all select '${scope}', state_key, ${value}, '', 0, 0 from ${STATE_TABLES[scope]} where ${STATE_KEYS[
              scope
            ]
              .slice(0, -1)
              .map((column) => `${column} = ?`)
              .join(' and ')}`,
        ).join(''),
      values: [...keyValues(key), ...SCOPES.flatMap((scope) => ownerValues(key, scope))],
    };
    let lastSeq = 0;
    const state: Record<string, unknown> = {};
    for (const row of rows) {
      if (row['kind'] === 'head') lastSeq = Number(row['last_seq']);
      else state[String(row['state_key'])] = JSON.parse(row['value'] as string);
    }
    return lastSeq;
  }

  *#listSteps(appName: string, limit: number): Steps<number> {
    const { rows } = yield {
      text: `select user_id, session_id, incarnation, last_seq, last_update_time from adk_sessions
        where app_name = ? order by last_update_time desc, session_id, user_id limit ${limit}`,
      values: [appName],
    };
    yield { text: 'select count(*) as total from adk_sessions where app_name = ?', values: [appName] };
    const value = this.#driver.jsonText('value');
    const users = [...new Set(rows.map((row) => row['user_id']))];
    const ofUsers = `app_name = ? and user_id in (${users.map(() => '?').join(', ')})`;
    const { rows: states } = yield {
      text: `select user_id, session_id, state_key, ${value} as value from adk_session_states
          where ${ofUsers} and session_id in (${rows.map(() => '?').join(', ')})
        union all select user_id, '', state_key, ${value} from adk_user_states where ${ofUsers}
        union all select '', '', state_key, ${value} from adk_app_states where app_name = ?`,
      values: [appName, ...users, ...rows.map((row) => row['session_id']), appName, ...users, appName],
    };
    for (const row of states) JSON.parse(row['value'] as string);
    return rows.length;
  }
}

function* openSteps(key: SessionKey): Steps<FloorHandle> {
  const { rows } = yield { text: `select incarnation from adk_sessions where ${WHERE}`, values: keyValues(key) };
  return { key, incarnation: String(rows[0]?.['incarnation']) };
}

function* deleteSteps(key: SessionKey): Steps<void> {
  yield { text: `delete from adk_sessions where ${WHERE}`, values: keyValues(key) };
}

function tuples(rows: number, columns: number): string {
  const row = `(${'?, '.repeat(columns - 1)}?)`;
  return rows === 1 ? row : Array<string>(rows).fill(row).join(', ');
}
