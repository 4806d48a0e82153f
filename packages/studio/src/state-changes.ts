import type { TimedChange } from './browsing.js';
import { stampOf } from './operations/durations.js';
import { recordOf } from '../../../src/model/json.js';
import { recordedState } from '../../../src/model/past-state.js';
import { isTemporary, scopeOf, type StateEntry } from '../../../src/model/state.js';

/** A value of the state that an event or the application has changed. */
export interface StateChange {
  /** With the prefix of its scope. */
  key: string;
  /** JSON of the value before; undefined if there was none. */
  old: string | undefined;
  /** Whether the value before is known: other sessions write the state of a user and an app, too. */
  isOldKnown: boolean;
  /** JSON of the value; undefined if the key was removed. */
  json: string | undefined;
  /** Whether an event that was stored earlier had written a later value (contract A8). */
  isSuperseded: boolean;
  /** The number of the event, or of the one before a change by the application. */
  seq: number;
  /** Absent if the application made the change. */
  author?: string;
  /** In ms since 1970. */
  time: number;
}

/** Follows the state of a session from event to event, and says what each has changed. */
export class StateFollower {
  readonly #values = new Map<string, string | undefined>();

  /** @param base all of the session's own state before the first event, and maybe others'; undefined if that is not known. */
  constructor(readonly base?: readonly Pick<StateEntry, 'key' | 'json'>[]) {
    for (const { key, json } of base ?? []) this.#values.set(key, json);
  }

  /** @param superseded the keys of the event's delta that do not count. */
  ofEvent(seq: number, event: object, superseded: readonly string[] = []): StateChange[] {
    const { actions, author } = recordOf(event);
    const delta = recordOf(recordOf(actions)['stateDelta']);
    return Object.entries(delta)
      .filter(([key]) => !isTemporary(key))
      .map(([key, value]) => {
        const about = { seq, author: typeof author === 'string' ? author : '', time: stampOf(event) };
        return this.#change(key, JSON.stringify(value), superseded.includes(key), about);
      });
  }

  ofChange(change: TimedChange): StateChange[] {
    const { set = {}, removed = [] } = recordedState(change);
    const { seq, time } = change;
    return [
      ...Object.entries(set).map(([key, value]) => this.#change(key, JSON.stringify(value), false, { seq, time })),
      ...removed.map((key) => this.#change(key, undefined, false, { seq, time })),
    ];
  }

  #change(
    key: string,
    json: string | undefined,
    isSuperseded: boolean,
    about: Pick<StateChange, 'seq' | 'author' | 'time'>,
  ): StateChange {
    const isOldKnown = this.#values.has(key) || (this.base !== undefined && scopeOf(key).scope === 'session');
    const old = this.#values.get(key);
    if (!isSuperseded) this.#values.set(key, json);
    return { key, old, isOldKnown, json, isSuperseded, ...about };
  }
}
