import { InvalidKeyError } from './errors.js';
import { withoutUndefined } from './json.js';
import type { SessionKey } from './session-key.js';

export type { SessionKey };

/** Where a fork comes from. */
export interface ForkedFrom {
  /** The session that it was copied from, of the same user in the same app. It may be deleted. */
  sessionId: string;
  /** The number of the last copied event. A rewind of the fork to an earlier event lowers it. */
  at: number;
  /** Of a fork of a fork: the session with which the forks began. */
  root?: string;
}

/**
 * @param toolApps the apps of ADK's `AgentTool`s: the names of their agents. A tool uses a session with its caller's user and id.
 * @returns the keys that sessions of tools have beside a session; none for a session of a tool.
 */
export function toolSessionsOf(caller: SessionKey, toolApps: readonly string[] = []): SessionKey[] {
  if (toolApps.includes(caller.appName)) return [];
  return [...new Set(toolApps)].map((appName) => ({ ...caller, appName }));
}

/** @returns the names of a session's key that are defined. */
export function partialKey({ appName, userId, sessionId }: PartialKey): Partial<SessionKey> {
  return withoutUndefined({ appName, userId, sessionId });
}

export type PartialKey = { readonly [K in keyof SessionKey]?: string | undefined };

/** The longest keys, in characters: as `utf8mb4`, they just fit into the 3,072 bytes of an InnoDB index (contract D7). */
export const KEY_LENGTHS = {
  appName: 128,
  userId: 191,
  sessionId: 191,
  eventId: 191,
  memoryId: 191,
  stateKey: 255,
  filename: 255,
  credentialKey: 255,
  projectionName: 191,
} as const;

type Keys = { readonly [K in keyof typeof KEY_LENGTHS]?: string };

/** @returns what messages call a kind of key: `app name`. */
const nameOf = (kind: string): string => kind.replace(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`);

/** How many characters of a call's name can be searched for. */
export const CALL_NAME_LENGTH = 191;

/** The longest title of a session, in characters. */
export const TITLE_LENGTH = 255;

/** The size limit of a row in a PostgreSQL index: 2,704 bytes minus its own overhead (contract D7). */
const MAX_ROW_KEY_BYTES = 2_600;

/**
 * Refuses names that cannot be a row's key on every database, so that what works in a test on SQLite works on the others, too
 * (contract D7).
 *
 * @throws InvalidKeyError if one is missing, empty, too long, or contains NUL or half of a surrogate pair, or if all of them
 *   together are too long for an index.
 */
export function checkKeys(keys: Keys): void {
  let codeUnits = 0;
  for (const kind of Object.keys(keys) as (keyof Keys)[]) {
    const value: unknown = keys[kind];
    const most = KEY_LENGTHS[kind];
    if ((value === undefined || value === null) && isOfSession(kind)) {
      // The same words as MikroORM's error in ADK's own service.
      throw new InvalidKeyError(`Value for AdkSession.${kind} is required, '${String(value)}' found`);
    }
    if (typeof value !== 'string' || value === '') throw refused(kind, `must be a string of 1 to ${most} characters.`);
    codeUnits += value.length;
    if (isLonger(value, most)) throw refused(kind, `is longer than ${most} characters.`);
    if (!isStorable(value))
      throw refused(kind, 'holds NUL or half of a surrogate pair, which no database compares alike.');
  }
  // A code unit has at most three bytes, so most keys need not be measured.
  if (codeUnits * 3 > MAX_ROW_KEY_BYTES && Buffer.byteLength(Object.values(keys).join('')) > MAX_ROW_KEY_BYTES) {
    const names = Object.keys(keys).map(nameOf).join(', ');
    throw new InvalidKeyError(
      `The ${names} together are longer than ${MAX_ROW_KEY_BYTES} bytes of UTF-8; shorten one of them.`,
    );
  }
}

const refused = (kind: string, what: string) => new InvalidKeyError(`The ${nameOf(kind)} ${what}`);

const isOfSession = (kind: keyof Keys) => kind === 'appName' || kind === 'userId' || kind === 'sessionId';

/** Whether a text has more than `most` characters. A character has one or two code units, so most texts need not be counted. */
export function isLonger(text: string, most: number): boolean {
  return text.length > most && (text.length > 2 * most || Array.from(text).length > most);
}

/** Whether `checkKeys` accepts a value. */
export function isKey(kind: keyof Keys, value: unknown): value is string {
  if (typeof value !== 'string') return false;
  try {
    checkKeys({ [kind]: value });
    return true;
  } catch {
    return false;
  }
}

/** Whether a text has no NUL and no half of a surrogate pair, which some databases refuse or confuse. */
export function isStorable(text: string): boolean {
  return text.isWellFormed() && !text.includes('\0');
}

/** Checks a session's key. @returns a copy of its three names, without other properties of the object. */
export function checkedSessionKey({ appName, userId, sessionId }: SessionKey): SessionKey {
  const key = { appName, userId, sessionId };
  checkKeys(key);
  return key;
}

/** Whether a name is missing (undefined or null). No session has such a key. */
export function isIncomplete(key: { readonly [K in keyof SessionKey]: unknown }): boolean {
  const names = [key.appName, key.userId, key.sessionId];
  return names.includes(undefined) || names.includes(null);
}

/** A text that identifies a session. Keys contain no NUL, so two keys never give the same text. */
export function sessionIdentity({ appName, userId, sessionId }: SessionKey): string {
  return [appName, userId, sessionId].join('\0');
}

export function keyOfIdentity(identity: string): SessionKey {
  const [appName = '', userId = '', sessionId = ''] = identity.split('\0');
  return { appName, userId, sessionId };
}
