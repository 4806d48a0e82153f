import { createHash } from 'node:crypto';
import type { SessionKey } from '../model/keys.js';

/** Whether records have decoded contents, or contents as a codec has stored them. */
export type TransferTexts = 'plain' | 'asStored';

/** What the texts of a record and of its events are bound to, if they are as a codec has stored them (contract M4). */
export interface TextBinding {
  /** The origin of the session; empty for state of a user or an app. */
  origin: string;
  /** A digest of the origin and the record's names. Under other names nobody could read the texts. */
  names: string;
}

/** @param origin empty for state of a user or of an app. */
export const bindingOf = (owner: SessionKey, origin: string): TextBinding => ({
  origin,
  names: digestOf(owner, origin),
});

/** Whether the texts are bound to these names. */
export const isBoundTo = (owner: SessionKey, { origin, names }: TextBinding): boolean =>
  names === digestOf(owner, origin);

function digestOf({ appName, userId, sessionId }: SessionKey, origin: string): string {
  const names = JSON.stringify([appName, userId, sessionId, origin]);
  return createHash('sha256').update(names).digest('base64url');
}
