import type { BareDriver, Outcome, Statement, Steps } from '../contenders/drivers/bare-driver.js';
import { TABLES } from '../contenders/adk-tables.js';
import { insertRows } from '../contenders/fill.js';
import { Payloads } from '../payloads.js';
import type { DatabaseName } from '../../test/support/servers.js';
import type { Conversation } from './conversations.js';

const EVENTS_AT_ONCE = 100_000;

/** The number of events that are copied, from 350 to 800 characters long. Larger ones would only fill the disk. */
const TEMPLATES = 16;

/** The functions in which databases differ. */
interface Functions {
  /** Eight hexadecimal digits of a number below 2^32. */
  hex(number: string): string;
  /** A number as text. */
  text(number: string): string;
  /** Text as JSON. */
  json(text: string): string;
}

const MYSQL: Functions = {
  hex: (number) => `lower(lpad(hex(${number}), 8, '0'))`,
  text: (number) => number,
  json: (text) => text,
};
const SQLITE: Functions = { ...MYSQL, hex: (number) => `printf('%08x', ${number})` };

const FUNCTIONS: Record<DatabaseName, Functions> = {
  sqlite: SQLITE,
  'better-sqlite': SQLITE,
  postgresql: {
    hex: (number) => `lpad(to_hex(${number}), 8, '0')`,
    text: (number) => `(${number})::text`,
    json: (text) => `(${text})::json`,
  },
  mysql: MYSQL,
  mariadb: MYSQL,
};

/** How far the log goes. */
interface LogEnd {
  position: number;
  change: number;
}

/** Fills all tables from a batch of sessions, with statements that run entirely in the server. */
export class Filler {
  readonly #driver: BareDriver;
  readonly #texts: ReturnType<typeof texts>;

  constructor(name: DatabaseName, driver: BareDriver) {
    this.#driver = driver;
    this.#texts = texts(FUNCTIONS[name], driver);
  }

  /** Makes its own tables, with the parts of events. */
  async begin(longest: number): Promise<void> {
    const { createTables, insertNumbers } = this.#texts;
    for (const text of createTables) await this.#execute({ text, values: [] });
    await insertRows(this.#driver, [
      { table: 'growth_numbers', columns: ['n'], rows: [[1]] },
      { table: 'growth_templates', columns: ['n', 'text'], rows: templates(TEMPLATES) },
      {
        table: 'adk_counters',
        columns: ['name', 'value'],
        rows: [
          ['position', 0],
          ['change', 0],
        ],
      },
    ]);
    for (let count = 1; count < longest; count *= 2) await this.#execute({ text: insertNumbers, values: [count] });
  }

  /**
   * Fills the tables with sessions, in transactions of some 100,000 events. The log has them as if readers had followed it: the
   * events of a batch are ordered by time.
   *
   * @param onProgress is called with the number of events so far.
   */
  async fill(all: readonly Conversation[], onProgress: (events: number) => void = () => undefined): Promise<void> {
    await insertRows(this.#driver, [{ table: 'growth_sessions', columns: COLUMNS, rows: rowsOf(all) }]);
    let filled = 0;
    for (const batch of batches(all)) {
      const end = await this.#logEnd();
      const events = batch.reduce((sum, { length }) => sum + length, 0);
      await this.#driver.transaction(this.#batchSteps(batch, end, events));
      onProgress((filled += events));
    }
    await this.#execute({ text: 'delete from growth_sessions', values: [] });
  }

  /** Updates statistics, as servers do by themselves after a while. */
  analyze(): Promise<void> {
    return this.#driver.analyze([...TABLES, 'adk_changes']);
  }

  /** Takes the last event out of the log. The next reader assigns it the same position, and records its own name. */
  async reopenLog(): Promise<void> {
    const { position, change } = await this.#logEnd();
    await this.#execute({ text: 'update adk_events set position = null where position = ?', values: [position] });
    await this.#setLogEnd({ position: position - 1, change });
  }

  async #logEnd(): Promise<LogEnd> {
    const { rows } = await this.#execute({ text: 'select name, value from adk_counters', values: [] });
    const value = (name: string) => Number(rows.find((row) => row['name'] === name)?.['value']);
    return { position: value('position'), change: value('change') };
  }

  async #setLogEnd(end: LogEnd): Promise<void> {
    await this.#driver.transaction(counterSteps(end));
  }

  *#batchSteps(batch: readonly Conversation[], { position, change }: LogEnd, events: number): Steps<void> {
    const range = [batch[0]?.ordinal, batch.at(-1)?.ordinal];
    const { insertSessions, insertEvents, insertStates, insertChanges } = this.#texts;
    yield { text: insertSessions, values: range };
    yield { text: insertEvents, values: [position, ...range] };
    for (const text of insertStates) yield { text, values: range };
    yield { text: insertChanges, values: [change, position, position + events] };
    yield* counterSteps({ position: position + events, change: change + batch.length });
  }

  #execute(statement: Statement): Promise<Outcome> {
    return this.#driver.run(only(statement));
  }
}

function* only(statement: Statement): Steps<Outcome> {
  return yield statement;
}

function* counterSteps({ position, change }: LogEnd): Steps<void> {
  const text = 'update adk_counters set value = ? where name = ?';
  yield { text, values: [position, 'position'] };
  yield { text, values: [change, 'change'] };
}

const COLUMNS = [
  'ordinal',
  'app_name',
  'user_id',
  'session_id',
  'incarnation',
  'length',
  'create_time',
  'step',
  'title',
  'labels',
];

function* rowsOf(all: readonly Conversation[]) {
  for (const { ordinal, appName, userId, sessionId, incarnation, length, createTime, step, title, labels } of all)
    yield [ordinal, appName, userId, sessionId, incarnation, length, createTime, step, title, labels];
}

function* batches(all: readonly Conversation[]): Generator<Conversation[]> {
  let batch: Conversation[] = [];
  let events = 0;
  for (const each of all) {
    if (batch.length > 0 && events + each.length > EVENTS_AT_ONCE) {
      yield batch;
      [batch, events] = [[], 0];
    }
    batch.push(each);
    events += each.length;
  }
  if (batch.length > 0) yield batch;
}

/** JSON of events, with placeholders for what differs from event to event. Every fourth one changes the state. */
function* templates(count: number) {
  const events = new Payloads(1).events(count, (i) => (i % 4 === 2 ? { step: i } : {}));
  for (const [i, event] of events.entries()) {
    const json = JSON.stringify({ ...event, id: '@id', invocationId: 'e-@invocation', timestamp: 0 });
    yield [i, json.replace('"timestamp":0', '"timestamp":@time')];
  }
}

function texts({ hex, text, json }: Functions, { insertMissing }: BareDriver) {
  const key = 'app_name, user_id, session_id';
  const ofBatch = 'from growth_sessions as s where ordinal >= ? and ordinal <= ?';
  // Odd numbers have an inverse modulo 2^32: the ids of a session's events differ.
  const idOf = (number: string) => hex(`(${number} * 2654435761 + s.ordinal * 40503) % 4294967296`);
  const invocation = hex('((n.n + 3 - (n.n + 3) % 4) * 2246822519 + s.ordinal * 3266489917) % 4294967296');
  const time = 's.create_time + n.n * s.step';
  const event = `replace(replace(replace(t.text, '@id', ${idOf('n.n')}), '@invocation', ${invocation}), '@time', ${text(time)})`;
  return {
    createTables: [
      `create table growth_sessions (ordinal bigint primary key, app_name varchar(128) not null, user_id varchar(191) not null,
        session_id varchar(191) not null, incarnation varchar(36) not null, length int not null, create_time bigint not null,
        step bigint not null, title varchar(255), labels varchar(255))`,
      'create table growth_numbers (n int primary key)',
      'create table growth_templates (n int primary key, text text not null)',
    ],
    insertNumbers: 'insert into growth_numbers (n) select n + ? from growth_numbers',
    insertSessions: `insert into adk_sessions (${key}, incarnation, origin, last_change, last_seq, create_time, last_update_time, title, labels)
      select ${key}, incarnation, incarnation, 1, length, create_time, create_time + length * step, title, ${json('labels')} ${ofBatch}`,
    insertEvents: `insert into adk_events (${key}, seq, event_id, timestamp, data, position)
      select s.app_name, s.user_id, s.session_id, n.n, ${idOf('n.n')}, ${time}, ${json(event)},
        ? + row_number() over (order by ${time}, s.ordinal)
      from growth_sessions as s join growth_numbers as n on n.n <= s.length
      join growth_templates as t on t.n = (n.n + 4 * s.ordinal) % ${TEMPLATES}
      where s.ordinal >= ? and s.ordinal <= ?`,
    insertStates: [
      `insert into adk_session_states (${key}, state_key, value, event_id)
        select ${key}, 'city', ${json(`'"Lisbon"'`)}, null ${ofBatch}`,
      `insert into adk_session_states (${key}, state_key, value, event_id)
        select ${key}, 'step', ${json(text('length'))}, ${idOf('length')} ${ofBatch}`,
      `${insertMissing.start} adk_user_states (app_name, user_id, state_key, value, event_id)
        select app_name, user_id, 'language', ${json(`'"pt"'`)}, null ${ofBatch} group by app_name, user_id ${insertMissing.end}`,
      `${insertMissing.start} adk_app_states (app_name, state_key, value, event_id)
        select app_name, 'open', ${json("'true'")}, null ${ofBatch} group by app_name ${insertMissing.end}`,
    ],
    // Before the first event of the session.
    insertChanges: `insert into adk_changes (${key}, change_id, kind, seq, time, data, position, number)
      select ${key}, 1, 'created', 0, timestamp, ${json(`'{"city":"Lisbon"}'`)}, position - 1, ? + row_number() over (order by position)
      from adk_events where seq = 1 and position > ? and position <= ? order by position`,
  };
}
