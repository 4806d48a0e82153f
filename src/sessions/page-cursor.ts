import { InvalidArgumentError } from '../model/errors.js';
import { decode } from '../model/event-codec.js';

/** How the place where a page ends is written for the caller. */
interface PageCursor<Place> {
  /** The call that returns it. */
  operation: string;
  valuesOf(place: Place): readonly unknown[];
  /** @returns undefined for values that no place has. A server may refuse them in words that name something else. */
  placeOf(values: readonly unknown[]): Place | undefined;
}

export function cursorText<Place>(cursor: PageCursor<Place>, place: Place): string {
  return Buffer.from(JSON.stringify(cursor.valuesOf(place))).toString('base64url');
}

/** @throws InvalidArgumentError for a text that `cursorText` has not written. */
export function parseCursor<Place>(cursor: PageCursor<Place>, text: string): Place {
  const values = decode(Buffer.from(text, 'base64url').toString())?.value;
  const place = cursor.placeOf(Array.isArray(values) ? values : []);
  // Written in another way, such as with a time that is infinite, it is somebody else's.
  if (place && cursorText(cursor, place) === text) return place;
  throw new InvalidArgumentError(`after must be the 'next' of a response of ${cursor.operation}.`);
}
