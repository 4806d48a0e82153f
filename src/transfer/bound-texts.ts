import { createHash } from 'node:crypto';
import type { SessionKey } from '../model/keys.js';

/** Whether records have contents as they are read, or as a codec has stored them. */
export type TransferTexts = 'plain' | 'asStored';

/** What a record's texts, and those of its events, are bound to if they are as a codec has stored them (contract M4). */
export interface TextBinding {
  /** The session's; empty for state of a user or of an app. */
  origin: string;
  /** A digest of that and of the record's names. Under other names nobody could read the texts. */
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
