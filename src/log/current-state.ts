import { decode } from '../model/json.js';
import { sessionIdentity, type SessionKey } from '../model/keys.js';
import { isTemporary, prefixed, scopeOf, setOwn } from '../model/state.js';

/** The stored state of the sessions, users and apps that a page of the log names. */
export class CurrentState {
  readonly #values = new Map<string, Map<string, string>>();

  constructor(values: readonly { owner: SessionKey; scope: 'session' | 'user' | 'app'; key: string; json: string }[]) {
    for (const { owner, scope, key, json } of values) {
      const id = sessionIdentity(owner);
      const known = this.#values.get(id) ?? new Map<string, string>();
      this.#values.set(id, known.set(prefixed(scope, key), json));
    }
  }

  /** @returns the state of an owner, with that of its user and its app. */
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

  /** @returns the keys whose stored value is another one. */
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

/** @returns the app, and the user and the session if they are named. */
function partsOf({ appName, userId, sessionId }: SessionKey): SessionKey[] {
  const parts = [{ appName, userId: '', sessionId: '' }];
  if (userId !== '') parts.push({ appName, userId, sessionId: '' });
  if (sessionId !== '') parts.push({ appName, userId, sessionId });
  return parts;
}
