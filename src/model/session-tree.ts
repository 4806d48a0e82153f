import { createHash } from 'node:crypto';
import { InvalidKeyError } from './errors.js';
import { KEY_LENGTHS, checkKeys, isLonger, isStorable } from './keys.js';

/** Separates the id of a session from the branch of its subagent's session. */
export const SESSION_TREE_SEPARATOR = ':sub:';

/**
 * Makes the id of a subagent's session from the id of its parent's session: `s1:sub:research.web`. The same arguments give the same
 * id in every process. A branch that is too long for an id is replaced by its SHA-256 hash.
 *
 * @param parent the id of the session that the subagent was started from; it may itself be derived.
 * @param branch identifies the subagent within the session: its `branch` or its name.
 * @returns an id of at most 191 characters.
 * @throws InvalidKeyError if one of them is empty or contains NUL or half of a surrogate pair, or if the parent's id is so long that
 *   not even the hash fits.
 */
export function deriveSessionId(parent: string, branch: string): string {
  checkKeys({ sessionId: parent });
  // Even if the branch is hashed: UTF-8 encodes all halves of surrogate pairs alike, so two branches could get the same hash.
  if (typeof branch !== 'string' || branch === '' || !isStorable(branch)) {
    throw new InvalidKeyError('The branch must not be empty, or hold NUL or half of a surrogate pair.');
  }
  for (const suffix of [branch, createHash('sha256').update(branch).digest('base64url')]) {
    const id = parent + SESSION_TREE_SEPARATOR + suffix;
    if (!isLonger(id, KEY_LENGTHS.sessionId)) return id;
  }
  throw new InvalidKeyError(
    `The session id is too long to derive another from it: with the branch, or its hash, behind it the id would be ` +
      `longer than ${KEY_LENGTHS.sessionId} characters.`,
  );
}
