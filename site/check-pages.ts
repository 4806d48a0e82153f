// Opens pages of the built site in Chromium, wide and on a phone, light and dark. Reports what axe-core finds, and what is wider
// than the window. Searches for what people look for. With an argument, saves screenshots in that folder.
import { readFile, mkdir } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import type { Browser } from 'playwright-core';
import { accessibilityProblems, hasChromium, launchChromium } from '../test/support/chromium.js';

const BUILT = path.join(import.meta.dirname, '.vitepress/dist');
const BASE = process.env['SITE_BASE'] ?? '/';
/** One of each kind. */
const PAGES = [
  '',
  'guides/several-workers.html',
  'benchmarks.html',
  'tables.html',
  'errors.html',
  'reference/adk-mikro-orm/classes/MikroOrmSessionService.html',
];
const WINDOWS = [
  { width: 1440, height: 900 },
  { width: 390, height: 844 },
];
/** What people search for, and the page that must come first. */
const SEARCHES: Record<string, RegExp> = {
  cost: /\/(studio|operations|maintenance)\.html/,
  approval: /\/(studio|recipes|frameworks)\.html/,
  GDPR: /\/(operations|guides\/delete-a-person)\.html/,
  ADK_LEASE_LOST: /\/errors\.html#adk_lease_lost$/,
  'several workers': /\/guides\/several-workers\.html/,
  appendEvent: /^(?!.*\/(reference|source)\/)/,
};
const TYPES: Record<string, string> = {
  '.html': 'text/html',
  '.js': 'text/javascript',
  '.css': 'text/css',
  '.svg': 'image/svg+xml',
};

if (hasChromium()) await check(process.argv[2]);
else console.log('Pages are not opened: there is no Chromium.');

async function check(screenshots: string | undefined): Promise<void> {
  const server = createServer((request, response) => {
    const { pathname } = new URL(request.url ?? '', 'http://site');
    const file = pathname.slice(BASE.length) || 'index.html';
    readFile(path.join(BUILT, path.posix.normalize(`/${file}`))).then(
      (content) =>
        response.setHeader('content-type', TYPES[path.extname(file)] ?? 'application/octet-stream').end(content),
      () => response.writeHead(404).end(),
    );
  });
  await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening));
  const { port } = server.address() as AddressInfo;
  const browser = await launchChromium();
  const problems: string[] = [];
  try {
    for (const viewport of WINDOWS) {
      for (const colorScheme of ['light', 'dark'] as const) {
        const context = await browser.newContext({ viewport, colorScheme, reducedMotion: 'reduce' });
        const page = await context.newPage();
        const where = () => `${page.url()} (${viewport.width} px, ${colorScheme})`;
        page.on('pageerror', (error) => problems.push(`${where()}: ${error.message}`));
        for (const each of PAGES) {
          await page.goto(`http://127.0.0.1:${port}${BASE}${each}`, { waitUntil: 'load' });
          problems.push(...(await accessibilityProblems(page)).map((problem) => `${where()}: ${problem}`));
          const width = await page.evaluate('document.documentElement.scrollWidth');
          if (Number(width) > viewport.width) problems.push(`${where()}: ${Number(width)} px wide`);
          if (screenshots !== undefined) {
            await mkdir(screenshots, { recursive: true });
            const name = `${each.replaceAll('/', '-') || 'first'}-${viewport.width}-${colorScheme}.png`;
            await page.screenshot({ path: path.join(screenshots, name) });
          }
        }
        await context.close();
      }
    }
    problems.push(...(await searchProblems(browser, `http://127.0.0.1:${port}${BASE}`)));
  } finally {
    await browser.close();
    server.close();
  }
  if (problems.length > 0) throw new Error(problems.join('\n'));
  console.log(`${PAGES.length} pages have no problems, wide and narrow, light and dark.`);
}

/** @returns the words of which a search finds nothing, or first another page than the one for them. */
async function searchProblems(browser: Browser, url: string): Promise<string[]> {
  const page = await browser.newPage();
  const problems: string[] = [];
  await page.goto(url);
  await page.locator('.DocSearch-Button').first().click();
  for (const [words, wanted] of Object.entries(SEARCHES)) {
    await page.locator('#localsearch-input').fill(words);
    const first = page.locator('#localsearch-list a.result').first();
    const none = page.locator('#localsearch-list .no-results');
    // The list still has the results of the words before.
    const has = `document.querySelector('#localsearch-list')?.textContent.toLowerCase().includes(${JSON.stringify(words.toLowerCase())})`;
    await page.waitForFunction(has, undefined, { timeout: 10_000 }).catch(() => undefined);
    const found = (await none.count()) > 0 ? undefined : await first.getAttribute('href');
    if (!wanted.test(found ?? '/reference/'))
      problems.push(`A search for "${words}" gives first: ${found ?? 'nothing'}`);
  }
  await page.close();
  return problems;
}
