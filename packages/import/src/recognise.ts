import { types } from 'node:util';
import type { EntityManager } from '@mikro-orm/core';
import type { Sql } from '../../../src/internal.js';
import { SchemaError } from '../../../src/index.js';
import type { ForeignStore } from './foreign-store.js';
import { adkGo } from './adk-go.js';
import { adkJs, adkPython, adkPythonSqlite } from './adk-tables.js';
import type { ForeignKind } from './foreign-rows.js';

/** In the column types of adk-python, on each database; ADK JS has 191, and none on SQLite. */
const PYTHON_ID_LENGTH = '(128)';

/** The first byte of a pickled object. */
const PICKLE = 0x80;

const NEEDED = ['sessions', 'events', 'app_states', 'user_states'];

/** @throws SchemaError if the tables belong to no known store; it names the tables that exist. */
export async function recognise(sql: Sql, store: ForeignStore, em: EntityManager): Promise<ForeignKind> {
  const columns = await store.columns(sql);
  const tables = new Set(columns.map(({ table }) => table));
  if (NEEDED.some((table) => !tables.has(table)))
    throw unknownStore(tables, 'It needs sessions, events, app_states and user_states.');
  const version = tables.has('adk_internal_metadata') ? await schemaVersion(sql, store) : undefined;
  const typeOf = (table: string, column: string) =>
    columns.find((each) => each.table === table && each.column === column)?.type;
  const has = (column: string) => typeOf('events', column) !== undefined;

  const hasActions = has('actions') && !has('event_data');
  // The first versions of the pickled schema have the columns of adk-go.
  if (hasActions && (has('input_transcription') || version === '0' || isPickled(await store.someActions(sql))))
    throw pickledStore();
  if (version !== undefined && version !== '1')
    throw unknownStore(tables, `Their schema_version is ${version}; only 1 is known.`);
  if (hasActions && has('long_running_tool_ids_json')) return adkGo;
  if (version === undefined && has('event_data') && typeOf('sessions', 'create_time') === 'REAL')
    return adkPythonSqlite;
  if (version === undefined || !has('event_data'))
    throw unknownStore(tables, 'Their columns are those of no store that is known.');
  return typeOf('sessions', 'id')?.endsWith(PYTHON_ID_LENGTH) ? adkPython : adkJs(em);
}

async function schemaVersion(sql: Sql, store: ForeignStore): Promise<string | undefined> {
  const rows = await store.metadata(sql);
  const version = rows.find((row) => row['key'] === 'schema_version')?.['value'];
  return typeof version === 'string' || typeof version === 'number' ? String(version) : undefined;
}

const isPickled = (actions: unknown) => types.isUint8Array(actions) && actions[0] === PICKLE;

const pickledStore = () =>
  new SchemaError(
    "These are tables of adk-python's schema v0, whose events hold pickled Python objects. Bring them to schema v1 with adk-python's `adk migrate session`, and import from there.",
  );

function unknownStore(tables: ReadonlySet<string>, why: string): SchemaError {
  const found = tables.size > 0 ? [...tables].sort().join(', ') : 'none of theirs';
  return new SchemaError(
    `These are not the tables of a session store that importFrom can read. Found: ${found}. ${why}`,
  );
}
