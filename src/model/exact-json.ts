import { randomUUID } from 'node:crypto';
import { parse } from './event-codec.js';

/** A character that is escaped, the beginning or the end of a string, or a number. */
const TOKEN = /\\.|"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;

/** Fewer digits are exact in a number. */
const LONG_INTEGER = /^-?[1-9]\d{15,}$/;
const MAY_HAVE_LONG_INTEGER = /\d{16}/;

/** Begins a string in place of an integer; no text that is read has it. */
const MARK = `${randomUUID()} `;

/**
 * Reads JSON of another program, whose integers may be longer than those of JavaScript: `JSON.parse` would change such
 * an integer in silence. It becomes a bigint, which `encode` refuses with its path.
 *
 * @returns undefined when the text is not JSON.
 */
export function decodeExactly(json: string): { value: unknown } | undefined {
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
