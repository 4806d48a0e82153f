/** How a database writes the types of columns. */
interface ColumnTypes {
  /** Of text that identifies a row, compared byte for byte. */
  key: (length: number) => string;
  string: (length: number) => string;
  int: string;
  /** Of a number that is part of a primary key and never below 0. */
  unsigned: string;
  time: string;
  boolean: string;
  json: string;
  /** Text of any length. */
  text: string;
  bytes: string;
}

/** How a database writes what is in a `create table` beside its columns. */
export interface TableDialect {
  readonly types: ColumnTypes;
  /** @returns a unique key; undefined if only an index keeps its name. */
  readonly unique: (name: string) => string | undefined;
  /** @returns an index; undefined for one that is created by itself. */
  readonly index: (name: string) => string | undefined;
  /** What follows the last bracket. */
  readonly options: string;
}

interface Table {
  name: string;
  columns: string;
  key: string;
  uniques?: Readonly<Record<string, string>>;
  indexes?: Readonly<Record<string, string>>;
  /** The foreign key: its name, its columns, and the table that has columns of the same names. */
  foreign?: readonly [name: string, columns: string, table: string];
}

const SESSION = 'app_name, user_id, session_id';

/** The tables of the first migration, those with a foreign key after the table that it refers to. */
function tablesWith({ key, string, int, unsigned, time, boolean, json, text, bytes }: ColumnTypes): Table[] {
  const app = `app_name ${key(128)} not null`;
  const user = `${app}, user_id ${key(191)} not null`;
  const session = `${user}, session_id ${key(191)} not null`;
  const file = `${session}, filename ${key(255)} not null`;
  const stateValue = `state_key ${key(255)} not null, value ${json} not null, event_id ${key(191)} null`;
  return [
    { name: 'adk_app_states', columns: `${app}, ${stateValue}`, key: 'app_name, state_key' },
    {
      name: 'adk_sessions',
      columns: `${session},
        incarnation ${string(36)} not null,
        origin ${key(36)} not null,
        status ${string(9)} not null default 'active',
        last_seq ${int} not null default 0,
        first_seq ${int} not null default 1,
        last_change bigint not null default 0,
        has_pending_calls ${boolean} not null default false,
        create_time ${time} not null,
        last_update_time ${time} not null,
        lease_holder ${string(255)} null,
        lease_token bigint not null default 0,
        lease_expires ${time} null,
        lease_since ${time} null,
        deleted_at ${time} null,
        touched_at ${time} null,
        title ${key(255)} null,
        labels ${json} null,
        forked_from ${key(191)} null,
        forked_root ${key(191)} null,
        forked_seq ${int} null`,
      key: SESSION,
      indexes: {
        adk_sessions_user_update: 'app_name, user_id, last_update_time, session_id',
        adk_sessions_app_update: 'app_name, last_update_time, session_id, user_id',
      },
    },
    {
      name: 'adk_events',
      columns: `${session},
        seq ${unsigned} not null,
        event_id ${key(191)} not null,
        timestamp ${time} not null,
        begins_turn ${boolean} not null default false,
        append_time ${time} null,
        data ${json} null,
        superseded ${text} null,
        position bigint null`,
      key: `${SESSION}, seq`,
      uniques: { adk_events_event_id: `${SESSION}, event_id` },
      indexes: { adk_events_position: 'position, seq' },
      foreign: ['adk_events_session', SESSION, 'adk_sessions'],
    },
    { name: 'adk_counters', columns: `name ${key(32)} not null, value bigint not null`, key: 'name' },
    {
      name: 'adk_event_parts',
      columns: `${session}, seq ${unsigned} not null, part ${unsigned} not null, text ${text} not null`,
      key: `${SESSION}, seq, part`,
      foreign: ['adk_event_parts_session', SESSION, 'adk_sessions'],
    },
    {
      name: 'adk_open_calls',
      columns: `${session},
        open_until ${unsigned} not null,
        seq ${unsigned} not null,
        number ${unsigned} not null,
        answered_from ${int} not null default 2147483647,
        waits_for ${int} not null default 1,
        name ${key(191)} not null,
        timestamp ${time} not null,
        data ${json} not null`,
      key: `${SESSION}, open_until, seq, number`,
      indexes: {
        adk_open_calls_app: 'app_name, waits_for, timestamp, user_id, session_id, seq, number',
        adk_open_calls_user: 'app_name, user_id, waits_for, timestamp, session_id, seq, number',
      },
      foreign: ['adk_open_calls_session', SESSION, 'adk_sessions'],
    },
    {
      name: 'adk_session_states',
      columns: `${session}, ${stateValue}`,
      key: `${SESSION}, state_key`,
      foreign: ['adk_session_states_session', SESSION, 'adk_sessions'],
    },
    { name: 'adk_user_states', columns: `${user}, ${stateValue}`, key: 'app_name, user_id, state_key' },
    {
      name: 'adk_changes',
      columns: `${session},
        change_id bigint not null,
        kind ${string(16)} not null,
        seq ${int} not null,
        event_seq ${int} null,
        time ${time} not null,
        data ${json} null,
        position bigint null,
        number bigint null`,
      key: `${SESSION}, change_id`,
      indexes: { adk_changes_number: 'number, change_id' },
    },
    {
      name: 'adk_projections',
      columns: `name ${key(191)} not null,
        version bigint not null,
        log_cursor ${text} not null,
        update_time ${time} not null`,
      key: 'name',
    },
    {
      name: 'adk_retry_tokens',
      columns: `slot ${key(22)} not null, token ${key(22)} not null, update_time ${time} not null`,
      key: 'slot, token',
    },
    {
      name: 'adk_artifacts',
      columns: `${file}, last_version ${int} not null, update_time ${time} not null`,
      key: `${SESSION}, filename`,
    },
    {
      name: 'adk_artifact_versions',
      columns: `${file},
        version ${int} not null,
        info ${json} not null,
        data ${bytes} null,
        create_time ${time} not null`,
      key: `${SESSION}, filename, version`,
      foreign: ['adk_artifact_versions_artifact', `${SESSION}, filename`, 'adk_artifacts'],
    },
    {
      name: 'adk_artifact_parts',
      columns: `${file}, version ${int} not null, part ${unsigned} not null, data ${bytes} not null`,
      key: `${SESSION}, filename, version, part`,
      foreign: ['adk_artifact_parts_version', `${SESSION}, filename, version`, 'adk_artifact_versions'],
    },
    {
      name: 'adk_memories',
      columns: `${session},
        memory_id ${key(191)} not null,
        seq ${int} null,
        time ${time} not null,
        create_time ${time} not null,
        settles ${time} null,
        expires ${time} null,
        words ${bytes} not null,
        model ${text} null,
        embedding ${bytes} null,
        data ${json} not null`,
      key: `${SESSION}, memory_id`,
      indexes: { adk_memories_expires: 'app_name, expires' },
    },
    {
      name: 'adk_forgotten_memories',
      columns: `${session}, memory_id ${key(191)} not null, create_time ${time} not null`,
      key: `${SESSION}, memory_id`,
    },
    {
      name: 'adk_credentials',
      columns: `${user},
        credential_key ${key(255)} not null,
        update_time ${time} not null,
        data ${json} not null`,
      key: 'app_name, user_id, credential_key',
    },
  ];
}

/**
 * The statements of the first migration. They are written once for all databases, since a table that differs between two of them is a
 * mistake.
 */
export function creating({ types, unique, index, options }: TableDialect): string[] {
  return tablesWith(types).flatMap(({ name, columns, key, uniques = {}, indexes = {}, foreign }) => {
    const lines = [columns, `primary key (${key})`];
    const later: string[] = [];
    const add = (line: string | undefined, kind: string, [index, columns]: [string, string]) => {
      if (line === undefined) later.push(`create ${kind} if not exists ${index} on ${name} (${columns})`);
      else lines.push(`${line} (${columns})`);
    };
    for (const each of Object.entries(uniques)) add(unique(each[0]), 'unique index', each);
    for (const each of Object.entries(indexes)) add(index(each[0]), 'index', each);
    if (foreign) {
      const [constraint, columns, table] = foreign;
      lines.push(`constraint ${constraint} foreign key (${columns}) references ${table} (${columns})
        on update no action on delete cascade`);
    }
    return [`create table if not exists ${name} (\n${lines.join(',\n')}\n)${options}`, ...later];
  });
}

/** The statements that revert it. */
export const dropping = ({ types }: TableDialect): string[] =>
  tablesWith(types)
    .reverse()
    .map(({ name }) => `drop table if exists ${name}`);
