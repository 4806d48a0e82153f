import { InvalidArgumentError } from '../model/errors.js';
import { decode } from '../model/json.js';

const DEFAULT_LIMIT = 50;

/** How a cursor of pages is written and read. */
interface PageCursor<Place> {
  /** The call that returns the cursor. */
  operation: string;
  valuesOf(place: Place): readonly unknown[];
  /** @returns undefined for impossible values: the server's own error would name something else. */
  placeOf(values: readonly unknown[]): Place | undefined;
}

function cursorText<Place>(cursor: PageCursor<Place>, place: Place): string {
  return Buffer.from(JSON.stringify(cursor.valuesOf(place))).toString('base64url');
}

/** @throws InvalidArgumentError for a text that is not from `cursorText`. */
function parseCursor<Place>(cursor: PageCursor<Place>, text: string): Place {
  const values = decode(Buffer.from(text, 'base64url').toString())?.value;
  const place = cursor.placeOf(Array.isArray(values) ? values : []);
  // A text that is written differently, for example with an infinite time, was made by somebody else.
  if (place && cursorText(cursor, place) === text) return place;
  throw new InvalidArgumentError(`after must be the 'next' of a response of ${cursor.operation}.`, ['after']);
}

/**
 * Reads a page, and whether it is the last.
 *
 * @param read reads at most `limit` rows after a place.
 */
export async function pageOf<Place, Row extends Place>(
  cursor: PageCursor<Place>,
  { after, limit = DEFAULT_LIMIT }: { after?: string | undefined; limit?: number | undefined },
  read: (page: { after: Place | undefined; limit: number }) => Promise<Row[]>,
): Promise<{ rows: Row[]; next?: string }> {
  const place = after === undefined ? undefined : parseCursor(cursor, after);
  const found = await read({ after: place, limit: limit + 1 });
  const rows = found.slice(0, limit);
  const last = rows.at(-1);
  return { rows, ...(found.length > limit && last && { next: cursorText(cursor, last) }) };
}
