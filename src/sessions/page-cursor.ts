import { InvalidArgumentError } from '../model/errors.js';
import { decode } from '../model/json.js';

/** How a cursor of pages is written and read. */
interface PageCursor<Place> {
  /** The call that returns the cursor. */
  operation: string;
  valuesOf(place: Place): readonly unknown[];
  /** @returns undefined for impossible values: the server's own error would name something else. */
  placeOf(values: readonly unknown[]): Place | undefined;
}

export function cursorText<Place>(cursor: PageCursor<Place>, place: Place): string {
  return Buffer.from(JSON.stringify(cursor.valuesOf(place))).toString('base64url');
}

/** @throws InvalidArgumentError for a text that is not from `cursorText`. */
export function parseCursor<Place>(cursor: PageCursor<Place>, text: string): Place {
  const values = decode(Buffer.from(text, 'base64url').toString())?.value;
  const place = cursor.placeOf(Array.isArray(values) ? values : []);
  // A text that is written differently, for example with an infinite time, was made by somebody else.
  if (place && cursorText(cursor, place) === text) return place;
  throw new InvalidArgumentError(`after must be the 'next' of a response of ${cursor.operation}.`, ['after']);
}
