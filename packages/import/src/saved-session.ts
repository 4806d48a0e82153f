import { InvalidArgumentError, type SessionKey } from '../../../src/index.js';
import type { EventRecord, ExportRecord } from '../../../src/internal.js';
import { encode, isRecord } from '../../../src/model/json.js';
import { decodeExactly } from './exact-json.js';
import { checkKeys } from '../../../src/model/keys.js';
import { isTemporary, scopeOf, setOwn, type Scope } from '../../../src/model/state.js';
import { FIRST_MS, USERS } from './adk-tables.js';
import { UnreadableRow, checkedTime } from './foreign-rows.js';
import { foreignEvent, stateRecords, withoutAnnulled, type ForeignEvent, type Refuse } from './foreign-event.js';
import type { SavedNames } from './options.js';
import { camelCased, msOf, pythonEvent } from './python-event.js';

/**
 * Paths with names that users choose, in camel case and in snake case: adk-python saves sessions in one, and saved them in the
 * other before.
 */
const EITHER_CASE = new Set([...USERS, ...Array.from(USERS, camelCased)]);

interface Reading {
  as: SavedNames;
  refuse: Refuse;
  /** Undefined if annulled events are imported, too. */
  onAnnulled: ((count: number) => void) | undefined;
}

/**
 * Reads what `adk run --save_session` and the page of `adk web` write, for TypeScript and for Python: one session as JSON, or an
 * array of them.
 *
 * @throws InvalidArgumentError for a text that is something else.
 */
export function savedSessions(text: string, reading: Reading): ExportRecord[] {
  const read = decodeExactly(text)?.value;
  const saved: unknown[] = Array.isArray(read) ? read : [read];
  if (reading.as.sessionId !== undefined && saved.length !== 1)
    throw new InvalidArgumentError('The file has several sessions, so they cannot all get one sessionId.');
  // The session that was updated last decides the state of the app and the user.
  return saved
    .map((each) => savedSession(each, reading))
    .toSorted((a, b) => a.lastUpdateTime - b.lastUpdateTime)
    .flatMap(({ records }) => records);
}

function savedSession(saved: unknown, { as, refuse, onAnnulled }: Reading) {
  if (!isRecord(saved) || !Array.isArray(saved['events']))
    throw new InvalidArgumentError(
      'This is neither an export nor a saved session, which is the JSON of a session with its events.',
    );
  const named = (name: string, python: string) => saved[name] ?? saved[python];
  const key: SessionKey = {
    appName: as.appName ?? (named('appName', 'app_name') as string),
    userId: as.userId ?? (named('userId', 'user_id') as string),
    sessionId: as.sessionId ?? (saved['id'] as string),
  };
  checkKeys(key);
  const state = scopesOf(saved['state']);
  const events = new Map<string, EventRecord['event']>();
  const found: ForeignEvent[] = [];
  for (const [i, each] of saved['events'].entries()) {
    try {
      const event = eventOf(each, i);
      checkKeys({ ...key, eventId: event.id });
      encode(event, 'event');
      if (events.has(event.id)) throw new UnreadableRow('an earlier event has its id');
      events.set(event.id, event);
      found.push(foreignEvent(event, i, (scope) => state[scope]));
    } catch (error) {
      refuse({ ...key, ...(hasId(each) && { eventId: each['id'] }) }, error);
    }
  }
  const kept = onAnnulled ? withoutAnnulled(found) : found;
  onAnnulled?.(found.length - kept.length);
  const writers: Record<Scope, Map<string, string>> = { app: new Map(), user: new Map(), session: new Map() };
  for (const { id, wrote } of kept) {
    for (const name of wrote) {
      const { scope, key } = scopeOf(name);
      writers[scope].set(key, id);
    }
  }
  const lastUpdateTime = timeOf(named('lastUpdateTime', 'last_update_time') ?? found.at(-1)?.timestamp);
  const { appName, userId } = key;
  const owners = { app: { appName }, user: { appName, userId }, session: key };
  const entries = (scope: Scope) => stateRecords(owners[scope], scope, state[scope], writers[scope], refuse);
  const records: ExportRecord[] = [
    { type: 'app', appName, state: entries('app') },
    { type: 'user', appName, userId, state: entries('user') },
    {
      ...{ type: 'session', ...key },
      // No file has a creation time. The same file always gives the same one, by which a second import recognises the session.
      createTime: found[0]?.timestamp ?? lastUpdateTime,
      ...{ lastUpdateTime, firstSeq: 1, lastSeq: kept.length },
      state: entries('session'),
    },
  ];
  for (const [i, { id }] of kept.entries()) {
    const event = events.get(id);
    if (event) records.push({ type: 'event', ...key, seq: i + 1, event });
  }
  return { lastUpdateTime, records };
}

/** The merged state of a session, without the prefixes. */
function scopesOf(saved: unknown): Record<Scope, Record<string, unknown>> {
  const scopes = { app: {}, user: {}, session: {} };
  for (const [name, value] of Object.entries(isRecord(saved) ? saved : {})) {
    const { scope, key } = scopeOf(name);
    if (!isTemporary(name)) setOwn(scopes[scope], key, value);
  }
  return scopes;
}

const hasId = (saved: unknown): saved is Record<string, unknown> & { id: string } =>
  isRecord(saved) && typeof saved['id'] === 'string';

/** @throws UnreadableRow */
function eventOf(saved: unknown, index: number): EventRecord['event'] {
  if (!hasId(saved)) throw new UnreadableRow(`events[${index}] has no id`);
  if (checkedTime(saved['timestamp']) >= FIRST_MS) return saved as EventRecord['event'];
  const row = { id: saved.id, invocation_id: saved['invocationId'] ?? saved['invocation_id'] };
  return pythonEvent(saved, row, EITHER_CASE);
}

/** Python has seconds. @throws UnreadableRow */
function timeOf(time: unknown): number {
  const known = checkedTime(time);
  return known < FIRST_MS ? checkedTime(msOf(known)) : known;
}
