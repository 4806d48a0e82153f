import type { Event } from '@google/adk';
import { pastChangeOf, type RecordedChange } from '../database/statements/changes.js';
import type { ReadEvents } from '../database/statements/session-reader.js';
import type { StateValue } from '../database/statements/state.js';
import type { Tables } from '../database/sql/tables.js';
import type { Undecodable } from '../model/codec.js';
import { DamagedSessionError, type Damage, type DamagedEvents } from '../model/errors.js';
import { decode, decodeEvent } from '../model/event-codec.js';
import { callHost } from '../model/host-callbacks.js';
import { sessionIdentity, type SessionKey } from '../model/keys.js';
import type { MikroOrmSessionServiceOptions } from '../model/options.js';
import type { PastChange } from '../model/past-state.js';
import { rangesOf, type SeqRange } from '../model/seq-ranges.js';
import { SCOPES, prefixed, scopeOf, setOwn, type Scope } from '../model/state.js';

/** The contents of a session's rows, and which rows could not be read. */
interface Readable<T> {
  value: T;
  damaged: Damage;
}

/**
 * Merges the state of session, user and app, as agents see it.
 *
 * @param value the object that gets the state.
 */
export function readState(
  values: readonly StateValue[],
  value: Record<string, unknown> = {},
): Readable<Record<string, unknown>> {
  const stateKeys: string[] = [];
  const undecodable: Undecodable[] = [];
  for (const { scope, key, json, undecodable: reason } of values) {
    const decoded = decode(json);
    if (decoded) setOwn(value, prefixed(scope, key), decoded.value);
    else stateKeys.push(prefixed(scope, key));
    if (reason) undecodable.push(reason);
  }
  return { value, damaged: { events: [], stateKeys, encodings: encodingsOf(undecodable) } };
}

export function readEvents({ events, missing, uncounted }: ReadEvents): Readable<Event[]> {
  const value: Event[] = [];
  const unreadable: number[] = [];
  const undecodable: Undecodable[] = [];
  for (const { seq, json, undecodable: reason } of events) {
    const event = decodeEvent(json);
    if (event) value.push(event);
    else unreadable.push(seq);
    if (reason) undecodable.push(reason);
  }
  const of = (problem: DamagedEvents['problem']) => (range: SeqRange) => ({ ...range, problem });
  const damaged = [
    ...missing.map(of('missing')),
    ...rangesOf(unreadable).map(of('unreadable')),
    ...rangesOf(uncounted.map(({ seq }) => seq)).map(of('uncounted')),
  ];
  return {
    value,
    damaged: { events: damaged.sort((a, b) => a.from - b.from), stateKeys: [], encodings: encodingsOf(undecodable) },
  };
}

/** @param recorded the changes that were recorded of a session. */
export function readChanges(recorded: readonly RecordedChange[]): Readable<PastChange[]> {
  const value = recorded.flatMap((change) => pastChangeOf(change) ?? []);
  const lost = recorded.filter((change) => !pastChangeOf(change));
  const events = rangesOf(lost.map(({ kind, seq }) => (kind === 'state' ? seq : 0)));
  const undecodable = lost.flatMap((change) => change.undecodable ?? []);
  return {
    value,
    damaged: {
      events: events.map((range) => ({ ...range, problem: 'change' })),
      stateKeys: [],
      encodings: encodingsOf(undecodable),
    },
  };
}

const encodingsOf = (undecodable: readonly Undecodable[]): string[] => [
  ...new Set(undecodable.map(({ encoding }) => encoding)),
];

/** Sessions for which the process has already emitted a warning. */
const warned = new WeakMap<Tables, Set<string>>();

/** Reports damage to the host: to the service's `onDamage`, or as a warning of the process. */
export class DamageReporter {
  readonly #tables: Tables;
  readonly #onDamage: MikroOrmSessionServiceOptions['onDamage'];

  constructor(tables: Tables, onDamage: MikroOrmSessionServiceOptions['onDamage']) {
    this.#tables = tables;
    this.#onDamage = onDamage;
  }

  /** Reports damage, if there is any. Never throws, since the call that found it continues or is already committed. */
  report(key: SessionKey, ...damages: readonly Damage[]): void {
    const error = damageError(key, ...damages);
    if (!error) return;
    if (this.#onDamage) callHost(this.#onDamage, error);
    else this.#warn(key, error);
  }

  #warn(key: SessionKey, error: DamagedSessionError): void {
    const identities = warned.get(this.#tables) ?? new Set();
    warned.set(this.#tables, identities);
    if (identities.has(sessionIdentity(key))) return;
    identities.add(sessionIdentity(key));
    process.emitWarning(error);
  }
}

export function damageError(key: SessionKey, ...damages: readonly Damage[]): DamagedSessionError | undefined {
  const events = damages.flatMap((damage) => damage.events);
  const stateKeys = damages.flatMap((damage) => damage.stateKeys);
  if (events.length + stateKeys.length === 0) return undefined;
  const encodings = [...new Set(damages.flatMap((damage) => damage.encodings ?? []))];
  const damage = { events, stateKeys, encodings };
  return new DamagedSessionError(messageOf(key, damage), key, damage);
}

const PROBLEMS = [
  ['missing', 'event', 'missing'],
  ['unreadable', 'event', 'not readable as an event'],
  ['uncounted', 'event', "above the last_seq of the session's row"],
  ['change', 'the change recorded after event', 'not readable'],
] as const;

const STATE_TABLES: Record<Scope, string> = { session: 'session_states', user: 'user_states', app: 'app_states' };

/** How many of each kind a message names. */
const MAX_NAMED = 10;

function messageOf(key: SessionKey, { events, stateKeys, encodings = [] }: Damage): string {
  const found = PROBLEMS.flatMap(([problem, what, is]) => {
    const ranges = events.filter((each) => each.problem === problem);
    const numbers = ranges.map(({ from, to }) => (from === to ? String(from) : `${from}-${to}`));
    return numbers.length > 0 ? [`${what} ${list(numbers)} ${is}`] : [];
  });
  if (stateKeys.length > 0) found.push(`state key ${list(stateKeys)} without a readable value`);
  if (encodings.length > 0) found.push(`texts that cannot be decoded: ${list(encodings)}`);
  const scopes = new Set(stateKeys.map((name) => scopeOf(name).scope));
  const tables = [
    ...(events.some(({ problem }) => problem !== 'change') ? ['events'] : []),
    ...(events.some(({ problem }) => problem === 'change') ? ['changes'] : []),
    ...SCOPES.filter((scope) => scopes.has(scope)).map((scope) => STATE_TABLES[scope]),
  ];
  return (
    `${nameOf(key)} is damaged: ${found.join('; ')}. Look at these rows in ${tables.join(', ')}; ` +
    `docs/damage.md says how to repair them, and SessionMaintenance.repair removes them. With onDamagedEvent: 'skip' the rest is read.`
  );
}

function list(names: readonly string[]): string {
  const more = names.length > MAX_NAMED ? ` and ${names.length - MAX_NAMED} more` : '';
  return names.slice(0, MAX_NAMED).join(', ') + more;
}

function nameOf({ appName, userId, sessionId }: SessionKey): string {
  if (sessionId) return `Session ${sessionId} of user ${userId} in app ${appName}`;
  return userId ? `The state of user ${userId} in app ${appName}` : `The state of app ${appName}`;
}
