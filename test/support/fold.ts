import type { Event } from '@google/adk';
import type { MikroORM } from '@mikro-orm/core';
import type { EventLog } from '../../src/index.js';
import { foldLog, type FoldedLog } from './folded-log.js';
import { inspect, isDeepStrictEqual } from 'node:util';
import { ofEvent, ofState, type Codec, type KnownSession, type TextPlace } from '../../src/model/codec.js';
import { StoredTexts, TextCodec } from '../../src/model/stored-texts.js';
import type { Scope } from '../../src/model/state.js';
import { harnessOf } from './harnesses/databases.js';

type State = Record<string, unknown>;

/** A session according to the log. */
interface FoldedSession {
  isDeleted: boolean;
  events: Record<number, unknown>;
  state: State;
}

/** The sessions and states of an app, according to the log or the tables. Ids are JSON. */
export interface Folded {
  sessions: Record<string, FoldedSession>;
  users: Record<string, State>;
  apps: Record<string, State>;
}

/** Folds the log of an app into the form of the tables. */
export async function folded(log: EventLog, appName: string): Promise<Folded> {
  return resultOf(await foldLog(log.complete().since(0, { appName })));
}

export function resultOf(log: FoldedLog): Folded {
  const sessions = log.sessions();
  const filled = (states: [string, ReadonlyMap<string, unknown>][]) =>
    Object.fromEntries(states.filter(([, state]) => state.size > 0).map(([id, state]) => [id, own(state)]));
  return {
    sessions: Object.fromEntries(
      sessions.map(({ appName, userId, sessionId, isDeleted, events, state }) => [
        JSON.stringify([appName, userId, sessionId]),
        {
          isDeleted,
          events: Object.fromEntries([...events].map(([seq, event]) => [seq, plain(event)])),
          state: own(state),
        },
      ]),
    ),
    users: filled(log.users().map(({ appName, userId, state }) => [JSON.stringify([appName, userId]), state])),
    apps: filled(log.apps().map(({ appName, state }) => [JSON.stringify([appName]), state])),
  };
}

/** Reads an app from the tables. @param codec the synchronous codec that encoded the contents. */
export async function tablesOf(
  { em }: Pick<MikroORM, 'em'>,
  appName: string,
  codec: readonly Codec[] = [],
): Promise<Folded> {
  const { json: jsonOf } = harnessOf(em).columns;
  const rows = async (table: string, json?: string): Promise<TableRow[]> => {
    const select = `select ${json === undefined ? '*' : `*, ${jsonOf(json)} as ${json}`} from adk_${table} where app_name = ?`;
    return (await em.getConnection().execute(select, [appName])) as TableRow[];
  };
  const sessions: Record<string, FoldedSession> = {};
  const origins = new Map<string, string>();
  for (const row of await rows('sessions')) {
    // Nobody sees a part of it.
    if (row.status === 'ending' || row.status === 'importing') continue;
    sessions[rowId(row)] = { isDeleted: row.status === 'deleted', events: {}, state: {} };
    origins.set(rowId(row), row.origin);
  }
  const texts = new StoredTexts(new TextCodec(codec));
  const decoded = (stored: string, row: TableRow, of: (owner: KnownSession) => TextPlace): unknown => {
    const { app_name: appName, user_id: userId, session_id: sessionId } = row;
    const owner = { appName, userId, sessionId, origin: origins.get(rowId(row)) ?? '' };
    const json = texts.decode(stored, () => of(owner));
    if (typeof json !== 'string') throw new Error(`Not readable: ${inspect(json)}`);
    return JSON.parse(json);
  };
  const define = (state: State, scope: Scope, row: TableRow) => {
    const value = decoded(row.value, row, (owner) => ofState(owner, scope, row.state_key));
    Object.defineProperty(state, row.state_key, { value, enumerable: true });
  };
  const parts = await rows('event_parts');
  parts.sort((a, b) => a.part - b.part);
  for (const row of await rows('events', 'data')) {
    const session = sessions[rowId(row)];
    if (!session) continue;
    const ownParts = parts.filter((part) => rowId(part) === rowId(row) && part.seq === row.seq);
    const stored = row.data ?? ownParts.map(({ text }) => text).join('');
    session.events[row.seq] = decoded(stored, row, (owner) => ofEvent(owner, row.event_id));
  }
  for (const row of await rows('session_states', 'value')) {
    const session = sessions[rowId(row)];
    if (session) define(session.state, 'session', row);
  }
  const users: Record<string, State> = {};
  for (const row of await rows('user_states', 'value'))
    define((users[JSON.stringify([row.app_name, row.user_id])] ??= {}), 'user', row);
  const apps: Record<string, State> = {};
  for (const row of await rows('app_states', 'value'))
    define((apps[JSON.stringify([row.app_name])] ??= {}), 'app', row);
  return { sessions, users, apps };
}

export function expectSame(folded: Folded, tables: Folded): void {
  // Not with jest's comparison, which misreads own keys like `__proto__`.
  if (!isDeepStrictEqual(folded, tables)) expect(text(folded)).toEqual(text(tables));
}

/** A row of any table. */
interface TableRow {
  app_name: string;
  user_id: string;
  session_id: string;
  origin: string;
  status: string;
  event_id: string;
  seq: number;
  /** Null if it is in parts. */
  data: string | null;
  part: number;
  text: string;
  state_key: string;
  value: string;
}

const text = (value: unknown) => JSON.stringify(value, null, 1);
const rowId = (row: TableRow) => JSON.stringify([row.app_name, row.user_id, row.session_id]);
const plain = (event: Event): unknown => JSON.parse(JSON.stringify(event));
const own = (state: ReadonlyMap<string, unknown>): State =>
  Object.defineProperties(
    {},
    Object.fromEntries(
      [...state].sort(([a], [b]) => (a < b ? -1 : 1)).map(([key, value]) => [key, { value, enumerable: true }]),
    ),
  );
