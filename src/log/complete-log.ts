import type { Sql } from '../database/sql/sql.js';
import type { LoggedChange } from '../database/stores/complete-log-store.js';
import type { LogColumns } from '../database/stores/log-columns.js';
import type { LoggedEvent } from '../database/stores/log-store.js';
import type { Stores } from '../database/stores/stores.js';
import { decode, decodeEvent } from '../model/event-codec.js';
import { sessionIdentity, type SessionKey } from '../model/keys.js';
import type { LogBoundary } from '../model/log-history.js';
import { isTemporary, prefixed, scopeOf, setOwn } from '../model/state.js';
import type { LogChange, LogEntryPosition } from './entries.js';
import { isRecord } from '../model/objects.js';

/** A piece of the complete log. */
export interface CompletePage {
  entries: CompleteEntry[];
  /** Where to go on from. */
  after: LogBoundary;
}

/** An event as it was appended, or a change. */
export type CompleteEntry = { boundary: LogBoundary } & (
  { logged: LoggedEvent; superseded: readonly string[]; change?: undefined } | { change: LogChange; logged?: undefined }
);

interface CompleteRange {
  after: LogBoundary;
  upTo: LogBoundary;
  /** The most events, and the most changes. */
  limit: number;
}

/** Reads events and changes after one boundary, up to another, in their order (contract J1). */
export async function readComplete(
  sql: Sql,
  { log, completeLog, state }: Stores,
  { after, upTo, limit }: CompleteRange,
  columns: LogColumns,
): Promise<CompletePage> {
  const events = await log.eventsWithSoftDeleted(sql, { after: after.position, upTo: upTo.position, limit }, columns);
  const changes = await completeLog.changes(sql, { after: after.change, upTo: upTo.change, limit }, columns);
  const [areEventsCut, areChangesCut] = [events.length === limit, changes.length === limit];
  const [lastEvent, lastChange] = [events.at(-1)?.position ?? 0, changes.at(-1)?.position ?? 0];
  // What comes after the end of a list that was cut may lack entries of that list.
  const readEvents = areChangesCut ? events.filter(({ position }) => (position ?? 0) <= lastChange) : events;
  const readChanges = areEventsCut ? changes.filter(({ position }) => position <= lastEvent) : changes;
  const isAll = !areEventsCut && !areChangesCut;
  const owners = [...readEvents, ...readChanges].map(({ session }) => session);
  const sessions = distinct(owners.filter(({ sessionId }) => sessionId !== ''));
  const rewritings = new Map<string, { changeId: number; before: string | null }[]>();
  for (const { session, eventSeq, ...rewriting } of await completeLog.rewritings(sql, sessions)) {
    const id = eventIdentity(session, eventSeq);
    const known = rewritings.get(id);
    if (known) known.push(rewriting);
    else rewritings.set(id, [rewriting]);
  }
  /** The content that an event had after a change; undefined where it is not known any more. */
  const contentAfter = async (session: SessionKey, seq: number, changeId: number) => {
    const next = rewritings.get(eventIdentity(session, seq))?.find((rewriting) => rewriting.changeId > changeId);
    return next ? next.before : (await log.event(sql, session, seq))?.json;
  };
  const current = new CurrentState(await state.ofOwners(sql, distinct(owners)));

  const entries: CompleteEntry[] = [];
  for (const logged of readEvents) {
    const first = rewritings.get(eventIdentity(logged.session, logged.seq))?.[0];
    // A content that is not known is left out: the entry of the rewriting has the one that came after it.
    if (first && first.before === null) continue;
    const json = first ? first.before : logged.json;
    const delta = decodeEvent(json ?? undefined)?.actions?.stateDelta ?? {};
    const superseded = current.superseded(logged.session, delta);
    const boundary = { position: logged.position ?? 0, change: 0 };
    entries.push({ boundary, logged: { ...logged, json }, superseded });
  }
  for (const change of readChanges) {
    const content =
      change.eventSeq === null ? undefined : await contentAfter(change.session, change.eventSeq, change.id);
    const newest = change.isLate ? await completeLog.newestAt(sql, change.session, change.position) : undefined;
    const entry = changeOf(change, content, current, newest);
    if (entry) entries.push({ boundary: { position: change.position, change: change.number }, change: entry });
  }
  // An event comes before the changes that follow it.
  entries.sort((a, b) => a.boundary.position - b.boundary.position || a.boundary.change - b.boundary.change);
  let { change } = after;
  for (const { boundary } of entries) boundary.change = change = Math.max(change, boundary.change);
  const read = {
    position: readEvents.at(-1)?.position ?? after.position,
    change: readChanges.at(-1)?.number ?? after.change,
  };
  return { entries, after: isAll ? upTo : read };
}

/**
 * @param content of the event that was rewritten, after that.
 * @param newest the number of the session's newest event in front of the change, where it was written after the change. The
 *   entry keeps these events, and has the state that the tables hold: their entries had it before (contract J2).
 */
function changeOf(
  { session, kind, seq, eventSeq, position, data }: LoggedChange,
  content: string | null | undefined,
  current: CurrentState,
  newest: number | undefined,
): LogChange | undefined {
  const entryPosition: LogEntryPosition = { position, seq: newest ?? seq, ...session };
  const recorded = data === null || newest !== undefined ? undefined : decode(data)?.value;
  switch (kind) {
    case 'created': {
      const state = isRecord(recorded) ? recorded : current.of(session);
      return { ...entryPosition, change: 'created', state, superseded: current.superseded(session, state) };
    }
    case 'state': {
      const { set, removed }: { set?: unknown; removed?: unknown } = recordOf(recorded);
      const state = isRecord(set) ? set : current.of(session);
      const names = Array.isArray(removed) ? removed.filter((name) => typeof name === 'string') : [];
      const superseded = [...current.superseded(session, state), ...names.filter((name) => current.has(session, name))];
      return { ...entryPosition, change: 'state', state, removed: names, superseded };
    }
    case 'rewritten': {
      const event = decodeEvent(content ?? undefined);
      if (!event || eventSeq === null) return undefined;
      const superseded = current.superseded(session, event.actions?.stateDelta ?? {});
      return { ...entryPosition, change: 'rewritten', eventSeq, event, superseded };
    }
    case 'deleted':
      // It was created again since.
      if (newest !== undefined) return { ...entryPosition, change: 'rewound', state: current.of(session) };
      return { ...entryPosition, change: 'deleted', soft: false, state: current.of({ ...session, sessionId: '' }) };
    case 'hidden':
      return { ...entryPosition, change: 'deleted', soft: true, state: {} };
    case 'restored':
      return { ...entryPosition, change: 'restored' };
    case 'trimmed': {
      const { firstSeq }: { firstSeq?: unknown } = recordOf(recorded);
      return { ...entryPosition, change: 'trimmed', firstSeq: Number(firstSeq), state: current.of(session) };
    }
    case 'rewound': {
      const shared = current.of({ ...session, sessionId: '' });
      const state = isRecord(recorded) ? { ...recorded, ...shared } : current.of(session);
      return { ...entryPosition, change: 'rewound', state };
    }
  }
}

/** The state that the tables hold, of the owners of a page. */
class CurrentState {
  readonly #values = new Map<string, Map<string, string>>();

  constructor(values: readonly { owner: SessionKey; scope: 'session' | 'user' | 'app'; key: string; json: string }[]) {
    for (const { owner, scope, key, json } of values) {
      const id = sessionIdentity(owner);
      const known = this.#values.get(id) ?? new Map<string, string>();
      this.#values.set(id, known.set(prefixed(scope, key), json));
    }
  }

  /** State of all scopes that an owner has, an app and a user as well as a session. */
  of(owner: SessionKey): Record<string, unknown> {
    const state = {};
    for (const part of partsOf(owner)) {
      for (const [name, json] of this.#values.get(sessionIdentity(part)) ?? []) {
        const value = decode(json);
        if (value) setOwn(state, name, value.value);
      }
    }
    return state;
  }

  has(owner: SessionKey, name: string): boolean {
    return this.#json(owner, name) !== undefined;
  }

  /** The keys whose value is not the one that is stored. */
  superseded(owner: SessionKey, state: Record<string, unknown>): string[] {
    return Object.keys(state).filter(
      (name) => !isTemporary(name) && this.#json(owner, name) !== JSON.stringify(state[name]),
    );
  }

  #json({ appName, userId, sessionId }: SessionKey, name: string): string | undefined {
    const { scope } = scopeOf(name);
    const owner = {
      appName,
      userId: scope === 'app' ? '' : userId,
      sessionId: scope === 'session' ? sessionId : '',
    };
    return this.#values.get(sessionIdentity(owner))?.get(name);
  }
}

const recordOf = (value: unknown) => (isRecord(value) ? value : {});

/** The app, the user and the session, as far as they are named. */
function partsOf({ appName, userId, sessionId }: SessionKey): SessionKey[] {
  const parts = [{ appName, userId: '', sessionId: '' }];
  if (userId !== '') parts.push({ appName, userId, sessionId: '' });
  if (sessionId !== '') parts.push({ appName, userId, sessionId });
  return parts;
}

function distinct(keys: readonly SessionKey[]): SessionKey[] {
  return [...new Map(keys.map((key) => [sessionIdentity(key), key])).values()];
}

const eventIdentity = (session: SessionKey, seq: number) => JSON.stringify([sessionIdentity(session), seq]);
