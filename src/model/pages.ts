/**
 * Reads rows by their keys, a page at a time, none of them empty.
 *
 * @param size how many rows a page has; the first one with fewer is the last.
 * @param read reads the page after a row; undefined for the first page.
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

/** @returns the name that is given, or else all that there are. @param next reads the name after one; empty for the first. */
export async function* namesOf(
  given: string | undefined,
  next: (after: string) => Promise<string | undefined>,
): AsyncGenerator<string> {
  if (given !== undefined) yield given;
  else for (let name = await next(''); name !== undefined; name = await next(name)) yield name;
}
