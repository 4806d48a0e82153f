import { isDeepStrictEqual } from 'node:util';
import { UnreadableRow } from './foreign-rows.js';
import type { RefusedRow } from './options.js';
import { AdkMikroOrmError } from '../../../src/index.js';
import type { StateRecord, EventRecord } from '../../../src/internal.js';
import { encode, isRecord } from '../../../src/model/json.js';
import { checkKeys } from '../../../src/model/keys.js';
import { prefixed, scopeOf, type Scope } from '../../../src/model/state.js';
import { partsOf } from '../../../src/model/turn.js';

export type Refuse = (what: Omit<RefusedRow, 'reason'>, error: unknown) => void;

/** What is kept of an event while other events are read. */
export interface ForeignEvent {
  id: string;
  timestamp: number;
  /** Orders events of the same time. */
  order: number | string;
  invocationId: unknown;
  /** For a marker of adk-python's `Runner.rewind_async`: the invocation that it annuls, with everything up to the marker. */
  annulsFrom: unknown;
  calls: readonly string[];
  responses: readonly string[];
  /** The keys of its delta whose values the state still has. */
  wrote: readonly string[];
}

/** @param state the state of a scope as it is now, keys without prefix. */
export function foreignEvent(
  event: EventRecord['event'],
  order: number | string,
  state: (scope: Scope) => Record<string, unknown>,
): ForeignEvent {
  const idsOf = (name: string) =>
    partsOf({ content: event['content'] }).flatMap(({ [name]: call }) =>
      isRecord(call) && typeof call['id'] === 'string' ? [call['id']] : [],
    );
  const actions = isRecord(event['actions']) ? event['actions'] : {};
  const delta = isRecord(actions['stateDelta']) ? actions['stateDelta'] : {};
  const stands = ([name, value]: [string, unknown]) => {
    const { scope, key } = scopeOf(name);
    const values = state(scope);
    return Object.hasOwn(values, key) && isSame(values[key], value);
  };
  return {
    id: event.id,
    timestamp: event.timestamp,
    order,
    invocationId: event['invocationId'],
    annulsFrom: actions['rewindBeforeInvocationId'] ?? undefined,
    calls: idsOf('functionCall'),
    responses: idsOf('functionResponse'),
    wrote: Object.entries(delta)
      .filter(stands)
      .map(([name]) => name),
  };
}

/** Whether two values are equal, if neither is nested so deeply that they cannot be compared. */
function isSame(one: unknown, other: unknown): boolean {
  try {
    return isDeepStrictEqual(one, other);
  } catch (error) {
    if (error instanceof RangeError) return false;
    throw error;
  }
}

/** Sorts by time, then by insertion or id; if times are equal, a response comes after its call. */
export function inOrder(events: readonly ForeignEvent[]): ForeignEvent[] {
  const sorted = events.toSorted((a, b) => a.timestamp - b.timestamp || (a.order < b.order ? -1 : 1));
  const result = new Set<ForeignEvent>();
  const callers = new Map<string, ForeignEvent>();
  for (const event of sorted) for (const id of event.calls) callers.set(id, event);
  for (const event of sorted) {
    // Each waits for the event with its call. A list, since recursion could overflow the stack.
    const waiting = [event];
    const seen = new Set(waiting);
    for (let next = waiting.at(-1); next; next = waiting.at(-1)) {
      const { timestamp, responses } = next;
      const caller = responses
        .map((id) => callers.get(id))
        .find((each) => each?.timestamp === timestamp && !result.has(each) && !seen.has(each));
      if (caller) {
        seen.add(caller);
        waiting.push(caller);
      } else {
        result.add(next);
        waiting.pop();
      }
    }
  }
  return [...result];
}

/**
 * adk-python rewinds by a marker and keeps what it annuls. ADK JS does not know the marker, so its agent would see what was
 * taken back.
 *
 * @returns the events that count, without markers.
 */
export function withoutAnnulled(events: readonly ForeignEvent[]): ForeignEvent[] {
  const kept: ForeignEvent[] = [];
  for (let i = events.length - 1; i >= 0; i--) {
    const event = events[i];
    if (event?.annulsFrom === undefined) {
      if (event) kept.push(event);
      continue;
    }
    const first = events.findIndex(({ invocationId }) => invocationId === event.annulsFrom);
    if (first !== -1 && first < i) i = first;
  }
  return kept.reverse();
}

/**
 * @param values keys without prefix.
 * @param writers the ids of the events that wrote them.
 */
export function stateRecords(
  owner: Omit<RefusedRow, 'reason'>,
  scope: Scope,
  values: Record<string, unknown>,
  writers: ReadonlyMap<string, string>,
  refuse: Refuse,
): StateRecord[] {
  return Object.entries(values).flatMap(([key, value]) => {
    try {
      if (scopeOf(prefixed(scope, key)).scope !== scope)
        throw new UnreadableRow(`the key ${key} has a prefix of another scope`);
      checkKeys({ ...owner, stateKey: key });
      encode(value, `state.${key}`);
      return [{ key, value, eventId: writers.get(key) ?? null }];
    } catch (error) {
      refuse(owner, error);
      return [];
    }
  });
}

/** @returns why something could not be imported. @throws an error that has nothing to do with what was read. */
export function reasonOf(error: unknown): string {
  if (error instanceof RangeError) return 'it is nested too deeply';
  if (error instanceof UnreadableRow || error instanceof AdkMikroOrmError) return error.message;
  throw error;
}
