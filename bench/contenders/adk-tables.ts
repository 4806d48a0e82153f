import { randomUUID } from 'node:crypto';
import type { SessionKey } from '../../src/model/keys.js';
import { byScope, type Scope } from '../../src/model/state.js';
import type { SessionContent } from './contender.js';
import type { BareDriver } from './drivers/bare-driver.js';
import { insertRows } from './fill.js';

/** The primary keys of the state tables. */
export const STATE_KEYS: Record<Scope, readonly string[]> = {
  session: ['app_name', 'user_id', 'session_id', 'state_key'],
  user: ['app_name', 'user_id', 'state_key'],
  app: ['app_name', 'state_key'],
};

export const STATE_TABLES: Record<Scope, string> = {
  session: 'adk_session_states',
  user: 'adk_user_states',
  app: 'adk_app_states',
};

export const TABLES = ['adk_sessions', 'adk_events', ...Object.values(STATE_TABLES)];

export const keyValues = ({ appName, userId, sessionId }: SessionKey) => [appName, userId, sessionId];

/** The values of a state table's columns before `state_key`. */
export const ownerValues = (key: SessionKey, scope: Scope) => keyValues(key).slice(0, STATE_KEYS[scope].length - 1);

/** Entries of a state, as rows of the tables of its scopes. */
export function stateRows(state: Record<string, unknown>) {
  const entries = Object.entries(state).map(([key, value]) => ({ key, json: JSON.stringify(value), eventId: null }));
  return byScope(entries);
}

/** Fills this package's tables, which the floor also uses. */
export async function fillAdkTables(driver: BareDriver, sessions: Iterable<SessionContent>): Promise<void> {
  const contents = [...sessions];
  const lastTime = ({ events }: SessionContent, i: number) => events.at(-1)?.timestamp ?? Date.now() - 1e6 + i;
  function* stateOf(scope: Scope) {
    for (const { key, state } of contents) {
      for (const entry of stateRows(state)[scope]) yield [...ownerValues(key, scope), entry.key, entry.json, null];
    }
  }
  function* sessionRows() {
    for (const [i, content] of contents.entries()) {
      const time = lastTime(content, i);
      const incarnation = randomUUID();
      yield [...keyValues(content.key), incarnation, incarnation, content.events.length, time, time];
    }
  }
  function* eventRows() {
    for (const { key, events } of contents) {
      for (const [i, event] of events.entries()) {
        yield [...keyValues(key), i + 1, event.id, event.timestamp, JSON.stringify(event)];
      }
    }
  }
  const id = ['app_name', 'user_id', 'session_id'];
  await insertRows(driver, [
    {
      table: 'adk_sessions',
      columns: [...id, 'incarnation', 'origin', 'last_seq', 'create_time', 'last_update_time'],
      rows: sessionRows(),
    },
    { table: 'adk_events', columns: [...id, 'seq', 'event_id', 'timestamp', 'data'], rows: eventRows() },
    ...(['session', 'user', 'app'] as const).map((scope) => ({
      table: STATE_TABLES[scope],
      columns: [...STATE_KEYS[scope], 'value', 'event_id'],
      rows: stateOf(scope),
    })),
  ]);
  // The server does this by itself after a while. Until then PostgreSQL may look for a session in another index.
  await driver.analyze(TABLES);
}
