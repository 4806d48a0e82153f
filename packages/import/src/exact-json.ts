import { randomUUID } from 'node:crypto';
import { parse } from '../../../src/model/json.js';

/** An escaped character, a quote, or a number. */
const TOKEN = /\\.|"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;

/** Integers that may be too long for a number. */
const LONG_INTEGER = /^-?[1-9]\d{15,}$/;
const MAY_HAVE_LONG_INTEGER = /\d{16}/;

/** Begins a string that replaces an integer. It is random, so that no text contains it. */
const MARK = `${randomUUID()} `;

/**
 * Reads JSON of another program. `JSON.parse` would silently change integers that are too long for JavaScript: here they become
 * bigints, which `encode` refuses with their path. A byte order mark in front is left out: files that were joined have one within.
 *
 * @returns undefined if the text is not JSON.
 */
export function decodeExactly(json: string): { value: unknown } | undefined {
  if (json.startsWith('\uFEFF')) json = json.slice(1);
  if (!MAY_HAVE_LONG_INTEGER.test(json)) return parse(json);
  let isInString = false;
  let isChanged = false;
  const marked = json.replace(TOKEN, (token) => {
    if (token === '"') isInString = !isInString;
    if (isInString || !LONG_INTEGER.test(token) || String(Number(token)) === token) return token;
    isChanged = true;
    return `"${MARK}${token}"`;
  });
  if (!isChanged) return parse(json);
  try {
    return { value: JSON.parse(marked, (_key, value: unknown) => (isMarked(value) ? bigintOf(value) : value)) };
  } catch {
    return undefined;
  }
}

const isMarked = (value: unknown): value is string => typeof value === 'string' && value.startsWith(MARK);

const bigintOf = (marked: string) => BigInt(marked.slice(MARK.length));
