import type { Event } from '@google/adk';
import type { LogChange, LogEntry, SessionKey } from '../../src/index.js';
import { sessionIdentity } from '../../src/model/keys.js';

type Values = Map<string, unknown>;

/** A session, as the log describes it. */
export interface FoldedSession extends SessionKey {
  /** By their `seq`, in order. An event that cannot be read is missing. */
  readonly events: ReadonlyMap<number, Event>;
  /** Its own state, without that of user and app, which `FoldedLog` has. */
  readonly state: ReadonlyMap<string, unknown>;
  /** Whether it is soft-deleted. */
  readonly isDeleted: boolean;
}

/**
 * The sessions and the state that a complete log describes, which are those of the tables (contract J2). Keys of state have no
 * prefix here. It is all kept in memory: to keep a part of it in your own tables, use `SessionProjection`.
 */
export class FoldedLog {
  readonly #sessions = new Map<string, FoldingSession>();
  readonly #users = new Map<string, { appName: string; userId: string; state: Values }>();
  readonly #apps = new Map<string, { appName: string; state: Values }>();

  /** @returns all sessions, including soft-deleted ones, in the order of their first entries. */
  sessions(): FoldedSession[] {
    return [...this.#sessions.values()];
  }

  /** @returns undefined if the log has no such session. */
  session(key: SessionKey): FoldedSession | undefined {
    return this.#sessions.get(sessionIdentity(key));
  }

  /** @returns the users that have or had state. */
  users(): { appName: string; userId: string; state: ReadonlyMap<string, unknown> }[] {
    return [...this.#users.values()];
  }

  /** @returns the apps that have or had state. */
  apps(): { appName: string; state: ReadonlyMap<string, unknown> }[] {
    return [...this.#apps.values()];
  }

  /** Applies the next entry, in the order of the log. */
  add(entry: LogEntry | LogChange): void {
    if (!entry.change) {
      if (!entry.event) return;
      this.#session(entry).events.set(entry.seq, entry.event);
      this.#set(entry, entry.event.actions?.stateDelta ?? {}, entry.superseded ?? []);
      return;
    }
    switch (entry.change) {
      case 'created': {
        const session = this.#session(entry);
        session.events.clear();
        session.state.clear();
        session.isDeleted = false;
        this.#set(entry, entry.state, entry.superseded);
        return;
      }
      case 'state':
        this.#set(entry, entry.state, entry.superseded);
        for (const key of entry.removed)
          if (!entry.superseded.includes(key)) this.#valuesOf(entry, key).delete(bare(key));
        return;
      case 'deleted':
        if (entry.soft) {
          const session = this.#sessions.get(sessionIdentity(entry));
          if (session) session.isDeleted = true;
        } else {
          this.#sessions.delete(sessionIdentity(entry));
          this.#replace(entry, entry.state);
        }
        return;
      case 'replaced': {
        const session = this.#session(entry);
        for (const seq of session.events.keys())
          if (seq < entry.firstSeq || seq > entry.seq) session.events.delete(seq);
        if (entry.event && entry.eventSeq !== undefined) session.events.set(entry.eventSeq, entry.event);
        session.isDeleted = false;
        this.#replace(entry, entry.state);
      }
    }
  }

  #session(key: SessionKey): FoldingSession {
    const { appName, userId, sessionId } = key;
    return kept(this.#sessions, sessionIdentity(key), () => ({
      ...{ appName, userId, sessionId, events: new Map<number, Event>() },
      ...{ state: new Map<string, unknown>(), isDeleted: false },
    }));
  }

  #set(key: SessionKey, state: Record<string, unknown>, superseded: readonly string[]): void {
    for (const [name, value] of Object.entries(state)) {
      if (!superseded.includes(name) && !name.startsWith('temp:')) this.#valuesOf(key, name).set(bare(name), value);
    }
  }

  /** Replaces all state of user and app, and of the session if it exists. */
  #replace(key: SessionKey, state: Record<string, unknown>): void {
    this.#valuesOf(key, 'app:').clear();
    this.#valuesOf(key, 'user:').clear();
    this.#sessions.get(sessionIdentity(key))?.state.clear();
    this.#set(key, state, []);
  }

  #valuesOf(key: SessionKey, name: string): Values {
    const { appName, userId } = key;
    if (name.startsWith('app:'))
      return kept(this.#apps, appName, () => ({ appName, state: new Map<string, unknown>() })).state;
    if (!name.startsWith('user:')) return this.#session(key).state;
    const id = JSON.stringify([appName, userId]);
    return kept(this.#users, id, () => ({ appName, userId, state: new Map<string, unknown>() })).state;
  }
}

/**
 * Reads a complete log from its beginning, and builds the sessions and the state that it describes.
 *
 * ```ts
 * const folded = await foldLog(log.complete().since(0, { appName: 'support' }));
 * ```
 *
 * @param entries from `EventLog.complete`. If they are from `watch`, the promise resolves when its signal fires.
 * @param folded the result of earlier entries, to continue from; it is changed.
 * @throws the errors of `CompleteEventLog.since`, such as `LogWentBackError`.
 */
export async function foldLog(
  entries: AsyncIterable<LogEntry | LogChange> | Iterable<LogEntry | LogChange>,
  folded = new FoldedLog(),
): Promise<FoldedLog> {
  for await (const entry of entries) folded.add(entry);
  return folded;
}

interface FoldingSession extends FoldedSession {
  readonly events: Map<number, Event>;
  readonly state: Values;
  isDeleted: boolean;
}

const bare = (name: string) => name.replace(/^(app|user):/, '');

function kept<Value>(values: Map<string, Value>, id: string, made: () => Value): Value {
  const value = values.get(id) ?? made();
  values.set(id, value);
  return value;
}
