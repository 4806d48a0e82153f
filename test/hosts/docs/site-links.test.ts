import { brokenLinks } from '../../../site/links.js';

const files = new Set(['index.html', 'guides/a.html', 'reference/index.html', 'picture.svg']);
const broken = (html: string, page = 'guides/a.html') =>
  brokenLinks(
    new Map([
      ['index.html', '<h2 id="begin">'],
      ['reference/index.html', ''],
      [page, html],
    ]),
    files,
    '/adk/',
  );

test.each(['../index.html#begin', '/adk/', '/adk/reference/', '#here', '../picture.svg', 'https://example.com/none#x'])(
  'the site has %s',
  (link) => expect(broken(`<h2 id="here"><a href="${link}">`)).toEqual([]),
);

test.each(['../index.html#end', '/adk/none.html', '/other/index.html', '#gone', '../none.svg', '/index.html'])(
  '%s leads nowhere',
  (link) => expect(broken(`<h2 id="here"><img src="${link}">`)).toEqual([`guides/a.html: ${link}`]),
);
