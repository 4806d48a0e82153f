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
export async function* namesOf(
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
