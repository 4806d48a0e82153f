/**
 * Reads rows by their keys, a page at a time. No page is empty.
 *
 * @param size the number of rows of a page; one with fewer is the last.
 * @param read reads the page after a row, or the first page after `undefined`.
 */
export async function* pagesOf<Row>(
  size: number,
  read: (after: Row | undefined) => Promise<readonly Row[]>,
): AsyncGenerator<readonly Row[]> {
  for (let page = await read(undefined); ; page = await read(page.at(-1))) {
    if (page.length > 0) yield page;
    if (page.length < size) return;
  }
}

/** @returns the given name, or all names. @param next reads the name after another, or the first one after an empty name. */
export async function* eachName(
  given: string | undefined,
  next: (after: string) => Promise<string | undefined>,
): AsyncGenerator<string> {
  if (given !== undefined) yield given;
  else for (let name = await next(''); name !== undefined; name = await next(name)) yield name;
}

/** Cuts a list into parts of at most `size`, since a statement takes only so many values. */
export function* chunksOf<T>(list: readonly T[], size: number): Generator<readonly T[]> {
  for (let i = 0; i < list.length; i += size) yield list.slice(i, i + size);
}

/** How many events a page has by default. */
export const EVENTS_OF_PAGE = 100;

/** @returns the numbers of the first and the last event of a page. */
export function rangeIn(
  { firstSeq, lastSeq }: { firstSeq: number; lastSeq: number },
  { before = Infinity, after = -Infinity, limit = EVENTS_OF_PAGE }: { before?: number; after?: number; limit?: number },
): { from: number; upTo: number } {
  // No higher, since the column of the numbers has 32 bits.
  const first = Math.min(Math.max(firstSeq, after + 1), lastSeq + 1);
  const last = Math.min(lastSeq, before - 1);
  if (before === Infinity && after !== -Infinity) return { from: first, upTo: Math.min(last, first + limit - 1) };
  return { from: Math.max(first, last - limit + 1), upTo: last };
}

/** How many values one statement can bind on every database. */
const MAX_BATCH_SIZE = 10_000;

export const batchSizeOf = ({ batchSize }: { batchSize?: number }, byDefault: number): number =>
  Math.min(batchSize ?? byDefault, MAX_BATCH_SIZE);
