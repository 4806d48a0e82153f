import path from 'node:path';

/**
 * @param pages the HTML of each page, by its file.
 * @param files all files of the site.
 * @param base the path below which the site is served, with a final slash.
 * @returns the links to missing pages, files and anchors of the site, with the pages that have them.
 */
export function brokenLinks(pages: ReadonlyMap<string, string>, files: ReadonlySet<string>, base: string): string[] {
  const anchors = new Map([...pages].map(([file, html]) => [file, new Set(valuesOf(html, 'id'))]));
  const broken: string[] = [];
  for (const [page, html] of pages) {
    for (const link of new Set([...valuesOf(html, 'href'), ...valuesOf(html, 'src')])) {
      if (/^(\w+:|\/\/)/.test(link)) continue;
      const url = new URL(link, `http://site${base}${page}`);
      const below = url.pathname.startsWith(base) ? decodeURI(url.pathname.slice(base.length)) : undefined;
      const file = below === undefined ? undefined : fileOf(below, files);
      const anchor = decodeURIComponent(url.hash.slice(1));
      const isThere = file !== undefined && (anchor === '' || (anchors.get(file)?.has(anchor) ?? false));
      if (!isThere) broken.push(`${page}: ${link}`);
    }
  }
  return broken;
}

/** The file that a static server returns for a path. */
function fileOf(below: string, files: ReadonlySet<string>): string | undefined {
  const candidates =
    below === '' || below.endsWith('/') ? [`${below}index.html`] : [below, path.posix.join(below, 'index.html')];
  return candidates.find((file) => files.has(file));
}

const valuesOf = (html: string, attribute: string): string[] =>
  [...html.matchAll(new RegExp(` ${attribute}="([^"]*)"`, 'g'))].map(([, value = '']) =>
    value.replaceAll('&amp;', '&'),
  );
