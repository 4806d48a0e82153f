import type { StateValue } from '../database/sql/values.js';
import { decode } from '../model/json.js';
import { sessionIdentity, type SessionKey } from '../model/keys.js';
import { isTemporary, ownerOf, prefixed, scopeOf, setOwn } from '../model/state.js';

/** The stored state of the sessions, users and apps that a page of the log names. */
export class CurrentState {
  /** By owner, the JSON of the values by their names. */
  readonly #values = new Map<string, Map<string, string>>();

  add(owner: SessionKey, { scope, key, json }: StateValue): void {
    const id = sessionIdentity(owner);
    const known = this.#values.get(id) ?? new Map<string, string>();
    this.#values.set(id, known.set(prefixed(scope, key), json));
  }

  /** @returns the state of an owner, with that of its user and its app. */
  of(owner: SessionKey): Record<string, unknown> {
    const state = {};
    for (const scope of ['app', 'user', 'session'] as const) {
      for (const [name, json] of this.#values.get(sessionIdentity(ownerOf(owner, scope))) ?? []) {
        const value = decode(json);
        if (value) setOwn(state, name, value.value);
      }
    }
    return state;
  }

  has(owner: SessionKey, name: string): boolean {
    return this.#json(owner, name) !== undefined;
  }

  /** @returns the keys whose stored value is another one. */
  superseded(owner: SessionKey, state: Record<string, unknown>): string[] {
    return Object.keys(state).filter(
      (name) => !isTemporary(name) && this.#json(owner, name) !== JSON.stringify(state[name]),
    );
  }

  #json(owner: SessionKey, name: string): string | undefined {
    return this.#values.get(sessionIdentity(ownerOf(owner, scopeOf(name).scope)))?.get(name);
  }
}
